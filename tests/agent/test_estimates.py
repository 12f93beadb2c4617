"""An estimate of a request: a person looks at it, so it does not wait until hundreds of images are decoded."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from loom.compile.settle import PREPARING
from loom.content.inputs import Attachment
from loom.content.messages import Message, assistant, user
from loom.formats.renderer import FormatRenderer
from loom.runtime import Runtime
from loom.testing import memory_runtime, sample_pdf

MODEL = "anthropic/claude-opus-5"


def photo(number: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (2400, 1600), (number, 90, 20)).save(data, "JPEG")
    return data.getvalue()


async def session_with(runtime: Runtime, photos: int) -> Any:
    session = await runtime.session(model=MODEL)
    messages: list[Message] = []
    for number in range(photos):
        found = await runtime.library.ingest(Attachment(source=photo(number), name=f"{number}.jpg"))
        messages += [user(*found.blocks), assistant("seen")]
    await runtime.stores.sessions.append_to_head(session.id, messages)
    return session


@pytest.mark.parametrize(("photos", "waits"), [(3, True), (12, False)])
async def test_an_estimate_decodes_a_few_images_and_leaves_many_to_the_background(
    monkeypatch: pytest.MonkeyPatch, photos: int, waits: bool
) -> None:
    async with memory_runtime() as runtime:
        session = await session_with(runtime, photos)
        made: list[str] = []
        render = FormatRenderer.render

        async def note(self: FormatRenderer, data: bytes, media: Any, recipe: Any) -> Any:
            found = await render(self, data, media, recipe)
            made.append(media.digest)
            return found

        monkeypatch.setattr(FormatRenderer, "render", note)
        view = await session.plan_table((MODEL,))
        assert view.models[MODEL].is_preparing is not waits
        assert bool(made) is waits
        assert len(view.rows) == 2 * photos
        # What is sent is exact, whatever was estimated before.
        request = await session.previews.next_request(MODEL)
        assert PREPARING not in request.receipt.notices
        exact = (await session.plan_table((MODEL,))).models[MODEL]
        assert (exact.bytes, exact.is_preparing) == (request.receipt.totals.wire_bytes, False)


async def test_the_built_in_model_bills_what_was_estimated() -> None:
    long = "\n".join(f"Line {number} of a page that is full of words." for number in range(60))
    async with memory_runtime() as runtime:
        session = await runtime.session(model="loom/spark")
        turns: list[Any] = [
            ["hello"],
            ["what does it say?", Attachment(source=sample_pdf("The timeout is 30 s."), name="short.pdf")],
            ["and this?", Attachment(source=sample_pdf(long), name="long.pdf")],
            ["what was in it?", Attachment(source=photo(1), name="photo.jpg")],
            ["thanks"],
        ]
        for content in turns:
            reply = await session.send(*content)
            assert reply.usage.input_tokens == reply.receipt.totals.tokens


async def test_a_document_without_a_text_layer_is_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_scans(*_: Any) -> Any:
        raise AssertionError("a document that is sent as it is must not wait for OCR")

    monkeypatch.setattr(FormatRenderer, "read_scans", read_scans)
    scan = io.BytesIO()
    Image.new("RGB", (600, 800), "white").save(scan, "PDF")
    async with memory_runtime() as runtime:
        session = await runtime.session(model=MODEL)
        found = await runtime.library.ingest(Attachment(source=scan.getvalue(), name="scan.pdf"))
        await runtime.stores.sessions.append_to_head(session.id, [user(*found.blocks)])
        (row,) = (await session.previews.next_request(mode="send")).receipt.rows
        assert row.rendition == "full"
