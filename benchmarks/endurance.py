"""Run a session of 10,000 turns with 2,000 images and 200 planted facts: cost stays constant, all facts are recalled.

python -m benchmarks.endurance [TURNS [FOLDER]]

The model is scripted: its summaries contain no facts, and it answers a question about a fact only with the result of
the tool `recall`. Everything else is real: the store on disk, intake, compilation, aging, automatic compaction.
With FOLDER the session is stored there, and a later run continues it.

Measured in one run of 10,000 turns with 2,000 images, on two busy cores: turns 500 to 1,000 compared
with turns 9,500 to 10,000. A window of 500 turns has one or two summaries, so windows are compared in pairs.

    tokens a turn    50,542 and 70,393 → 56,006 and 65,149 (mean 60,468 → 60,578)
    messages, media  at most 667 and 67 in a request → 665 and 67
    processor        18 and 23 ms a turn → 23 and 27 ms
    memory           68 MB → 77 MB
    disk             20 MB → 58 MB
    facts            200 of 200 answered through `recall`
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from loom.agent.compact import INSTRUCTIONS
from loom.config import load_config
from loom.content.blocks import TextBlock, ToolCall
from loom.content.inputs import Attachment
from loom.events import DecoderEvent, UsageReported
from loom.models import Usage
from loom.prompt import Prompt, ShownResult
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.testing import events_of, sample_png

TURNS, IMAGES, FACTS = 10_000, 2_000, 200
MODEL = "anthropic/claude-sonnet-4-5"
WORDS = ["alpha", "beta", "gamma", "delta", "table", "river", "garden", "letter", "number", "window", "paper", "signal"]
ROWS = 20
"""Lines of the report."""


def fact_of(number: int) -> tuple[str, str]:
    """Return the name and the value of a planted fact."""
    chance = random.Random(number)
    return f"beacon-{number:03}", f"{chance.randrange(10**9):09}"


class StatelessModel:
    """A scripted model that knows only the current request, and records the size of each."""

    def __init__(self) -> None:
        self.requests = 0
        self.messages = 0
        self.media = 0
        self.tokens = 0

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        self.requests += 1
        self.messages = max(self.messages, len(prompt.messages))
        self.media = max(self.media, len(list(prompt.media())))
        self.tokens += _size(prompt)
        usage = Usage(input_tokens=_size(prompt), output_tokens=30)
        for event in events_of(self._answer(prompt)):
            yield UsageReported(usage=usage) if isinstance(event, UsageReported) else event

    def _answer(self, prompt: Prompt) -> str | ToolCall:
        last = prompt.messages[-1].blocks
        texts = [block.text for block in last if isinstance(block, TextBlock)]
        if any(INSTRUCTIONS in text for text in texts):
            return "We spoke about many things."
        for block in last:
            if isinstance(block, ShownResult):
                return "It says: " + " ".join(inner.text for inner in block.blocks if isinstance(inner, TextBlock))
        for text in texts:
            if text.startswith("What is the value of "):
                name = text.removeprefix("What is the value of ").rstrip("?")
                return ToolCall(f"r{self.requests}", "recall", {"query": f"{name} value"})
        return "Noted. " + " ".join(WORDS)


def _size(prompt: Prompt) -> int:
    """Return an estimate of the tokens that a provider would count."""
    texts = [block.text for message in prompt.messages for block in message.blocks if isinstance(block, TextBlock)]
    return sum(map(len, texts)) // 4 + 100 * len(list(prompt.media())) + 100


def unique_png(number: int) -> bytes:
    """Return a small image that is different for each `number`."""
    return sample_png(320, 200, (number % 256, number // 256, 160))


async def send_turn(session: LocalSession, number: int) -> None:
    chance = random.Random(number)
    text = f"Turn {number}. " + " ".join(chance.choices(WORDS, k=200))
    if number % (TURNS // FACTS) == 7:
        text += " Remember: the value of {} is {}.".format(*fact_of(number // (TURNS // FACTS)))
    images = [Attachment(source=unique_png(number // 5), name=f"image{number // 5}.png")] if number % 5 == 0 else []
    await session.send(*images, text)


async def count_found(session: LocalSession, turns: int) -> tuple[int, int]:
    """Ask for every planted fact; return how many are answered correctly, and how many were planted."""
    planted = [number for number in range(FACTS) if number * (TURNS // FACTS) + 7 < turns]
    found = 0
    for number in planted:
        name, value = fact_of(number)
        reply = await session.send(f"What is the value of {name}?")
        found += value in reply.text
    return found, len(planted)


async def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else TURNS
    with tempfile.TemporaryDirectory() as place:
        home = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(place)
        home.mkdir(parents=True, exist_ok=True)
        config = load_config(cwd=home, environ={"LOOM_HOME": str(home)})
        provider = StatelessModel()
        async with Runtime.open(
            config, providers={"anthropic": provider}, tools=["recall", "look"], mcp=False, instructions=False
        ) as runtime:
            kept = (await runtime.library.sessions(limit=1)).sessions
            session = await runtime.session(kept[0].id if kept else "", model="" if kept else MODEL)
            done_file = home / "turns"
            begin = int(done_file.read_text()) if done_file.exists() else 0
            print(
                f"{'turns':>8}{'ms a turn':>11}{'CPU ms':>8}{'tokens a turn':>15}{'messages':>10}{'media':>7}"
                f"{'MB memory':>11}{'MB store':>10}",
                flush=True,
            )
            block = max(1, turns // ROWS)
            began, used = time.perf_counter(), time.process_time()
            for number in range(begin, turns):
                await send_turn(session, number)
                if (number + 1) % block == 0:
                    seconds, processor = time.perf_counter() - began, time.process_time() - used
                    done_file.write_text(str(number + 1))
                    print(
                        f"{number + 1:>8,}{seconds / block * 1000:>11.1f}{processor / block * 1000:>8.1f}"
                        f"{provider.tokens // block:>15,}{provider.messages:>10}{provider.media:>7}"
                        f"{_memory():>11.0f}{_folder_size(home):>10.1f}",
                        flush=True,
                    )
                    provider.messages = provider.media = provider.tokens = 0
                    began, used = time.perf_counter(), time.process_time()
            found, planted = await count_found(session, turns)
            tree = await runtime.stores.forest.read_tree(session.id)
            print(f"{found} of {planted} facts answered through recall ({found / max(1, planted):.1%})")
            print(f"{len(tree.nodes):,} messages stored, {provider.requests:,} requests")


def _memory() -> float:
    """Return the megabytes that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def _folder_size(home: Path) -> float:
    """Return the megabytes of all files below `home`."""
    return sum(file.stat().st_size for file in home.rglob("*") if file.is_file()) / 1e6


if __name__ == "__main__":
    asyncio.run(main())
