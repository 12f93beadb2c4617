"""Servers from their registries: resources, prompts, roots, elicitation, sampling, and what else they are known for."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loom.content.blocks import ImageBlock, ToolCall, ToolResult
from loom.content.messages import text_of
from loom.events import ApprovalRequested, TurnFinished
from loom.session import Session
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.mcp import McpServers
from made import run
from tools.mcp_world import Context, everything, npm_server, pypi_server

ALLOW = {"approval.rules": [{"tool": "every__*", "action": "allow"}]}
MODEL = "anthropic/claude-sonnet-4-5"


def words(result: ToolResult) -> str:
    return "\n".join(text_of(block) for block in result.blocks)


async def test_everything_resources_and_prompts_are_tools_mentions_and_commands(tmp_path: Path) -> None:
    provider = ScriptedProvider(["First.", "Second."])
    async with (
        McpServers([everything()]) as servers,
        memory_runtime(ALLOW, providers={"anthropic": provider}, mcp=servers) as runtime,
    ):
        await servers.wait_ready(60)
        listed = words(await servers.tools["every__list_resources"].run(Context(), {}))
        uri = next(line.split(" · ")[0] for line in listed.splitlines() if "{" not in line)
        assert "{" in listed, "templates are listed, too"
        read = await servers.tools["every__read_resource"].run(Context(), {"uri": uri})
        assert len(words(read)) > 20
        assert "simple-prompt" in servers.tools["every__get_prompt"].spec.description
        got = await servers.tools["every__get_prompt"].run(
            Context(), {"prompt": "args-prompt", "arguments": {"city": "Oslo"}}
        )
        assert "Oslo" in words(got)
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send(f"summarize @every:{uri}")
        first = (await session.path())[0]
        assert any(words(read).split("\n")[-1] in text_of(block) for block in first.blocks)
        await session.send("/every:args-prompt Oslo")
        assert "Oslo" in (await session.path())[2].text
        assert not (await session.path())[2].text.startswith("/")


async def test_everything_roots_are_the_workspace(tmp_path: Path) -> None:
    context = Context()
    context.workspace = tmp_path
    async with McpServers([everything()]) as servers:
        await servers.wait_ready(60)
        assert tmp_path.as_uri() in words(await servers.tools["every__get-roots-list"].run(context, {}))


async def watch(session: Session, text: str, answers: dict[str, tuple[str, str]]) -> list[ApprovalRequested]:
    """Run a turn and answer what is asked by the words of the question; return the questions."""
    asked: list[ApprovalRequested] = []
    async with session.stream(text) as events:
        async for event in events:
            if isinstance(event, ApprovalRequested):
                asked.append(event)
                verdict, reason = next(value for words, value in answers.items() if words in event.action)
                await session.answer(event.approval, verdict, reason)  # type: ignore[arg-type]
    assert isinstance(event, TurnFinished)
    return asked


@pytest.mark.parametrize("verdict", ["once", "deny"])
async def test_everything_asks_the_user_for_values_through_an_approval(verdict: str) -> None:
    call = ToolCall("c1", "every__trigger-elicitation-request", {})
    provider = ScriptedProvider([call, "Done."])
    async with (
        McpServers([everything()]) as servers,
        memory_runtime(ALLOW, providers={"anthropic": provider}, mcp=servers) as runtime,
    ):
        session = await runtime.session(model=MODEL)
        await servers.wait_ready(60)
        asked = await watch(session, "go", {"MCP server 'every' asks": (verdict, "name=Ada Lovelace, integer=42")})
        assert len(asked) == 1
        assert asked[0].values is not None
        assert "name" in asked[0].values["properties"]
        result = (await session.path())[2].results[0]
        assert ("Ada Lovelace" in words(result)) == (verdict == "once")
        assert ("declined" in words(result)) == (verdict == "deny")


@pytest.mark.parametrize("verdict", ["once", "deny"])
async def test_everything_asks_the_model_after_an_approval(verdict: str) -> None:
    call = ToolCall("c1", "every__trigger-sampling-request", {"prompt": "Say blue.", "maxTokens": 20})
    answers: list[Any] = [call, "Blue.", "Done."] if verdict == "once" else [call, "Done."]
    provider = ScriptedProvider(answers)
    async with (
        McpServers([everything()]) as servers,
        memory_runtime(ALLOW, providers={"anthropic": provider}, mcp=servers) as runtime,
    ):
        session = await runtime.session(model=MODEL)
        await servers.wait_ready(60)
        (asked,) = await watch(session, "go", {"asks for a model response": (verdict, "")})
        assert "Say blue." in asked.action
        result = (await session.path())[2].results[0]
        assert ("Blue." in words(result)) == (verdict == "once")
        assert len(provider.prompts) == len(answers)


async def test_filesystem_reads_and_writes_in_its_folder_only(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    context = Context()
    context.workspace = tmp_path
    async with McpServers([npm_server("files", "server-filesystem", str(tmp_path))]) as servers:
        await servers.wait_ready(60)
        tools = servers.tools
        assert "hello" in words(await tools["files__read_text_file"].run(context, {"path": str(tmp_path / "a.txt")}))
        await tools["files__write_file"].run(context, {"path": str(tmp_path / "b.txt"), "content": "new"})
        assert (tmp_path / "b.txt").read_text() == "new"
        outside = await tools["files__read_text_file"].run(context, {"path": "/etc/hostname"})
        assert outside.is_error


async def test_memory_keeps_a_graph(tmp_path: Path) -> None:
    spec = npm_server("memory", "server-memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")})
    entity = {"name": "Loom", "entityType": "program", "observations": ["compiles conversations"]}
    async with McpServers([spec]) as servers:
        await servers.wait_ready(60)
        await servers.tools["memory__create_entities"].run(Context(), {"entities": [entity]})
        found = await servers.tools["memory__search_nodes"].run(Context(), {"query": "conversations"})
        assert "Loom" in words(found)
        assert found.data["entities"][0]["name"] == "Loom", "structured content is data"


@pytest.fixture
def page(tmp_path: Path) -> Generator[str]:
    (tmp_path / "index.html").write_text("<title>Shop</title><h1>Red boots</h1><p>For rainy days.</p>")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


async def test_playwright_takes_a_screenshot_of_a_page(page: str, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    assert browser is not None, "run tests/packages.sh"
    spec = npm_server(
        "browser", "@playwright/mcp", "--headless", "--isolated", "--no-sandbox", "--executable-path", browser,
        "--output-dir", str(tmp_path / "out"),
    )  # fmt: skip
    async with McpServers([spec]) as servers:
        await servers.wait_ready(60)
        seen = words(await servers.tools["browser__browser_navigate"].run(Context(), {"url": page}))
        assert "Shop" in seen
        shot = await servers.tools["browser__browser_take_screenshot"].run(Context(), {})
        assert not shot.is_error, words(shot)
        assert any(isinstance(block, ImageBlock) for block in shot.blocks)


async def test_git_tells_the_state_of_a_repository(tmp_path: Path) -> None:
    run("git", "init", "-q", "-b", "main", tmp_path)
    (tmp_path / "a.txt").write_text("x")
    async with McpServers([pypi_server("git", "mcp-server-git", "--repository", str(tmp_path))]) as servers:
        await servers.wait_ready(60)
        assert "a.txt" in words(await servers.tools["git__git_status"].run(Context(), {"repo_path": str(tmp_path)}))


async def test_time_converts_between_zones() -> None:
    given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    async with McpServers([pypi_server("time", "mcp-server-time", "--local-timezone", "UTC")]) as servers:
        await servers.wait_ready(60)
        found = await servers.tools["time__convert_time"].run(Context(), given)
        assert "T21:00" in json.loads(words(found))["target"]["datetime"]


async def test_fetch_reads_a_page_and_has_a_prompt(page: str) -> None:
    async with McpServers(
        [pypi_server("fetch", "mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips")]
    ) as servers:
        await servers.wait_ready(60)
        assert "rainy days" in words(await servers.tools["fetch__fetch"].run(Context(), {"url": page}))
        assert [prompt.name for prompt in servers.prompts()] == ["fetch"]
