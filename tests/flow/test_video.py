"""A video is asked about by a model that reads, one that sees, and one that takes video: what each was sent is read at
its socket."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flow.far_models import FarModel, is_question, settings, speak
from loom.content.blocks import VideoBlock
from loom.prompt import ReceiptRow
from loom.session import Reply as Said
from loom.testing import memory_runtime
from made import make_sample, run
from providers.far_side import Reply, Request, far_side, refusal


def ten_minutes() -> bytes:
    """Ten minutes in three colors, with a tone, small enough to be made in seconds."""

    def build(path: Path) -> None:
        parts = [
            part
            for color in ("red", "white", "blue")
            for part in ("-f", "lavfi", "-i", f"color={color}:s=160x90:d=200:r=2")
        ]
        sound = ("-f", "lavfi", "-i", "sine=duration=600:sample_rate=8000")
        joined = ("-filter_complex", "[0][1][2]concat=n=3[v]", "-map", "[v]", "-map", "3:a")
        codecs = ("-c:v", "libx264", "-c:a", "aac", "-b:a", "16k")
        run("ffmpeg", "-loglevel", "error", *parts, *sound, *joined, *codecs, path)

    return make_sample("ten-minutes.mp4", build).read_bytes()


@asynccontextmanager
async def far_model(
    wire: str, more: dict[str, Any] | None = None, *, tools: Sequence[str] = (), **flags: bool
) -> AsyncGenerator[FarModel]:
    def answer(request: Request) -> Reply:
        return speak(wire, "I saw it.") if is_question(request) else refusal(404, {"error": "not found"})

    async with (
        far_side(answer) as server,
        memory_runtime({**settings(wire, server.url, **flags), **(more or {})}, tools=tools) as runtime,
    ):
        yield FarModel(wire, server, runtime)


def video_row(reply: Said) -> ReceiptRow:
    (row,) = [row for row in reply.receipt.rows if row.kind == "video"]
    return row


async def test_a_model_that_takes_video_gets_the_clip_itself() -> None:
    async with far_model("gemini") as far:
        session = await far.runtime.session(model="far")
        row = video_row(await session.send("What happens?", ten_minutes()))
        assert list(far.pictures(0)) == ["sha256:" + hashlib.sha256(ten_minutes()).hexdigest()]
        assert "video/mp4" in far.texts(0)
        assert (row.rendition, row.reason) == ("full", "")
        assert row.tokens == 600 * 95


@pytest.mark.parametrize("wire", ["anthropic", "openai_responses", "openai_chat", "ollama"])
async def test_a_model_that_sees_gets_frames_with_their_times(wire: str) -> None:
    async with far_model(wire, vision=True) as far:
        session = await far.runtime.session(model="far")
        row = video_row(await session.send("What happens?", ten_minutes()))
        assert (row.rendition, row.reason) == ("pages", "capability")
        frames = int(row.detail.split("; ")[1].split()[0])
        assert 3 <= frames <= 12
        text = far.texts(0)
        assert f"{frames} frames follow, each after its time" in text
        assert "10:00 min, h264, aac" in text
        assert "[1:40]" in text and "[5:00]" in text and "[8:20]" in text
        assert len(far.pictures(0)) == 3, "one picture of each color, however often it is shown"


async def test_the_number_of_frames_is_a_setting() -> None:
    async with far_model("anthropic", {"video": {"frames": 3, "frame_side": 80}}) as far:
        session = await far.runtime.session(model="far")
        row = video_row(await session.send("What happens?", ten_minutes()))
        assert "3 frames" in row.detail


async def test_a_model_that_reads_gets_what_the_clip_is() -> None:
    async with far_model("openai_chat", vision=False, native_pdf=False) as far:
        session = await far.runtime.session(model="far")
        row = video_row(await session.send("What happens?", ten_minutes()))
        assert (row.rendition, row.reason) == ("text", "capability")
        assert far.pictures(0) == {}
        assert "[video: " in far.texts(0) and "10:00 min, h264, aac" in far.texts(0)


async def test_a_plan_waits_for_no_frame() -> None:
    async with far_model("anthropic") as far:
        session = await far.runtime.session(model="far")
        (receipt,) = await session.plan(content=["What happens?", ten_minutes()])
        (row,) = [row for row in receipt.rows if row.kind == "video"]
        assert row.rendition == "pages" and "12 frames" in row.detail
        assert far.requests == []


@pytest.mark.parametrize(("tools", "oldest"), [(["look"], "text"), ([], "low")])
async def test_the_session_keeps_one_block_and_shows_less_of_it_as_it_grows_old(tools: list[str], oldest: str) -> None:
    """Age turns it into text only where the model can look at it again."""
    async with far_model("anthropic", {"context": {"aging": "every-turn"}}, tools=tools) as far:
        session = await far.runtime.session(model="far")
        await session.send("What happens?", ten_minutes())
        shown = [video_row(await session.send("And then?")).rendition for _ in range(4)]
        assert shown == ["pages", "low", "low", oldest]
        blocks = [block for message in await session.path() for block in message.blocks]
        assert sum(isinstance(block, VideoBlock) for block in blocks) == 1
