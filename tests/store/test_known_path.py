"""The path of a session in use: what was read once is not read again, and the head decides what is the path."""

from __future__ import annotations

import pytest

from loom.content.messages import Message, assistant, user
from loom.errors import Corrupt
from loom.runtime.record import StoredRecord
from loom.store.database import Transaction
from loom.testing import memory_runtime


async def said(record: StoredRecord) -> list[Message]:
    _, path = await record.path()
    return [placed.message for placed in path]


def damage_the_first_message(tx: Transaction) -> None:
    tx.execute("UPDATE node SET message = 'not what was written' WHERE depth = 1")


async def test_only_what_is_new_is_read_and_it_is_checked() -> None:
    first, more, last = [user("one"), assistant("two")], [user("three"), assistant("four")], user("five")
    async with memory_runtime() as runtime:
        session = await runtime.sessions.create(system="Be brief.")
        record = StoredRecord(runtime, session.id)
        assert await record.path() == ("Be brief.", ())
        await record.append(first)
        assert await said(record) == first
        await runtime.database.write(damage_the_first_message)
        await runtime.sessions.append_to_head(session.id, more)  # by somebody else
        assert await said(record) == [*first, *more]
        assert (await record.path())[0] == "Be brief."
        with pytest.raises(Corrupt):
            await StoredRecord(runtime, session.id).path()
        await record.append([last])
        await runtime.database.write(lambda tx: tx.execute("UPDATE node SET message = 'x' WHERE depth = 5"))
        with pytest.raises(Corrupt):
            await record.path()


async def test_a_head_that_went_elsewhere_takes_the_path_along() -> None:
    async with memory_runtime() as runtime:
        session = await runtime.sessions.create()
        record = StoredRecord(runtime, session.id)
        question, _ = await record.append([user("one"), assistant("two")])
        await record.append([user("three"), assistant("four")])
        assert len(await said(record)) == 4
        await record.move(question)
        assert await said(record) == [user("one")]
        await record.append([assistant("another"), user("way"), assistant("on"), user("and on")])
        assert [message.text for message in await said(record)] == ["one", "another", "way", "on", "and on"]
