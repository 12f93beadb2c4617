"""The path of a session in use: what was read once is not read again, and the head decides what is the path."""

from __future__ import annotations

import asyncio

import pytest

from loom.agent.ports import Completion
from loom.content.messages import Message, assistant, user
from loom.errors import Corrupt
from loom.runtime import Runtime
from loom.runtime.record import StoredRecord
from loom.session import NewNode, SessionChange
from loom.store.database import Transaction
from loom.testing import memory_runtime


def record_of(runtime: Runtime, session_id: str) -> StoredRecord:
    return StoredRecord(runtime.stores, session_id, "test")


async def said(record: StoredRecord) -> list[Message]:
    return [placed.message for placed in (await record.snapshot()).path]


async def append(record: StoredRecord, *messages: Message) -> tuple[str, ...]:
    change = SessionChange(nodes=tuple(NewNode(message=message) for message in messages))
    return (await record.commit(change, lambda _: Completion())).nodes


def damage_the_first_message(tx: Transaction) -> None:
    tx.execute("UPDATE node SET message = 'not what was written' WHERE depth = 1")


async def test_only_what_is_new_is_read_and_it_is_checked() -> None:
    first, more, last = [user("one"), assistant("two")], [user("three"), assistant("four")], user("five")
    async with memory_runtime() as runtime:
        session = await runtime.stores.sessions.create(system="Be brief.")
        record = record_of(runtime, session.id)
        found = await record.snapshot()
        assert (found.system, found.path) == ("Be brief.", ())
        await append(record, *first)
        assert await said(record) == first
        await runtime.stores.database.write(damage_the_first_message)
        await runtime.stores.sessions.append_to_head(session.id, more)  # by somebody else
        assert await said(record) == [*first, *more]
        assert (await record.snapshot()).system == "Be brief."
        with pytest.raises(Corrupt):
            await record_of(runtime, session.id).snapshot()
        await append(record, last)
        await runtime.stores.database.write(lambda tx: tx.execute("UPDATE node SET message = 'x' WHERE depth = 5"))
        with pytest.raises(Corrupt):
            await record.snapshot()


async def test_a_head_that_went_elsewhere_takes_the_path_along() -> None:
    async with memory_runtime() as runtime:
        session = await runtime.stores.sessions.create()
        record = record_of(runtime, session.id)
        question, _ = await append(record, user("one"), assistant("two"))
        await append(record, user("three"), assistant("four"))
        assert len(await said(record)) == 4
        await record.commit(SessionChange(move_to=question), lambda _: Completion())
        assert await said(record) == [user("one")]
        await append(record, assistant("another"), user("way"), assistant("on"), user("and on"))
        assert [message.text for message in await said(record)] == ["one", "another", "way", "on", "and on"]


async def test_snapshots_at_the_same_time_show_the_same_path() -> None:
    """Each extends the path that was known when it began to read."""
    messages = [user("one"), assistant("two"), user("three"), assistant("four")]
    async with memory_runtime() as runtime:
        session = await runtime.stores.sessions.create()
        record = record_of(runtime, session.id)
        for count, message in enumerate(messages, 1):
            await record.snapshot()
            await runtime.stores.sessions.append_to_head(session.id, [message])  # by another process
            asked = SessionChange(title="same", reads_back=True)
            *read, committed = await asyncio.gather(
                *(said(record) for _ in range(5)), record.commit(asked, lambda _: Completion())
            )
            assert read == [messages[:count]] * 5
            assert committed.snapshot is not None
            assert [placed.message for placed in committed.snapshot.path] == messages[:count]
