"""Real programs through the gateway, as their users run them, against scripted models: Claude Code, Codex, OpenCode,
aider, and the official SDKs for JavaScript; and clients that cannot run here, by the requests that they document."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from daemon.gateways import gateway, stored_messages
from daemon.running import TOKEN, serving
from flow.far_models import far_model, speak
from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.testing import memory_runtime, sample_pdf, sample_png
from providers.far_side import Reply, Request, far_side, refusal
from providers.llama_server import llama_server

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


async def claude(
    agents: Path, url: str, home: Path, workspace: Path, prompt: str, *options: str, model: str = "far"
) -> dict[str, Any]:
    env = environment(
        home,
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_AUTH_TOKEN=TOKEN,
        ANTHROPIC_MODEL=model,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    printed = await run(
        str(agents / "claude"), "-p", prompt, "--output-format", "json", *options, env=env, cwd=workspace
    )
    return json.loads(printed.strip().splitlines()[-1])


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A workspace with an image, a PDF and a program, and a home."""
    workspace, home = tmp_path / "work", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    (workspace / "shot.png").write_bytes(sample_png(64, 48))
    (workspace / "a.pdf").write_bytes(sample_pdf("The answer is 42."))
    (workspace / "a.py").write_text("x = 1\n")
    return workspace, home


@pytest.mark.parametrize("wire", ["anthropic", "openai_responses", "openai_chat", "gemini"])
async def test_claude_code_sees_edits_and_asks_through_every_kind_of_server(
    agents: Path, places: tuple[Path, Path], wire: str
) -> None:
    """Its own tools read an image and a PDF, an edit that is approved is made, a command that is not is denied."""
    workspace, home = places
    edit = {"file_path": str(workspace / "a.py"), "old_string": "x = 1", "new_string": "x = 2"}
    steps: list[Any] = [
        *(
            ToolCall(f"call_{name}", "Read", {"file_path": str(workspace / name)})
            for name in ("shot.png", "a.pdf", "a.py")
        ),
        ToolCall("call_edit", "Edit", edit),
        ToolCall("call_run", "Bash", {"command": "touch made.txt", "description": "Make a file"}),
        "All done.",
    ]
    async with far_model(wire, *steps) as far, serving(far.runtime) as served:
        prompt = "Look at shot.png and a.pdf, then set x to 2."
        found = await claude(agents, served.url, home, workspace, prompt, "--allowedTools", "Read,Edit")
        assert (found["result"], found["is_error"]) == ("All done.", False)
        assert (workspace / "a.py").read_text() == "x = 2\n"
        assert [denied["tool_name"] for denied in found["permission_denials"]] == ["Bash"]
        assert not (workspace / "made.txt").exists()
        last = len(far.requests) - 1
        shown = far.pictures(last)
        assert hashlib.sha256((workspace / "shot.png").read_bytes()).hexdigest() in "".join(shown)
        is_native = hashlib.sha256((workspace / "a.pdf").read_bytes()).hexdigest() in "".join(shown)
        assert is_native or len(shown) == 2 or "The answer is 42." in far.texts(last), "as a PDF, a page or text"
        (messages,) = await stored_messages(far.runtime)
        assert messages[-1].text == "All done."
        assert [call.name for message in messages for call in message.calls] == ["Read"] * 3 + ["Edit", "Bash"]
        (denial,) = [result for message in messages for result in message.results if result.call_id == "call_run"]
        assert denial.is_error
        assert text_of(denial.blocks[0]).splitlines()[0] in far.texts(last), "the model is told of the denial"


async def test_claude_code_runs_with_the_model_that_needs_no_key(agents: Path, places: tuple[Path, Path]) -> None:
    workspace, home = places
    async with memory_runtime({"model": "loom/spark"}) as runtime, serving(runtime) as served:
        found = await claude(agents, served.url, home, workspace, "hello", model="loom/spark")
        assert not found["is_error"]
        assert found["result"].strip()


async def test_claude_code_goes_on_with_a_session_that_another_gateway_bricked(
    agents: Path, places: tuple[Path, Path]
) -> None:
    """A gateway hands a PDF to a chat server as an image, which is refused: now and with every further request. With
    the base URL changed in mid-session, the conversation goes on."""
    workspace, home = places
    read = ToolCall("call_1", "Read", {"file_path": str(workspace / "a.pdf")})

    def answer(request: Request) -> Reply:
        if request.method != "POST" or b"application/pdf" in request.body:
            said = "Unsupported content type: application/pdf"
            return refusal(400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}})
        return speak("anthropic", read)

    def chat(request: Request) -> Reply:
        if request.method != "POST" or b"JVBERi0" in request.body:
            return refusal(400, {"error": {"message": "Unsupported content type: application/pdf"}})
        return speak("openai_chat", "It says 42.")

    async with (
        far_side(answer) as other,
        far_side(chat) as server,
        memory_runtime(
            {"models": {"far": {"provider": "openai-compatible", "model": "qwen", "base_url": server.url}}}
        ) as runtime,
        serving(runtime) as served,
    ):
        for options in ((), ("--continue",)):
            with pytest.raises(AssertionError, match="Unsupported content type"):
                await claude(agents, other.url, home, workspace, "Read a.pdf.", "--allowedTools", "Read", *options)
        for prompt in ("What does it say?", "Sure?"):
            found = await claude(agents, served.url, home, workspace, prompt, "--continue")
            assert (found["result"], found["is_error"]) == ("It says 42.", False)
        sent = [request.body for request in server.requests if request.method == "POST"]
        assert all(b"JVBERi0" not in body for body in sent), "a chat server gets no PDF"
        assert b"The answer is 42." in sent[-1] or b"image_url" in sent[-1], "its text or its pages"


@pytest.mark.parametrize("wire", ["anthropic", "openai_responses", "openai_chat", "gemini"])
async def test_the_title_that_claude_code_asks_for_has_its_schema_on_every_platform(wire: str) -> None:
    """The first request of an interactive session, as it was seen."""
    schema = {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
        "additionalProperties": False,
    }
    body = {
        "model": "far",
        "max_tokens": 32_000,
        "stream": True,
        "tools": [],
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cch=00000;"},
            {"type": "text", "text": "Generate a title for this session."},
        ],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "<session>fix it</session>"}]}],
    }
    async with gateway(wire, '{"title": "Fix it"}') as door:
        answer = await door.http.post("/v1/messages?beta=true", json=body)
        assert answer.status_code == 200, answer.text
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        said = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
        assert json.loads(said) == {"title": "Fix it"}
        sent = json.dumps(door.far.requests[0])
        assert '"title"' in sent and '"required"' in sent, "the schema went out"
        assert ("billing-header" in sent) == (wire == "anthropic")


async def test_every_protocol_reaches_a_real_local_model() -> None:
    """llama.cpp with a small real model behind the gateway, the official SDKs before it."""
    with llama_server() as address:
        entry = {"provider": "compatible", "model": "smollm2", "base_url": f"{address}/v1", "context_tokens": 2_048}
        async with (
            memory_runtime({"models": {"small": entry}}) as runtime,
            serving(runtime) as served,
            anthropic.AsyncAnthropic(base_url=served.url, api_key=TOKEN, max_retries=0, timeout=300) as claude_sdk,
            openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=TOKEN, max_retries=0, timeout=300) as openai_sdk,
        ):
            source: Any = {
                "type": "base64",
                "media_type": "image/png",
                "data": base64.b64encode(sample_png(64, 48)).decode(),
            }
            ask: Any = [
                {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "Hi"}]}
            ]
            whole = await claude_sdk.messages.create(model="small", max_tokens=8, messages=ask)
            assert whole.content and whole.usage.output_tokens
            async with claude_sdk.messages.stream(model="small", max_tokens=8, messages=ask) as stream:
                assert (await stream.get_final_message()).content
            chat = await openai_sdk.chat.completions.create(
                model="small", max_tokens=8, messages=[{"role": "user", "content": "Hi"}]
            )
            assert chat.choices[0].message.content
            response = await openai_sdk.responses.create(model="small", max_output_tokens=16, input="Hi")
            assert response.output_text


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
