"""The daemon inside another application: it has what the Loom was given, beside whom it lives."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import loom
from loom.client import Client
from loom.config import load_config
from loom.content.messages import text_of
from loom.daemon.auth import Auth
from loom.daemon.embedded import EmbeddedDaemon
from loom.errors import ConfigError
from loom.testing import sample_png
from patience import PATIENCE_SECONDS


@loom.tool
def opening_hours() -> str:
    """When the shop is open."""
    return "from nine to five"


@asynccontextmanager
async def served(daemon: EmbeddedDaemon) -> AsyncGenerator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = Starlette(routes=[Mount("/loom", daemon)])
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        running = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/loom"
        finally:
            server.should_exit = True
            async with asyncio.timeout(PATIENCE_SECONDS):
                await running
            await daemon.close()


async def test_it_has_the_model_the_tools_and_the_store_of_the_loom(tmp_path: Path):
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})
    with loom.Loom(model="spark", tools=[opening_hours], config=config) as lm:
        async with served(loom.asgi(lm, auth=Auth("my-own-token"))) as url, Client(url, "my-own-token") as client:
            session = await client.session(workspace=str(tmp_path))
            reply = await session.send("!tool opening_hours {}")
        path = lm.session(session_id=session.id).path()

    assert reply.receipt.model == "loom/spark"
    assert [text_of(result) for message in path for result in message.results] == ["from nine to five"]


def test_where_things_are_kept_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    with loom.Loom(store=f"sqlite:///{tmp_path}/mine.db", media=f"{tmp_path}/bytes", model="spark") as lm:
        lm.ask("hello", sample_png())
    assert (tmp_path / "mine.db").exists() and (tmp_path / "bytes").is_dir()
    with pytest.raises(ConfigError, match="cannot be combined with config="):
        loom.Loom(store="sqlite://:memory:", config=load_config())
