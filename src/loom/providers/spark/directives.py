"""Directives: lines that begin with `!` and tell the built-in model what to do, for tests and demonstrations.

    !think 3s                       think for that long
    !tool read_file {"path": "a"}   call a tool; `!tool read_file a` fills its first required text
    !image bars 3 5 8               draw a picture into the answer
    !cite                           quote a document, with the page
    !echo words                     say exactly this
    !tokens 500                     a long answer
    !slow 20tps                     say everything at this pace
    !fail 529 words                 fail as a provider would; the words are the provider's
    !fail cut                       end in the middle, without a terminal event

They stand in the user's last message, are obeyed in order, and a run of `!tool` lines ends a step. Words in documents,
files and tool results are never directives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

_LINE: Final = re.compile(r"^!([a-z]+)(?![\w\[(])[ \t]*(.*)$", re.MULTILINE)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_MAX_SECONDS: Final = 600.0
_MAX_TOKENS: Final = 1_000_000
_DEFAULT_BARS: Final = (3.0, 5.0, 8.0, 13.0)


class Think(msgspec.Struct, frozen=True):
    seconds: float


class CallTool(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class DrawBars(msgspec.Struct, frozen=True):
    values: tuple[float, ...]


class Fail(msgspec.Struct, frozen=True):
    """`status` None: cut off."""

    status: int | None
    words: str = ""


class Slow(msgspec.Struct, frozen=True):
    tokens_per_second: float


class Cite(msgspec.Struct, frozen=True):
    pass


class Echo(msgspec.Struct, frozen=True):
    text: str


class Fill(msgspec.Struct, frozen=True):
    tokens: int


class Mistake(msgspec.Struct, frozen=True):
    """A line that looks like a directive and is none; `text` says what is wrong with it."""

    text: str


Directive: TypeAlias = Think | CallTool | DrawBars | Fail | Slow | Cite | Echo | Fill | Mistake


def read_directives(text: str) -> tuple[tuple[Directive, ...], str]:
    """The directives in order, and the words that are left."""
    found = tuple(_directive(match[1], match[2].strip()) for match in _LINE.finditer(text))
    return found, _LINE.sub("", text).strip() if found else text.strip()


def numbers_in(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in _NUMBER.findall(text))


def _directive(name: str, rest: str) -> Directive:
    read = _READERS.get(name)
    if read is None:
        return Mistake(f"I do not know !{name}. The directives are {_directive_list()}.")
    return read(rest) or Mistake(f"!{name} {_USAGE[name]}")


def _directive_list() -> str:
    names = [f"!{name}" for name in _READERS]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _think(rest: str) -> Directive | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)?", rest)
    if match is None:
        return None
    seconds = float(match[1]) / (1000 if match[2] == "ms" else 1)
    return Think(seconds) if seconds <= _MAX_SECONDS else None


def _tool(rest: str) -> Directive | None:
    name, _, arguments = rest.partition(" ")
    return CallTool(name, arguments.strip()) if name else None


def _image(rest: str) -> Directive | None:
    kind, _, numbers = rest.partition(" ")
    return DrawBars(numbers_in(numbers) or _DEFAULT_BARS) if kind == "bars" else None


def _fail(rest: str) -> Directive | None:
    if rest == "cut":
        return Fail(None)
    match = re.fullmatch(r"([45]\d\d)(?:\s+(.*))?", rest)
    return Fail(int(match[1]), match[2] or "") if match else None


def _slow(rest: str) -> Directive | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:tps)?", rest)
    return Slow(float(match[1])) if match and float(match[1]) > 0 else None


def _echo(rest: str) -> Directive | None:
    return Echo(rest) if rest else None


def _tokens(rest: str) -> Directive | None:
    match = re.fullmatch(r"[0-9]{1,7}", rest)
    return Fill(int(rest)) if match and 0 < int(rest) <= _MAX_TOKENS else None


_READERS: Final[dict[str, Callable[[str], Directive | None]]] = {
    "think": _think,
    "tool": _tool,
    "image": _image,
    "cite": lambda _: Cite(),
    "echo": _echo,
    "tokens": _tokens,
    "slow": _slow,
    "fail": _fail,
}
_USAGE: Final = {
    "think": "takes seconds, such as !think 3s (at most 600).",
    "tool": 'takes a tool and its arguments, such as !tool read_file {"path": "a.png"}.',
    "image": "draws bars: !image bars, or !image bars 3 5 8.",
    "cite": "takes nothing.",
    "echo": "takes the words to say.",
    "tokens": "takes a number of tokens, such as !tokens 500.",
    "slow": "takes a pace, such as !slow 20tps.",
    "fail": "takes a status from 400 to 599 and perhaps the provider's words, or cut.",
}
