"""Sessions: heads, tips, forks, deletion. Every test runs on both databases."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loom.content.blocks import ImageBlock, TextBlock, ToolCall, ToolResult
from loom.content.media import Media, digest_of
from loom.content.messages import Message, assistant, tool, user
from loom.errors import Conflict, ContentError, Corrupt, NotFound
from loom.store.database import Database, open_database
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.leases import Leases
from loom.store.queue import MessageQueue
from loom.store.sessions import Sessions


def png(name: str) -> ImageBlock:
    return ImageBlock(Media(digest=digest_of(name.encode()), media_type="image/png", size_bytes=10, name=name))


async def test_a_new_session_stands_at_its_root(sessions: Sessions, forest: Forest):
    session = await sessions.create(system="Be kind.", title="First", model="m", workspace="/w", settings={"a": [1]})
    assert session == await sessions.get(session.id)
    assert session.head_id == session.root_id == (await forest.root("Be kind.")).id
    assert (session.title, session.model, session.workspace, session.settings) == ("First", "m", "/w", {"a": [1]})
    assert (session.archived, session.watermark, session.overrides, session.quarantine) == (False, {}, {}, {})
    assert await sessions.tips(session.id) == (session.root_id,)


async def test_ids_are_ulids_that_sort_by_age(database: Database):
    times = itertools.count(1_700_000_000)
    sessions = Sessions(database, clock=lambda: next(times))
    made = [(await sessions.create()).id for _ in range(5)]
    assert made == sorted(made)
    assert len(set(made)) == 5
    assert {len(session_id) for session_id in made} == {26}


async def test_what_is_not_an_id_is_not_found(sessions: Sessions, events: Events):
    await sessions.create()
    for wrong in ("", "x", "'; DROP TABLE session; --", "\0" * 26, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "../../etc", "ü" * 26):
        for attempt in (
            sessions.get(wrong),
            sessions.update(wrong, title="x"),
            sessions.append_to_head(wrong, [user("hi")]),
            sessions.delete(wrong),
            sessions.fork(wrong),
            sessions.tips(wrong),
            sessions.digests(wrong),
            events.append(wrong, [("x", b"{}")]),
            events.after(wrong, 0),
            events.head(wrong),
        ):
            with pytest.raises(NotFound, match="Session not found"):
                await attempt
    assert len(await sessions.list()) == 1


async def test_appending_moves_the_head_and_its_tip(sessions: Sessions, forest: Forest):
    session = await sessions.create()
    first = await sessions.append_to_head(session.id, [user("one"), assistant("two")], meta={"model": "m"})
    (third,) = await sessions.append_to_head(session.id, [user("three")], expected_head=first[-1].id)
    found = await sessions.get(session.id)
    assert found.head_id == third.id
    assert found.rev == session.rev + 2
    assert await sessions.tips(session.id) == (third.id,)
    assert (await forest.path(third.id))[1:] == (*first, third)
    assert first[0].meta == {"model": "m"}


async def test_a_lost_race_for_the_head_is_a_conflict_and_writes_nothing(sessions: Sessions, forest: Forest):
    session = await sessions.create()
    (mine,) = await sessions.append_to_head(session.id, [user("mine")], expected_head=session.head_id)
    with pytest.raises(Conflict, match="Load it again"):
        await sessions.append_to_head(session.id, [user("late")], expected_head=session.head_id)
    with pytest.raises(Conflict):
        await sessions.move_head(session.id, session.head_id, session.root_id)
    with pytest.raises(Conflict):
        await sessions.update(session.id, rev=session.rev, title="late")
    assert (await sessions.get(session.id)).head_id == mine.id
    assert (await forest.verify()).nodes == 2


async def test_of_many_who_expect_the_same_head_exactly_one_wins(sessions: Sessions):
    session = await sessions.create()
    attempts = [
        sessions.append_to_head(session.id, [user(f"writer {number}")], expected_head=session.head_id)
        for number in range(12)
    ]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 11
    (won,) = [result for result in results if isinstance(result, tuple)]
    assert (await sessions.get(session.id)).head_id == won[-1].id


async def test_parallel_posts_are_all_kept_in_one_order(sessions: Sessions, forest: Forest):
    session = await sessions.create()
    texts = {f"post {number}" for number in range(40)}
    await asyncio.gather(*(sessions.append_to_head(session.id, [user(text)]) for text in texts))
    path = await forest.path((await sessions.get(session.id)).head_id)
    assert {node.message.text for node in path if node.message} == texts
    assert len(path) == 41
    assert len(await sessions.tips(session.id)) == 1


async def test_editing_an_earlier_message_keeps_both_branches(sessions: Sessions, forest: Forest):
    session = await sessions.create()
    question, answer = await sessions.append_to_head(session.id, [user("2+2?"), assistant("4")])
    await sessions.move_head(session.id, answer.id, session.root_id)
    edited, other = await sessions.append_to_head(session.id, [user("3+3?"), assistant("6")])
    assert set(await sessions.tips(session.id)) == {answer.id, other.id}
    assert await forest.children(session.root_id, session_id=session.id) == (question, edited)
    assert len(await forest.tree(session.id)) == 5


async def test_several_answers_at_once_are_branches_of_the_session(sessions: Sessions, forest: Forest):
    session = await sessions.create()
    (question,) = await sessions.append_to_head(session.id, [user("Roll a die")])
    answers = [(await sessions.append_branch(session.id, question.id, [assistant(text)]))[0] for text in "135"]
    assert (await sessions.get(session.id)).head_id == question.id
    assert set(await sessions.tips(session.id)) == {answer.id for answer in answers}
    assert await forest.children(question.id, session_id=session.id) == tuple(answers)
    moved = await sessions.move_head(session.id, question.id, answers[1].id)
    assert moved.head_id == answers[1].id
    assert set(await sessions.tips(session.id)) == {answer.id for answer in answers}
    other = await sessions.create(system="other")
    with pytest.raises(NotFound, match="not part of this session"):
        await sessions.append_branch(other.id, question.id, [assistant("6")])


async def test_walking_back_and_forth_leaves_no_superfluous_tips(sessions: Sessions):
    session = await sessions.create()
    nodes = await sessions.append_to_head(session.id, [user(str(number)) for number in range(6)])
    here = nodes[-1].id
    for target in (nodes[2], nodes[4], nodes[0], nodes[5], nodes[3]):
        await sessions.move_head(session.id, here, target.id)
        here = target.id
        assert await sessions.tips(session.id) == (nodes[-1].id,)
    await sessions.append_to_head(session.id, [user("4")])
    assert (await sessions.get(session.id)).head_id == nodes[4].id
    assert await sessions.tips(session.id) == (nodes[-1].id,)


async def test_a_head_may_move_to_nodes_that_the_forest_was_given_directly(sessions: Sessions, forest: Forest):
    session = await sessions.create(system="old prompt")
    (said,) = await sessions.append_to_head(session.id, [user("hi")])
    root = await forest.root("new prompt")
    (again,) = await forest.append(root.id, [user("hi")])
    moved = await sessions.move_head(session.id, said.id, again.id)
    assert (moved.root_id, moved.head_id) == (root.id, again.id)
    assert set(await sessions.tips(session.id)) == {said.id, again.id}
    ahead = await forest.append(again.id, [assistant("hello"), user("more")])
    await sessions.move_head(session.id, again.id, ahead[-1].id)
    assert set(await sessions.tips(session.id)) == {said.id, ahead[-1].id}
    with pytest.raises(NotFound):
        await sessions.move_head(session.id, ahead[-1].id, "0" * 64)


async def test_tips_are_always_the_ends_of_all_branches(sessions: Sessions, forest: Forest):
    """A model in plain Python beside random moves: tips are exactly the leaves of what the session has visited."""
    dice = random.Random(7)
    session = await sessions.create()
    parents: dict[str, str | None] = {session.root_id: None}
    head = session.root_id
    for _ in range(60):
        if dice.random() < 0.55:
            nodes = await sessions.append_to_head(
                session.id, [user(dice.choice("abc")) for _ in range(dice.randint(1, 2))]
            )
            for node in nodes:
                parents.setdefault(node.id, node.parent_id)
            head = nodes[-1].id
        else:
            target = dice.choice(sorted(parents))
            await sessions.move_head(session.id, head, target)
            head = target
        leaves = set(parents) - set(parents.values())
        assert set(await sessions.tips(session.id)) == leaves
    assert {node.id for node in await forest.tree(session.id)} == set(parents)


async def test_a_fork_is_a_new_head_on_the_same_nodes(sessions: Sessions, forest: Forest):
    session = await sessions.create(title="Trip", model="m", settings={"x": 1})
    await sessions.update(session.id, overrides={"o": 1}, watermark={"low": 3}, quarantine={"q": ["b"]})
    one, two = await sessions.append_to_head(session.id, [user("one"), assistant("two")])
    before = (await forest.verify()).nodes
    fork = await sessions.fork(session.id, one.id, title="Trip, again")
    assert (fork.head_id, fork.root_id, fork.title, fork.model) == (one.id, session.root_id, "Trip, again", "m")
    assert (fork.settings, fork.overrides, fork.watermark, fork.quarantine) == (
        {"x": 1},
        {"o": 1},
        {"low": 3},
        {"q": ["b"]},
    )
    assert (await forest.verify()).nodes == before
    await sessions.append_to_head(fork.id, [assistant("another two")])
    assert (await sessions.get(session.id)).head_id == two.id
    assert (await sessions.fork(session.id)).head_id == two.id
    stranger = await sessions.create(system="stranger")
    with pytest.raises(NotFound, match="not part of this session"):
        await sessions.fork(stranger.id, one.id)
    assert not await sessions.keeps(stranger.id, one.id)
    assert await sessions.keeps(session.id, one.id)


async def test_updates_change_what_is_given_and_nothing_else(sessions: Sessions):
    session = await sessions.create(title="a", model="m", workspace="/w", settings={"k": 1})
    renamed = await sessions.update(session.id, title="b\x1b[31m\n\0 c")
    assert renamed.title == "b [31m c"
    assert (renamed.model, renamed.workspace, renamed.settings) == ("m", "/w", {"k": 1})
    changed = await sessions.update(
        session.id, rev=renamed.rev, model="n", workspace="", settings={"k": None, "l": 2}, watermark={"text": 9}
    )
    assert (changed.model, changed.workspace, changed.settings, changed.watermark) == ("n", "", {"l": 2}, {"text": 9})
    assert (await sessions.update(session.id, quarantine={"\0": "\0"})).quarantine == {"\0": "\0"}
    for wrong in ({"model": "\0"}, {"workspace": "/w\0"}, {"workspace": "/\udcff"}, {"settings": {"x": float("nan")}}):
        with pytest.raises(ContentError):
            await sessions.update(session.id, **wrong)
    assert (await sessions.get(session.id)).rev == session.rev + 3


async def test_sessions_are_listed_newest_first_page_by_page(database: Database):
    times = itertools.count(1000)
    sessions = Sessions(database, clock=lambda: next(times))
    made = [await sessions.create(title=str(number)) for number in range(7)]
    await sessions.update(made[2].id, archived=True)
    await sessions.append_to_head(made[0].id, [user("fresh")])
    everything = await sessions.list(archived=None)
    assert [session.title for session in everything] == ["0", "2", "6", "5", "4", "3", "1"]
    assert [session.title for session in await sessions.list(archived=True)] == ["2"]
    seen: list[str] = []
    page = await sessions.list(limit=2)
    while page:
        seen += [session.title for session in page]
        page = await sessions.list(limit=2, before=(page[-1].updated_at, page[-1].id))
    assert seen == ["0", "6", "5", "4", "3", "1"]


async def test_a_clock_that_goes_backwards_loses_nothing(database: Database):
    times = iter([5000.0, 1400.0, 90000.0, 10.0])
    sessions, forest = Sessions(database, clock=lambda: next(times)), Forest(database)
    session = await sessions.create()
    for text in ("one", "two", "three"):
        await sessions.append_to_head(session.id, [user(text)])
    path = await forest.path((await sessions.get(session.id)).head_id)
    assert [node.message.text for node in path if node.message] == ["one", "two", "three"]


async def test_deleting_a_session_frees_what_only_it_used(sessions: Sessions, forest: Forest, events: Events):
    shared, mine, yours, nested = (
        digest_of(name) for name in (b"shared.png", b"mine.png", b"yours.png", b"nested.png")
    )
    one, two = await sessions.create(), await sessions.create()
    await sessions.append_to_head(one.id, [user(png("shared.png")), assistant("seen"), user(png("mine.png"))])
    calls = [assistant(ToolCall("1", "t")), tool(ToolResult("1", (TextBlock("x"), png("nested.png"))))]
    await sessions.append_to_head(one.id, calls)
    await sessions.append_to_head(two.id, [user(png("shared.png")), user(png("yours.png"))])
    await events.append(one.id, [("said", b"{}")])
    assert await sessions.digests(one.id) == {shared, mine, nested}
    assert await sessions.delete(one.id) == tuple(sorted((mine, nested)))
    assert await sessions.referenced_digests() == {shared, yours}
    with pytest.raises(NotFound):
        await sessions.get(one.id)
    with pytest.raises(NotFound):
        await events.head(one.id)
    assert not (await forest.verify()).problems
    assert set(await sessions.delete(two.id)) == {shared, yours}
    assert (await forest.verify()).nodes == 0


async def test_deleting_one_of_two_forks_keeps_the_other_whole(sessions: Sessions, forest: Forest):
    session = await sessions.create()
    nodes = await sessions.append_to_head(session.id, [user("a"), assistant("b"), user("c", png("c.png"))])
    fork = await sessions.fork(session.id, nodes[1].id)
    await sessions.append_to_head(fork.id, [user("d", png("c.png"))])
    assert await sessions.delete(session.id) == ()
    assert [node.message.text for node in await forest.tree(fork.id) if node.message] == ["a", "b", "d"]
    assert (await forest.verify()).nodes == 4
    assert await sessions.delete(fork.id) == (digest_of(b"c.png"),)


async def test_deleting_takes_every_branch_and_bookmarks_do_not_hold_it_back(sessions: Sessions, forest: Forest):
    session = await sessions.create()
    nodes = await sessions.append_to_head(session.id, [user("a"), assistant("b")])
    await sessions.append_branch(session.id, nodes[0].id, [assistant("c"), user("d")])
    await sessions.append_branch(session.id, nodes[0].id, [assistant("e")])
    await sessions.move_head(session.id, nodes[1].id, nodes[0].id)
    await forest.set_bookmark(nodes[1].id, "keep?")
    await sessions.delete(session.id)
    assert (await forest.verify()).nodes == 0


async def test_a_head_in_the_middle_of_anothers_branch_keeps_its_path(sessions: Sessions, forest: Forest):
    session = await sessions.create()
    nodes = await sessions.append_to_head(session.id, [user("a"), assistant("b"), user("c"), assistant("d")])
    fork = await sessions.fork(session.id, nodes[1].id)
    await sessions.delete(session.id)
    assert [node.id for node in await forest.path(fork.head_id)] == [session.root_id, nodes[0].id, nodes[1].id]
    assert (await forest.verify()).nodes == 3


async def test_deletions_and_appends_at_once_leave_a_sound_forest(
    sessions: Sessions, forest: Forest, database: Database
):
    dice = random.Random(3)
    first = await sessions.create()
    nodes = await sessions.append_to_head(first.id, [user(str(number), png(f"{number}.png")) for number in range(12)])
    forks = [await sessions.fork(first.id, dice.choice(nodes).id) for _ in range(16)]
    doomed, kept = forks[:8], forks[8:]
    writers = [sessions.append_to_head(fork.id, [user(f"{fork.id} {n}")]) for fork in kept for n in range(3)]
    jobs = [*writers, *(sessions.delete(fork.id) for fork in doomed), sessions.delete(first.id)]
    dice.shuffle(jobs)
    await asyncio.gather(*jobs)
    report = await forest.verify()
    assert not report.problems
    assert await database.check() == ()
    wanted: set[str] = set()
    for fork in kept:
        tree = await forest.tree(fork.id)
        wanted |= {node.id for node in tree}
        assert sum(fork.id in node.message.text for node in tree if node.message) == 3
    assert report.nodes == len(wanted)
    for fork in kept:
        await sessions.delete(fork.id)
    assert (await forest.verify()).nodes == 0


async def test_a_damaged_record_names_its_session(sessions: Sessions, database: Database):
    session, other = await sessions.create(), await sessions.create()
    await database.write(lambda tx: tx.execute("UPDATE session SET settings = '{' WHERE id = :id", {"id": session.id}))
    with pytest.raises(Corrupt, match=session.id):
        await sessions.get(session.id)
    assert (await sessions.get(other.id)).id == other.id


async def test_a_damaged_record_hides_no_other_and_is_listed_with_what_can_be_read(
    sessions: Sessions, database: Database
):
    session, other = await sessions.create(title="the damaged one"), await sessions.create(title="the sound one")
    await database.write(lambda tx: tx.execute("UPDATE session SET settings = '{' WHERE id = :id", {"id": session.id}))
    listed = {found.id: found for found in await sessions.list()}
    assert listed[session.id].title == "the damaged one"
    assert session.id in listed[session.id].damage
    assert (listed[other.id].title, listed[other.id].damage) == ("the sound one", "")


@pytest.mark.parametrize(
    "damage",
    ["head_key = (SELECT head_key FROM session WHERE id = :other)", "head_digits = '0000000000000000'"],
    ids=["the head is another's", "the digits are wrong"],
)
async def test_a_head_that_is_not_the_one_that_was_written_is_noticed_and_mended(
    sessions: Sessions, database: Database, damage: str
):
    session, other = await sessions.create(system="a"), await sessions.create(system="b")
    (said,) = await sessions.append_to_head(session.id, [user("mine")])
    await sessions.append_to_head(other.id, [user("theirs")])
    await database.write(
        lambda tx: tx.execute(
            f"UPDATE session SET {damage} WHERE id = :id RETURNING :other",
            {"id": session.id, "other": other.id},
        )
    )
    with pytest.raises(Corrupt, match=session.id):
        await sessions.get(session.id)
    assert [found.id for found in await sessions.list() if found.damage] == [session.id]
    assert (await sessions.repair(session.id)).head_id == said.id
    assert not any(found.damage for found in await sessions.list())


async def test_a_session_of_an_older_store_has_no_digits_and_gets_them_with_its_next_message(
    sessions: Sessions, database: Database
):
    session = await sessions.create()
    await database.write(lambda tx: tx.execute("UPDATE session SET head_digits = ''"))
    assert (await sessions.get(session.id)).head_id == session.head_id
    (said,) = await sessions.append_to_head(session.id, [user("hi")])
    rows = await database.read(lambda tx: tx.execute("SELECT head_digits FROM session"))
    assert rows == [(said.id.removeprefix("node:sha256:")[:16],)]


async def test_forks_made_while_others_are_deleted_never_lose_their_path(sessions: Sessions, forest: Forest):
    origin = await sessions.create()
    nodes = await sessions.append_to_head(origin.id, [user(str(number)) for number in range(5)])
    for _ in range(6):
        source = await sessions.fork(origin.id, nodes[-1].id)
        results = await asyncio.gather(
            sessions.fork(source.id), sessions.delete(source.id), sessions.fork(origin.id), return_exceptions=True
        )
        for result in results:
            assert not isinstance(result, BaseException) or isinstance(result, NotFound)
        for session in await sessions.list(limit=100):
            assert len(await forest.path(session.head_id)) == 6


async def test_sessions_that_keep_a_node_which_is_gone_are_found(sessions: Sessions, database: Database):
    headless, torn, sound = [await sessions.create(system=name) for name in ("a", "b", "c")]
    (said,) = await sessions.append_to_head(torn.id, [user("hi")])
    await sessions.move_head(torn.id, said.id, torn.root_id)
    for node_id in (headless.head_id, said.id):
        await database.write(lambda tx, gone=node_id: tx.execute("DELETE FROM node WHERE id = :id", {"id": gone}))
    damaged = {session.id for session in await sessions.list() if session.damage}
    assert damaged == {headless.id}
    with pytest.raises(Corrupt):
        await sessions.append_to_head(headless.id, [user("hi")])
    assert (await sessions.get(sound.id)).id == sound.id


@pytest.fixture
async def in_sqlite(tmp_path: Path) -> AsyncIterator[Database]:
    """PostgreSQL keeps numbers in columns of numbers; in a file of SQLite, damage can make anything of them."""
    database = await open_database(str(tmp_path / "damaged.db"))
    yield database
    await database.close()


DAMAGE = [
    *("held_until = 'zz'", "fence = 'x'", "holder = x'ff'", "last_seq = 'zz'", "rev = 'x'", "created_at = 'x'"),
    *("title = x'ff00'", "model = x'ff'", "workspace = x'ff'", "settings = '{'", "archived = 'x'"),
]


@pytest.mark.parametrize("damage", DAMAGE)
async def test_whatever_is_damaged_in_a_record_it_is_listed_so_and_can_be_mended(in_sqlite: Database, damage: str):
    sessions, events, leases = Sessions(in_sqlite), Events(in_sqlite), Leases(in_sqlite)
    session, other = await sessions.create(title="mine"), await sessions.create()
    (said,) = await sessions.append_to_head(session.id, [user("hi")])
    await events.append(session.id, [("a", b"{}")] * 3)
    await leases.acquire(session.id, "gone", -1)
    await in_sqlite.write(lambda tx: tx.execute(f"UPDATE session SET {damage} WHERE id = :id", {"id": session.id}))
    assert [found.id for found in await sessions.list(archived=None) if found.damage] == [session.id]

    repaired = await sessions.repair(session.id)

    assert (repaired.head_id, repaired.last_seq) == (said.id, 3)
    assert not any(found.damage for found in await sessions.list(archived=None))
    assert {found.id for found in await sessions.list()} == {session.id, other.id}
    lease = await leases.acquire(session.id, "me", 60)
    assert lease is not None
    await sessions.append_to_head(session.id, [user("again")], fence=lease.fence)
    assert await events.append(session.id, [("a", b"{}")], fence=lease.fence) == 4


async def test_a_lease_that_was_given_before_its_record_was_mended_is_lost(in_sqlite: Database):
    sessions, leases = Sessions(in_sqlite), Leases(in_sqlite)
    session = await sessions.create()
    old = await leases.acquire(session.id, "old", 60)
    assert old is not None
    await in_sqlite.write(lambda tx: tx.execute("UPDATE session SET fence = 'x'"))
    await sessions.repair(session.id)
    assert await leases.acquire(session.id, "new", 60) is not None
    with pytest.raises(Conflict, match="taken over"):
        await sessions.append_to_head(session.id, [user("late")], fence=old.fence)


async def test_mending_a_record_leaves_a_lease_alone_that_can_be_read(in_sqlite: Database):
    sessions, leases = Sessions(in_sqlite), Leases(in_sqlite)
    session = await sessions.create()
    lease = await leases.acquire(session.id, "me", 60)
    assert lease is not None
    await in_sqlite.write(lambda tx: tx.execute("UPDATE session SET settings = '{'"))
    await sessions.repair(session.id)
    await sessions.append_to_head(session.id, [user("goes on")], fence=lease.fence)


@pytest.mark.parametrize("damage", [*DAMAGE, "head_key = 'x'"])
async def test_whatever_is_damaged_in_a_record_it_can_be_deleted(in_sqlite: Database, damage: str):
    sessions = Sessions(in_sqlite)
    session, other = await sessions.create(system="a"), await sessions.create(system="b")
    await sessions.append_to_head(session.id, [user("hi")])
    await in_sqlite.write(lambda tx: tx.execute(f"UPDATE session SET {damage} WHERE id = :id", {"id": session.id}))
    await sessions.delete(session.id)
    assert [found.id for found in await sessions.list(archived=None)] == [other.id]


def cut(digest: str, call: str = "1") -> list[Message]:
    """A result whose whole text was too long to show."""
    data = {"exit": 0, "kept": {"digest": digest, "size_bytes": 9}}
    return [assistant(ToolCall(call, "t")), tool(ToolResult(call, (TextBlock("x"),), data=data))]


async def test_deleting_gives_the_texts_that_were_cut_and_the_files_that_were_tracked(sessions: Sessions):
    mine, theirs, tracked, both = (digest_of(name) for name in (b"mine", b"theirs", b"tracked", b"both"))
    seen = {"a.md": {"digest": tracked}, "b.md": {"digest": both}, "gone.md": {"digest": ""}, "c": {"digest": "empty"}}
    one = await sessions.create(settings={"tracked": seen})
    two = await sessions.create(settings={"tracked": {"b.md": {"digest": both}}})
    await sessions.append_to_head(one.id, [*cut(mine), *cut(theirs)])
    await sessions.append_to_head(two.id, [user("the same"), *cut(theirs)])

    freed = await sessions.delete(one.id)

    assert set(freed) == {mine, theirs, tracked, both}
    assert await sessions.media_in_use(freed) == {theirs, both}
    assert await sessions.media_in_use([]) == frozenset()
    assert set(await sessions.delete(two.id)) == {theirs, both}
    assert await sessions.media_in_use(freed) == frozenset()


async def test_media_that_are_said_or_wait_are_in_use(sessions: Sessions, database: Database):
    said, waiting, free = (digest_of(name) for name in (b"said.png", b"waiting.png", b"free.png"))
    session = await sessions.create()
    await sessions.append_to_head(session.id, [user(png("said.png"))])
    await MessageQueue(database).put(session.id, "", user(png("waiting.png")))
    assert await sessions.media_in_use([said, waiting, free]) == {said, waiting}


async def test_among_many_texts_that_were_cut_each_is_found(sessions: Sessions):
    digests = [digest_of(b"%d" % number) for number in range(450)]
    session = await sessions.create()
    await sessions.append_to_head(session.id, [message for each in digests for message in cut(each)])
    assert await sessions.media_in_use([digests[0], digests[-1], digest_of(b"other")]) == {digests[0], digests[-1]}


async def test_a_negative_limit_is_refused_in_both_databases(sessions: Sessions):
    with pytest.raises(ContentError, match="limit"):
        await sessions.list(limit=-1)
    assert await sessions.list(limit=2**70) == ()
