"""Directives, obeyed: each becomes the parts of an answer that it asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, assert_never

import msgspec

from loom.errors import ContentError, ProviderError
from loom.formats.image.bar_chart import draw_bars
from loom.models import Model
from loom.prompt import Embedded, Prompt
from loom.providers.samples import samples
from loom.providers.spark.answer_parts import (
    AnswerPart,
    CallPart,
    CutOffPart,
    ErrorPart,
    ImagePart,
    PausePart,
    TextPart,
    ThinkingPart,
)
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
from loom.providers.spark.intents import fill_arguments
from loom.providers.spark.media_reader import SparkReader
from loom.providers.spark.quotes import QuotedDocument, cite
from loom.providers.spark.turn import ShownDocument, SparkTurn
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


async def run_directive(
    directive: Directive, turn: SparkTurn, prompt: Prompt, desk: SparkReader
) -> AsyncIterator[AnswerPart]:
    match directive:
        case Think():
            ticks = max(1, min(_MAX_TICKS, round(directive.seconds * _TICKS_PER_SECOND)))
            yield ThinkingPart(f"I was asked to think for {directive.seconds:g} s.")
            for tick in range(1, ticks + 1):
                yield PausePart(directive.seconds / ticks)
                yield ThinkingPart(f"{directive.seconds * tick / ticks:.2f} s")
        case CallTool():
            yield _call(directive, prompt)
        case DrawBars():
            yield await draw_chart(directive.values)
        case Cite():
            yield await _cite_document(turn, desk)
        case Echo() | Mistake():
            yield TextPart(directive.text)
        case Fill():
            yield TextPart(_filler(directive.tokens, prompt.model))
        case Fail(status=None):
            yield TextPart("This answer breaks off in the mid")
            yield CutOffPart()
        case Fail():
            yield ErrorPart(_failure(directive, prompt))
        case Slow():
            pass
        case _:
            assert_never(directive)


async def draw_chart(values: tuple[float, ...]) -> AnswerPart:
    try:
        return ImagePart(await asyncio.to_thread(draw_bars, values, "Drawn by loom/spark"))
    except ContentError as error:
        return TextPart(f"I cannot draw that: {error.message}.")


def _call(directive: CallTool, prompt: Prompt) -> AnswerPart:
    """Any name is called as asked, offered or not: a loop must cope with a model that invents one."""
    if not prompt.tools or prompt.sampling.tool_choice == "none":
        return TextPart(f"I was offered no tools, so I cannot call {directive.name}.")
    if directive.arguments.startswith("{") or not directive.arguments:
        return CallPart(directive.name, directive.arguments or "{}")
    tool = next((tool for tool in prompt.tools if tool.name == directive.name), None)
    arguments = fill_arguments(tool, directive.arguments) if tool else {"input": directive.arguments}
    return CallPart(directive.name, msgspec.json.encode(arguments).decode())


def _failure(directive: Fail, prompt: Prompt) -> ProviderError:
    """Read as an answer of that status would be: the words may point at a picture, the window, a capability."""
    words = directive.words or "this failure was asked for"
    sent = {"media": [Embedded(ref) for ref in prompt.media()]}
    return faults.error_from_body(directive.status, {"error": {"message": words}}, prompt.model, sent, {})


async def _cite_document(turn: SparkTurn, desk: SparkReader) -> TextPart:
    """From a document of the conversation, else from the leaflet that ships with Loom."""
    for thing in (*turn.things, *reversed(turn.earlier)):
        if isinstance(thing, ShownDocument):
            source = await desk.read(thing)
            if isinstance(source, QuotedDocument) and source.text.sentences:
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
