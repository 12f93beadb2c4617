"""What is deleted by itself: media that nothing refers to, and files that providers hold for deleted sessions."""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from PIL import Image

from cli.loom_command import Loom
from loom.config import Config
from loom.config.loader import load_config
from loom.daemon.auth import Auth
from loom.daemon.services import Daemon
from loom.runtime import Runtime
from loom.store.uploads import UploadRecords
from providers.far_side import FarSide, Reply, Request, far_side, refusal
from wire.streams import ANTHROPIC


class Provider:
    """Anthropic's Messages and Files."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.is_away = False

    def __call__(self, request: Request) -> Reply:
        if request.method == "DELETE":
            if self.is_away:
                return refusal(503, {})
            self.files.remove(request.target.rsplit("/", 1)[-1])
            return refusal(200, {})
        if request.target == "/v1/files":
            self.files.append(f"file_{len(self.files) + 1}")
            return refusal(200, {"id": self.files[-1]})
        return Reply(body=ANTHROPIC["text"])


@pytest.fixture
async def side() -> AsyncIterator[tuple[Provider, FarSide]]:
    provider = Provider()
    async with far_side(provider) as server:
        yield provider, server


def config_for(server: FarSide, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    return load_config(cwd=folder, environ={**os.environ, "LOOM_HOME": str(folder)})


def noise() -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((1200, 1000), 100).save(buffer, "PNG")
    return buffer.getvalue()


PICTURE = noise()


def make_old(folder: Path) -> None:
    days_ago = time.time() - 8 * 86_400
    for file in (folder / "media").rglob("*"):
        os.utime(file, (days_ago, days_ago))


async def talk(runtime: Runtime) -> str:
    session = await runtime.session(model="anthropic/claude-opus-5")
    await session.send("look", PICTURE)
    await session.send("again")
    return session.id


async def test_files_at_a_provider_go_with_the_last_session_that_uses_them(
    side: tuple[Provider, FarSide], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, server = side
    async with Runtime.open(config_for(server, tmp_path, monkeypatch)) as runtime:
        first, second = await talk(runtime), await talk(runtime)
        assert provider.files == ["file_1"]
        await runtime.library.delete(first)
        assert provider.files == ["file_1"], "another session uses it"
        await runtime.library.delete(second)
        assert provider.files == []


async def test_a_provider_that_is_away_is_asked_again_by_the_next_upkeep(
    side: tuple[Provider, FarSide], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, server = side
    config = config_for(server, tmp_path, monkeypatch)
    async with Runtime.open(config) as runtime:
        session = await talk(runtime)
        provider.is_away = True
        await runtime.library.delete(session)
        (left,) = await UploadRecords(runtime.stores.database).list_unwanted()
        assert (left.file_id, left.problem) == ("file_1", "status 503")
        provider.is_away = False
    async with Runtime.open(config) as runtime:
        await runtime.upkeep.run_if_due()
        assert provider.files == []
        assert not await UploadRecords(runtime.stores.database).list_unwanted()


async def test_old_media_without_references_go_once_a_day_by_themselves(
    tmp_path: Path,
) -> None:
    async with Runtime.open(load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})) as runtime:
        media = runtime.stores.media
        digests = [await media.put(b"old")]
        make_old(tmp_path)
        digests.append(await media.put(b"new"))
        await runtime.upkeep.run_if_due()
        assert [await media.exists(digest) for digest in digests] == [False, True]
        await media.put(b"old")
        make_old(tmp_path)
        await runtime.upkeep.run_if_due()
        assert await media.exists(digests[0]), "once a day is enough"


async def test_a_command_cleans_up_when_it_ends(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    async with Runtime.open(load_config(cwd=loom.folder, environ=loom.environ)) as runtime:
        digest = await runtime.stores.media.put(b"old")
        folder = runtime.config.data_folder()
    make_old(folder)
    assert (await asyncio.to_thread(loom.process, "hello")).code == 0
    async with Runtime.open(load_config(cwd=loom.folder, environ=loom.environ)) as runtime:
        assert not await runtime.stores.media.exists(digest)


async def test_a_daemon_cleans_up_by_itself(tmp_path: Path) -> None:
    async with Runtime.open(load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})) as runtime:
        digest = await runtime.stores.media.put(b"old")
        make_old(tmp_path)
        daemon = Daemon(runtime, Auth("a" * 43))
        await daemon.start()
        try:
            async with asyncio.timeout(60):
                while await runtime.stores.media.exists(digest):  # noqa: ASYNC110  another task deletes it
                    await asyncio.sleep(0.05)
        finally:
            await daemon.stop()
