"""`loom mcp-serve`, driven by the official SDK's client over stdio."""

from __future__ import annotations

import base64
import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from loom.errors import ToolError
from loom.testing import sample_pdf, sample_png, sample_wav
from loom.tools.base import Tool
from loom.tools.file_read import read_file
from loom.tools.look import look
from loom.tools.mcp.serve import ServedCall, ServedMedia, ServeOptions
from loom.tools.workspace import open_file


@asynccontextmanager
async def client(workspace: Path, *options: str) -> AsyncGenerator[Client]:
    args = ["-m", "loom.cli.main", "mcp-serve", "--workspace", str(workspace), *options]
    environment = {"LOOM_HOME": str(workspace / ".loom-home")}
    async with Client(StdioServerParameters(command=sys.executable, args=args, env=environment)) as connected:
        yield connected


def words(result: types.CallToolResult) -> str:
    return "\n".join(item.text for item in result.content if isinstance(item, types.TextContent))


async def test_a_picture_comes_as_an_image_content_with_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(sample_png(300, 200))
    async with client(tmp_path) as loom:
        assert [tool.name for tool in (await loom.list_tools()).tools] == ["read_file", "look"]
        (picture,) = (await loom.call_tool("read_file", {"path": "shot.png"})).content
        assert isinstance(picture, types.ImageContent)
        assert base64.b64decode(picture.data) == sample_png(300, 200)
        assert picture.mime_type == "image/png"
        (part,) = (await loom.call_tool("look", {"media": "shot.png", "crop": "0,0,100,100"})).content[:1]
        assert isinstance(part, types.ImageContent)
        assert base64.b64decode(part.data)[16:24] == (30).to_bytes(4, "big") + (20).to_bytes(4, "big")


async def test_documents_come_as_text_and_their_pages_as_pictures_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(sample_pdf("first words", "second words"))
    (tmp_path / "tone.wav").write_bytes(sample_wav())
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    async with client(tmp_path) as loom:
        text = await loom.call_tool("read_file", {"path": "report.pdf"})
        assert "first words" in words(text)
        assert "second words" in words(text)
        assert not any(isinstance(item, types.ImageContent) for item in text.content)
        second = words(await loom.call_tool("read_file", {"path": "report.pdf", "pages": "2"}))
        assert "second words" in second
        assert "first words" not in second
        pages = await loom.call_tool("look", {"media": "report.pdf", "full": True})
        pictures = [item for item in pages.content if isinstance(item, types.ImageContent)]
        assert len(pictures) == 2
        assert all(base64.b64decode(picture.data).startswith(b"\x89PNG") for picture in pictures)
        (sound,) = (await loom.call_tool("read_file", {"path": "tone.wav"})).content
        assert isinstance(sound, types.AudioContent)
        assert base64.b64decode(sound.data) == sample_wav()
        assert words(await loom.call_tool("read_file", {"path": "notes.txt"})) == "     1\tone\n     2\ttwo"


async def test_what_would_need_a_persons_word_is_refused_with_an_explanation(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "other.txt").write_text("outside")
    (tmp_path / "id_rsa").write_text("the key")
    (inside / ".env").write_text("KEY=1")
    (inside / "link.txt").symlink_to(tmp_path / "other.txt")
    (inside / "big.txt").write_text("x" * 11_000_000)
    async with client(inside) as loom:
        for path in ("../other.txt", "link.txt", str(tmp_path / "id_rsa"), ".env"):
            for tool, argument in (("read_file", "path"), ("look", "media")):
                refused = await loom.call_tool(tool, {argument: path})
                assert refused.is_error
                assert "This server has no user to ask" in words(refused)
        outside = await loom.call_tool("read_file", {"path": "../other.txt"})
        assert "--allow-outside" in words(outside)
        assert "--allow-outside" not in words(await loom.call_tool("read_file", {"path": ".env"}))
        assert "xxx" in words(await loom.call_tool("read_file", {"path": "big.txt", "limit": 1}))
    async with client(inside, "--allow-outside") as loom:
        assert words(await loom.call_tool("read_file", {"path": "../other.txt"})) == "     1\toutside"
        for path in (str(tmp_path / "id_rsa"), ".env"):
            assert (await loom.call_tool("read_file", {"path": path})).is_error


@pytest.mark.parametrize(("name", "argument"), [("read_file", "path"), ("look", "media")])
async def test_a_link_that_is_swapped_while_a_call_runs_leads_nowhere(name: str, argument: str, tmp_path: Path) -> None:
    """It is the open file that is judged, and no earlier look at what the name led to."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "other.txt").write_text("outside words")
    (inside / "plain.txt").write_text("inside words")
    link = inside / "link.txt"
    link.symlink_to("plain.txt")
    call = ServedCall(ServeOptions(workspace=inside), ServedMedia())
    with open_file(inside, "link.txt") as opened:
        link.unlink()
        link.symlink_to(tmp_path / "other.txt")
        await call.approve_file(opened, "read link.txt", why="")
        assert opened.file.read() == b"inside words"
    tool = {"read_file": Tool(read_file), "look": look}[name]
    with pytest.raises(ToolError, match="outside the workspace"):
        await tool.run(call, {argument: "link.txt"})


async def test_links_that_are_swapped_all_the_time_let_nothing_out(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "other.txt").write_text("outside words")
    (inside / "plain.txt").write_text("inside words")
    (inside / "link.txt").symlink_to("plain.txt")
    is_over = threading.Event()

    def swap() -> None:
        for target in itertools.cycle((tmp_path / "other.txt", Path("plain.txt"))):
            (inside / "spare").symlink_to(target)
            (inside / "spare").replace(inside / "link.txt")
            if is_over.is_set():
                return

    swapping = threading.Thread(target=swap)
    swapping.start()
    answers: list[str] = []
    try:
        for _ in range(300):
            try:
                answers.append(
                    str(await read_file(ServedCall(ServeOptions(workspace=inside), ServedMedia()), "link.txt"))
                )
            except ToolError as error:
                answers.append(str(error))
    finally:
        is_over.set()
        swapping.join()
    assert not any("outside words" in answer for answer in answers)
    assert all("inside words" in answer or "no user to ask" in answer for answer in answers)


async def test_mistakes_are_answers_and_the_server_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("here")
    async with client(tmp_path) as loom:
        for tool, arguments, said in (
            ("read_file", {"path": "nowhere.png"}, "File not found: nowhere.png"),
            ("read_file", {"path": 3, "color": "red"}, "read_file does not accept these arguments"),
            ("read_file", {"path": "a.txt", "pages": "x"}, "Not a range of pages"),
            ("look", {"media": "nowhere.png"}, "No image, document or file"),
            ("write_file", {}, "available: read_file, look"),
        ):
            answer = await loom.call_tool(tool, arguments)
            assert answer.is_error
            assert said in words(answer)
        assert words(await loom.call_tool("read_file", {"path": "a.txt"})) == "     1\there"


def test_an_interrupt_ends_it_while_it_waits_for_its_client(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loom.cli.main", "mcp-serve", "--workspace", str(tmp_path)]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "loom"
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == -signal.SIGINT
