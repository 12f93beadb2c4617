"""Arguments that a user typed, inserted in a shell command of a trusted file.

Such a command is code, and an argument is data from anywhere: pasted text, the title of an issue, a request of another
program. Quoting alone is not enough: in `echo "$1"` single quotes around a value would be text, and `$(…)` in it would
run. So the place of each `$1` is read from the syntax tree. It must be (part of) an argument, bare or in double quotes;
a value is then always inserted in single quotes. Everything else is refused: the name of a program, redirections,
assignments, here-documents, text in single quotes, code for another interpreter (`sh -c`, `eval`, `xargs`, `awk`), and
values that would become an option (`--output=FILE`, `--pre=PROGRAM`). At the end, the result is parsed again: its words
must be those of the file, with values only where the file has placeholders.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from loom.errors import ToolError
from loom.tools.shell_syntax import UNKNOWN, ArgumentPlace, argument_places, parse_shell
from loom.tools.shell_wrappers import inner_commands, quote

PLACEHOLDER: Final = re.compile(r"\$(?:ARGUMENTS\b|([1-9])(?!\d))")
"""`$ARGUMENTS`, or `$1` to `$9`."""
_MAX_NESTING: Final = 8
_CODE_ARGUMENTS: Final = frozenset({"sed", "gsed", "make", "gmake", "jq", "sqlite3", "psql", "mysql"})
"""Programs whose plain arguments may be code, besides those that `inner_commands` knows."""


def split_arguments(arguments: str) -> list[str]:
    """Return the words of the arguments, quoted as in a shell."""
    try:
        return shlex.split(arguments)
    except ValueError:  # an unbalanced quotation mark
        return arguments.split()


def insert_arguments(command: str, arguments: str) -> str:
    """Return the command line with the arguments in place of `$ARGUMENTS` and `$1` to `$9`, quoted for the shell. Raise
    `ToolError` if they cannot be inserted safely."""
    found = list(PLACEHOLDER.finditer(command))
    if not found:
        return command
    places = argument_places(command)
    offsets = [len(command[: match.start()].encode()) for match in found]
    if any(offset not in places for offset in offsets):
        raise _unsafe(command, "$1 and $ARGUMENTS may only be arguments of a program there, bare or in double quotes")
    words = split_arguments(arguments)
    if UNKNOWN in arguments:
        raise _unsafe(command, "the arguments contain a NUL character")
    values: list[str] = []
    mark = f"LOOM{secrets.token_hex(8)}X"
    token = re.compile(rf"{mark}(\d+)X")

    def render(place: ArgumentPlace, given: Sequence[str], name: Callable[[str], str]) -> str:
        if place == "word":
            return " ".join(quote(name(value)) for value in given)
        inner = quote("".join(name(value) for value in given))
        return f'"{inner}"' if place == "quoted" else inner

    def fill(name: Callable[[str], str]) -> str:
        parts: list[str] = []
        end = 0
        for match, offset in zip(found, offsets, strict=True):
            place = places[offset]
            at = int(match[1] or 0)
            given = words[at - 1 : at] if at else words if place == "word" else [arguments]
            parts += [command[end : match.start()], render(place, given, name)]
            end = match.end()
        return "".join([*parts, command[end:]])

    def number(value: str) -> str:
        values.append(value)
        return f"{mark}{len(values) - 1}X"

    # Also if there are no arguments: in `timeout 9 $1 rm x` their absence would make `rm` the program.
    for one in parse_shell(PLACEHOLDER.sub(mark, command)).commands:
        if any(mark in word for word in one.words) and _is_code(
            tuple(UNKNOWN if mark in word else word for word in one.words), 0
        ):
            raise _unsafe(command, "its program may run the arguments as code")
    template, result = parse_shell(fill(number)), parse_shell(fill(lambda value: value))
    expected: list[tuple[str, ...]] = []
    for one in template.commands:
        filled = tuple(token.sub(lambda match: values[int(match[1])], word) for word in one.words)
        if any(new.startswith("-") and not old.startswith("-") for old, new in zip(one.words, filled, strict=True)):
            raise _unsafe(command, "an argument that begins with '-' would be an option of the command")
        expected.append(filled)
    is_same = [one.words for one in result.commands] == expected
    if not (template.is_parsed and result.is_parsed and is_same and template.files == result.files):
        raise _unsafe(command, "the arguments would change the command")
    return fill(lambda value: value)


def _is_code(words: tuple[str, ...], depth: int) -> bool:
    """Return whether a program may run one of the unknown words."""
    name = os.path.basename(words[0]) if words else UNKNOWN  # noqa: PTH119  text of a command, perhaps not a path
    if UNKNOWN in name or name in _CODE_ARGUMENTS or depth > _MAX_NESTING:
        return True
    inner = inner_commands(name, words)
    if inner.is_unknown or inner.is_opaque or any(inner.scripts):
        return True
    return any(_is_code(further, depth + 1) for further in inner.words)


def _unsafe(command: str, why: str) -> ToolError:
    return ToolError(f"The arguments cannot be inserted in the command `{command}`: {why}")
