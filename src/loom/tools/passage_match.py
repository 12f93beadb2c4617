"""Find the passage that an edit replaces: exactly, else with different white space. Pure.

Models write the right words with the wrong indentation, and line ends that the file does not have. Such a passage is
found if it occurs in one place only and the indentation of the new text is clear.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from itertools import islice
from typing import Final

import msgspec

from loom.errors import ToolError
from loom.formats.text import lines_of

_NUMBERED: Final = re.compile(r"\s*\d+\t")
_CELL_MARKS: Final = (",", ";", "\t")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "`": "`", "$": "$", "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\([ntr\"'`$\\])")
_STRAIGHT: Final = {
    **dict.fromkeys(map(ord, "“”„«»″"), '"'),
    **dict.fromkeys(map(ord, "‘’‚′"), "'"),
    **dict.fromkeys((0xA0, 0x202F), " "),
}
_MAX_LISTED: Final = 10
_MAX_COMPARED: Final = 2_000
_MAX_SHOWN: Final = 8
_ALIKE: Final = 0.6


class Passage(msgspec.Struct, frozen=True):
    """The text from `start` to `end`, to be replaced by `new`."""

    start: int
    end: int
    new: str


class _FileLine(msgspec.Struct, frozen=True):
    start: int
    text: str
    """Without its line end."""
    end: int
    """Before its line end."""

    @property
    def words(self) -> str:
        return " ".join(self.text.split())

    @property
    def indent(self) -> str:
        return self.text[: len(self.text) - len(self.text.lstrip(" \t"))]


def passages(text: str, old: str, new: str, *, every: bool, newline: str, name: str) -> tuple[Passage, ...]:
    """Return the positions of `old` with their replacements. Raise ToolError if there is none, or several without
    `every`."""
    found = _match_text(text, old, new, newline)
    if not found:
        found = _match_lines(text, old, _with_newlines(new, newline))
    if not found:
        found = _match_alike(text, old, new, newline)
    if not found:
        raise _not_found(text, old, name)
    if len(found) > 1 and not every:
        numbers = [text.count("\n", 0, passage.start) + 1 for passage in found]
        listed = ", ".join(map(str, numbers[:_MAX_LISTED])) + (" …" if len(numbers) > _MAX_LISTED else "")
        raise ToolError(
            f"old is in {name} {len(found)} times, at the lines {listed}",
            hint="Include more lines around it, or set all to true.",
        )
    return found


def replace_passages(text: str, found: tuple[Passage, ...]) -> str:
    parts: list[str] = []
    at = 0
    for passage in found:
        parts += [text[at : passage.start], passage.new]
        at = passage.end
    return "".join([*parts, text[at:]])


def _with_newlines(text: str, newline: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", newline)


def _match_text(text: str, old: str, new: str, newline: str) -> tuple[Passage, ...]:
    """Match `old` with the line ends of the file, which `new` gets, too; in a file with several, also as it is."""
    found = () if newline == "\n" else _match_exact(text, _with_newlines(old, newline), _with_newlines(new, newline))
    return found or _match_exact(text, old, new)


def _match_exact(text: str, old: str, new: str) -> tuple[Passage, ...]:
    found: list[Passage] = []
    at = text.find(old)
    while at >= 0:
        found.append(Passage(at, at + len(old), new))
        at = text.find(old, at + len(old))
    return tuple(found)


def _match_lines(text: str, old: str, new: str) -> tuple[Passage, ...]:
    """Return whole lines with the same words. Blank lines around `old` are ignored."""
    wanted = _lines(old)
    while wanted and not wanted[-1].words:
        wanted.pop()
    while wanted and not wanted[0].words:
        wanted.pop(0)
    if not wanted:
        return ()
    lines = _lines(text)
    words = [line.words for line in lines]
    sought = [line.words for line in wanted]
    found: list[Passage] = []
    at = 0
    while at <= len(lines) - len(sought):
        if words[at] != sought[0] or words[at : at + len(sought)] != sought:
            at += 1
            continue
        stretch = lines[at : at + len(sought)]
        at += len(sought)
        end = lines[at].start if not new and at < len(lines) else stretch[-1].end
        found.append(Passage(stretch[0].start, end, _indent(new, wanted, stretch)))
    return tuple(found)


def _match_alike(text: str, old: str, new: str, newline: str) -> tuple[Passage, ...]:
    """Return the passage with its escapes resolved once more (`\\n`, `\\"`), or with the quotation marks of the file.

    Models escape twice, and write straight quotes for curly ones. Text that `old` and `new` share stays as it is in the
    file.
    """
    plain = _unescape(old)
    if plain != old:
        found = _match_text(text, plain, _unescape(new), newline)
        if found:
            return found
    carried: list[Passage] = []
    for passage in _match_text(text.translate(_STRAIGHT), old.translate(_STRAIGHT), new, newline):
        there = text[passage.start : passage.end]
        wanted = old if len(old) == len(there) else _with_newlines(old, newline)
        carried.append(Passage(passage.start, passage.end, _carry_characters(there, wanted, passage.new)))
    return tuple(carried)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPES[found[1]], text)


def _carry_characters(there: str, old: str, new: str) -> str:
    """Return `new`, with the characters of the file wherever it only repeats `old`."""
    parts: list[str] = []
    for kind, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        parts.append(there[start:end] if kind == "equal" else new[first:last])
    return "".join(parts)


def _lines(text: str) -> list[_FileLine]:
    lines: list[_FileLine] = []
    start = 0
    for raw in text.split("\n"):
        line = raw.removesuffix("\r")
        lines.append(_FileLine(start, line, start + len(line)))
        start += len(raw) + 1
    return lines


def _indent(new: str, wanted: list[_FileLine], stretch: list[_FileLine]) -> str:
    """Return the new lines, shifted by the difference between the actual and the expected indentation."""
    pairs = [(there.indent, here.indent) for there, here in zip(wanted, stretch, strict=True) if there.words]
    lines = new.strip("\r\n").split("\n")
    if all(there == here for there, here in pairs):
        return "\n".join(lines)
    more = pairs[0][1].removesuffix(pairs[0][0]) if pairs[0][1].endswith(pairs[0][0]) else None
    if more is not None and all(here == more + there for there, here in pairs):
        return "\n".join(more + line if line.strip() else line for line in lines)
    less = pairs[0][0].removesuffix(pairs[0][1]) if pairs[0][0].endswith(pairs[0][1]) else None
    if (
        less is not None
        and all(there == less + here for there, here in pairs)
        and all(line.startswith(less) or not line.strip() for line in lines)
    ):
        return "\n".join(line.removeprefix(less) for line in lines)
    raise ToolError(
        "old is there, but indented differently, and it is not clear how new should be indented. It reads:\n"
        + "\n".join(line.text for line in stretch[:20]),
        hint="Copy the lines as they are.",
    )


def _not_found(text: str, old: str, name: str) -> ToolError:
    if all(_NUMBERED.match(line) for line in old.split("\n") if line.strip()):
        return ToolError(f"old is not in {name}", hint="Leave out the line numbers: they are not part of the file.")
    # Tables are read with their cells separated by " | ".
    tries = [old.replace(" | ", mark) for mark in _CELL_MARKS if mark in text] if " | " in old else []
    if near := next(filter(None, (_nearest(text, each) for each in (*tries, old))), ""):
        return ToolError(f"old is not in {name}. Nearest are these lines:\n{near}\n", hint="Copy them as they are.")
    return ToolError(f"old is not in {name}", hint="Read the file again and copy the lines as they are.")


def _nearest(text: str, old: str) -> str:
    """Return the line most similar to the first line of `old`, with as many lines after it."""
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")[:300]
    lines = list(islice(lines_of(text), _MAX_COMPARED + _MAX_SHOWN))
    best, at = _ALIKE, -1
    matcher = SequenceMatcher(None, "", first, autojunk=False)
    for number, line in enumerate(lines[:_MAX_COMPARED]):
        matcher.set_seq1(line.strip()[:300])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, at = ratio, number
    if at < 0:
        return ""
    count = min(old.count("\n") + 1, _MAX_SHOWN)
    return "\n".join(f"{number + 1:>6}\t{lines[number]}" for number in range(at, min(at + count, len(lines))))
