"""A picture is decoded once and hashed once on its way to a model, whether a user or a tool brings it."""

from __future__ import annotations

import hashlib
import io
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from flow.far_models import far_model
from flow.turn_trace import Function, Recorder
from loom.content.blocks import ToolCall
from loom.tools.base import tool

DECODERS = ("check_and_render", "render_image")
"""Each is one job of a process that decodes."""


def photo(seed: int) -> bytes:
    file = io.BytesIO()
    Image.frombytes("RGB", (640, 480), random.Random(seed).randbytes(640 * 480 * 3)).save(file, "JPEG", quality=90)
    return file.getvalue()


@tool
def shoot() -> list[str | bytes]:
    """Return a picture."""
    return ["a picture", photo(2)]


@pytest.mark.parametrize("is_file", [False, True])
async def test_a_picture_is_decoded_and_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(photo(1))
    hashed = 0
    original = hashlib.sha256

    def counting(given: Any = b"", **named: Any) -> Any:
        nonlocal hashed
        hashed += len(given)
        return original(given, **named)

    recorder = Recorder()
    with recorder.attached():
        async with far_model("anthropic", "warm", ToolCall("c1", "shoot", {}), "Two.", tools=[shoot]) as far:
            session = await far.runtime.session(model="far")
            await session.send("warm up")
            with monkeypatch.context() as patched, recorder.recording():
                patched.setattr(hashlib, "sha256", counting)
                await session.send("look", file if is_file else photo(1))
            assert len(far.pictures(2)) == 2
    decodes = sum(recorder.calls.get(Function("formats/image/__init__.py", name), 0) for name in DECODERS)
    assert decodes == 2, "one each"
    assert hashed / (len(photo(1)) + len(photo(2))) < 1.1
