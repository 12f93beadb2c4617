"""Directives, obeyed: each becomes the parts of an answer that it asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, assert_never

import msgspec

from loom.errors import ContentError, ProviderError
from loom.formats.eyes.bars import draw_bars
from loom.models import Model
from loom.prompt import Embedded, Prompt
from loom.providers.samples import samples
from loom.providers.spark.desk import Desk
from loom.providers.spark.directives import (
    CallTool,
    Cite,
    Directive,
    DrawBars,
    Echo,
    Fail,
    Fill,
    Mistake,
    Slow,
    Think,
)
from loom.providers.spark.intents import filled
from loom.providers.spark.parts import Called, Cut, Drawn, Part, Raised, Said, Thought, Waited
from loom.providers.spark.quotes import Source, cite
from loom.providers.spark.turn import Paper, Turn
from loom.wire import faults

_TICKS_PER_SECOND: Final = 4
_MAX_TICKS: Final = 40


def steps_of(directives: Sequence[Directive]) -> list[tuple[Directive, ...]]:
    """A run of calls ends a step; what follows is for the step after the results. The last group makes no calls."""
    groups: list[list[Directive]] = [[]]
    for directive in directives:
        if groups[-1] and isinstance(groups[-1][-1], CallTool) and not isinstance(directive, CallTool):
            groups.append([])
        groups[-1].append(directive)
    if groups[-1] and isinstance(groups[-1][-1], CallTool):
        groups.append([])
    return [tuple(group) for group in groups]


def says_something(directives: Sequence[Directive]) -> bool:
    return any(isinstance(directive, DrawBars | Cite | Echo | Fill | Mistake | Fail) for directive in directives)


def pace_of(directives: Sequence[Directive]) -> float | None:
    """Tokens per second, where a directive sets them."""
    return next((given.tokens_per_second for given in directives if isinstance(given, Slow)), None)


async def obeyed(directive: Directive, turn: Turn, prompt: Prompt, desk: Desk) -> AsyncIterator[Part]:
    match directive:
        case Think():
            ticks = max(1, min(_MAX_TICKS, round(directive.seconds * _TICKS_PER_SECOND)))
            yield Thought(f"I was asked to think for {directive.seconds:g} s.")
            for tick in range(1, ticks + 1):
                yield Waited(directive.seconds / ticks)
                yield Thought(f"{directive.seconds * tick / ticks:.2f} s")
        case CallTool():
            yield _call(directive, prompt)
        case DrawBars():
            yield await drawn(directive.values)
        case Cite():
            yield await _cited(turn, desk)
        case Echo() | Mistake():
            yield Said(directive.text)
        case Fill():
            yield Said(_filler(directive.tokens, prompt.model))
        case Fail(status=None):
            yield Said("This answer breaks off in the mid")
            yield Cut()
        case Fail():
            yield Raised(_failure(directive, prompt))
        case Slow():
            pass
        case _:
            assert_never(directive)


async def drawn(values: tuple[float, ...]) -> Part:
    try:
        return Drawn(await asyncio.to_thread(draw_bars, values, "Drawn by loom/spark"))
    except ContentError as error:
        return Said(f"I cannot draw that: {error.message}.")


def _call(directive: CallTool, prompt: Prompt) -> Part:
    """Any name is called as asked, offered or not: a loop must cope with a model that invents one."""
    if not prompt.tools or prompt.sampling.tool_choice == "none":
        return Said(f"I was offered no tools, so I cannot call {directive.name}.")
    if directive.arguments.startswith("{") or not directive.arguments:
        return Called(directive.name, directive.arguments or "{}")
    tool = next((tool for tool in prompt.tools if tool.name == directive.name), None)
    arguments = filled(tool, directive.arguments) if tool else {"input": directive.arguments}
    return Called(directive.name, msgspec.json.encode(arguments).decode())


def _failure(directive: Fail, prompt: Prompt) -> ProviderError:
    """Read as an answer of that status would be: the words may point at a picture, the window, a capability."""
    words = directive.words or "this failure was asked for"
    sent = {"media": [Embedded(ref) for ref in prompt.media()]}
    return faults.read(directive.status, {"error": {"message": words}}, prompt.model, sent, {})


async def _cited(turn: Turn, desk: Desk) -> Said:
    """From a document of the conversation, else from the leaflet that ships with Loom."""
    for thing in (*turn.things, *reversed(turn.earlier)):
        if isinstance(thing, Paper):
            source = await desk.read(thing)
            if isinstance(source, Source) and source.text.sentences:
                return cite(source, turn.words)
    leaflet = next(sample for sample in samples() if sample.media_type == "application/pdf")
    return cite(await desk.read_sample(leaflet), turn.words)


def _filler(tokens: int, model: Model) -> str:
    """Numbered sentences that take this many tokens."""
    length = int(tokens * model.tokens.chars_per_token)
    lines: list[str] = []
    written = 0
    while written < length:
        lines.append(f"This is sentence {len(lines) + 1} of a long answer that says nothing else.")
        written += len(lines[-1]) + 1
    return "\n".join(lines)[:length]
