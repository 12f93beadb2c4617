"""What a daemon keeps of sessions that were deleted."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from types import CellType, FrameType, ModuleType
from typing import Any

import msgspec

from daemon.running import serving, until
from flow.prepared_documents import MODEL, numbered_document
from loom.client.session import RemoteSession
from loom.config import load_config
from loom.formats.worker import WorkerPool
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_png

SESSIONS = 3


def reachable(*roots: Any) -> Iterator[tuple[Any, str]]:
    """Everything that objects refer to, but not through modules, classes, frames and the globals of functions, nor open
    connections, which have their last request, and reader processes, which have their last few documents; with the
    types of the objects on the way."""
    seen: set[int] = set()
    todo = [(root, "") for root in roots]
    while todo:
        value, way = todo.pop()
        if id(value) in seen or isinstance(value, type | ModuleType | FrameType | asyncio.Protocol | WorkerPool):
            continue
        seen.add(id(value))
        yield value, way
        if hasattr(value, "__globals__"):
            inner = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        elif isinstance(value, msgspec.Struct):  # some of them are not tracked by the collector
            inner = [getattr(value, field) for field in value.__struct_fields__]
        else:
            inner = gc.get_referents(value)
        todo += [(found, f"{way} > {type(value).__name__}") for found in inner]


def mentions(words: set[str], *roots: Any) -> list[str]:
    encoded = [word.encode() for word in words]
    return [
        f"{way}: {repr(value)[:100]}"
        for value, way in reachable(*roots)
        if (isinstance(value, str) and any(word in value for word in words))
        or (isinstance(value, bytes | bytearray) and any(word in value for word in encoded))
    ]


async def test_nothing_of_a_deleted_session_stays_in_a_daemon(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home"), "LOOM_OFFLINE": "1"})
    provider = ScriptedProvider(["I have read it."] * SESSIONS)
    async with (
        Runtime.open(config, model=MODEL, providers={"deepseek": provider}) as runtime,
        serving(runtime) as house,
        house.client() as client,
    ):
        ids: set[str] = set()
        for number in range(SESSIONS):
            session = await client.session()
            await session.send("read this", numbered_document(number), sample_png(60 + number, 40))
            ids |= {session.id, *await ids_in(session)}
            assert mentions({session.id}, house.app, house.runtime), "this test cannot see what a daemon keeps"
            await session.delete()
        await until(lambda: not house.app.daemon.turns.active)
        provider.prompts.clear()
        kept = mentions(ids, house.app, house.runtime)
        assert not kept, "\n".join(kept)


async def ids_in(session: RemoteSession) -> set[str]:
    """The ids of its messages, and the digests of its media as they are in names of files."""
    messages = (await session.history()).messages
    digests = re.findall(r"sha256:[0-9a-f]{2}([0-9a-f]{62})", repr(messages))
    assert digests
    return {message.node for message in messages} | set(digests)
