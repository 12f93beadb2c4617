"""The conversations of the terminal UI end with it, also if the store fails then."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest
from tests.tui.pilots import driven

from loom.errors import StoreError
from loom.events import TextDelta
from loom.testing import memory_runtime
from loom.tui.chat_library import ChatLibrary


async def test_closing_ends_the_runtime_also_if_a_turn_that_stops_cannot_be_stored() -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("runtime")

    async with memory_runtime({"model": "loom/spark"}) as runtime:
        library = ChatLibrary(runtime.library, runtime.config, close=close)
        conversation = await library.create()
        await conversation.session.post("!slow 5tps\n!tokens 500")
        async with aclosing(conversation.events()) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        await runtime.stores.database.close()
        with pytest.raises(StoreError):
            await library.close()
        assert closed == ["runtime"]
        assert not conversation.is_working


async def test_an_error_of_the_store_at_the_end_is_the_error_of_the_program(tmp_path: Path) -> None:
    async with driven(tmp_path) as screen:
        await screen.paste("go\n!slow 5tps\n!tokens 500")
        await screen.press("enter")
        await screen.wait_for("is answering")
        await screen.runtime.stores.database.close()
    assert isinstance(screen.app.failure, StoreError)
