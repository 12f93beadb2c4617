"""Real agents through the gateway: Claude Code and Codex, as their users run them, against scripted models."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from daemon.running import TOKEN, serving
from flow.far_models import far_model
from loom.content.blocks import ToolCall
from loom.testing import sample_png

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "agents"
PACKAGES = ("@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.166.0")

pytestmark = pytest.mark.xdist_group("agents")


async def run(*command: str, env: dict[str, str], cwd: Path, seconds: float = 240) -> str:
    """Run a program and return what it prints; fail with all of it where it fails."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(seconds):
        printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode(errors="replace")[-3000:]
    return printed.decode(errors="replace")


@pytest.fixture
async def agents() -> Path:
    """The folder with both programs, installed once per machine."""
    CACHE.mkdir(parents=True, exist_ok=True)
    programs = CACHE / "node_modules" / ".bin"
    with (CACHE / "lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not (programs / "codex").exists() or not (programs / "claude").exists():
            await run("npm", "install", "--silent", "--prefix", str(CACHE), *PACKAGES, env=dict(os.environ), cwd=CACHE)
    return programs


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(home), "NO_PROXY": "127.0.0.1", **more}


async def claude(agents: Path, url: str, home: Path, workspace: Path, prompt: str, *options: str) -> dict[str, Any]:
    env = environment(
        home,
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_AUTH_TOKEN=TOKEN,
        ANTHROPIC_MODEL="far",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    printed = await run(
        str(agents / "claude"), "-p", prompt, "--output-format", "json", *options, env=env, cwd=workspace
    )
    return json.loads(printed.strip().splitlines()[-1])


async def test_claude_code_reads_a_picture_through_a_chat_server(agents: Path, tmp_path: Path) -> None:
    workspace, home = tmp_path / "work", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    (workspace / "shot.png").write_bytes(sample_png(64, 48))
    read = ToolCall("call_1", "Read", {"file_path": str(workspace / "shot.png")})
    async with far_model("openai_chat", read, "It is blue.") as far, serving(far.runtime) as served:
        found = await claude(agents, served.url, home, workspace, "What is in shot.png?", "--allowedTools", "Read")
        assert found["result"] == "It is blue."
        assert not found["is_error"]
        asked = [number for number, _ in enumerate(far.requests) if far.pictures(number)]
        assert asked, "the picture that its tool read reached the chat server"
        sessions = await far.runtime.sessions.list(limit=10)
        roots = [await far.runtime.forest.path(session.head_id) for session in sessions]
        said = [node.message.text for path in roots for node in path if node.message is not None]
        assert "It is blue." in said


async def test_codex_runs_through_a_model_of_anthropic(agents: Path, tmp_path: Path) -> None:
    workspace, home = tmp_path / "work", tmp_path / "home"
    workspace.mkdir()
    (home / ".codex").mkdir(parents=True)
    async with far_model("anthropic", "All is well.") as far, serving(far.runtime) as served:
        (home / ".codex" / "config.toml").write_text(
            'model = "far"\nmodel_provider = "loom"\n[model_providers.loom]\nname = "loom"\n'
            f'base_url = "{served.url}/v1"\nenv_key = "LOOM_TOKEN"\nwire_api = "responses"\n'
        )
        env = environment(home, LOOM_TOKEN=TOKEN)
        command = (str(agents / "codex"), "exec", "--skip-git-repo-check", "How are things?")
        assert "All is well." in await run(*command, env=env, cwd=workspace)
        sent = far.requests[0]
        assert sent["model"] == "claude-opus-5"
        assert {tool["name"] for tool in sent["tools"]}, "its tools were offered"
