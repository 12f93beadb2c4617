"""Folders that the user was not asked about: what they bring is shown, asked for once, and used only after a yes."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loom.config import Config, load_config
from loom.config.mcp_files import project_servers
from loom.config.trust import MAX_FILES, TrustRecords, files_digest
from loom.errors import ConfigError
from loom.events import NoticeRaised
from loom.runtime import Runtime
from loom.runtime.servers import trusted_by
from loom.runtime.skills import find_commands, find_skills
from loom.testing import ScriptedProvider
from patience import PATIENCE_SECONDS

MODEL = "anthropic/claude-opus-5"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository that brings everything that there is."""
    work = tmp_path / "work"
    for folder in (work / ".git", work / ".loom" / "skills" / "evil", work / ".claude" / "commands", tmp_path / "home"):
        folder.mkdir(parents=True)
    (work / "AGENTS.md").write_text("Obey the project.")
    (work / "loom.toml").write_text(
        "[images]\nmax_pixels = 999_000_000\nlow_res_size = 256\n[hooks]\nturn_start = []\n"
    )
    (work / ".loom" / "skills" / "evil" / "SKILL.md").write_text("---\nname: evil\ndescription: x\n---\nDo it.")
    (work / ".claude" / "commands" / "go.md").write_text("Go.")
    (work / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "evil"}}}')
    return work


def config(project: Path) -> Config:
    home = str(project.parent / "home")
    return load_config(cwd=project, environ={"LOOM_HOME": home, "HOME": home})


def records(project: Path) -> TrustRecords:
    return TrustRecords(project.parent / "home")


def used(project: Path) -> set[str]:
    """Name what of the folder has an effect."""
    found = config(project)
    servers = project_servers(project, trusted_by(found, project)).specs
    kinds = {
        "limits": found.images.max_pixels == 999_000_000,
        "settings": found.images.low_res_size == 256,
        "skills": "evil" in find_skills(found, project),
        "commands": "go" in find_commands(found, project),
        "servers": [spec.name for spec in servers] == ["evil"],
    }
    return {name for name, is_used in kinds.items() if is_used}


def decide(project: Path, *, is_trusted: bool) -> None:
    known = records(project)
    known.decide(project, files_digest(known.files(project)), is_trusted=is_trusted)


def test_nothing_widens_a_limit_before_a_yes_and_nothing_counts_after_a_no(project: Path) -> None:
    assert used(project) == {"settings"}
    decide(project, is_trusted=True)
    assert used(project) == {"limits", "settings", "skills", "commands", "servers"}
    decide(project, is_trusted=False)
    assert used(project) == set()
    assert records(project).revoke(project) and not records(project).revoke(project)
    assert used(project) == {"settings"}


@pytest.mark.parametrize(
    "name",
    [
        "AGENTS.md",
        "loom.toml",
        ".mcp.json",
        ".loom/skills/evil/SKILL.md",
        ".loom/skills/evil/run.sh",
        ".claude/commands/new.md",
    ],
)
def test_a_yes_counts_only_for_what_was_seen(project: Path, name: str) -> None:
    decide(project, is_trusted=True)
    before = (project / name).read_text() if (project / name).exists() else ""
    (project / name).write_text(before + "\n")
    assert records(project).find(project) == "unknown"
    assert "limits" not in used(project) and "skills" not in used(project)
    if before:
        (project / name).write_text(before)
        assert records(project).find(project) == "trusted", "the same content as before"


def test_a_yes_counts_for_one_folder_and_not_for_what_lies_below_or_beside(project: Path) -> None:
    decide(project, is_trusted=True)
    (project / "below").mkdir()
    assert records(project).find(project / "below") == "unknown"
    link = project.parent / "link"
    link.symlink_to(project)
    assert records(project).find(link) == "trusted", "another name of the same folder"
    moved = project.rename(project.parent / "elsewhere")
    assert records(moved).find(moved) == "unknown"


def test_what_a_link_brings_in_is_part_of_what_was_seen(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "SKILL.md").write_text("harmless")
    (project / ".loom" / "skills" / "linked").symlink_to(outside)
    decide(project, is_trusted=True)
    assert "linked" in find_skills(config(project), project)
    (outside / "SKILL.md").write_text("not any more")
    assert "linked" not in find_skills(config(project), project)


def test_a_folder_with_too_many_files_to_see_cannot_be_decided_about(project: Path) -> None:
    (project / ".loom" / "skills" / "loop").symlink_to(project / ".loom" / "skills")
    for number in range(MAX_FILES):
        (project / ".loom" / "skills" / f"{number}.md").touch()
    with pytest.raises(ConfigError, match="too many files"):
        decide(project, is_trusted=True)
    assert records(project).find(project) == "unknown"


def test_the_file_of_decisions_is_private_and_a_damaged_one_trusts_nothing(project: Path) -> None:
    decide(project, is_trusted=True)
    file = project.parent / "home" / "trust.json"
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        config(project)


async def test_a_session_says_what_its_folder_brings_and_does_not_get(project: Path) -> None:
    async def begin() -> tuple[str, str]:
        provider = ScriptedProvider(["fine"])
        async with Runtime.open(config(project), providers={"anthropic": provider}, tools="all") as runtime:
            session = await runtime.session(model=MODEL, workspace=str(project))
            notices = [event.text async for event in session.stream("hi") if isinstance(event, NoticeRaised)]
        return provider.prompts[0].system, "\n".join(notices)

    system, notices = await begin()
    assert "Obey the project." in system and "evil" not in system
    assert "contains skills, commands, MCP servers, ignored until trusted" in notices
    decide(project, is_trusted=False)
    system, notices = await begin()
    assert "Obey the project." not in system and "you do not trust this folder" in notices
    (project / ".mcp.json").unlink()  # its server does not exist
    decide(project, is_trusted=True)
    system, notices = await begin()
    assert "Obey the project." in system and "evil: x" in system and "trust" not in notices


def _in_terminal(project: Path, answer: str, *arguments: str) -> str:
    """Run the command in a terminal, answer its first question, and return what the terminal shows."""
    home = str(project.parent / "home")
    environ = {**os.environ, "LOOM_HOME": home, "HOME": home, "TERM": "dumb", "LOOM_MODEL": "loom/spark"}
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "loom.cli.main", *arguments]
    with subprocess.Popen(command, cwd=project, env=environ, stdin=inner, stdout=inner, stderr=inner) as process:
        os.close(inner)
        shown, has_answered, until = "", False, time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            if select.select([outer], [], [], 0.1)[0]:
                try:
                    data = os.read(outer, 65_536)
                except OSError:  # the program has ended
                    break
                shown += data.decode("utf-8", "replace")
            if not has_answered and "[y/N]" in shown:
                os.write(outer, f"{answer}\n".encode())
                has_answered = True
        process.kill()
    os.close(outer)
    return shown


def test_a_terminal_shows_the_files_and_asks_once_until_they_change(project: Path) -> None:
    shown = _in_terminal(project, "y", "ask", "hello")
    assert "Obey the project." in shown and ".mcp.json" in shown and "max_pixels" in shown
    assert "Do you trust the files in this folder?" in shown
    assert records(project).find(project) == "trusted"
    assert "Do you trust" not in _in_terminal(project, "y", "ask", "hello")
    (project / "AGENTS.md").write_text("Obey me now.")
    shown = _in_terminal(project, "n", "ask", "hello")
    assert "Obey me now." in shown and "Do you trust" in shown
    assert records(project).find(project) == "refused"
    assert "Do you trust" not in _in_terminal(project, "y", "ask", "hello")


def test_the_command_lists_adds_refuses_and_revokes(project: Path) -> None:
    home = str(project.parent / "home")
    environ = {**os.environ, "LOOM_HOME": home, "HOME": home}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "loom.cli.main", "trust", *arguments]
        return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False).stdout

    assert "No decisions yet" in run()
    assert "is trusted as it is now" in run("add", "--yes")
    assert f"{project}" in run() and run().startswith("trusted")
    (project / "AGENTS.md").write_text("other")
    assert run().startswith("changed")
    assert "is not trusted" in run("refuse")
    assert run().startswith("refused")
    assert "was removed" in run("revoke")
    assert "No decisions yet" in run()
