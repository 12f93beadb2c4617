"""Servers over streamable HTTP: a server of the official SDK in its own process, on a free port."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loom.content.blocks import ImageBlock
from loom.content.media import digest_of
from loom.content.messages import text_of
from loom.errors import ToolError
from loom.tools.mcp import McpServers
from loom.tools.mcp.specs import ServerSpec
from tools.http_mcp import bmp
from tools.mcp_world import Context, until

SCRIPT = Path(__file__).with_name("http_mcp.py")
HEADERS = {"Authorization": "Bearer the-key"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def serving(port: int, form: str, script: Path = SCRIPT, *more: str) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, script, str(port), form, *more]) as process:
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield process
        finally:
            process.kill()


def spec_of(port: int, *, headers: dict[str, str] = HEADERS) -> ServerSpec:
    return ServerSpec(name="web", url=f"http://127.0.0.1:{port}/mcp", headers=headers, timeout_seconds=30)


@pytest.mark.parametrize("form", ["sse", "json"])
async def test_a_picture_of_megabytes_comes_over_http_as_it_was_sent(form: str) -> None:
    port = free_port()
    with serving(port, form):
        async with McpServers([spec_of(port)]) as servers:
            await servers.wait_ready(30)
            (block,) = (await servers.tools["web__noise"].run(Context(), {"size": 1200})).blocks
            assert isinstance(block, ImageBlock)
            assert block.media.digest == digest_of(bmp(1200))
            assert block.media.media_type == "image/bmp"
            with pytest.raises(
                ToolError, match="MCP server 'web' is unavailable: it sent a message of more than 50 MB"
            ):
                await servers.tools["web__noise"].run(Context(), {"size": 4400})
            assert (await servers.tools["web__whoami"].run(Context(), {})).blocks


async def test_without_its_header_the_server_is_told_as_gone_and_the_key_is_in_no_text() -> None:
    port = free_port()
    said: list[str] = []
    with serving(port, "sse"):
        async with McpServers([spec_of(port, headers={"Authorization": "wrong"})], notice=said.append) as servers:
            await servers.wait_ready(30)
            assert servers.tools == {}
            assert servers.status()[0].state == "failed"
    assert len(said) == 1
    assert "wrong" not in said[0]
    assert "the-key" not in repr(spec_of(port))


async def test_a_server_that_dies_in_mid_call_is_an_error_and_works_again_when_it_is_back() -> None:
    port = free_port()
    async with McpServers([spec_of(port)]) as servers:
        with serving(port, "sse") as process:
            await servers.wait_ready(30)
            call = asyncio.create_task(servers.tools["web__slow"].run(Context(), {}))
            await asyncio.sleep(0.2)
            process.kill()
            with pytest.raises(ToolError, match="MCP server 'web' is unavailable"):
                await call
            process.wait()
            with pytest.raises(ToolError, match="MCP server 'web' is unavailable: it cannot be reached"):
                await servers.tools["web__whoami"].run(Context(), {})
        with serving(port, "sse") as process:
            (block,) = (await servers.tools["web__whoami"].run(Context(), {})).blocks
            assert text_of(block) == str(process.pid)


async def test_a_server_that_forgot_its_sessions_is_connected_anew() -> None:
    port = free_port()
    async with McpServers([spec_of(port)]) as servers:
        with serving(port, "json"):
            await servers.wait_ready(30)
            await servers.tools["web__whoami"].run(Context(), {})
        with serving(port, "json") as process:
            try:
                (block,) = (await servers.tools["web__whoami"].run(Context(), {})).blocks
            except ToolError:
                (block,) = (await servers.tools["web__whoami"].run(Context(), {})).blocks
            assert text_of(block) == str(process.pid)


async def test_an_address_where_nobody_listens_costs_nothing_but_its_tools() -> None:
    async with McpServers([spec_of(free_port())]) as servers:
        await servers.wait_ready(30)
        (status,) = servers.status()
        assert status.state == "failed"
        assert "cannot be reached" in status.error


async def test_a_server_that_tells_of_changes_only_to_subscribers_is_subscribed_to() -> None:
    port = free_port()
    with serving(port, "sse"):
        async with McpServers([spec_of(port)]) as servers:
            await servers.wait_ready(30)
            assert list(servers.tools) == ["web__noise", "web__slow", "web__whoami", "web__grow"]
            await servers.tools["web__grow"].run(Context(), {})
            await until(lambda: "web__grown" in servers.tools)
