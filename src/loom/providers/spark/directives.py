"""Directives: lines that begin with `!` and make the built-in model do something, for tests and demonstrations.

    !think 3s                       think for that long
    !tool read_file {"path": "a"}   call a tool; `!tool read_file a` fills its first required text
    !image bars 3 5 8               draw a picture into the answer
    !cite                           quote a document, with the page
    !echo words                     say exactly this
    !tokens 500                     a long answer
    !slow 20tps                     say everything at this pace
    !fail 529 words                 fail as a provider would; the words are the provider's
    !fail cut                       end in the middle, without a terminal event

They stand in the user's last message and run in order; a run of `!tool` lines ends a step. Text in documents, files and
tool results is never a directive.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, cast

import msgspec

from loom.errors import ContentError
from loom.formats.image.bar_chart import draw_bars
from loom.prompt import Embedded, Prompt, ToolSpec
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
from loom.wire import faults

_LINE: Final = re.compile(r"^!([a-z]+)(?![\w\[(])[ \t]*(.*)$", re.MULTILINE)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_DEFAULT_BARS: Final = (3.0, 5.0, 8.0, 13.0)
_TICK_SECONDS: Final = 0.25
_MAX_TICKS: Final = 40
_FORMS: Final = {
    "think": (
        r"(?!0*(?:[6-9]\d\d|[1-9]\d{3,})(?:\.\d+)?s?$)(\d+(?:\.\d+)?)\s*(ms|s)?",
        "takes seconds below 600: !think 3s",
    ),
    "tool": (r"(\S+)\s*(.*)", 'takes a tool and its arguments: !tool read_file {"path": "a.png"}'),
    "image": (r"bars\b(.*)", "draws bars: !image bars, or !image bars 3 5 8"),
    "cite": (r".*", "takes nothing"),
    "echo": (r"(.+)", "takes the words to say: !echo hello"),
    "tokens": (r"(?=.*[1-9])(\d{1,6})", "takes a number of tokens: !tokens 500"),
    "slow": (r"(?=.*[1-9])(\d+(?:\.\d+)?)\s*(?:tps)?", "takes a pace: !slow 20tps"),
    "fail": (r"(cut|[45]\d\d)(?:\s+(.*))?", "takes a status from 400 to 599 and the provider's words, or cut"),
}
"""Directive → the form of its argument, and how to use it."""


class Directive(msgspec.Struct, frozen=True):
    """A line that begins with `!`. `error` says what is wrong with one that cannot be run."""

    name: str
    arguments: tuple[str, ...] = ()
    error: str = ""


def read_directives(text: str) -> tuple[tuple[Directive, ...], str]:
    """Return the directives in order, and the text that is left."""
    found = tuple(_read(match[1], match[2].strip()) for match in _LINE.finditer(text))
    return found, _LINE.sub("", text).strip() if found else text.strip()


def _read(name: str, rest: str) -> Directive:
    if name not in _FORMS:
        return Directive(
            name, error=f"Unknown directive !{name}. There are {', '.join(f'!{known}' for known in _FORMS)}."
        )
    form, usage = _FORMS[name]
    match = re.fullmatch(form, rest)
    if match is None:
        return Directive(name, error=f"!{name} {usage}.")
    return Directive(name, tuple(group or "" for group in match.groups()))


def numbers_in(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in _NUMBER.findall(text))


def steps_of(directives: Sequence[Directive]) -> list[tuple[Directive, ...]]:
    """Split directives into the steps of a turn: a run of calls ends a step. The last step makes no calls."""
    groups: list[list[Directive]] = [[]]
    for directive in directives:
        if groups[-1] and groups[-1][-1].name == "tool" != directive.name:
            groups.append([])
        groups[-1].append(directive)
    if groups[-1] and groups[-1][-1].name == "tool":
        groups.append([])
    return [tuple(group) for group in groups]


def answers_by_itself(directives: Sequence[Directive]) -> bool:
    """Return whether directives already say something, so that a message without words needs no other answer."""
    return any(found.error or found.name in ("image", "cite", "echo", "tokens", "fail") for found in directives)


def pace_of(directives: Sequence[Directive]) -> float | None:
    """Return the tokens per second, None without a `!slow`."""
    return next((float(found.arguments[0]) for found in directives if found.name == "slow" and not found.error), None)


async def run_directive(directive: Directive, prompt: Prompt) -> AsyncIterator[AnswerPart]:
    """Yield the parts that a directive asks for. `!cite` is run by `answer`, which knows the documents."""
    match directive:
        case Directive(error=error) if error:
            yield TextPart(error)
        case Directive("think", (amount, unit)):
            seconds = float(amount) / (1000 if unit == "ms" else 1)
            ticks = max(1, min(_MAX_TICKS, round(seconds / _TICK_SECONDS)))
            yield ThinkingPart(f"I was asked to think for {seconds:g} s.")
            for tick in range(1, ticks + 1):
                yield PausePart(seconds / ticks)
                yield ThinkingPart(f"{seconds * tick / ticks:.2f} s")
        case Directive("tool", (name, arguments)):
            yield _call(name, arguments, prompt)
        case Directive("image", (numbers,)):
            yield await draw_chart(numbers_in(numbers) or _DEFAULT_BARS)
        case Directive("echo", (text,)):
            yield TextPart(text)
        case Directive("tokens", (count,)):
            length = int(int(count) * prompt.model.tokens.chars_per_token)
            lines = (
                f"This is sentence {at + 1} of a long answer that says nothing else." for at in range(length // 50 + 1)
            )
            yield TextPart("\n".join(lines)[:length])
        case Directive("fail", ("cut", _)):
            yield TextPart("This answer breaks off in the mid")
            yield CutOffPart()
        case Directive("fail", (status, words)):
            # Read as a real answer of that status: the words may point at an image, the window, a capability.
            body = {"error": {"message": words or "this failure was asked for"}}
            sent = {"media": [Embedded(ref) for ref in prompt.media()]}
            yield ErrorPart(faults.error_from_body(int(status), body, prompt.model, sent, {}))
        case _:  # !slow sets the pace of everything
            pass


async def draw_chart(values: tuple[float, ...]) -> AnswerPart:
    try:
        return ImagePart(await asyncio.to_thread(draw_bars, values, "Drawn by loom/spark"))
    except ContentError as error:
        return TextPart(f"I cannot draw that: {error.message}.")


def _call(name: str, arguments: str, prompt: Prompt) -> AnswerPart:
    """Call any name, offered or not: a loop must cope with a model that invents one."""
    if not prompt.tools or prompt.sampling.tool_choice == "none":
        return TextPart(f"I was offered no tools, so I cannot call {name}.")
    if arguments.startswith("{") or not arguments:
        return CallPart(name, arguments or "{}")
    tool = next((tool for tool in prompt.tools if tool.name == name), None)
    filled = fill_arguments(tool, arguments) if tool else {"input": arguments}
    return CallPart(name, msgspec.json.encode(filled).decode())


def fill_arguments(tool: ToolSpec, value: str | list[float]) -> dict[str, Any]:
    """Put `value` into the first parameter that takes it; other required ones get the least that they allow."""
    kind = "string" if isinstance(value, str) else "array"
    schemas = {
        name: cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
        for name, schema in cast("dict[str, Any]", tool.parameters.get("properties") or {}).items()
    }
    required = [name for name in cast("list[str]", tool.parameters.get("required") or []) if name in schemas]
    text = next(
        (name for name in (*required, *schemas) if schemas[name].get("type") == kind and "enum" not in schemas[name]),
        "",
    )
    return {name: value if name == text else _least(schemas[name]) for name in dict.fromkeys((*required, text)) if name}


def _least(schema: dict[str, Any]) -> Any:
    least: dict[Any, Any] = {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}
    choices = cast("list[Any]", schema.get("enum") or [None])
    kind = schema.get("type")
    return schema.get("default", choices[0] or least.get(kind if isinstance(kind, str) else "", ""))
