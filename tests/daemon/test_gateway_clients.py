"""Real programs through the gateway, as their users run them, against scripted models: Claude Code, Codex, OpenCode,
aider, and the official SDKs for JavaScript; and clients that cannot run here, by the requests that they document."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest

from daemon.running import TOKEN, serving
from flow.far_models import far_model
from loom.content.blocks import ToolCall
from loom.testing import sample_png
from providers.far_side import Reply

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "agents"
PACKAGES = (
    "@anthropic-ai/claude-code@2.1.197",
    "@openai/codex@0.166.0",
    "opencode-ai@1.18.33",
    "openai@6.49.0",
    "@anthropic-ai/sdk@1.9.0",
)
PROGRAMS = ("claude", "codex", "opencode")
THOUGHT = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"Let me see."}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"Blue."},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,'
    b'"completion_tokens":5,"total_tokens":14}}\n\ndata: [DONE]\n\n'
)

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
    """The folder with the programs, installed once per machine."""
    CACHE.mkdir(parents=True, exist_ok=True)
    programs = CACHE / "node_modules" / ".bin"
    with (CACHE / "lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        packages = [CACHE / "node_modules" / name for name in ("openai", "@anthropic-ai/sdk")]
        if not all(path.exists() for path in (*packages, *(programs / name for name in PROGRAMS))):
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
        sessions = await far.runtime.stores.sessions.list(limit=10)
        roots = [await far.runtime.stores.forest.path(session.head_id) for session in sessions]
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


async def test_opencode_runs_through_a_model_of_anthropic(agents: Path, tmp_path: Path) -> None:
    workspace, home = tmp_path / "work", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    async with far_model("anthropic", "All is well.") as far, serving(far.runtime) as served:
        options = {"baseURL": f"{served.url}/v1", "apiKey": TOKEN}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Loom", "options": options, "models": {"far": {}}}
        (workspace / "opencode.json").write_text(json.dumps({"provider": {"loom": provider}, "autoupdate": False}))
        env = environment(home, OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1")
        command = (str(agents / "opencode"), "run", "--model", "loom/far", "How are things?")
        assert "All is well." in await run(*command, env=env, cwd=workspace)
        assert any(request.get("tools") for request in far.requests), "its tools were offered"


@pytest.mark.skipif(
    not os.environ.get("LOOM_TEST_AIDER"), reason="installing aider takes minutes: set LOOM_TEST_AIDER=1"
)
async def test_aider_edits_a_file_through_a_model_of_anthropic(tmp_path: Path) -> None:
    workspace, home = tmp_path / "work", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    (workspace / "a.py").write_text("x = 1\n")
    edit = "a.py\n```python\n<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n```\n"
    async with far_model("anthropic", edit) as far, serving(far.runtime) as served:
        env = environment(home, OPENAI_API_BASE=f"{served.url}/v1", OPENAI_API_KEY=TOKEN, AIDER_ANALYTICS="false")
        command = (
            str(await aider()), "--model", "openai/far", "--yes-always", "--no-git", "--no-check-update",
            "--no-show-model-warnings", "--edit-format", "diff", "--message", "Make x two.", "a.py",
        )  # fmt: skip
        await run(*command, env=env, cwd=workspace)
        assert (workspace / "a.py").read_text() == "x = 2\n"


async def aider() -> Path:
    """The program, in an environment of its own: its pins exclude ours."""
    place = CACHE.parent / "aider"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "aider.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not (place / "bin" / "aider").exists():
            await run("python3", "-m", "venv", str(place), env=dict(os.environ), cwd=CACHE)
            pip = str(place / "bin" / "pip")
            await run(pip, "install", "-q", "aider-chat", env=dict(os.environ), cwd=CACHE, seconds=600)
    return place / "bin" / "aider"


async def test_the_sdks_for_javascript_stream_call_tools_see_pictures_and_think(agents: Path, tmp_path: Path) -> None:
    picture = base64.b64encode(sample_png(64, 48)).decode()
    thought = Reply(body=THOUGHT)
    call = ToolCall("call_1", "look", {"what": "page"})
    async with far_model("openai_chat", ["Looking.", call], thought) as far, serving(far.runtime) as served:
        script = Path(__file__).parent / "js" / "gateway_sdks.mjs"
        env = environment(tmp_path, NODE_PATH=str(agents.parent))
        printed = await run("node", str(script), served.url, TOKEN, picture, env=env, cwd=tmp_path)
        found = json.loads(printed.strip().splitlines()[-1])
        events = found.pop("events")
        assert found == {
            "call": "look", "anthropic": "Blue.", "thinking": "Let me see.", "again": "Blue.", "chat": "Blue.",
            "chunks": "Blue.", "usage": 14, "response": "Blue.", "models": True, "error": True,
        }  # fmt: skip
        assert (events[0], events[-1]) == ("response.created", "response.completed")
        assert len(far.pictures(1)) == 1
        assert "loom1." not in json.dumps(far.requests), "a handle of thinking never leaves"


DOCUMENTED: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "Open WebUI": (
        "/v1/chat/completions",
        {},
        {
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}],
            "metadata": {"chat_id": "x"},
            "features": {"web_search": False},
        },
    ),
    "Cline": (
        "/v1/chat/completions",
        {"HTTP-Referer": "https://cline.bot", "X-Title": "Cline"},
        {
            "stream": True,
            "temperature": 0,
            "stream_options": {"include_usage": True},
            "messages": [
                {"role": "system", "content": "You are Cline."},
                {"role": "user", "content": [{"type": "text", "text": "<task>hi</task>"}]},
            ],
        },
    ),
}


@pytest.mark.parametrize("client", list(DOCUMENTED))
async def test_clients_that_cannot_run_here_are_answered_as_they_document_it(client: str) -> None:
    path, headers, body = DOCUMENTED[client]
    async with (
        far_model("anthropic", "All is well.") as far,
        serving(far.runtime) as served,
        httpx2.AsyncClient(base_url=served.url, headers={"Authorization": f"Bearer {TOKEN}", **headers}) as http,
    ):
        listed = (await http.get("/v1/models")).json()
        assert "far" in [model["id"] for model in listed["data"]]
        answer = await http.post(path, json={"model": "far", **body})
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        chunks = [json.loads(line) for line in lines[:-1]]
        said = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
        assert said == "All is well."
        assert chunks[-1]["usage"]["total_tokens"] == 14
