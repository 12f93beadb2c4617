"""Project instructions: what AGENTS.md says is in the system prompt of a new session, and its changes are told."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from loom.agent.instructions import MAX_BYTES, MAX_FILE_BYTES, InstructionFile, read_instructions, with_instructions
from loom.config import load_config
from loom.events import NoticeRaised
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_png

MODEL = "anthropic/claude-opus-5"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a folder in it, inside a folder that belongs to somebody else."""
    top = tmp_path / "project"
    (top / "part" / "deep").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    (tmp_path / "AGENTS.md").write_text("not of this project")
    return top


def texts(workspace: Path, own: Path | None = None) -> list[str]:
    return [file.text for file in read_instructions(workspace, own).files]


def test_instructions_come_from_the_top_of_the_project_down_to_the_workspace(project: Path) -> None:
    (project / "AGENTS.md").write_text("everywhere")
    (project / "part" / "deep" / "AGENTS.md").write_text("deep")
    assert texts(project / "part" / "deep") == ["everywhere", "deep"]
    assert texts(project / "part") == ["everywhere"]


def test_the_users_own_come_first(project: Path, tmp_path: Path) -> None:
    own = tmp_path / "config"
    own.mkdir()
    (own / "AGENTS.md").write_text("mine")
    (project / "AGENTS.md").write_text("everywhere")
    assert texts(project, own) == ["mine", "everywhere"]


def test_other_names_count_where_there_is_no_agents_md(project: Path) -> None:
    (project / "CLAUDE.md").write_text("claude")
    (project / "GEMINI.md").write_text("gemini")
    assert texts(project) == ["claude"]
    (project / "AGENTS.md").write_text("agents")
    assert texts(project) == ["agents"]


def test_without_a_repository_only_the_workspace_counts(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("above")
    inside = tmp_path / "inside"
    inside.mkdir()
    assert texts(inside) == []


def test_a_picture_a_secret_and_a_link_that_leads_out_are_left_out_and_said(project: Path, tmp_path: Path) -> None:
    (project / "AGENTS.md").write_bytes(sample_png())
    found = read_instructions(project, None)
    assert (found.files, found.notices) == ((), ("AGENTS.md is not a text file and was not read as instructions.",))
    (tmp_path / "id_rsa").write_text("a key")
    (project / "AGENTS.md").unlink()
    (project / "AGENTS.md").symlink_to(tmp_path / "id_rsa")
    found = read_instructions(project, None)
    assert (found.files, found.notices) == (
        (),
        ("AGENTS.md is outside the project or may contain secrets; it was not read as instructions.",),
    )


def test_a_link_inside_the_project_is_followed(project: Path) -> None:
    (project / "docs").mkdir()
    (project / "docs" / "agents.md").write_text("kept in docs")
    (project / "AGENTS.md").symlink_to("docs/agents.md")
    assert texts(project) == ["kept in docs"]


def test_what_is_too_long_is_cut_and_the_nearest_are_kept() -> None:
    files = [InstructionFile(f"{name}.md", name * (MAX_FILE_BYTES + 5)) for name in "abcd"]
    system = with_instructions("Be kind.", files)
    assert system.startswith("Be kind.\n\n[instructions: c.md]\n")
    assert system.count("[truncated]") == 2
    assert len(system) < MAX_BYTES + 500
    assert "d" * MAX_FILE_BYTES in system
    assert with_instructions("Be kind.", []) == "Be kind."


async def test_a_session_begins_with_them_and_hears_of_changes(project: Path, tmp_path: Path) -> None:
    (project / "AGENTS.md").write_text("Use tabs.\n" + "".join(f"Rule {at}\n" for at in range(30)))
    config = load_config(cwd=project, environ={"LOOM_HOME": str(tmp_path / "home")})
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "AGENTS.md").write_text("Speak German.\n")
    provider = ScriptedProvider(["ja", "ja", "ja"])
    async with Runtime.open(config, providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, system="You are helpful.", workspace=str(project / "part"))
        await session.send("hello")
        system = provider.prompts[0].system
        assert system.startswith("You are helpful.\n\n[instructions: ")
        assert system.index("Speak German.") < system.index("Use tabs.")
        assert len(await session.path()) == 2, "what the system prompt holds is not told again"
        (project / "AGENTS.md").write_text((project / "AGENTS.md").read_text().replace("tabs", "spaces"))
        await (await runtime.session(session.id)).send("and now?")
        assert provider.prompts[1].system == system, "the root stays, so that the cached prefix does"
        told = (await session.path())[2].text
        assert "-Use tabs." in told
        assert "+Use spaces." in told
        await session.send("more?")
        assert len(await session.path()) == 7


async def test_instructions_swapped_for_a_link_later_are_not_followed(project: Path, tmp_path: Path) -> None:
    (project / "AGENTS.md").write_text("Use tabs.\n")
    (tmp_path / "secret.txt").write_text("a secret\n")
    config = load_config(cwd=project, environ={"LOOM_HOME": str(tmp_path / "home")})
    provider = ScriptedProvider(["ja", "ja"])
    async with Runtime.open(config, providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(project / "part"))
        await session.send("hello")
        (project / "AGENTS.md").unlink()
        (project / "AGENTS.md").symlink_to(tmp_path / "secret.txt")
        events = [event async for event in session.stream("and now?")]
        assert "a secret" not in repr(provider.prompts)
        assert any("outside the workspace" in event.text for event in events if isinstance(event, NoticeRaised))
