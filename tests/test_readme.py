"""The README's first ten minutes are one story: every command runs, in order, in one session, without a network."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from cli.loom_command import Loom
from cli.model_server import model_server

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_first_ten_minutes_are_one_session(tmp_path: Path) -> None:
    page = README.read_text("utf-8")
    story = page.split("## The first ten minutes")[1].split("```console\n")[1].split("```")[0]
    lines = [shlex.split(line.removeprefix("$ "), comments=True) for line in story.splitlines()]
    commands = [line for line in lines if line[0] == "loom"]
    server = page.split("An OpenAI-compatible server")[1].split("```toml\n")[1].split("```")[0]
    loom = Loom(tmp_path, LOOM_MODEL="")
    for _, source, target in (line for line in lines if line[0] == "cp"):
        shutil.copy(README.parent / source, loom.folder / target)

    with model_server("A login page with an error.") as far_side:
        url = far_side.config.split('base_url = "')[1].split('"')[0]
        (loom.home / "loom.toml").write_text(re.sub(r'base_url = "[^"]*"', f'base_url = "{url}"', server))
        ran = {command[-1]: loom(*command[1:]) for command in commands}

    assert {words: found.err for words, found in ran.items() if found.code} == {}
    assert len(commands) + 2 == len(lines), "nothing of the story is left out"
    assert "Pages 1 and 2 of report.pdf mention" in ran["which pages talk about timeouts?"].out
    assert "900×500" in ran["and the first image again?"].out
    assert ran["in one line"].out.strip().startswith("A login page with an error.")
    sessions = loom("sessions", "--json").rows
    assert len(sessions) == 1
    assert len(far_side.requests[-1]["messages"]) >= 7, "the other model reads the whole conversation"


def test_every_command_of_the_readme_exists() -> None:
    from loom.cli.root import COMMANDS

    named = set(re.findall(r"(?:^\$ |`)loom ([a-z-]+)", README.read_text("utf-8"), flags=re.MULTILINE))
    assert named <= set(COMMANDS) | {"-c"}
