"""Transcripts: files with lines of `$ loom …` and, below each, exactly what the command prints.

Played in a folder of its own, a transcript gives the same text on every machine. Lines of stderr begin with `2| `, an
exit code other than 0 stands in brackets, and a long line of JSON is shown indented. Only what must differ between two
runs has a name in its place, such as `SESSION0000000000000000001`; a later command may use the name.

    $ OPENAI_API_KEY=sk-x loom keys list     with a variable
    $ loom keys set openai < key.txt         with a file as stdin
    $ loom serve --port 0 &                  a daemon, which lives until the end of the transcript
"""

from __future__ import annotations

import platform
import re
import shlex
import sqlite3
import sys
from contextlib import ExitStack, closing
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec

from cli.loom_command import Loom, Ran
from cli.test_daemon_commands import serving

HOME = "/home/you"
_PROMPT = "$ "
_SHORT = 120
_VARIABLE = re.compile(r"([A-Z_]+)=(.*)", re.DOTALL)
_SESSION = re.compile(r"\b01[0-9A-HJKMNP-TV-Z]{24}\b")
_APPROVAL = re.compile(r'"approval": ?"([0-9a-f]{32})"')
_ALWAYS = (
    (re.compile(r'("(?:created_at|updated_at|seconds|duration_ms)": ?)[0-9.]+'), r"\g<1>0"),
    (re.compile(r"\b\d+\.\d s\b"), "0.0 s"),
    (re.compile(r"127\.0\.0\.1:(?!5666)\d+"), "127.0.0.1:PORT"),
    (re.compile(r"(?<=\?t=)[A-Za-z0-9_-]+|^[A-Za-z0-9_-]{43}$", re.MULTILINE), "TOKEN"),
    # Exported pages: the day, the times, and how they look.
    (re.compile(r"<time datetime=.*?</time>"), "<time>TIME</time>"),
    (re.compile(r'(<p class="facts">)\d{4}-\d\d-\d\d'), r"\g<1>DATE"),
    (re.compile(r"<style>.*?</style>", re.DOTALL), "<style>…</style>"),
    (re.compile(r"\bpid \d+"), "pid 1"),
    (re.compile(r'"pid":\d+'), '"pid":1'),
    # Which sandbox there is, is a matter of the machine.
    (re.compile(r"^(. sandbox +).*$", re.MULTILINE), r"\g<1>…"),
    (
        re.compile(r'("name": ?"sandbox",\s*"state": ?"[a-z]+",\s*"text": ?)"[^"]*"(,\s*"fix": ?)"[^"]*"'),
        r'\g<1>"…"\g<2>"…"',
    ),
    # Prices are those of the hour: some services take less at night, and the table of prices is a package of its own.
    (re.compile(r'("usd_per_million_input_tokens": ?)[0-9.]+'), r"\g<1>0"),
    (re.compile(r"\$\d+\.\d+"), lambda price: re.sub(r"\d", "0", price[0])),
)
_BUILT_FROM_PATHS = """
WITH RECURSIVE known(key) AS (
  SELECT key FROM node WHERE instr(CAST(message AS TEXT), :folder) > 0
  UNION SELECT node.key FROM node JOIN known ON node.parent_key = known.key
) SELECT id FROM node JOIN known USING (key) ORDER BY key
"""
"""The ids of messages that name a file by its whole path, and of all that follow one: they differ between folders."""


class Step(NamedTuple):
    line: str
    environ: dict[str, str]
    arguments: list[str]
    stdin: str
    stays: bool


class Transcript(NamedTuple):
    head: str
    steps: list[Step]


def read(file: Path) -> Transcript:
    head, *commands = re.split(r"^\$ (.*)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return Transcript(head, [_step(line) for line in commands[::2]])


def _step(line: str) -> Step:
    words = shlex.split(line)
    environ: dict[str, str] = {}
    while found := _VARIABLE.fullmatch(words[0]):
        environ[found[1]] = found[2]
        words.pop(0)
    assert words[0] == "loom", f"no command of ours: {line}"
    stays = words[-1] == "&"
    stdin = words[-1] if words[-2:-1] == ["<"] else ""
    return Step(line, environ, words[1:-1] if stays else words[1:-2] if stdin else words[1:], stdin, stays)


def played(transcript: Transcript, loom: Loom, home: Path) -> str:
    """The transcript as it goes in this folder."""
    names = _Names(loom.folder.parent, home)
    parts = [transcript.head]
    with ExitStack() as daemons:
        for step in transcript.steps:
            arguments = [names.real(word) for word in step.arguments]
            if step.stays:
                ran = Ran(0, daemons.enter_context(serving(loom, *arguments[1:])), "")
            else:
                stdin = (loom.folder / step.stdin).read_bytes() if step.stdin else b""
                ran = loom(*arguments, stdin=stdin, cwd=None, **step.environ)
            parts.append(f"{_PROMPT}{step.line}\n{_shown(ran, names)}\n")
    return "".join(parts).rstrip("\n") + "\n"


def _shown(ran: Ran, names: _Names) -> str:
    out = "".join(_readable(line) for line in names.stable(ran.out).splitlines(keepends=True))
    if out and not out.endswith("\n"):
        out += "\n[no newline at the end]\n"
    err = "".join(f"2| {line}".rstrip() + "\n" for line in names.stable(ran.err).splitlines())
    return out + err + (f"[exit {ran.code}]\n" if ran.code else "")


def _readable(line: str) -> str:
    """A long line of JSON on several; it must be as short as JSON can be, so nothing is lost."""
    if len(line) <= _SHORT or not line.startswith(('{"', "[")):
        return line
    text = line.rstrip("\n")
    assert msgspec.json.format(text, indent=-1) == text
    return msgspec.json.format(text, indent=2) + "\n"


class _Names:
    """Names for what differs between two runs, of the same length where it stands in columns."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._database = home / "loom.db"
        self._sessions: dict[str, str] = {}
        self._approvals: dict[str, str] = {}
        self._nodes: dict[str, str] = {}

    def stable(self, text: str) -> str:
        for found in _SESSION.findall(text):
            self._sessions.setdefault(found, f"SESSION{len(self._sessions) + 1:019}")
        for found in _APPROVAL.findall(text):
            self._approvals.setdefault(found, f"APPROV{len(self._approvals) + 1:02}")
        for known, name in self._sessions.items():
            text = text.replace(known, name)
        for known, name in self._approvals.items():
            text = text.replace(known, name).replace(known[:8], name)
        text = self._without_nodes(text)
        for pattern, name in _ALWAYS:
            text = pattern.sub(name, text)
        return _of_any_machine(text.replace(str(self._folder), HOME))

    def real(self, word: str) -> str:
        for known, name in (*self._sessions.items(), *self._approvals.items(), *self._nodes.items()):
            word = word.replace(name, known)
        return word

    def _without_nodes(self, text: str) -> str:
        if not self._database.exists():
            return text
        with closing(sqlite3.connect(self._database)) as database:
            rows = database.execute(_BUILT_FROM_PATHS, {"folder": str(self._folder)}).fetchall()
        for (node_id,) in rows:
            digits = node_id.rpartition(":")[2]
            if digits[:8] not in text:
                continue
            name = self._nodes.setdefault(digits, f"NODE{len(self._nodes) + 1:04}")
            text = text.replace(digits, name).replace(digits[:12], f"{name}····").replace(digits[:8], name)
        return text


def _of_any_machine(text: str) -> str:
    ours = version("loom-runtime")
    for here, anywhere in (
        (sys.executable, "python"),
        (f"{platform.python_version()} on {platform.system()}", "3.x on this system"),
        (f"loom {ours}", "loom VERSION"),
        (f"version {ours}", "version VERSION"),
        (f'"version":"{ours}"', '"version":"VERSION"'),
    ):
        text = text.replace(here, anywhere)
    return text
