"""P15: measure the receipt of a session of 200 blocks for five models, as `loom context` shows it: `python -m
benchmarks.plan`.

Only pure functions run: layout, aging, adapting, trimming and assembling; sizes are known, nothing is sent.
"""

from __future__ import annotations

import statistics
import time

from loom.compile.policy import DetachedMessage, Policy
from loom.compile.prepare import prepare
from loom.content.blocks import DocumentBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from loom.content.media import Media
from loom.content.messages import Message, assistant, tool, user
from loom.providers.catalog import model

MODELS = (
    "anthropic/claude-opus-5-5",
    "openai/gpt-6-astra",
    "gemini/gemini-4-argon",
    "ollama/llava",
    "deepseek/deepseek-v4-pro",
)
ROUNDS = 15


def medium(number: int, media_type: str, **facts: int) -> Media:
    return Media(
        digest=f"sha256:{number:064x}", media_type=media_type, size_bytes=900_000, name=f"file{number}", **facts
    )


def conversation(blocks: int) -> list[DetachedMessage]:
    """Return turns of nine blocks: a question, a call, a result with a screenshot and a page of text, an answer."""
    messages: list[Message] = []
    for number in range((blocks + 8) // 9):
        report = DocumentBlock(medium(10_000 + number, "application/pdf", pages=12))
        shot = ImageBlock(medium(number, "image/png", width=1920, height=1080))
        messages += [
            user(f"Question {number}: " + "words " * 80, *([report] if number % 5 == 0 else ["a note"])),
            assistant("I will look.", ToolCall(f"call_{number}", "screenshot", {"url": "http://localhost/" * 4})),
            tool(ToolResult(f"call_{number}", (TextBlock("taken"), shot, TextBlock("line of a log\n" * 200)))),
            assistant("Here is what I saw. " * 20, "And what it means: größer, 更大. " * 20),
        ]
    return [DetachedMessage(str(at), message) for at, message in enumerate([*messages, user("And now?")])]


def milliseconds(path: list[DetachedMessage], references: tuple[str, ...], policy: Policy) -> tuple[float, float]:
    """Return the median wall and processor time over the rounds; within a round nothing is shared between models."""
    found: list[float] = []
    busy: list[float] = []
    for _ in range(ROUNDS):
        started, cpu = time.perf_counter(), time.process_time()
        for reference in references:
            prepare(path, model(reference), policy=policy)
        found.append((time.perf_counter() - started) * 1000)
        busy.append((time.process_time() - cpu) * 1000)
    return statistics.median(found), statistics.median(busy)


def main() -> None:
    print(f"P15: prepare for {len(MODELS)} models, median of {ROUNDS} rounds, wall / processor (200 blocks: ≤ 50 ms)")
    print(f"{'blocks':>8}{'stepped':>18}{'no aging':>18}{'tight budget':>18}")
    tight = Policy(max_tokens=20_000, max_bytes=4_000_000)
    for blocks in (20, 200, 2_000):
        path = conversation(blocks)
        cells = [milliseconds(path, MODELS, policy) for policy in (Policy(), Policy(aging="off"), tight)]
        print(f"{blocks:>8}" + "".join(f"{clock:>8.1f} /{cpu:>5.1f} ms" for clock, cpu in cells))
    path = conversation(200)
    print("each model alone, 200 blocks:")
    for reference in MODELS:
        clock, cpu = milliseconds(path, (reference,), Policy())
        print(f"  {reference:32}{clock:>7.1f} /{cpu:>5.1f} ms")


if __name__ == "__main__":
    main()
