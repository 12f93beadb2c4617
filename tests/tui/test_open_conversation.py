"""A conversation in a terminal: what is posted is answered, whenever it is posted."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from daemon.running import until_true
from loom.events import Event
from loom.runtime.session import LocalSession
from loom.testing import ScriptedProvider, memory_runtime
from loom.tui.conversation import OpenConversation


async def test_a_message_that_is_posted_while_the_worker_ends_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["the answer"])}) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        conversation = OpenConversation(session, on_error=_raise)
        original, posted = session.work, list[str]()

        async def work_and_post(_: LocalSession) -> AsyncGenerator[Event]:
            async for event in original():
                yield event
            if not posted:
                posted.append((await session.post("a late question")).id)
                conversation.work()

        monkeypatch.setattr(LocalSession, "work", work_and_post)
        conversation.work()

        async def is_answered() -> bool:
            return [message.text for message in await session.path()] == ["a late question", "the answer"]

        await until_true(is_answered)


def _raise(error: Exception) -> None:
    raise error
