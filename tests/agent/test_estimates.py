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
from loom.testing import memory_runtime

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
        request = await session.next_request(MODEL)
        assert PREPARING not in request.receipt.notices
        exact = (await session.plan_table((MODEL,))).models[MODEL]
        assert (exact.bytes, exact.is_preparing) == (request.receipt.totals.wire_bytes, False)
