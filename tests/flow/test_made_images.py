"""Images that models make: asked for, kept before they are shown, and given back to be edited, with their lineage."""

from __future__ import annotations

import base64
import hashlib

import pytest

from flow.far_models import far_model
from loom.content.blocks import ImageBlock
from loom.testing import sample_png
from providers.far_side import Reply
from wire.streams import sse

MADE = sample_png(80, 60)
DIGEST = f"sha256:{hashlib.sha256(MADE).hexdigest()}"
_ENCODED = base64.b64encode(MADE).decode()
ANSWERS = {
    "gemini": sse(
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Here:"}]}, "index": 0}]},
        {"candidates": [{"content": {"parts": [{"inlineData": {"mimeType": "image/png", "data": _ENCODED}}]}}]},
        {"candidates": [{"finishReason": "STOP", "index": 0}]},
    ),
    "openai_responses": sse(
        {"type": "response.created", "response": {"id": "r"}},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": _ENCODED},
        },
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}},
    ),
}


@pytest.mark.parametrize("wire", ANSWERS)
async def test_an_image_that_a_model_made_is_kept_shown_and_edited(wire: str) -> None:
    drawn = Reply(body=ANSWERS[wire], content_type="text/event-stream")
    async with far_model(wire, drawn) as far:
        session = await far.runtime.session(model="far")
        first = await session.send("Draw a square.", options={"server_tools": ["image_generation"]})
        (image,) = [block for block in first.message.blocks if isinstance(block, ImageBlock)]
        assert image.media.digest == DIGEST and image.media.name.startswith("made-")
        assert image.media.source == f"made by {far.runtime.models.resolve('far').reference}"
        asked = far.texts(0)
        assert ("IMAGE" if wire == "gemini" else "image_generation") in asked

        second = await session.send("Make it blue.", options={"server_tools": ["image_generation"]})
        assert DIGEST in far.pictures(1), "the model is shown what it made, to change it"
        (edited,) = [block for block in second.message.blocks if isinstance(block, ImageBlock)]
        assert edited.media.source.endswith(f"from {DIGEST}")
