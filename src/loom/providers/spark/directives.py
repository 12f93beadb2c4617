"""Directives: lines that begin with `!` and make the built-in model do something, for tests and demonstrations.

    !think 3s                       think for that long
    !tool read_file {"path": "a"}   call a tool; `!tool read_file a` fills its first required text
    !image bars 3 5 8               draw an image into the answer
    !cite                           quote a document, with the page
    !echo words                     say exactly this
    !tokens 500                     a long answer
    !slow 20tps                     say everything at this pace
    !fail 529 words                 fail as a provider would; the words are the provider's
    !fail cut                       end in the middle, without a terminal event

Directives are lines of the user's last message and run in order; a run of `!tool` lines ends a step. Text in documents,
files and tool results is never a directive.
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
from loom.providers.spark.answer_parts import AnswerPart, CallPart, CutOffError, ImagePart, TextPart, ThinkingPart
from loom.wire import faults

_LINE: Final = re.compile(r"^!([a-z]+)(?![\w\[(])[ \t]*(.*)$", re.MULTILINE)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_TICK_SECONDS: Final = 0.25
_MAX_TICKS: Final = 40
_FORMS: Final = {
    "think": (r"(\d{1,3}(?:\.\d+)?)\s*(ms|s)?", "takes seconds below 1,000: !think 3s"),
    "tool": (r"(\S+)\s*(.*)", 'takes a tool and its arguments: !tool read_file {"path": "a.png"}'),
    "image": (r"bars\b(.*)", "draws bars: !image bars, or !image bars 3 5 8"),
    "cite": (r".*", "takes nothing"),
    "echo": (r"(.+)", "takes the text to repeat: !echo hello"),
    "tokens": (r"(?=.*[1-9])(\d{1,6})", "takes a number of tokens: !tokens 500"),
    "slow": (r"(?=.*[1-9])(\d+(?:\.\d+)?)\s*(?:tps)?", "takes a pace: !slow 20tps"),
    "fail": (r"(cut|[45]\d\d)(?:\s+(.*))?", "takes a status from 400 to 599 and the provider's words, or cut"),
}
"""For each directive, the pattern of its argument and its usage."""


class Directive(msgspec.Struct, frozen=True):
    """A line that begins with `!`. `error` describes the problem of one that cannot be run."""

    name: str
    arguments: tuple[str, ...] = ()
    error: str = ""


def read_directives(text: str) -> tuple[tuple[Directive, ...], str]:
    """Return the directives in order, and the remaining text."""
    found: list[Directive] = []
    for name, rest in _LINE.findall(text):
        form, usage = _FORMS.get(name, ("", ""))
        if not usage:
            known = ", ".join(f"!{known}" for known in _FORMS)
            found.append(Directive(name, error=f"Unknown directive !{name}. Known: {known}."))
        elif match := re.fullmatch(form, rest.strip()):
            found.append(Directive(name, tuple(group or "" for group in match.groups())))
        else:
            found.append(Directive(name, error=f"!{name} {usage}."))
    return tuple(found), _LINE.sub("", text).strip() if found else text.strip()


def steps_of(directives: Sequence[Directive]) -> list[list[Directive]]:
    """Split directives into the steps of a turn: a run of calls ends a step. The last step makes no calls."""
    groups: list[list[Directive]] = [[]]
    for directive in directives:
        if groups[-1] and groups[-1][-1].name == "tool" != directive.name:
            groups.append([])
        groups[-1].append(directive)
    return [*groups, []] if groups[-1] and groups[-1][-1].name == "tool" else groups


def pace_of(directives: Sequence[Directive]) -> float | None:
    """Return the tokens per second of `!slow`; None without one."""
    return next((float(found.arguments[0]) for found in directives if found.name == "slow" and not found.error), None)


async def run_directive(directive: Directive, prompt: Prompt) -> AsyncIterator[AnswerPart]:
    """Yield the parts of a directive, except `!cite`, which `answer` runs because it has the documents.

    Raise the `ProviderError` of a `!fail`, or `CutOffError`.
    """
    match directive:
        case Directive(error=error) if error:
            yield TextPart(error)
        case Directive("think", (amount, unit)):
            seconds = float(amount) / (1000 if unit == "ms" else 1)
            ticks = max(1, min(_MAX_TICKS, round(seconds / _TICK_SECONDS)))
            yield ThinkingPart(f"I was asked to think for {seconds:g} s.")
            for tick in range(1, ticks + 1):
                await asyncio.sleep(seconds / ticks)
                yield ThinkingPart(f"{seconds * tick / ticks:.2f} s")
        case Directive("tool", (name, arguments)):
            # Call any name, even of no tool: the agent loop must handle a model that invents one.
            if not prompt.tools or prompt.sampling.tool_choice == "none":
                yield TextPart(f"I was offered no tools, so I cannot call {name}.")
            elif arguments.startswith("{") or not arguments:
                yield CallPart(name, arguments or "{}")
            else:
                yield call_with(name, arguments, prompt.tools)
        case Directive("image", (numbers,)):
            values = [float(number) for number in _NUMBER.findall(numbers)] or [3.0, 5.0, 8.0, 13.0]
            try:
                yield ImagePart(await asyncio.to_thread(draw_bars, values))
            except ContentError as error:
                yield TextPart(f"I cannot draw that: {error.message}.")
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
            raise CutOffError
        case Directive("fail", (status, words)):
            # Classify it like a real response: the text may point at an image, the context window or a capability.
            body = {"error": {"message": words or "this failure was requested"}}
            sent = {"media": [Embedded(ref) for ref in prompt.media()]}
            raise faults.error_from_body(int(status), body, prompt.model, sent, {})
        case _:  # !slow sets the pace of everything
            pass


def call_with(name: str, value: str, tools: Sequence[ToolSpec]) -> CallPart:
    """Return a call with `value` as the tool's first text parameter; required parameters come first."""
    schema = next((tool.parameters for tool in tools if tool.name == name), dict[str, Any]())
    properties = cast("dict[str, Any]", schema.get("properties") or {})
    required = [key for key in cast("list[str]", schema.get("required") or []) if key in properties]
    takes_text = (key for key in (*required, *properties) if _is_text(properties[key]))
    return CallPart(name, msgspec.json.encode({next(takes_text, "input"): value}).decode())


def _is_text(schema: Any) -> bool:
    """Return whether a schema is of type string. A schema may also be a boolean, and its type a list."""
    return isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "string"
