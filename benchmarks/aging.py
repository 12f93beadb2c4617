"""P4: the cost of a 60-turn session of screenshots by aging policy: `python -m benchmarks.aging`.

Compares no aging, aging in every turn, and stepped aging. The cost is the sum over all requests of tokens read from the
cache, written to it, or read without it, in units of the price of one fresh input token at each provider. Every prompt
is compared with the previous one, block by block.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loom.compile.policy import Aging, DetachedMessage, Policy, Request, Watermark
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import ImageBlock, TextBlock, ToolCall, ToolResult
from loom.content.media import Media
from loom.content.messages import Message, assistant, tool, user
from loom.models import Model
from loom.prompt import ReceiptRow, ToolSpec
from loom.providers.catalog import model

MODELS = (
    "anthropic/claude-opus-5-5",
    "anthropic/claude-sonnet-4-5",
    "openai/gpt-6-astra",
    "openai/gpt-5.4",
    "gemini/gemini-3.7-flash",
    "deepseek/deepseek-flash",
    "ollama/llava",
)
TURNS = 60
STEPS = 3


def screenshot(number: int) -> ImageBlock:
    return ImageBlock(
        Media(
            digest=f"sha256:{number:064x}",
            media_type="image/png",
            size_bytes=180_000,
            width=1920,
            height=1080,
            name=f"shot{number}.png",
        )
    )


def turn(number: int) -> list[list[Message]]:
    """Return the new messages before each request of a turn: the question, then a screenshot for every step."""
    new: list[list[Message]] = [[user(f"Question {number}: " + "words " * 60)]]
    for step in range(STEPS):
        call = f"call_{number}_{step}"
        new.append(
            [
                assistant("I will look at the page. " * 4, ToolCall(call, "screenshot", {"url": "http://localhost/"})),
                tool(ToolResult(call, (TextBlock("taken"), screenshot(number * STEPS + step)), name="screenshot")),
            ]
        )
    return new


def cost(rows: Sequence[ReceiptRow], before: Sequence[tuple[object, ...]], target: Model) -> float:
    """Return the cost of a request: the prefix that equals the last request is read from the cache, the rest is new."""
    shown = [(row.message, row.block, row.inner, row.rendition) for row in rows]
    same = 0
    for old, new in zip(before, shown, strict=False):
        if old != new:
            break
        same += 1
    cached = sum(row.tokens for row in rows[:same])
    fresh = sum(row.tokens for row in rows[same:])
    if cached < target.cache.min_tokens or target.cache.mode == "none":
        cached, fresh = 0, fresh + cached
    return cached * target.cache.read + fresh * (target.cache.write if target.cache.mode != "none" else 1.0)


def borders(mark: Watermark) -> dict[str, int]:
    return {name: value for name, value in msgspec.structs.asdict(mark).items() if name.endswith(("_before", "_cap"))}


def session(target: Model, aging: Aging) -> tuple[float, int]:
    """Return the total cost, and how often a request did not extend the previous one."""
    messages: list[Message] = []
    mark, total, moves = Watermark(), 0.0, 0
    before: list[tuple[object, ...]] = []
    for number in range(TURNS):
        for new in turn(number):
            messages += new
            path = [DetachedMessage(str(at), message) for at, message in enumerate(messages)]
            prepared: Prepared = prepare(path, target, policy=Policy(aging=aging), watermark=mark)
            moves += borders(prepared.watermark) != borders(mark)
            mark = prepared.watermark
            total += cost(prepared.receipt.rows, before, target)
            before = [(row.message, row.block, row.inner, row.rendition) for row in prepared.receipt.rows]
        messages.append(assistant("Here is what I saw. " * 10))
    return total, moves


def full_window(target: Model, window: int) -> tuple[float, float, int, int]:
    """Return the share of tokens that a cache holds once the window is full, the share if nothing were ever rewritten,
    how many requests rewrote, and how many there were."""
    target = msgspec.structs.replace(target, limits=msgspec.structs.replace(target.limits, context_tokens=window))
    request = Request(tools=(ToolSpec(name="look", description="See it again.", parameters={"type": "object"}),))
    messages: list[Message] = []
    mark, before = Watermark(), list[tuple[object, ...]]()
    cached = fresh = total = rewritten = requests = 0
    for number in range(TURNS):
        for new in turn(number):
            known = len(messages)
            messages += new
            path = [DetachedMessage(str(at), message) for at, message in enumerate(messages)]
            prepared = prepare(path, target, watermark=mark, request=request)
            mark, rows = prepared.watermark, prepared.receipt.rows
            shown = [(row.message, row.block, row.inner, row.rendition) for row in rows]
            same = next(
                (at for at, (old, now) in enumerate(zip(before, shown, strict=False)) if old != now), len(before)
            )
            if number >= TURNS // 2:
                requests += 1
                rewritten += same < len(before)
                cached += sum(row.tokens for row in rows[:same])
                fresh += sum(row.tokens for row in rows if row.message >= known)
                total += sum(row.tokens for row in rows)
            before = shown
        messages.append(assistant("Here is what I saw. " * 10))
    return cached / total, 1 - fresh / total, rewritten, requests


def print_full_windows() -> None:
    print(f"\nA full window, turns {TURNS // 2 + 1}-{TURNS}: share of tokens read from a cache, and rewritten requests")
    print(f"{'model':32}{'window':>10}{'cached':>10}{'possible':>10}{'rewritten':>12}")
    for reference in ("anthropic/claude-sonnet-4-5", "openai/gpt-5.4", "gemini/gemini-3.7-flash"):
        for window in (32_000, 64_000):
            share, best, rewritten, requests = full_window(model(reference), window)
            print(f"{reference:32}{window:>10,}{share:>10.0%}{best:>10.0%}{rewritten:>7} of {requests}")


def main() -> None:
    print(f"P4: {TURNS} turns × {STEPS} screenshots, millions of price-weighted input tokens (moves of the watermark)")
    print(f"{'model':32}{'never':>16}{'every turn':>16}{'stepped':>16}{'stepped / best':>16}")
    for reference in MODELS:
        target = model(reference)
        wide = msgspec.structs.replace(
            target,
            limits=msgspec.structs.replace(target.limits, context_tokens=max(target.limits.context_tokens, 200_000)),
        )
        found = {aging: session(wide, aging) for aging in ("off", "every-turn", "stepped")}
        best = min(found["off"][0], found["every-turn"][0])
        cells = "".join(f"{total / 1e6:>10.3f} ({moves:>3})" for total, moves in found.values())
        print(f"{reference:32}{cells}{found['stepped'][0] / best:>16.2f}")
    print_full_windows()


if __name__ == "__main__":
    main()
