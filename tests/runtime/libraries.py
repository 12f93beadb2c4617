"""The implementations of `Library` that the protocol tests run on: the stores of this process, and a daemon on a real
socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from daemon.running import TOKEN, serving
from loom.client import RemoteLibrary
from loom.library import Library
from loom.runtime import Runtime
from loom.testing import memory_runtime
from loom.tools.base import tool

KINDS: Final = ("local", "remote")


@tool(danger="ask")
async def write_note(text: str) -> str:
    """Write a note."""
    return f"wrote {text}"


@asynccontextmanager
async def library_of(kind: str, settings: Mapping[str, Any] | None = None) -> AsyncGenerator[tuple[Library, Runtime]]:
    """Return a library, and the runtime behind it for what a test must prepare."""
    async with memory_runtime({"model": "loom/spark", **(settings or {})}, tools=[write_note]) as runtime:
        if kind == "local":
            yield runtime.library, runtime
            return
        async with serving(runtime) as daemon, RemoteLibrary(daemon.url, TOKEN) as library:
            yield library, runtime
