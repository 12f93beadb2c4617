"""Bodies: exact bytes, exact length, constant memory."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import subprocess
import sys
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest

from loom.errors import Corrupt
from loom.prompt import Embedded, MediaRef
from loom.providers.media_body import BLOCK_BYTES, Body, FormBody, MediaBody, RawBody, elide_media, sha256_of
from providers.worlds import Folder
from wire.streams import ANTHROPIC


async def written(body: Body) -> bytes:
    data = b"".join([piece async for piece in body])
    assert len(data) == body.content_length
    return data


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 4_000_001])
async def test_a_medium_of_any_size_is_its_base64_in_the_middle_of_the_json(
    size: int, remote: bool, tmp_path: Path
) -> None:
    media = Folder(tmp_path, remote=remote)
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    ref = media.add(data)
    request = {"a": [{"url": Embedded(ref, "data:image/png;base64,")}, 'äöü " \\ \u2028'], "b": Embedded(ref)}
    body = MediaBody(request, media)
    text = base64.b64encode(data).decode()
    expected = {"a": [{"url": "data:image/png;base64," + text}, 'äöü " \\ \u2028'], "b": text}
    assert json.loads(await written(body)) == expected
    assert json.loads(await written(body)) == expected  # a retry writes the same


async def test_short_reads_do_not_break_the_base64() -> None:
    class Slow(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self._data = io.BytesIO(data)

        def read(self, size: int = -1, /) -> bytes:
            return self._data.read(min(size, 1000))

    class Source:
        async def open_local(self, ref: MediaRef) -> io.RawIOBase:
            return Slow(data)

        def blocks(self, ref: MediaRef, block_bytes: int) -> Any:
            raise AssertionError("the file is here")

    data = bytes(range(250)) * 4000
    ref = MediaRef(digest="sha256:" + "0" * 64, media_type="image/png", size_bytes=len(data))
    assert json.loads(await written(MediaBody({"x": Embedded(ref)}, Source()))) == {
        "x": base64.b64encode(data).decode()
    }


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("size", [0, 99, 101, 5_000_000])
async def test_bytes_that_are_not_as_many_as_announced_are_corrupt_and_never_overflow_the_body(
    size: int, remote: bool, tmp_path: Path
) -> None:
    media = Folder(tmp_path, remote=remote)
    ref = media.add(bytes(100))
    media.path(ref).write_bytes(bytes(size))
    body = MediaBody({"x": Embedded(ref)}, media)
    sent = [0]

    async def send() -> None:
        async for piece in body:
            sent[0] += len(piece)

    with pytest.raises(Corrupt, match="100 bytes"):
        await send()
    assert sent[0] < body.content_length


async def test_a_form_is_what_a_mail_parser_reads(tmp_path: Path) -> None:
    media = Folder(tmp_path)
    data = bytes(range(256)) * 5000
    form = FormBody({"purpose": "user_data", "expires_after[seconds]": "3600"}, media.add(data), "a.png", media)
    raw = f"Content-Type: {form.content_type}\r\n\r\n".encode() + await written(form)
    parts = BytesParser().parsebytes(raw).get_payload()
    assert isinstance(parts, list)
    fields = {str(part.get_param("name", header="content-disposition")): part for part in parts}
    assert fields["purpose"].get_payload() == "user_data"
    assert fields["expires_after[seconds]"].get_payload() == "3600"
    assert data in await written(form)
    assert fields["file"].get_filename() == "a.png"


async def test_the_hash_of_a_body_is_taken_without_holding_it(tmp_path: Path) -> None:
    media = Folder(tmp_path)
    data = bytes(range(256)) * 9000
    ref = media.add(data)
    assert await sha256_of(RawBody(ref, media)) == ref.digest.removeprefix("sha256:")
    body = MediaBody({"x": Embedded(ref)}, media)
    assert await sha256_of(body) == hashlib.sha256(await written(body)).hexdigest()


def test_for_people_a_medium_is_its_digest_and_size(tmp_path: Path) -> None:
    ref = Folder(tmp_path).add(bytes(1_300_000))
    assert elide_media({"x": [Embedded(ref, "data:image/png;base64,")]}) == {
        "x": [f"data:image/png;base64,<{ref.digest} 1.3 MB>"]
    }


SENDING = """
import asyncio, resource, sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from loom.providers.http import HttpProvider
from providers.far_side import Reply, far_side
from providers.worlds import Folder, asking, at, collected
from wire.prompts import CLAUDE

def peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no VmHWM")

async def stalls(worst: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(0)
        worst[0] = max(worst[0], loop.time() - before)

async def main(folder: Path, url: str) -> None:
    media = Folder(folder)
    small = media.add(bytes(1000))
    refs = [media.add(bytes([number]) * 1_400_000) for number in range(30)]
    provider = HttpProvider(media, lambda model: "sk-0123456789")
    await collected(provider, asking(at(CLAUDE, url), small))
    idle, worst = peak(), [0.0]
    watching = asyncio.create_task(stalls(worst))
    await collected(provider, asking(at(CLAUDE, url), *refs))
    watching.cancel()
    print(peak() - idle, worst[0])
    await provider.close()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


async def test_fifty_six_megabytes_are_sent_in_a_few(tmp_path: Path) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            left = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            lengths.append(left)
            while left:
                left -= len(await reader.read(min(left, 1 << 20)))
            answer = ANTHROPIC["text"]
            head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(answer)}\r\n\r\n"
            writer.write(head.encode() + answer)
            await writer.drain()
        writer.close()

    lengths: list[int] = []
    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    tests = str(Path(__file__).parent.parent)
    async with server:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SENDING.format(tests=tests), tmp_path, url, stdout=subprocess.PIPE
        )
        out, _ = await child.communicate()
    grown, stall = (float(word) for word in out.split())
    assert lengths[1] > 56_000_000
    assert grown < 20_000_000
    assert stall < 0.25  # alone on a machine: 2 ms
