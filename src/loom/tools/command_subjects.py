"""The subjects of a shell command, which the user's rules are matched against.

A rule is a pattern such as `git *` or `rm *`. A command line is judged by every command that it runs, wrappers removed:
each must be allowed, and each can be denied under every name of it. So `/bin/rm x`, `env A=1 rm x`, `sh -c 'r\\m x'`
and `find . -exec rm {} +` are all denied by `rm *`, and none of them is allowed by `env *`, `sh *` or `find *` alone.
Arguments that are paths count as they are written and as they resolve.
"""

from __future__ import annotations

import glob
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from loom.tools.shell_syntax import UNKNOWN, ShellScript, parse_shell
from loom.tools.shell_wrappers import git_command, inner_commands

UNKNOWN_COMMAND: Final = UNKNOWN
"""The subject of an unknown command: only a rule for everything allows it."""
MAX_NESTING: Final = 8
MAX_COMMANDS: Final = 500
MAX_GLOB_WORDS: Final = 200
MAX_WORDS: Final = 1_000
_MAX_FLAGS: Final = 4
_IGNORED_FILES: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_TRANSPARENT: Final = frozenset(
    {"timeout", "nohup", "nice", "ionice", "time", "stdbuf", "command", "builtin", "setsid"}
)
"""Wrappers that do not affect the command after them: a rule need allow only that command."""
_LONG_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "rm": {"--recursive": "r", "--force": "f", "--dir": "d", "--verbose": "v"},
    "cp": {"--recursive": "r", "--force": "f", "--archive": "a"},
    "mv": {"--force": "f"},
    "chmod": {"--recursive": "R"},
    "chown": {"--recursive": "R"},
    "git": {"--force": "f", "--hard": "", "--all": "a", "--delete": "d"},
    "kill": {"--signal": "s"},
}
"""Short names of long options, by program; empty if there is none."""


class CommandSubjects(msgspec.Struct, frozen=True):
    """`subjects` must all be allowed. A rule that matches one of the `spellings` can ask or deny, but not allow."""

    subjects: tuple[str, ...]
    spellings: tuple[str, ...] = ()
    is_opaque: bool = False
    """Whether it may run something that no subject covers, so that a rule that denies may miss it."""


def command_subjects(command: str, workspace: Path) -> CommandSubjects:
    """Return the subjects of a shell command line that is run in `workspace`."""
    found = _SubjectCollector(os.path.realpath(workspace))
    found.add_script(command, 0)
    subjects = dict.fromkeys(found.subjects or [command])
    spellings = dict.fromkeys([command, *found.spellings])
    return CommandSubjects(
        tuple(subjects), tuple(spelling for spelling in spellings if spelling not in subjects), found.is_opaque
    )


class _SubjectCollector:
    def __init__(self, root: str) -> None:
        self.subjects: list[str] = []
        self.spellings: list[str] = []
        self.is_opaque = False
        self._folders = [root]
        self._root = root
        self._count = 0

    def _add_unknown(self) -> None:
        self.is_opaque = True
        self.subjects.append(UNKNOWN_COMMAND)

    def add_script(self, command: str, depth: int) -> None:
        script = parse_shell(command, {"HOME": os.path.expanduser("~")})  # noqa: PTH111  as text
        if not script.is_parsed or depth > MAX_NESTING:
            self.subjects.append(command)
            self._add_unknown()
            return
        if script.changes_meaning:
            self._add_unknown()
        self._note_folders(script)
        for found in script.commands:
            self.spellings.append(found.source)
            self.add_command(found.words, depth)
        for file in script.files:
            if file not in _IGNORED_FILES:
                self._add_file(file)

    def _note_folders(self, script: ShellScript) -> None:
        """Add the folders that `cd` may change to before a later command; paths are resolved from each of them."""
        for found in script.commands:
            if found.words[0] not in ("cd", "pushd"):
                continue
            targets = [word for word in found.words[1:] if not word.startswith("-")] or ["~"]
            if UNKNOWN in targets[0] or found.words[1:] == ("-",):
                self.is_opaque = True
                continue
            folder = os.path.realpath(os.path.join(self._folders[-1], os.path.expanduser(targets[0])))  # noqa: PTH111, PTH118  text of a command, perhaps not a path
            if folder not in self._folders and len(self._folders) < MAX_NESTING:
                self._folders.append(folder)

    def add_command(self, words: tuple[str, ...], depth: int) -> None:
        self._count += 1
        if len(words) > MAX_WORDS:
            self._add_unknown()
            words = words[:MAX_WORDS]
        if depth > MAX_NESTING or self._count > MAX_COMMANDS or UNKNOWN in words[0] or not words[0]:
            self.subjects.append(" ".join(words))
            self._add_unknown()
            return
        if glob.has_magic(words[0]):
            self._add_unknown()
        behind = {inner_commands(name, (name, *words[1:])): None for name in _names(words[0], self._root)[:3]}
        is_transparent = words[0] in _TRANSPARENT and any(inner.words for inner in behind)
        for given in self._expand_globs(words):
            self._add_simple(given, is_required=not is_transparent)
        for inner in behind:
            if inner.is_unknown:
                self._add_unknown()
            self.is_opaque = self.is_opaque or inner.is_opaque
            for further in inner.words:
                if further:
                    self.add_command(further, depth + 1)
            for script in inner.scripts:
                self.add_script(script, depth + 1)

    def _expand_globs(self, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield the words as written, and with patterns replaced by the files that they match now."""
        yield words
        expanded: list[str] = []
        for word in words:
            found = self._matches(word) if glob.has_magic(word) and UNKNOWN not in word else []
            expanded += found or [word]
        if tuple(expanded) != words:
            yield tuple(expanded[: MAX_GLOB_WORDS + 1])
            if len(expanded) > MAX_GLOB_WORDS:
                self.is_opaque = True

    def _matches(self, word: str) -> list[str]:
        found: list[str] = []
        for folder in self._folders:
            pattern = os.path.expanduser(word)  # noqa: PTH111  text of a command, perhaps not a path
            try:
                matches = glob.iglob(pattern, root_dir=folder)  # noqa: PTH207  relative names are needed unchanged
                found += sorted(itertools.islice(matches, MAX_GLOB_WORDS))
            except (OSError, ValueError):  # not a pattern of file names
                continue
        return found

    def _add_simple(self, words: tuple[str, ...], *, is_required: bool) -> None:
        subjects = self.subjects if is_required else self.spellings
        subjects.append(" ".join(words))
        if any(UNKNOWN in word.lstrip(UNKNOWN) for word in words[1:]):
            # text after a known beginning may lead anywhere: `src/$X` is not below src
            subjects.append(" ".join("/" + UNKNOWN if UNKNOWN in word else word for word in words))
        self.is_opaque = self.is_opaque or any(UNKNOWN in word for word in words)
        forms = {words}
        for folder in self._folders:
            lexical = (words[0], *(self._place(word, folder, real=False) for word in words[1:]))
            real = (words[0], *(self._place(word, folder, real=True) for word in words[1:]))
            forms |= {lexical, real}
            if real != lexical or any(".." in word.split("/") or word.startswith("~") for word in words[1:]):
                subjects.append(" ".join(real))
        for form in forms:
            for name in _names(form[0], self._root):
                self.spellings += [" ".join(spelling) for spelling in _spellings((name, *form[1:]))]

    def _place(self, word: str, folder: str, *, real: bool) -> str:
        """Return an argument that is a path relative to the workspace, if it is inside."""
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if not value or (word.startswith("-") and not equals) or UNKNOWN in value or len(value) > 4_096:
            return word
        is_path = "/" in value or value.startswith("~") or value in (".", "..")
        path = os.path.join(folder, os.path.expanduser(value))  # noqa: PTH111, PTH118  text of a command, perhaps not a path
        if "://" in value or not (is_path or os.path.lexists(path)):
            return word
        place = os.path.realpath(path) if real else os.path.normpath(path)
        inside = "." if place == self._root else place.removeprefix(self._root.rstrip("/") + "/")
        return f"{option}{equals}{inside}"

    def _add_file(self, file: str) -> None:
        """Add a file that the shell itself opens, as written and as resolved."""
        if UNKNOWN in file:
            self._add_unknown()
            return
        self.subjects.append(file)
        self.subjects += [self._place(f"./{file}" if "/" not in file else file, at, real=True) for at in self._folders]


@lru_cache(maxsize=1_000)
def _names(program: str, root: str) -> tuple[str, ...]:
    """Return every name of a program: as written, without its folder, and the target of its link."""
    names = [program, os.path.basename(program)]  # noqa: PTH119  text of a command, perhaps not a path
    path = os.path.join(root, os.path.expanduser(program)) if "/" in program else shutil.which(program)  # noqa: PTH111, PTH118
    if path and len(path) < 4_096 and os.path.lexists(path):
        real = os.path.realpath(path)
        names += [os.path.basename(real), real]  # noqa: PTH119  as above
    ordered = [names[1], *names[2:3], names[0], *names[3:]]
    return tuple(dict.fromkeys(name for name in ordered if name))


def _spellings(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the same command with its options first, joined, in every order, and with each argument alone: `rm -rf *`
    denies `rm x -f -r`, and `cat .env` denies `cat a .env b`."""
    yield words
    if words[0] == "git":
        words = git_command(words)
        yield words
    head = words[:2] if words[0] == "git" else words[:1]
    flags, options, others = _sorted_words(head[0], words[len(head) :])
    if len(others) > 1:
        yield from ((*head, other) for other in others[:MAX_GLOB_WORDS])
    if not flags and not options:
        return
    if len(flags) > _MAX_FLAGS:
        yield (*head, "-" + "".join(flags), *options, *others)
        return
    for order in itertools.permutations(flags):
        joined = ("-" + "".join(order),) if order else ()
        yield (*head, *joined, *options, *others)
        if len(order) > 1:
            yield (*head, *(f"-{flag}" for flag in order), *options, *others)
    for size in range(1, len(flags)):
        for order in itertools.permutations(flags, size):
            yield (*head, "-" + "".join(order), *options, *others)
    for option in options:
        yield (*head, option, *(other for other in options if other != option), *others)
        yield (*head, option, *others)


def _sorted_words(program: str, words: tuple[str, ...]) -> tuple[list[str], list[str], list[str]]:
    """Return short flags without repetition, long options, and all other words."""
    known = _LONG_OPTIONS.get(program, {})
    flags: list[str] = []
    options: list[str] = []
    others: list[str] = []
    for at, word in enumerate(words):
        if word == "--":
            others += words[at + 1 :]
            break
        if known.get(word):
            flags.append(known[word])
        elif word.startswith("--"):
            options.append(word)
        elif word.startswith("-") and word[1:].isalpha():
            flags += word[1:]
        else:
            others.append(word)
    return list(dict.fromkeys(flags)), options, others
