"""The queue: what was acknowledged is said once, in order, whoever takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from loom.content.blocks import ImageBlock
from loom.content.media import Media
from loom.content.messages import Message, assistant, user
from loom.errors import Conflict, ContentError, Corrupt, KeyReused, NotFound
from loom.session import Options, Queued, SessionChange
from loom.store.database import Database, open_database
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.journal import Journal
from loom.store.leases import Lease, Leases
from loom.store.queue import MessageQueue
from loom.store.sessions import Sessions

PICTURE = ImageBlock(Media(digest="sha256:" + "a" * 64, media_type="image/png", size_bytes=10, width=1, height=1))


@pytest.fixture
def queue(database: Database) -> MessageQueue:
    return MessageQueue(database)


async def taken(database: Database, session_id: str) -> Lease:
    lease = await Leases(database).acquire(session_id, "me", 60)
    assert lease is not None
    return lease


async def pop(queue: MessageQueue, session_id: str, queued_id: str, *, fence: int) -> str | None:
    """Take a message from the queue as a turn does that begins."""
    found = await Journal(queue._database).commit(session_id, SessionChange(queued=queued_id), fence=fence)
    return None if found.is_gone else found.nodes[-1]


async def texts(forest: Forest, sessions: Sessions, session_id: str) -> list[str]:
    nodes = await forest.path((await sessions.get(session_id)).head_id)
    return [node.message.text for node in nodes if node.message is not None]


async def test_messages_wait_in_order_and_are_said_below_the_head(
    database: Database, queue: MessageQueue, sessions: Sessions, forest: Forest
) -> None:
    session = await sessions.create()
    first = await queue.put(session.id, "", user("one"))
    second = await queue.put(session.id, "", user("two", PICTURE), Options(model="m", n=1))
    assert first.is_new
    assert [queued.message for queued in await queue.list(session.id)] == [user("one"), user("two", PICTURE)]
    assert (await queue.list(session.id))[1].options == Options(model="m")
    assert await queue.waiting() == (session.id,)
    assert PICTURE.media.digest in await sessions.referenced_digests()
    lease = await taken(database, session.id)
    node = await pop(queue, session.id, first.id, fence=lease.fence)
    assert node == (await sessions.get(session.id)).head_id
    assert await pop(queue, session.id, second.id, fence=lease.fence) is not None
    assert await pop(queue, session.id, second.id, fence=lease.fence) is None
    assert await texts(forest, sessions, session.id) == ["one", "two"]
    assert await queue.list(session.id) == ()
    assert await queue.waiting() == ()
    assert PICTURE.media.digest in await sessions.referenced_digests()


async def test_the_same_key_gives_the_first_one_back_also_after_it_was_said(
    database: Database, queue: MessageQueue, sessions: Sessions, forest: Forest
) -> None:
    """F17."""
    session, other = await sessions.create(), await sessions.create()
    first = await queue.put(session.id, "k", user("one"))
    again = await queue.put(session.id, "k", user("one"))
    with pytest.raises(KeyReused):
        await queue.put(session.id, "k", user("something else"))
    assert (again.id, again.is_new, again.message) == (first.id, False, user("one"))
    assert (await queue.put(other.id, "k", user("elsewhere"))).is_new
    node = await pop(queue, session.id, first.id, fence=(await taken(database, session.id)).fence)
    late = await queue.put(session.id, "k", user("one"))
    assert (late.id, late.is_new, late.node, late.answers_left) == (first.id, False, node, 0)
    with pytest.raises(KeyReused):
        await queue.put(session.id, "k", user("something else"))
    assert await texts(forest, sessions, session.id) == ["one"]


async def test_many_who_send_the_same_key_at_once_put_it_once(queue: MessageQueue, sessions: Sessions) -> None:
    session = await sessions.create()
    put = await asyncio.gather(*(queue.put(session.id, "k", user("one")) for _ in range(8)))
    assert sum(found.is_new for found in put) == 1
    assert len({found.id for found in put}) == 1
    assert len(await queue.list(session.id)) == 1


async def test_what_was_removed_is_never_said_and_a_late_retry_does_not_bring_it_back(
    database: Database, queue: MessageQueue, sessions: Sessions
) -> None:
    session, other = await sessions.create(), await sessions.create()
    queued = await queue.put(session.id, "k", user("no", PICTURE))
    assert not await queue.remove(other.id, queued.id)
    assert await queue.remove(session.id, queued.id)
    assert not await queue.remove(session.id, queued.id)
    assert not (await queue.put(session.id, "k", user("no", PICTURE))).is_new
    assert await queue.list(session.id) == ()
    assert await sessions.referenced_digests() == frozenset()
    lease = await taken(database, session.id)
    assert await pop(queue, session.id, queued.id, fence=lease.fence) is None
    assert (await sessions.get(session.id)).head_id == session.root_id


@pytest.mark.parametrize("chosen", [(0,), (1,), (0, 2), ()])
async def test_a_paused_message_keeps_its_place_and_no_turn_takes_it_until_it_is_resumed(
    database: Database, queue: MessageQueue, sessions: Sessions, chosen: tuple[int, ...]
) -> None:
    session = await sessions.create()
    words = [user("one"), user("two", PICTURE), user("three")]
    put = [await queue.put(session.id, "", message) for message in words]
    ids = [put[at].id for at in chosen]
    paused = set(ids or [one.id for one in put])
    lease = await taken(database, session.id)

    await queue.set_paused(session.id, ids, is_paused=True)

    listed = await queue.list(session.id)
    assert [(one.message, one.is_paused) for one in listed] == [(one.message, one.id in paused) for one in put]
    assert await queue.waiting() == (() if len(paused) == 3 else (session.id,))
    assert PICTURE.media.digest in await sessions.referenced_digests()
    for one in put:
        assert (await pop(queue, session.id, one.id, fence=lease.fence) is None) is (one.id in paused)
    released = await Journal(database).commit(session.id, SessionChange(lease="release-if-idle"), fence=lease.fence)
    assert released.is_released  # paused messages are no work

    await queue.set_paused(session.id, (), is_paused=False)

    assert [one.id for one in await queue.list(session.id)] == [one.id for one in put if one.id in paused]
    lease = await taken(database, session.id)
    assert None not in [await pop(queue, session.id, one, fence=lease.fence) for one in paused]


async def test_pausing_reports_what_changed_once_and_refuses_what_left_the_queue(
    queue: MessageQueue, sessions: Sessions
) -> None:
    session = await sessions.create()
    first, second = [await queue.put(session.id, "", user(words)) for words in ("one", "two")]
    seen: list[list[str]] = []

    def note(changed: Sequence[Queued]) -> list[tuple[str, bytes]]:
        seen.append([one.id for one in changed])
        return [("notice", b"{}") for _ in changed]

    assert await queue.set_paused(session.id, [first.id], is_paused=True, events=note) == 1
    assert await queue.set_paused(session.id, [], is_paused=True, events=note) == 2
    assert await queue.set_paused(session.id, [], is_paused=True, events=note) == 2
    assert seen == [[first.id], [second.id], []]
    assert await queue.remove(session.id, first.id)
    with pytest.raises(NotFound, match="no longer queued"):
        await queue.set_paused(session.id, [second.id, first.id], is_paused=False)
    assert [one.is_paused for one in await queue.list(session.id)] == [True]


async def test_several_answers_go_back_to_the_question_and_leave_the_queue_with_the_last(
    database: Database, queue: MessageQueue, sessions: Sessions
) -> None:
    session = await sessions.create()
    lease = await taken(database, session.id)
    queued = await queue.put(session.id, "", user("roll"), Options(n=3))
    for left in (2, 1, 0):
        node = await pop(queue, session.id, queued.id, fence=lease.fence)
        assert (await sessions.get(session.id)).head_id == node
        assert [(found.node, found.answers_left) for found in await queue.list(session.id)] == [(node, left)][:left]
        await sessions.append_to_head(session.id, [assistant(f"die {left}")], fence=lease.fence)
    assert len(await sessions.tips(session.id)) == 3


async def test_another_answer_to_an_old_question_waits_like_a_message(
    database: Database, queue: MessageQueue, sessions: Sessions
) -> None:
    session = await sessions.create()
    question, _ = await sessions.append_to_head(session.id, [user("2+2?"), assistant("5")])
    queued = await queue.put(session.id, "", None, Options(parent=question.id))
    assert (queued.message, queued.node) == (None, question.id)
    lease = await taken(database, session.id)
    assert await pop(queue, session.id, queued.id, fence=lease.fence) == question.id
    assert (await sessions.get(session.id)).head_id == question.id


async def test_nonsense_is_refused_before_it_waits(queue: MessageQueue, sessions: Sessions) -> None:
    session, other = await sessions.create(), await sessions.create()
    (theirs,) = await sessions.append_to_head(other.id, [user("theirs")])
    for count in (0, -1, 101):
        with pytest.raises(ContentError, match="answers"):
            await queue.put(session.id, "", user("x"), Options(n=count))
    with pytest.raises(ContentError, match="Another answer"):
        await queue.put(session.id, "", None)
    with pytest.raises(NotFound):
        await queue.put(session.id, "", user("x"), Options(parent=theirs.id))
    with pytest.raises(NotFound):
        await queue.put(session.id, "", user("x"), Options(parent="nothing"))
    with pytest.raises(NotFound):
        await queue.put("0" * 26, "", user("x"))
    with pytest.raises(ContentError, match="NUL"):
        await queue.put(session.id, "a\0b", user("x"))
    assert await queue.list(session.id) == ()


async def test_a_deleted_session_takes_what_waited_with_it(queue: MessageQueue, sessions: Sessions) -> None:
    one, two = await sessions.create(), await sessions.create()
    await queue.put(one.id, "", user("mine", PICTURE))
    await queue.put(two.id, "", user("yours", PICTURE))
    assert await sessions.delete(one.id) == ()
    assert await queue.waiting() == (two.id,)
    assert await sessions.digests(two.id) == {PICTURE.media.digest}
    assert await sessions.delete(two.id) == (PICTURE.media.digest,)


async def test_what_was_said_long_ago_is_forgotten_and_what_waits_is_not(url: str) -> None:
    now = 1_000.0
    database = await open_database(url)
    queue, sessions = MessageQueue(database, clock=lambda: now), Sessions(database)
    session = await sessions.create()
    done, waits = await queue.put(session.id, "done", user("a")), await queue.put(session.id, "waits", user("b"))
    await pop(queue, session.id, done.id, fence=(await taken(database, session.id)).fence)
    now += 8 * 86_400
    await queue.put(session.id, "new", user("c"))
    assert (await queue.put(session.id, "done", user("a"))).is_new
    assert (await queue.put(session.id, "waits", user("b"))).id == waits.id
    await database.close()


async def test_who_lost_the_lease_says_nothing(database: Database, queue: MessageQueue, sessions: Sessions) -> None:
    session = await sessions.create()
    queued = await queue.put(session.id, "", user("once"))
    leases = Leases(database)
    old = await leases.acquire(session.id, "old", -1)
    new = await leases.acquire(session.id, "new", 60)
    assert old is not None
    assert new is not None
    with pytest.raises(Conflict):
        await pop(queue, session.id, queued.id, fence=old.fence)
    assert await pop(queue, session.id, queued.id, fence=new.fence) is not None


async def test_a_message_of_any_text_comes_back_as_it_was(queue: MessageQueue, sessions: Sessions) -> None:
    session = await sessions.create()
    message = Message("user", (*user("nul \0 and \U0001f9f5 and ' OR 1=1 --").blocks, PICTURE))
    await queue.put(session.id, "'; DROP TABLE queued; --", message)
    assert (await queue.list(session.id))[0].message == message


@pytest.mark.parametrize("damage", ["options = '{broken'", """options = '{"n":"x"}'""", """message = '{"v":1}'"""])
async def test_a_damaged_message_is_told_and_holds_up_no_other(
    database: Database, queue: MessageQueue, sessions: Sessions, forest: Forest, damage: str
) -> None:
    session = await sessions.create()
    bad = await queue.put(session.id, "bad", user("one", PICTURE))
    good, unsaid = await queue.put(session.id, "", user("two")), await queue.put(session.id, "", user("three"))
    await database.write(lambda tx: tx.execute(f"UPDATE queued SET {damage} WHERE request_key = 'bad'"))
    lease = await taken(database, session.id)
    for asking in (
        queue.list(session.id),
        queue.put(session.id, "bad", user("one")),
        pop(queue, session.id, bad.id, fence=lease.fence),
    ):
        with pytest.raises(Corrupt, match=bad.id) as caught:
            await asking
        assert "queue" in caught.value.hint
    assert await pop(queue, session.id, good.id, fence=lease.fence) is not None
    assert await queue.remove(session.id, unsaid.id)
    assert await queue.remove(session.id, bad.id)
    assert not await queue.remove(session.id, bad.id)
    assert await queue.list(session.id) == ()
    assert await queue.waiting() == ()
    assert await sessions.referenced_digests() == frozenset()
    assert await texts(forest, sessions, session.id) == ["two"]


async def test_a_message_and_its_events_are_queued_together_or_not_at_all(
    database: Database, queue: MessageQueue, sessions: Sessions
) -> None:
    session = await sessions.create()
    events = Events(database)
    before = await events.append(session.id, [("notice", b"{}")])
    first = await queue.put(session.id, "k", user("one"), events=lambda _: [("queued", b'{"n":1}'), ("notice", b"{}")])
    assert first.seq == before
    assert [(event.seq, event.type) for event in await events.after(session.id, before)] == [
        (before + 1, "queued"),
        (before + 2, "notice"),
    ]
    again = await queue.put(session.id, "k", user("one"), events=lambda _: [("queued", b"{}")])
    assert (again.is_new, again.seq) == (False, first.seq), "a client that repeats its request misses no event"
    with pytest.raises(ContentError):
        await queue.put(session.id, "", user("two"), events=lambda _: [("queued", b"\0")])
    assert [queued.message for queued in await queue.list(session.id)] == [user("one")]
    assert await events.head(session.id) == before + 2
