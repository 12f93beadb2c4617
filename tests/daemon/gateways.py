"""A gateway in front of a scripted model, with the official SDKs as its clients."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anthropic
import httpx2
import openai

from daemon.running import TOKEN, serving
from flow.far_models import FarModel, far_model
from loom.content.messages import Message
from loom.runtime import Runtime
from loom.testing import sample_png

PICTURE = base64.b64encode(sample_png(64, 48)).decode()


class Gateway:
    """A gateway in front of a scripted model."""

    def __init__(self, url: str, far: FarModel) -> None:
        self.url = url
        self.far = far
        self.anthropic = anthropic.AsyncAnthropic(base_url=url, api_key=TOKEN, max_retries=0)
        self.openai = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0)
        self.http = httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)

    @property
    def runtime(self) -> Runtime:
        return self.far.runtime

    async def close(self) -> None:
        await self.anthropic.close()
        await self.openai.close()
        await self.http.aclose()


@asynccontextmanager
async def gateway(wire: str, *answers: Any, **settings: Any) -> AsyncGenerator[Gateway]:
    """`settings` are those of the runtime, besides its model `far`."""
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(far_model(wire, *answers, more=settings))
        served = await stack.enter_async_context(serving(far.runtime))
        made = Gateway(served.url, far)
        stack.push_async_callback(made.close)
        yield made


async def stored_messages(runtime: Runtime) -> list[tuple[Message, ...]]:
    found: list[tuple[Message, ...]] = []
    for session in await runtime.stores.sessions.list(limit=50):
        _, *nodes = await runtime.stores.forest.path(session.head_id)
        found.append(tuple(node.message for node in nodes if node.message is not None))
    return found
