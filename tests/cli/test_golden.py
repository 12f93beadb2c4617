"""What every command prints, to the letter: as text, as JSON and where it fails.

`golden/` holds transcripts (cli/transcript.py says how they are written). To add a case, write a line of `$ loom …`; to
record what is printed now, run

    LOOM_WRITE_GOLDEN=1 pytest tests/cli/test_golden.py

and review the difference like code.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import click
import pytest

from cli.golden_world import ABSENT, You, lay_out
from cli.model_server import model_server
from cli.test_left_open import killed_while_it_asked
from cli.transcript import played, read
from loom.cli.root import loom
from loom.cli.shared.exit_codes import INTERRUPTED, MEANINGS, OK

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.iterdir())
ELSEWHERE = {
    ("mcp-serve",): "a client of MCP speaks to it in tools/test_mcp_serve.py",
    ("users", "add"): "it prints a random key; daemon/test_users.py adds users",
    ("completion",): "the script is click's own; bash and zsh run it in test_help.py",
}


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> tuple[You, Path]:
    """One folder, made once; every transcript finds it as it was."""
    base = tmp_path_factory.mktemp("golden")
    you = You(base / "a-home-whose-path-is-longer-than-a-column")
    lay_out(you)
    shutil.copytree(you.folder.parent, base / "kept")
    return you, base / "kept"


@pytest.fixture
def you(laid_out: tuple[You, Path]) -> You:
    found, kept = laid_out
    shutil.rmtree(found.folder.parent)
    shutil.copytree(kept, found.folder.parent)
    return found


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_command_prints_exactly_what_was_reviewed(file: Path, you: You, monkeypatch: pytest.MonkeyPatch):
    for name in ABSENT:  # one by one: what a command imports meanwhile must stay
        monkeypatch.setitem(sys.modules, name, None)
    with WORLDS.get(file.stem, _nothing_more)(you):
        found = played(read(file), you, you.home)

    if os.environ.get("LOOM_WRITE_GOLDEN"):
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")


def test_every_command_has_a_transcript_and_so_has_its_json():
    seen: dict[tuple[str, ...], set[str]] = {}
    for file in FILES:
        for step in read(file).steps:
            seen.setdefault(_path_of(step.arguments), set()).update(step.arguments)

    commands = dict(_commands(loom, ()))
    missing = [path for path in commands if path not in seen and path not in ELSEWHERE]
    without_json = [
        path
        for path, command in commands.items()
        if any("--json" in option.opts for option in command.params) and "--json" not in seen.get(path, ())
    ]

    assert (missing, without_json) == ([], [])
    assert ELSEWHERE.keys() <= commands.keys() - seen.keys()


def test_every_exit_code_has_a_case():
    text = "".join(file.read_text(encoding="utf-8") for file in FILES)

    of_signals = {INTERRUPTED}  # which test_ask.py sends
    codes = MEANINGS.keys() - {OK} - of_signals
    assert {code for code in codes if f"\n[exit {code}]\n" not in text} == set()


def _commands(group: click.Group, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*above, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*above, name))


def _path_of(arguments: list[str]) -> tuple[str, ...]:
    """Which command a line runs; what names none is a question."""
    path: list[str] = []
    group: click.Command | None = loom
    for word in arguments:
        found = group.get_command(click.Context(group), word) if isinstance(group, click.Group) else None
        if found is None:
            break
        path.append(word)
        group = found
    return tuple(path) or ("ask",)


@contextmanager
def _nothing_more(_: You) -> Generator[None]:
    yield


@contextmanager
def _with_answers(you: You) -> Generator[None]:
    with model_server("One.", "Two.", "Three.", "Four.") as server:
        (you.home / "loom.toml").write_text(server.config)
        yield


@contextmanager
def _with_a_daemon(you: You) -> Generator[None]:
    """It reads the same file as the command, so that it is asked."""
    (you.home / "loom.toml").write_text('model = "loom/spark"\n')
    yield


@contextmanager
def _with_an_approval(you: You) -> Generator[None]:
    killed_while_it_asked(you)
    yield


@contextmanager
def _with_a_damaged_branch(you: You) -> Generator[None]:
    """Words of an answer about tea, which is not on the way to the head."""
    with closing(sqlite3.connect(you.home / "loom.db")) as database, database:
        database.execute("UPDATE node SET message = replace(message, 'Green tea', 'Salt') WHERE depth = 2")
    yield


WORLDS: dict[str, Callable[[You], AbstractContextManager[None]]] = {
    "answers": _with_answers,
    "daemon": _with_a_daemon,
    "approvals": _with_an_approval,
    "damage": _with_a_damaged_branch,
}
