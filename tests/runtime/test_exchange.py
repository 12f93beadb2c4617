"""A session leaves as a file and comes back exactly: branches, media, settings, unknown fields, times."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.content.archive import ArchivedNode, ArchivedSession, SessionArchive
from loom.content.blocks import ImageBlock
from loom.content.codec import encode_stored
from loom.content.media import Media, digest_of
from loom.content.messages import Message, assistant, media_blocks, user
from loom.errors import LoomError
from loom.message_types import ImportReport
from loom.runtime import Runtime
from loom.runtime.imports import import_file
from loom.store.exchange import SessionExchange
from loom.store.nodes import encode_root, node_id_of, root_id_of
from loom.testing import memory_runtime, sample_png
from strategies import MESSAGES, OBJECTS, TEXT

PICTURES = [sample_png(8 + size, 8) for size in range(4)]
FORMS = ("json", "zip")


def picture(at: int, source: str) -> ImageBlock:
    data = PICTURES[at]
    return ImageBlock(
        Media(
            digest=digest_of(data), media_type="image/png", size_bytes=len(data), width=8 + at, height=8, source=source
        )
    )


PICTURED = st.builds(
    lambda text, at, source: user(text or "x", picture(at, source)),
    TEXT.filter(lambda text: bool(text.strip())),
    st.integers(0, 3),
    st.sampled_from(["", "/srv/someone/photo.png", "C:\\Users\\me\\shot.png", "https://example.com/a.png", "a/b.png"]),
)
SAID = st.one_of(MESSAGES, PICTURED)
MARKS = st.fixed_dictionaries(
    {
        "meta": OBJECTS,
        "tags": st.lists(st.text(max_size=5), max_size=2, unique=True).map(lambda tags: tuple(sorted(tags))),
        "bookmark": st.text(max_size=8).filter(lambda text: "\0" not in text),
        "created_at": st.floats(1, 4e9),
        "unknown": st.none() | st.integers(0, 9),
    }
)


@st.composite
def forests(draw: st.DrawFn) -> SessionArchive:
    """A session with branches; some of its stored texts have fields that this version does not know."""
    text = encode_root(draw(TEXT) + draw(st.sampled_from(["", "\n- workspace: /srv/work (paths are relative to it)"])))
    nodes = [ArchivedNode(id=root_id_of(text), message=msgspec.Raw(text.encode()), source="system", created_at=1.5)]
    for message, marks, parent in draw(st.lists(st.tuples(SAID, MARKS, st.integers(0, 30)), min_size=1, max_size=6)):
        above = nodes[parent % len(nodes)]
        stored = encode_stored(message)
        unknown = marks.pop("unknown")
        if unknown is not None:
            stored = stored[:-1] + f',"of_tomorrow":{unknown}}}'
        node_id = node_id_of(above.id, stored)
        if all(node.id != node_id for node in nodes):
            nodes.append(
                ArchivedNode(id=node_id, parent=above.id, message=msgspec.Raw(stored.encode()), source="user", **marks)
            )
    session = ArchivedSession(
        title=draw(st.text("abc ", max_size=10)),
        head=draw(st.sampled_from(nodes)).id,
        model="loom/spark",
        settings={"options": {"temperature": 0.5}, "of_tomorrow": draw(OBJECTS)},
        overrides={f"{nodes[-1].id}/0": "text"},
        archived=draw(st.booleans()),
        pinned=draw(st.booleans()),
        folder=draw(st.sampled_from(["", "Work", "Work/Invoices"])),
        tags=draw(st.sampled_from([(), ("a",), ("a", "ü b")])),
        created_at=draw(st.floats(1, 4e9)),
        updated_at=draw(st.floats(1, 4e9)),
    )
    return SessionArchive(session=session, nodes=tuple(nodes))


async def export(runtime: Runtime, session_id: str, form: Any) -> bytes:
    return await (await runtime.library.open(session_id)).export(form)


async def fill(runtime: Runtime, archive: SessionArchive) -> str:
    for data in PICTURES:
        await runtime.stores.media.put(data)
    stored = await SessionExchange(runtime.stores.database, lambda text: text).write(
        archive, workspace="/srv/work", model=""
    )
    return stored.session.id


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25, deadline=None)
@given(archive=forests())
def test_an_export_that_was_imported_into_a_fresh_store_is_the_same_export(form: str, archive: SessionArchive):
    async def run() -> None:
        async with memory_runtime() as first, memory_runtime() as second:
            before = await export(first, await fill(first, archive), form)
            report = await import_file(second, before, f"talk.{form}")
            (made,) = report.sessions
            assert await export(second, made.session, form) == before
            again = await import_file(second, before, f"talk.{form}")
            assert [(found.session, found.is_new) for found in again.sessions] == [(made.session, False)]

    asyncio.run(run())


@settings(max_examples=25, deadline=None)
@given(archive=forests())
def test_no_absolute_path_of_a_medium_or_workspace_leaves(archive: SessionArchive):
    async def run() -> bytes:
        async with memory_runtime() as runtime:
            return await export(runtime, await fill(runtime, archive), "json")

    left = asyncio.run(run())
    assert b"/srv/someone" not in left and b"/srv/work" not in left and b"C:\\\\Users" not in left


def tree() -> SessionArchive:
    """Two answers to one question about a picture; the head is at the first one."""
    text = encode_root("Be brief.")
    nodes = [ArchivedNode(id=root_id_of(text), message=msgspec.Raw(text.encode()), source="system", created_at=10.0)]

    def add(parent: ArchivedNode, message: Message, at: float) -> ArchivedNode:
        stored = encode_stored(message)
        node = ArchivedNode(
            id=node_id_of(parent.id, stored), parent=parent.id, message=msgspec.Raw(stored.encode()), created_at=at
        )
        nodes.append(node)
        return node

    asked = add(nodes[0], user("what is this?", picture(1, "/srv/someone/photo.png")), 11.0)
    first = add(asked, assistant("A blue picture."), 12.0)
    add(asked, assistant("A rectangle."), 13.0)
    session = ArchivedSession(title="Blue", head=first.id, model="loom/spark", created_at=9.0, updated_at=14.0)
    return SessionArchive(session=session, nodes=tuple(nodes))


@pytest.mark.parametrize("form", FORMS)
async def test_branches_times_and_bytes_are_there_after_an_import(form: str):
    async with memory_runtime() as first, memory_runtime() as second:
        data = await export(first, await fill(first, tree()), form)
        (made,) = (await import_file(second, data)).sessions

        session = await second.library.open(made.session)
        assert made.messages == 3 and made.media == 1 and not made.notices
        assert [node.label for node in (await session.tree()).nodes if node.role == "assistant"] == [
            "A blue picture.",
            "A rectangle.",
        ]
        history = await session.history()
        assert [message.created_at for message in history.messages] == [11.0, 12.0]
        (block,) = media_blocks(history.messages[0].blocks)
        assert await second.stores.media.load(block.media.digest) == PICTURES[1]
        info = await session.info()
        assert (info.title, info.created_at, info.updated_at) == ("Blue", 9.0, 14.0)


async def test_what_an_export_cannot_carry_is_named_and_permissions_do_not_travel():
    async with memory_runtime() as first, memory_runtime() as second:
        made = await fill(first, tree())
        await first.stores.sessions.update(made, settings={"always": [["run_command", "*"]], "tracked": {"/etc/x": {}}})
        await first.stores.media.delete(digest_of(PICTURES[1]))
        data = json.loads(await export(first, made, "json"))
        assert any("permissions" in line for line in data["left_out"])
        assert "always" not in data["session"].get("settings", {})

        data["session"]["settings"] = {"always": [["run_command", "*"]], "calibration": "nonsense", "agent": "nobody"}
        (found,) = (await import_file(second, json.dumps(data).encode())).sessions
        stored = await second.stores.sessions.get(found.session)
        assert stored.settings == {}
        assert any("1 medium not in the export" in notice for notice in found.notices)
        assert any("permissions" in notice for notice in found.notices)
        assert any("agent 'nobody'" in notice for notice in found.notices)
        assert (await (await second.library.open(found.session)).plan()) is not None


async def test_a_file_that_was_laid_out_anew_keeps_its_unknown_fields():
    async with memory_runtime() as first, memory_runtime() as second:
        data = json.loads(await export(first, await fill(first, tree()), "json"))
        data["nodes"][1]["message"]["blocks"][0]["of_tomorrow"] = {"x": [1]}
        (made,) = (await import_file(second, json.dumps(data, indent=2).encode())).sessions
        again = json.loads(await export(second, made.session, "json"))
        assert again["nodes"][1]["message"]["blocks"][0]["of_tomorrow"] == {"x": [1]}
        assert len(again["nodes"]) == 4


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9, 0.99])
@pytest.mark.parametrize("form", FORMS)
async def test_a_file_that_was_cut_off_gives_what_stands_before_the_cut(form: str, share: float):
    async with memory_runtime() as first, memory_runtime() as second:
        data = await export(first, await fill(first, tree()), form)
        cut = data[: int(len(data) * share)]
        report: ImportReport | LoomError
        try:
            report = await import_file(second, cut, f"talk.{form}")
        except LoomError as error:
            report = error
        if isinstance(report, LoomError):
            assert form == "zip" or share < 0.5, report.message  # the JSON of a zip comes last
            return
        (made,) = report.sessions
        assert made.messages >= 1 and made.notices
        assert (await (await second.library.open(made.session)).history()).messages


async def test_a_hostile_zip_is_bounded_and_names_in_it_are_no_paths(tmp_path: Any):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("../../evil.json", b"{}")
        packed.writestr("conversations.json", b'[{"mapping": {}}]')
    async with memory_runtime() as runtime:
        with pytest.raises(LoomError):
            await import_file(runtime, file.getvalue(), "evil.zip")
    assert not (tmp_path.parent / "evil.json").exists()
