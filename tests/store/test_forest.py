"""The forest: ids by content, shared prefixes, paths, verification. Every test runs on both databases."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom.content.blocks import DocumentBlock, ImageBlock, TextBlock, ToolCall, ToolResult, UnknownBlock
from loom.content.codec import encode_message
from loom.content.media import Media, digest_of
from loom.content.messages import Message, assistant, tool, user
from loom.errors import ContentError, Corrupt, NotFound
from loom.store.database import Database, open_database
from loom.store.forest import Forest
from loom.store.nodes import node_id_of
from loom.store.sessions import Sessions
from postgres_server import PostgresServer
from strategies import CONVERSATIONS, MESSAGES, TEXT

ANY_WORLD = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def png(name: str) -> ImageBlock:
    return ImageBlock(Media(digest=digest_of(name.encode()), media_type="image/png", size_bytes=10, name=name))


async def test_a_path_gives_back_what_was_appended(forest: Forest):
    said = [user("What is this?", png("a.png")), assistant("A cat."), user("Sure?"), assistant("Yes.")]
    root = await forest.root("Be brief.")
    nodes = await forest.append(root.id, said)
    path = await forest.path(nodes[-1].id)
    assert [node.message for node in path] == [None, *said]
    assert path[0].system == "Be brief."
    assert [node.depth for node in path] == [0, 1, 2, 3, 4]
    assert [node.source for node in path] == ["system", "user", "model", "user", "model"]
    assert path[1:] == nodes


async def test_an_id_is_a_hash_over_the_parent_and_the_stored_bytes(forest: Forest):
    root = await forest.root("")
    message = user("same words")
    (node,) = await forest.append(root.id, [message])
    assert node.id == node_id_of(root.id, encode_message(message).decode())
    assert node.id.startswith("node:sha256:")
    assert len(node.id) == len("node:sha256:") + 64
    (below,) = await forest.append(node.id, [message])
    assert below.id != node.id


async def test_appending_again_changes_nothing_and_keeps_the_first_notes(forest: Forest):
    root = await forest.root("x")
    first = await forest.append(root.id, [user("hi"), assistant("hello")], meta={"model": "one", "usage": {"in": 3}})
    again = await forest.append(root.id, [user("hi"), assistant("hello")], meta={"model": "two"})
    assert again == first
    assert again[1].meta == {"model": "one", "usage": {"in": 3}}
    assert (await forest.verify()).nodes == 3


async def test_one_prompt_has_one_root(forest: Forest):
    assert await forest.root("same") == await forest.root("same")
    assert (await forest.root("same")).id != (await forest.root("other")).id


async def test_odd_prompts_are_roots_like_any_other(forest: Forest):
    for system in ("", "\0", "Ünïcode 🧵\u2028\x1b[0m", '"; DROP TABLE node; --', "x" * 200_000):
        root = await forest.root(system)
        assert (await forest.path(root.id))[0].system == system
    with pytest.raises(ContentError, match="surrogate"):
        await forest.root("\ud800")


async def test_appending_nothing_is_nothing(forest: Forest):
    assert await forest.append((await forest.root("")).id, []) == ()


@asynccontextmanager
async def both(sqlite: str, postgres: PostgresServer) -> AsyncIterator[list[Forest]]:
    databases = [await open_database(sqlite), await open_database(postgres.empty_database())]
    yield [Forest(database) for database in databases]
    for database in databases:
        await database.close()


def test_any_conversation_in_any_split_has_the_same_ids_on_both_databases(postgres: PostgresServer):
    async def world() -> None:
        async with both(":memory:", postgres) as forests:
            loop = asyncio.get_running_loop()

            @ANY_WORLD
            @given(TEXT, CONVERSATIONS, st.lists(st.integers(1, 3), min_size=6, max_size=6))
            def holds(system: str, said: list[Message], cuts: list[int]) -> None:
                asyncio.run_coroutine_threadsafe(splits_agree(forests, system, said, cuts), loop).result(60)

            await asyncio.to_thread(holds)
            for forest in forests:
                assert not (await forest.verify()).problems

    asyncio.run(world())


async def splits_agree(forests: list[Forest], system: str, said: list[Message], cuts: list[int]) -> None:
    found: list[list[str]] = []
    for forest in forests:
        root = await forest.root(system)
        at, left = root.id, said
        for cut in cuts:
            for node in await forest.append(at, left[:cut]):
                at = node.id
            left = left[cut:]
        whole = await forest.append(root.id, said)
        assert whole[-1].id == at
        path = await forest.path(at)
        assert path[0].system == system
        assert [node.message for node in path[1:]] == said
        found.append([node.id for node in path])
    assert found[0] == found[1]


def test_two_conversations_share_exactly_their_common_prefix():
    async def shares(prefix: list[Message], one: list[Message], two: list[Message]) -> None:
        database = await open_database(":memory:")
        forest = Forest(database)
        root = await forest.root("")
        first = await forest.append(root.id, prefix + one)
        second = await forest.append(root.id, prefix + two)
        pairs = zip(prefix + one, prefix + two, strict=False)
        common = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        shared = {node.id for node in first} & {node.id for node in second}
        assert shared == {node.id for node in first[:common]}
        assert (await forest.verify()).nodes == 1 + len(first) + len(second) - common
        await database.close()

    @ANY_WORLD
    @given(CONVERSATIONS, st.lists(MESSAGES, max_size=2), st.lists(MESSAGES, max_size=2))
    def holds(prefix: list[Message], one: list[Message], two: list[Message]) -> None:
        asyncio.run(shares(prefix, one, two))

    holds()


async def test_a_node_is_found_by_the_first_digits_of_its_id(forest: Forest):
    root = await forest.root("")
    (node,) = await forest.append(root.id, [user("hi")])
    digits = node.id.removeprefix("node:sha256:")
    for short in (digits[:8], digits[:20], digits, f"node:sha256:{digits[:9]}", node.id):
        assert await forest.node(short) == node
    for wrong in (digits[:7], "", "zzzzzzzz", digits + "0", "' OR 1=1 --", "%", "\0", digits.upper() + "X", "ffffffff"):
        with pytest.raises(NotFound):
            await forest.node(wrong)


async def test_a_prefix_of_two_ids_is_refused_with_advice(forest: Forest, database: Database):
    root = await forest.root("")
    fake = "node:sha256:" + root.id.removeprefix("node:sha256:")[:20] + "0" * 44
    copy = (
        "INSERT INTO node (id, depth, role, message, source, meta, tags, bookmark, created_at)"
        " SELECT :id, depth, role, message, source, meta, tags, bookmark, created_at FROM node"
    )
    await database.write(lambda tx: tx.execute(copy, {"id": fake}))
    with pytest.raises(NotFound, match="Use a longer id prefix"):
        await forest.node(root.id[:30])


async def test_children_come_in_the_order_they_were_written(forest: Forest):
    root = await forest.root("")
    (question,) = await forest.append(root.id, [user("Tell me a number")])
    answers = [(await forest.append(question.id, [assistant(text)]))[0] for text in ("7", "3", "5")]
    assert list(await forest.children(question.id)) == answers
    assert await forest.children(answers[0].id) == ()


async def test_a_session_sees_only_its_own_branches_of_a_shared_node(forest: Forest, sessions: Sessions):
    mine, yours = await sessions.create(), await sessions.create()
    (question, my_answer) = await sessions.append_to_head(mine.id, [user("hi"), assistant("mine")])
    (shared, your_answer) = await sessions.append_to_head(yours.id, [user("hi"), assistant("yours")])
    assert shared == question
    assert await forest.children(question.id) == (my_answer, your_answer)
    assert await forest.children(question.id, session_id=mine.id) == (my_answer,)
    assert await forest.children(question.id, session_id=yours.id) == (your_answer,)
    assert [node.id for node in await forest.tree(mine.id)] == [mine.root_id, question.id, my_answer.id]


async def test_pages_of_a_path_are_the_path_with_the_siblings_of_the_tree(forest: Forest, sessions: Sessions):
    session = await sessions.create(system="Be brief.")
    said = await sessions.append_to_head(session.id, [user("a"), assistant("b"), user("c"), assistant("d"), user("e")])
    beside = await sessions.append_branch(session.id, said[1].id, [user("C"), assistant("D")])
    (other,) = await sessions.append_branch(session.id, said[0].id, [assistant("B")])
    tree = await forest.tree(session.id)
    for head, path in ((said[-1], said), (beside[-1], (*said[:2], *beside)), (other, (said[0], other))):
        for limit in (1, 2, 3, 100):
            found, before = [], ""
            while True:
                page = await forest.page(session.id, head.id, before=before, limit=limit)
                assert page.system == "Be brief." and len(page.nodes) <= limit
                for node in page.nodes:
                    family = [one.id for one in tree if one.parent_id == node.parent_id]
                    assert list(page.siblings[node.id]) == family
                found = [*page.nodes, *found]
                if not page.has_more:
                    break
                before = page.nodes[0].id
            assert tuple(found) == path
    with pytest.raises(ContentError, match="not on the path to the head"):
        await forest.page(session.id, other.id, before=beside[0].id, limit=5)
    stranger = await sessions.append_to_head((await sessions.create()).id, [user("x")])
    with pytest.raises(NotFound):
        await forest.page(session.id, said[-1].id, before=stranger[0].id, limit=5)
    assert (await forest.page(session.id, session.root_id, limit=5)).nodes == ()


async def test_the_end_of_a_long_path_is_read_without_its_beginning(
    database: Database, forest: Forest, sessions: Sessions
):
    session = await sessions.create()
    said = await sessions.append_to_head(
        session.id, [user("look", png("a.png")), *(assistant(f"{number}") for number in range(100))]
    )
    damaged = {"id": said[50].id}
    await database.write(lambda tx: tx.execute("UPDATE node SET message = 'damaged' WHERE id = :id", damaged))
    page = await forest.page(session.id, said[-1].id, limit=10)
    assert page.nodes == said[-10:] and page.has_more
    with pytest.raises(Corrupt):
        await forest.page(session.id, said[-1].id, limit=60)
    latest = (await forest.latest([said[-1].id, session.root_id]))[said[-1].id]
    assert latest[0] == said[0] and latest[-1] == said[-1]  # the image far above, and the last words
    assert len(latest) < 20


async def test_the_tree_of_an_unknown_session_is_not_found(forest: Forest):
    with pytest.raises(NotFound):
        await forest.tree("no such session")


async def test_bookmarks_and_tags_stay_with_the_node(forest: Forest):
    root = await forest.root("")
    (node,) = await forest.append(root.id, [user("hi")])
    await forest.set_bookmark(node.id, "the good one ✓")
    await forest.set_tags(node.id, ["b", "a", "b", "\0"])
    found = await forest.node(node.id)
    assert (found.bookmark, found.tags) == ("the good one ✓", ("\0", "a", "b"))
    assert (await forest.append(root.id, [user("hi")]))[0] == found
    await forest.set_bookmark(node.id, "")
    assert (await forest.node(node.id)).bookmark == ""
    with pytest.raises(ContentError, match="NUL"):
        await forest.set_bookmark(node.id, "a\0b")
    with pytest.raises(NotFound):
        await forest.set_tags("0123456789", ["x"])


async def test_text_that_looks_like_something_else_stays_text(forest: Forest):
    root = await forest.root("")
    said = [
        user('{"lc":1,"type":"secret","id":["KEY"]}'),
        user('{"type":"image","source_path":"/etc/shadow"}'),
        assistant(ToolCall("1", "run", {"__reduce__": ["os.system", ["id"]], "$media": "sha256:00"})),
        user("Robert'); DROP TABLE node;-- %s %(id)s :id ?"),
    ]
    nodes = await forest.append(root.id, said)
    assert [node.message for node in (await forest.path(nodes[-1].id))[1:]] == said


async def test_every_digest_that_a_message_needs_is_recorded(forest: Forest, sessions: Sessions):
    root = await forest.root("")
    pdf = Media(digest=digest_of(b"pdf"), media_type="application/pdf", size_bytes=3)
    newer = digest_of(b"a block of tomorrow")
    said = [
        user(png("user.png"), DocumentBlock(pdf), UnknownBlock({"type": "hologram", "stream": {"parts": [newer]}})),
        assistant(ToolCall("1", "shot")),
        tool(ToolResult("1", (TextBlock("here"), png("tool.png")))),
        user("words about sha256:" + "0" * 64),
    ]
    await forest.append(root.id, said)
    wanted = {digest_of(name) for name in (b"user.png", b"pdf", b"a block of tomorrow", b"tool.png")}
    assert await sessions.referenced_digests() == wanted


async def test_verify_names_missing_media_once_for_each_message(forest: Forest):
    root = await forest.root("")
    nodes = await forest.append(root.id, [user(png("here.png")), user(png("gone.png")), user("and", png("gone.png"))])
    asked: list[str] = []

    async def exists(digest: str) -> bool:
        asked.append(digest)
        return digest == digest_of(b"here.png")

    report = await forest.verify(exists=exists)
    assert report.nodes == 4
    assert {(problem.node_id, problem.what) for problem in report.problems} == {
        (nodes[1].id, "media"),
        (nodes[2].id, "media"),
    }
    assert "gone.png" in report.problems[0].text
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("UPDATE node SET message = REPLACE(message, 'second', 'forged') WHERE id = :id", {"hash"}),
        ("UPDATE node SET message = 'not json' WHERE id = :id", {"hash"}),
        ("UPDATE node SET meta = '{' WHERE id = :id", {"message"}),
        ("UPDATE node SET tags = '{}' WHERE id = :id", {"message"}),
        ("UPDATE node SET depth = 7 WHERE id = :id", {"depth"}),
        ("UPDATE node SET parent_key = NULL WHERE id = :id", {"parent", "hash"}),
    ],
)
async def test_a_damaged_row_is_named_and_nothing_else_is_lost(
    forest: Forest, sessions: Sessions, database: Database, damage: str, what: set[str]
):
    hurt, sound = await sessions.create(system="a"), await sessions.create(system="b")
    nodes = await sessions.append_to_head(hurt.id, [user("first"), user("second"), user("third")])
    (fine,) = await sessions.append_to_head(sound.id, [user("second")])
    await database.write(lambda tx: tx.execute(damage, {"id": nodes[1].id}))
    with pytest.raises(Corrupt) as caught:
        await forest.path(nodes[2].id)
    assert nodes[1].id in str(caught.value) or nodes[2].id in str(caught.value)
    assert "loom doctor" in str(caught.value)
    report = await forest.verify()
    assert {problem.what for problem in report.problems if problem.node_id == nodes[1].id} == what
    assert (await forest.path(fine.id))[-1].message == user("second")
    assert (await forest.path(nodes[0].id))[-1].message == user("first")
    tree = await forest.read_tree(hurt.id)
    assert [(one.id, one.below) for one in tree.damaged] == ([] if what == {"depth"} else [(nodes[1].id, 1)])
    assert len(await sessions.list()) == 2


async def test_a_damaged_root_is_named(forest: Forest, database: Database):
    root = await forest.root("Be brief.")
    (node,) = await forest.append(root.id, [user("hi")])
    await database.write(lambda tx: tx.execute("UPDATE node SET message = '{}' WHERE id = :id", {"id": root.id}))
    for attempt in (forest.path(node.id), forest.node(root.id)):
        with pytest.raises(Corrupt, match=root.id):
            await attempt
    assert [problem.node_id for problem in (await forest.verify()).problems] == [root.id]


async def test_a_message_of_a_newer_version_says_so_and_survives(forest: Forest, database: Database):
    root = await forest.root("")
    stored = '{"v":99,"role":"user","blocks":[{"type":"hologram"}]}'
    node_id = node_id_of(root.id, stored)
    insert = (
        "INSERT INTO node (id, parent_key, root_key, depth, role, message, source, meta, tags, bookmark, created_at)"
        " SELECT :id, key, key, 1, 'user', :message, 'user', '{}', '[]', '', 0 FROM node WHERE id = :root"
    )
    params = {"id": node_id, "message": stored, "root": root.id}
    await database.write(lambda tx: tx.execute(insert, params))
    report = await forest.verify()
    assert [(problem.node_id, problem.what) for problem in report.problems] == [(node_id, "message")]
    assert "Upgrade Loom" in str((await asyncio.gather(forest.node(node_id), return_exceptions=True))[0])


async def test_a_long_path_loads_whole_and_in_order(forest: Forest):
    root = await forest.root("")
    said = [user(f"message {number}") for number in range(1500)]
    nodes = await forest.append(root.id, said)
    assert [node.message for node in (await forest.path(nodes[-1].id))[1:]] == said


async def test_time_comes_from_the_given_clock(database: Database):
    forest = Forest(database, clock=lambda: 1234.5)
    assert (await forest.root("")).created_at == 1234.5
