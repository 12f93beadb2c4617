"""The test kit that users get."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from loom import document, image
from loom.compile.policy import DetachedMessage
from loom.compile.prepare import prepare
from loom.content.blocks import AudioBlock, DocumentBlock, ImageBlock, TextBlock, ToolCall
from loom.content.messages import user
from loom.errors import ContentError, Overloaded, Unreadable
from loom.events import TextDelta, fold
from loom.providers.catalog import model
from loom.testing import ScriptedProvider, events_of, memory_runtime, sample_pdf, sample_png, sample_wav


async def test_a_scripted_provider_answers_in_order_and_remembers_what_it_was_shown() -> None:
    provider = ScriptedProvider(["hello", ToolCall("a", "look", {"x": 1}), Overloaded("busy"), [TextDelta(text="cut")]])
    prompt = prepare([DetachedMessage("n", user("hi"))], model("loom/spark")).prompt

    first = fold([event async for event in provider.stream(prompt)])  # pyright: ignore[reportArgumentType]
    second = fold([event async for event in provider.stream(prompt)])  # pyright: ignore[reportArgumentType]
    with pytest.raises(Overloaded):
        [event async for event in provider.stream(prompt)]
    last = fold([event async for event in provider.stream(prompt)])  # pyright: ignore[reportArgumentType]

    assert first.message is not None
    assert first.message.text == "hello"
    assert second.stop == "tool_calls"
    assert not last.complete
    assert len(provider.prompts) == 4


def test_a_scripted_call_is_played_with_the_arguments_that_were_no_json() -> None:
    broken = ToolCall("a", "look", {}, "not json")
    folded = fold(events_of(["One moment.", broken]))  # pyright: ignore[reportArgumentType]
    assert folded.message is not None
    assert folded.message.calls == (broken,)


async def test_a_memory_runtime_takes_content_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "login.png").write_bytes(sample_png(90, 50))
    (tmp_path / "notes.txt").write_text("remember the milk")
    async with memory_runtime() as runtime:
        found = await runtime.library.ingest(
            "what is this?",
            tmp_path / "login.png",
            sample_wav(),
            [document(tmp_path / "notes.txt"), image(sample_png(), alt="a line")],
            document(sample_pdf("one", "two"), pages="2", name="leaflet.pdf"),
        )
        kinds = [type(block) for block in found.blocks]
        assert kinds == [TextBlock, ImageBlock, AudioBlock, TextBlock, ImageBlock, DocumentBlock]
        login = found.blocks[1]
        assert isinstance(login, ImageBlock)
        assert (login.media.width, login.media.height, login.media.name) == (90, 50, "login.png")
        assert await runtime.stores.media.load(login.media.digest) == sample_png(90, 50)


async def test_a_bad_file_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(sample_png()[:40])
    async with memory_runtime() as runtime:
        with pytest.raises(Unreadable):
            await runtime.library.ingest(sample_png(), tmp_path / "broken.png")
        with pytest.raises(Unreadable, match="File not found"):
            await runtime.library.ingest(tmp_path / "absent.png")
        with pytest.raises(ContentError, match="The message is empty"):
            await runtime.library.ingest("  ", [])
        assert [stored async for stored in runtime.stores.media.listing()] == []


async def test_deleting_a_session_frees_the_media_that_only_it_used() -> None:
    async with memory_runtime() as runtime:
        shared = await runtime.library.ingest("both", sample_png(8, 8))
        own = await runtime.library.ingest("mine", sample_png(9, 9))
        one = await runtime.stores.sessions.create(title="one")
        two = await runtime.stores.sessions.create(title="two")
        await runtime.stores.sessions.append_to_head(one.id, [user(*shared.blocks), user(*own.blocks)])
        await runtime.stores.sessions.append_to_head(two.id, [user(*shared.blocks)])
        await runtime.library.delete(one.id)
        left = {stored.digest async for stored in runtime.stores.media.listing()}
        kept = shared.blocks[1]
        assert isinstance(kept, ImageBlock)
        assert kept.media.digest in left


def test_samples_are_whole_files() -> None:
    picture = Image.open(io.BytesIO(sample_png(20, 10)))
    picture.load()
    assert picture.size == (20, 10)
    assert sample_pdf("a").startswith(b"%PDF-")
    assert sample_wav().startswith(b"RIFF")
