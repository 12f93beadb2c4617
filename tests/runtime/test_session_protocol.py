"""Session: a local session and one of a daemon give the same results, and the same errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from loom.content.blocks import ImageBlock
from loom.content.inputs import Attachment
from loom.content.messages import Message, user
from loom.errors import ApprovalGone, ConfigError, Conflict, ContentError, NotFound, Stale
from loom.events import (
    ApprovalRequested,
    Event,
    MessageStored,
    NoticeRaised,
    TextDelta,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from loom.library import Library
from loom.session import Session
from loom.testing import memory_runtime, sample_pdf, sample_png
from runtime.libraries import KINDS, library_of

CLAUDE = "anthropic/claude-sonnet-4-5"


@pytest.fixture(params=KINDS)
async def library(request: pytest.FixtureRequest) -> AsyncGenerator[Library]:
    async with library_of(request.param) as (found, _):
        yield found


async def drain(events: AsyncIterable[object]) -> None:
    async for _ in events:
        pass


async def begun(library: Library, *said: str) -> Session:
    session = await library.create(title="a session")
    for text in said:
        await session.send(text)
    return session


async def test_the_state_of_a_session(library: Library, tmp_path: Path) -> None:
    session = await library.create(title="first", model="loom/spark", workspace=str(tmp_path))
    info = await session.info()
    assert (info.id, info.title, info.model, info.workspace) == (session.id, "first", "loom/spark", str(tmp_path))
    assert (info.state, info.archived, info.head) == ("idle", False, await session.head())
    assert await session.path() == ()
    await session.send("!echo hello")
    info = await session.info()
    assert info.snippet == "hello" and info.head == await session.head() != info.root


async def test_history_is_paged_and_names_nodes(library: Library) -> None:
    session = await begun(library, "!echo one", "!echo two", "!echo three")
    whole = await session.history()
    assert [view.role for view in whole.messages] == ["user", "assistant"] * 3
    assert [Message(view.role, view.blocks) for view in whole.messages] == list(await session.path())
    assert (whole.more, whole.head, whole.queue, whole.running) == (False, await session.head(), (), None)
    assert whole.seq == (await session.info()).last_seq
    newest = await session.history(limit=2)
    assert newest.more and newest.messages == whole.messages[-2:]
    older = await session.history(limit=4, before=newest.messages[0].node)
    assert not older.more and older.messages == whole.messages[:4]
    branch = await session.history(head=whole.messages[1].node)
    assert branch.messages == whole.messages[:2]
    with pytest.raises(NotFound):
        await session.history(head="node:sha256:" + "0" * 64)


async def test_branches_of_a_tree(library: Library) -> None:
    session = await begun(library, "!echo one")
    first = (await session.history()).messages
    async with aclosing(session.regenerate()) as events:
        assert [event async for event in events if isinstance(event, TurnFinished)]
    await session.send("!echo other", parent=first[0].parent)
    tree = await session.tree()
    assert tree.head == await session.head()
    assert [node.label for node in tree.nodes if node.role == "user"] == ["!echo one", "!echo other"]
    assert (await session.children(first[0].node))[0].node == first[1].node
    parents = {node.parent for node in tree.nodes}
    assert (await session.history()).branches == len([node for node in tree.nodes if node.node not in parents]) == 2
    await session.mark(first[1].node, bookmark="the first", tags=["a", "b"])
    marked = next(node for node in (await session.tree()).nodes if node.node == first[1].node)
    assert (marked.bookmark, marked.tags) == ("the first", ("a", "b"))
    await session.go(first[1].node)
    assert await session.head() == first[1].node
    with pytest.raises(NotFound):
        await session.go("node:sha256:" + "0" * 64)


async def test_a_fork_shares_the_path_and_goes_its_own_way(library: Library) -> None:
    session = await begun(library, "!echo one")
    fork = await session.fork(title="another")
    assert (fork.id != session.id, (await fork.info()).title) == (True, "another")
    await fork.send("!echo two")
    assert (await fork.path())[:2] == await session.path() and len(await fork.path()) == 4


async def test_changes_and_revisions(library: Library) -> None:
    session = await begun(library)
    await session.rename("renamed")
    await session.use("loom/spark")
    info = await session.change(archived=True)
    assert (info.title, info.model, info.archived) == ("renamed", "loom/spark", True)
    changed = await session.change(archived=False, rev=info.rev)
    assert changed.rev > info.rev
    with pytest.raises(Stale):
        await session.change(title="too late", rev=info.rev)
    with pytest.raises(ConfigError):
        await session.use("no-such-platform/none")
    assert (await session.info()).title == "renamed"


async def test_a_session_sets_its_system_prompt_and_its_tools(library: Library) -> None:
    session = await begun(library, "!echo hello")
    first = (await session.history()).system
    assert (await session.info()).tools == ("*",)
    await session.change(system="Answer in rhymes.", tools=["read_*"])
    assert (await session.history()).system == "Answer in rhymes."
    assert (await session.info()).tools == ("read_*",)
    sent = (await session.wire(CLAUDE)).request
    assert "Answer in rhymes." in str(sent["system"]) and "tools" not in sent
    await session.change(tools=["write_*"])
    assert [one["name"] for one in (await session.wire(CLAUDE)).request["tools"]] == ["write_note"]
    fork = await session.fork()
    assert ((await fork.info()).tools, (await fork.history()).system) == (("write_*",), "Answer in rhymes.")
    await session.change(system="", tools=["*"])
    assert ((await session.info()).tools, (await session.history()).system) == (("*",), first)


async def test_a_tool_that_the_session_does_not_allow_is_not_called(library: Library) -> None:
    session = await begun(library)
    await session.change(tools=[])
    reply = await session.send('!call write_note {"text": "x"}')
    assert "wrote" not in str(await session.path())
    assert reply.stop == "end"


async def test_a_reply_and_its_usage(library: Library) -> None:
    session = await begun(library)
    reply = await session.send("!echo hello", n=2)
    assert (reply.text, reply.stop, len(reply.siblings)) == ("hello", "end", 1)
    await session.send("!echo another", parent=reply.parent)
    usage = await session.usage()
    assert (usage.path.answers, usage.total.answers) == (1, 2)
    assert usage.total.usage.output_tokens > usage.path.usage.output_tokens > 0


async def test_watch_shows_the_turns_of_others(library: Library) -> None:
    session = await begun(library, "!echo before")
    other = await library.open(session.id)
    seen: list[tuple[int, Event]] = []
    watching = asyncio.Event()

    async def watch() -> None:
        after = (await session.info()).last_seq
        watching.set()
        async with aclosing(session.watch(after)) as events:
            async for numbered in events:
                seen.append(numbered)
                if isinstance(numbered[1], TurnFinished):
                    return

    task = asyncio.create_task(watch())
    await watching.wait()
    await other.send("!echo hello")
    await task
    numbers = [seq for seq, _ in seen]
    assert numbers == sorted(set(numbers))
    assert any(isinstance(event, TurnStarted) for _, event in seen)
    assert "".join(event.text for _, event in seen if isinstance(event, TextDelta)) == "hello"
    stored = [event.message.text for _, event in seen if isinstance(event, MessageStored)]
    assert stored == ["!echo hello", "hello"]


async def test_watch_ends_when_the_session_is_deleted(library: Library) -> None:
    session = await begun(library, "!echo one")
    watcher = session.watch(0)
    await anext(watcher)
    await library.delete(session.id)
    with pytest.raises(NotFound):
        async for _ in watcher:
            pass
    with pytest.raises(NotFound):
        await session.info()


async def test_approvals(library: Library) -> None:
    session = await begun(library)
    asked: list[ApprovalRequested] = []
    async with aclosing(session.stream('!tool write_note {"text": "a"}')) as events:
        async for event in events:
            if isinstance(event, ApprovalRequested):
                asked.append(event)
                assert await session.approvals() == (event,)
                assert (await session.info()).state == "waiting"
                (waiting,) = await library.approvals()
                assert (waiting.session.id, waiting.approvals) == (session.id, (event,))
                await session.answer(event.approval, "once")
    assert len(asked) == 1 and await session.approvals() == () and await library.approvals() == ()
    with pytest.raises(ApprovalGone):
        await session.answer(asked[0].approval, "deny")


async def test_a_running_turn_is_cancelled_by_its_name(library: Library) -> None:
    session = await begun(library)
    other = await library.open(session.id)
    last: Event | None = None
    async with aclosing(session.stream("!slow 2tps\n!tokens 500")) as events:
        async for event in events:
            last = event
            if isinstance(event, TurnStarted):
                await other.cancel("another turn")
                assert (await session.info()).state == "running"
                head = await session.head()
                with pytest.raises(Conflict):
                    await other.go(head)
                await other.cancel(event.turn)
    assert isinstance(last, TurnFailed) and (await session.info()).state == "idle"


async def _run_turn(session: Session, text: str, *, cancels: bool = False) -> list[Event]:
    """Return the events of a turn; cancel it once it has said something."""
    found: list[Event] = []
    async with aclosing(session.stream(text)) as events:
        async for event in events:
            found.append(event)
            if cancels and isinstance(event, TextDelta):
                cancels = False
                await session.cancel()
    return found


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("!echo hello", ""),
        ("!fail 400 the provider's own words", "provider.refused"),
        ("!slow 2tps\n!tokens 500", "turn.cancelled"),
    ],
)
async def test_a_history_tells_how_the_last_turn_ended_until_the_next_one_starts(
    library: Library, said: str, code: str
) -> None:
    session = await begun(library, "!echo before")
    assert (await session.history()).failure is None
    answered = await session.head()
    events = await _run_turn(session, said, cancels=code == "turn.cancelled")
    ended = [event for event in events if isinstance(event, TurnFailed)]
    assert [event.code for event in ended] == ([code] if code else [])
    again = await library.open(session.id)
    history = await again.history(limit=1)
    assert history.failure == (ended[0] if ended else None)
    assert history.seq == (await session.info()).last_seq
    async with aclosing(session.stream("!slow 2tps\n!tokens 500")) as running:
        async for event in running:
            if isinstance(event, TextDelta):
                assert (await again.history()).failure is None
                break
    assert (await again.history()).failure is not None, "a turn that was left is cancelled"
    await session.send("!echo after", parent=answered)
    assert (await again.history()).failure is None


async def test_a_history_has_the_notices_of_the_last_turn(library: Library) -> None:
    session = await begun(library)
    events = await _run_turn(session, "!fail cut")
    seen: list[tuple[str, str, str]] = []
    node = ""
    for event in events:
        if isinstance(event, MessageStored):
            node = event.node
        if isinstance(event, NoticeRaised):
            seen.append((event.text, event.code, node))
    assert seen
    history = await session.history()
    assert [(notice.text, notice.code, notice.after) for notice in history.notices] == seen
    await session.send("!echo after", parent=history.messages[0].parent)
    assert (await session.history()).notices == ()


async def test_a_history_has_the_notices_that_came_just_before_the_last_turn(library: Library) -> None:
    session = await begun(library, "!echo before @nowhere.txt")
    begin = await session.head()
    events = await _run_turn(session, "!echo hello @missing.txt")
    (seen,) = [event for event in events if isinstance(event, NoticeRaised)]
    assert "missing.txt" in seen.text
    history = await session.history()
    assert [(notice.text, notice.after) for notice in history.notices] == [(seen.text, begin)]
    await session.send("!echo after")
    assert (await session.history()).notices == ()


async def test_a_history_tells_early_notices_and_those_of_earlier_turns_apart(tmp_path: Path) -> None:
    """A message has notices before its turn starts, and its turn may fail before it starts."""

    async def read_notices(session: Session) -> list[tuple[str, bool]]:
        return [(notice.text, notice.is_early) for notice in (await session.history()).notices]

    async with memory_runtime() as runtime:
        session = await runtime.session(workspace=str(tmp_path))
        files = [Attachment(source="café".encode("cp1252"), name=name) for name in ("first.txt", "second.txt")]
        first, second = (f"{it.name} is not UTF-8; it was read as Windows-1252 (Western European)." for it in files)
        await session.post("!echo before", files[0])
        await drain(session.work())
        assert await read_notices(session) == [(first, False)]
        await session.post("!echo hello", files[1], model="nowhere/none")
        assert await read_notices(session) == [(first, False)]
        await drain(session.work())
        assert (await session.history()).failure is not None
        assert await read_notices(session) == [(second, False)]
        await session.send("!echo after")
        assert await read_notices(session) == []


async def test_the_notices_of_a_queued_message_come_with_its_own_turn(tmp_path: Path) -> None:
    """However many turns run before it; they are shown with no other turn, and are there if its turn cannot start."""
    async with memory_runtime() as runtime:
        session = await runtime.session(workspace=str(tmp_path))
        names = ("first.txt", "second.txt", "third.txt")
        queued = [
            await session.post(
                f"!echo {name}",
                Attachment(source="café".encode("cp1252"), name=name),
                model="nowhere/none" if name == "third.txt" else "",
                key=name,
            )
            for name in names
        ]
        again = await session.post(
            "!echo first.txt", Attachment(source="café".encode("cp1252"), name=names[0]), key=names[0]
        )
        assert again.id == queued[0].id

        shown = [
            tuple(notice.text for notice in (await session.history()).notices)
            async for event in session.work()
            if isinstance(event, (TurnFinished, TurnFailed))
        ]

        assert [one.notices for one in queued] == shown
        assert all(name in notices[0] for name, notices in zip(names, shown, strict=True))


async def test_the_notices_of_a_steering_message_come_when_the_turn_reads_it(tmp_path: Path) -> None:
    def wait() -> str:
        """Wait."""
        return "done"

    async with memory_runtime(tools=[wait]) as runtime:
        session = await runtime.session(workspace=str(tmp_path))
        events: list[Event] = []
        read: list[Message] = []
        async for event in session.stream("!tool wait {}"):
            events.append(event)
            if isinstance(event, TurnStarted):
                queued = await session.steer("!echo see", Attachment(source="café".encode("cp1252"), name="menu.txt"))
                assert queued.message is not None and queued.notices
                read.append(queued.message)
        at = [index for index, event in enumerate(events) if isinstance(event, MessageStored) and event.message in read]
        assert [event.text for event in events[at[0] :] if isinstance(event, NoticeRaised)] == list(queued.notices)
        assert [event.text for event in events[: at[0]] if isinstance(event, NoticeRaised)] == []


async def test_what_is_queued_can_be_removed(library: Library) -> None:
    session = await begun(library)
    other = await library.open(session.id)
    async with aclosing(session.stream("!slow 2tps\n!tokens 500")) as events:
        async for event in events:
            if isinstance(event, TurnStarted):
                queued = await other.post("!echo later", key="k")
                again = await other.post("!echo later", key="k")
                assert again.id == queued.id
                (found,) = await session.queue()
                assert (found.id, found.message) == (queued.id, user("!echo later"))
                await session.remove_queued(queued.id)
                assert await session.queue() == ()
                with pytest.raises(NotFound):
                    await session.remove_queued(queued.id)
                break


async def test_plan_wire_and_overrides(library: Library) -> None:
    session = await begun(library)
    with pytest.raises(ContentError):
        await session.wire("anthropic/claude-sonnet-4-5")
    await session.send("what is this?", sample_png(40, 30))
    (receipt,) = await session.plan(content=["more"])
    assert [row.kind for row in receipt.rows][:2] == ["text", "image"] and receipt.rows[-1].label.startswith("more")
    table = await session.plan_table(["loom/spark", "no-such-platform/none"])
    assert table.models["loom/spark"].error is None
    assert table.models["no-such-platform/none"].error is not None
    image = next(row for row in table.rows if row.kind == "image")
    assert image.by_model["loom/spark"].rendition == "full"
    hidden = await session.plan_table(overrides={image.key: "omitted"})
    assert next(row for row in hidden.rows if row.key == image.key).by_model["loom/spark"].rendition == "omitted"
    assert await session.overrides() == {}
    await session.set_overrides({image.key: "omitted"})
    assert await session.overrides() == {image.key: "omitted"}
    (receipt,) = await session.plan()
    assert next(row for row in receipt.rows if row.kind == "image").rendition == "omitted"
    await session.set_overrides({image.key: "auto"})
    await session.set_captions({image.digest: "a blue field"})
    assert (await session.overrides(), (await session.plan_table()).rows[1].alt) == ({}, "a blue field")
    wire = await session.wire("anthropic/claude-sonnet-4-5")
    assert (wire.provider, wire.model) == ("anthropic", "claude-sonnet-4-5") and wire.request["messages"]
    with pytest.raises(ConfigError):
        await session.wire("loom/spark")


async def test_media_of_a_session(library: Library) -> None:
    session = await begun(library)
    await session.send("look", sample_png(400, 300))
    (block,) = [block for block in (await session.path())[0].blocks if isinstance(block, ImageBlock)]
    digest = block.media.digest
    whole = await session.open_media(digest)
    assert (whole.media_type, whole.size_bytes) == ("image/png", len(await whole.read()))
    small = await session.open_media(digest, "thumb")
    assert small.media_type.startswith("image/") and await small.read()
    sent = await session.open_media(digest, "sent:loom/spark")
    assert len(await sent.read()) == sent.size_bytes
    stranger = await library.add_media(sample_png(41, 30))
    with pytest.raises(NotFound):
        await session.open_media(stranger.digest)
    document = await session.send("read", sample_pdf("page one", "page two"))
    media = next(it.media for it in (await session.path())[2].blocks if hasattr(it, "media"))
    assert document.text and "page two" in (await session.media_text(media.digest, page=2)).text
    page = await session.open_media(media.digest, "page:2")
    assert page.media_type.startswith("image/") and await page.read()


async def test_compact_leaves_the_conversation_as_a_branch(library: Library) -> None:
    session = await begun(library, "!echo one", "!echo two")
    before = await session.history()
    events = [event async for event in session.compact()]
    assert isinstance(events[-1], TurnFinished)
    after = await session.history()
    assert len(after.messages) == 1 and "Summary" in str(after.messages[0].blocks[0])
    assert {node.node for node in (await session.tree()).nodes} >= {view.node for view in before.messages}


async def test_export_and_files(library: Library, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    session = await library.create(title="exported", workspace=str(tmp_path))
    await session.send("!echo hello")
    assert b"hello" in await session.export() and (await session.export("zip")).startswith(b"PK")
    assert await session.files("not") == ("notes.txt",)


async def test_a_keyword_that_does_not_exist_is_an_error(library: Library) -> None:
    session = await begun(library)
    wrong: dict[str, Any] = {"modle": "loom/spark"}
    misplaced: dict[str, Any] = {"parent": "x"}
    for call in (session.send, session.post):
        with pytest.raises(TypeError, match="modle"):
            await call("hello", **wrong)
    with pytest.raises(TypeError, match="parent"):
        async with aclosing(session.regenerate(**misplaced)) as events:
            await anext(events)
    with pytest.raises(ContentError, match="one answer or more"):
        await session.send("hello", n=0)


async def _work_until(session: Session, is_done: Callable[[], Awaitable[bool]]) -> None:
    """Run what is queued, here or in the daemon, until something is true."""
    async with asyncio.timeout(60):
        while not await is_done():
            async with aclosing(session.work()) as events:
                async for _ in events:
                    pass
            await asyncio.sleep(0.02)


async def test_other_answers_and_steering_messages_are_queued(library: Library) -> None:
    session = await begun(library, "!echo first")
    queued = await session.post_again(key="again")
    assert queued.is_new and queued.message is None

    async def is_idle() -> bool:
        return (await session.info()).state == "idle"

    await _work_until(session, is_idle)
    assert len(await session.path()) == 2
    steered = await session.steer("!echo second")
    assert steered.message is not None and steered.message.text == "!echo second"

    await _work_until(session, is_idle)
    assert (await session.path())[-1].text == "second"
    await session.leave()


async def test_the_work_of_an_agent_that_has_done_nothing_yet(library: Library) -> None:
    session = await begun(library, "!echo hello")
    assert (await session.todos(), await session.processes(), await session.changes()) == ((), (), ())
    with pytest.raises(NotFound):
        await session.stop_process("p1")
    with pytest.raises(NotFound):
        await session.undo()
