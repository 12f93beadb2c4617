"""Logins with OAuth at a local authorization server: `loom mcp login`, what is stored, and how it is renewed."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from loom.content.messages import text_of
from loom.errors import ToolError
from loom.tools.mcp import McpServers
from loom.tools.mcp.records import TokenFile
from loom.tools.mcp.specs import ServerSpec
from tools.mcp_world import Context
from tools.test_mcp_http import free_port, serving

SCRIPT = Path(__file__).with_name("oauth_mcp.py")
LOOM = str(Path(sys.executable).with_name("loom"))


def browse(url: str) -> str:
    """What a browser does: it follows the redirections to the local address."""
    with urllib.request.urlopen(url, timeout=30) as page:
        return page.read().decode()


class User:
    """Somebody with a `loom` command and a configuration that names one server."""

    def __init__(self, home: Path, port: int) -> None:
        self.environ = {**os.environ, "HOME": str(home), "LOOM_HOME": str(home)}
        self.logins = home / "mcp-logins.json"
        (home / "loom.toml").write_text(f'[mcp.servers.private]\nurl = "http://127.0.0.1:{port}/mcp"\n')
        self._home = home

    def loom(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [LOOM, *words]
        return subprocess.run(
            command, env=self.environ, cwd=self._home, text=True, capture_output=True, timeout=120, check=False
        )

    def log_in(self) -> tuple[int, str, str]:
        """Return the exit code, what the page says, and what the command printed."""
        command = [LOOM, "mcp", "login", "private", "--no-browser"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, env=self.environ, cwd=self._home, text=True, stdout=pipe, stderr=pipe
        ) as process:
            assert process.stderr is not None
            url = next((line.strip() for line in process.stderr if line.startswith("http")), "")
            page = browse(url) if url else ""
            out, err = process.communicate(timeout=120)
        return process.returncode, page, out + err


async def test_a_login_is_stored_for_its_owner_and_used_from_then_on(tmp_path: Path) -> None:
    port = free_port()
    user = User(tmp_path, port)
    with serving(port, "3600", SCRIPT, "agree"):
        before = user.loom("mcp", "list", "--check")
        assert before.returncode != 0
        assert "login required: run `loom mcp login private`" in before.stdout
        code, page, printed = user.log_in()
        assert (code, "The login is complete" in page) == (0, True), printed
        assert "logged in at private: 1 tool" in printed
        assert stat.S_IMODE(user.logins.stat().st_mode) == 0o600
        stored = json.loads(user.logins.read_text())["private"]
        assert stored["tokens"]["access_token"] not in printed
        after = user.loom("mcp", "list", "--check")
        assert (after.returncode, "1 tool" in after.stdout) == (0, True), after.stdout + after.stderr
        assert user.loom("mcp", "logout", "private").returncode == 0
        assert user.loom("mcp", "list", "--check").returncode != 0


async def test_an_expired_token_is_renewed_without_the_user_also_in_another_process(tmp_path: Path) -> None:
    port = free_port()
    user = User(tmp_path, port)
    with serving(port, "2", SCRIPT, "agree"):
        assert user.log_in()[0] == 0
        first = json.loads(user.logins.read_text())["private"]["tokens"]["access_token"]
        await asyncio.sleep(2.1)  # the token expires
        spec = ServerSpec(name="private", url=f"http://127.0.0.1:{port}/mcp", timeout_seconds=30)
        async with McpServers([spec], tokens=TokenFile(user.logins)) as servers:
            await servers.wait_ready(30)
            (block,) = (await servers.tools["private__refreshed"].run(Context(), {})).blocks
            assert int(text_of(block)) >= 1
        assert json.loads(user.logins.read_text())["private"]["tokens"]["access_token"] != first


async def test_a_refused_login_says_so_and_stores_nothing(tmp_path: Path) -> None:
    port = free_port()
    user = User(tmp_path, port)
    with serving(port, "3600", SCRIPT, "refuse"):
        code, page, printed = user.log_in()
        assert code != 0
        assert "The login was refused" in page
        assert "the login was refused: access_denied" in printed
        assert not user.logins.exists()


async def test_a_login_that_is_cancelled_ends_without_another_error(tmp_path: Path) -> None:
    is_asked = asyncio.Event()
    errors: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    async def never_respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_asked.set()
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(never_respond, "127.0.0.1", 0)
    spec = ServerSpec(name="private", url=f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/mcp")
    async with McpServers([spec]) as servers:
        login = asyncio.create_task(servers.log_in("private", _open_nothing, TokenFile(tmp_path / "logins.json")))
        await is_asked.wait()
        login.cancel()
        await asyncio.wait([login])
    assert login.cancelled()
    for writer in writers:
        writer.close()
    silent.close()
    assert errors == []


async def _open_nothing(_: str) -> None:
    raise AssertionError


async def test_a_login_that_no_longer_counts_names_the_command(tmp_path: Path) -> None:
    port = free_port()
    user = User(tmp_path, port)
    with serving(port, "3600", SCRIPT, "agree"):
        assert user.log_in()[0] == 0
    said: list[str] = []
    with serving(port, "3600", SCRIPT, "agree"):  # it has forgotten all tokens
        spec = ServerSpec(name="private", url=f"http://127.0.0.1:{port}/mcp", timeout_seconds=30)
        async with McpServers([spec], tokens=TokenFile(user.logins), notice=said.append) as servers:
            await servers.wait_ready(30)
    assert said == ["MCP server 'private' is unavailable: its login has expired: run `loom mcp login private`."]


async def test_a_damaged_login_counts_as_none(tmp_path: Path) -> None:
    port = free_port()
    logins = tmp_path / "mcp-logins.json"
    url = f"http://127.0.0.1:{port}/mcp"
    logins.write_text(json.dumps({"private": {"url": url, "tokens": {"access_token": 5}}}))
    said: list[str] = []
    with serving(port, "3600", SCRIPT, "agree"):
        spec = ServerSpec(name="private", url=url, timeout_seconds=30)
        async with McpServers([spec], tokens=TokenFile(logins), notice=said.append) as servers:
            await servers.wait_ready(30)
    assert said == ["MCP server 'private' is unavailable: login required: run `loom mcp login private`."]


async def test_a_stored_login_without_what_was_not_known_is_used(tmp_path: Path) -> None:
    port = free_port()
    user = User(tmp_path, port)
    with serving(port, "3600", SCRIPT, "agree"):
        assert user.log_in()[0] == 0
        stored = json.loads(user.logins.read_text())
        assert set(stored["private"]) == {"url", "tokens", "expires_at", "client", "metadata"}
        del stored["private"]["expires_at"], stored["private"]["metadata"]
        user.logins.write_text(json.dumps(stored))
        assert user.loom("mcp", "list", "--check").returncode == 0


async def test_a_program_needs_no_login() -> None:
    async with McpServers([ServerSpec(name="files", command="cat")]) as servers:
        with pytest.raises(ToolError, match="is a program, which needs no login"):
            await servers.log_in("files", lambda _: None, TokenFile(Path("unused")))  # type: ignore[arg-type]
