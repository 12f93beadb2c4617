"""/readyz tells the truth: a store that cannot be written is not ready, and is again when it can."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx2
import pytest

from daemon.running import TOKEN, serving
from loom.config import load_config
from loom.daemon import readiness
from loom.runtime import Runtime


async def test_a_media_store_that_cannot_be_written_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_FRESH_SECONDS", 0.0)
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags={"model": "loom/spark"})
    async with (
        Runtime.open(config) as runtime,
        serving(runtime) as daemon,
        httpx2.AsyncClient(base_url=daemon.url) as client,
    ):
        assert (await client.get("/readyz")).status_code == 200
        hide(tmp_path / "media")
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert "media store" in answer.text
        show(tmp_path / "media")
        assert (await client.get("/readyz")).status_code == 200


def hide(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    folder.rename(folder.with_name("hidden"))
    folder.write_text("a file where the folder was")


def show(folder: Path) -> None:
    folder.unlink()
    shutil.move(folder.with_name("hidden"), folder)


async def test_takeovers_and_lost_leases_are_counted(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags={"model": "loom/spark"})
    async with Runtime.open(config) as runtime, serving(runtime) as daemon:
        session = await runtime.session()
        gone = await runtime.stores.leases.acquire(session.id, "another-machine/1/2/3", 0.0)
        assert gone is not None
        await session.send("!echo hello")
        async with httpx2.AsyncClient(base_url=daemon.url) as client:
            text = (await client.get("/v1/metrics", headers={"authorization": f"Bearer {TOKEN}"})).text
        assert "loom_lease_takeovers 1" in text
