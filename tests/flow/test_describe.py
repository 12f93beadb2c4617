"""A picture is described once by a model that the user chose, for models without eyes and for pictures that grew old.

Both models stand behind real sockets: what each was sent is read there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flow.far_models import WIRES, is_question, media_in, settings, speak
from loom.config import Config, load_config
from loom.events import Event, NoticeRaised, TurnFinished
from loom.prompt import ReceiptRow
from loom.runtime import Runtime
from loom.session import Reply as Said
from loom.testing import sample_png
from providers.far_side import FarSide, Reply, Request, far_side, refusal

EYES = "openai-responses/gpt-5.5"
SHOT = sample_png(320, 200)
DIGEST = f"sha256:{hashlib.sha256(SHOT).hexdigest()}"
WORDS = "A blue rectangle\nwith a diagonal. It says ZEBRA."


class World:
    """A describer (`eyes`), a model without eyes (`far`), and a folder that outlives the runtime."""

    def __init__(self, eyes: FarSide, far: FarSide, config: Config) -> None:
        self.eyes, self.far, self.config = eyes, far, config

    @property
    def asked(self) -> list[Any]:
        return [request.json for request in self.eyes.requests if is_question(request)]

    @property
    def told(self) -> list[str]:
        return [request.body.decode() for request in self.far.requests if is_question(request)]


@asynccontextmanager
async def world(
    folder: Path, *answers: Reply, wire: str = "openai_chat", describer: str = "eyes", vision: bool = False
) -> AsyncGenerator[World]:
    left = list(answers or [speak("openai_responses", WORDS)])

    def describe(request: Request) -> Reply:
        if not is_question(request):
            return refusal(404, {"error": "not found"})
        return left.pop(0) if len(left) > 1 else left[0]

    def answer(request: Request) -> Reply:
        return speak(wire, "I see.") if is_question(request) else refusal(404, {"error": "not found"})

    async with far_side(describe) as eyes, far_side(answer) as far:
        flags = settings(wire, far.url, vision=vision, native_pdf=False)
        flags["models"] |= settings("openai_responses", eyes.url, "eyes")["models"]
        flags["context"] = {"describer": describer}
        config = load_config(cwd=folder, environ={"LOOM_HOME": str(folder / "home")}, flags=flags)
        yield World(eyes, far, config)


def describe_with(runtime: Runtime, model: str) -> None:
    context = msgspec.structs.replace(runtime.config.context, describer=model)
    runtime.reconfigure(msgspec.structs.replace(runtime.config, context=context))


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, NoticeRaised)]


def picture_row(reply: Said) -> ReceiptRow:
    (row,) = [row for row in reply.receipt.rows if row.kind == "image"]
    return row


@pytest.mark.parametrize("wire", WIRES)
async def test_a_model_without_eyes_reads_what_another_saw_on_every_wire(wire: str, tmp_path: Path) -> None:
    async with world(tmp_path, wire=wire) as there, Runtime.open(there.config) as runtime:
        session = await runtime.session(model="far")
        reply = await session.send("What is this?", SHOT)
        row = picture_row(reply)
        assert (row.rendition, row.reason) == ("text", "capability")
        assert f"description by {EYES}" in row.detail
        assert f"description by {EYES}: A blue rectangle with a diagonal. It says ZEBRA." in there.told[0]
        assert dict(media_in(there.asked[0])).keys() == {DIGEST}, "the describer was shown the picture"
        assert not dict(media_in(there.far.requests[-1].json)), "and the other one was not"
        await session.send("And now?")
        assert len(there.asked) == 1
        assert "ZEBRA" in there.told[1]


async def test_nothing_goes_to_another_provider_until_one_is_chosen(tmp_path: Path) -> None:
    async with world(tmp_path, describer="") as there, Runtime.open(there.config) as runtime:
        await (await runtime.session(model="far")).send("What is this?", SHOT)
        assert there.eyes.requests == []
        assert "[image: " in there.told[0]


async def test_a_project_cannot_choose_a_describer(tmp_path: Path) -> None:
    (tmp_path / "loom.toml").write_text('[context]\ndescriber = "anthropic/claude-opus-5"\n')
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")})
    assert config.context.describer == ""


async def test_a_description_outlives_the_process_and_is_never_asked_for_twice(tmp_path: Path) -> None:
    async with world(tmp_path) as there:
        for _ in range(2):
            async with Runtime.open(there.config) as runtime:
                session = await runtime.session(model="far")
                await session.send("What is this?", SHOT)
        assert len(there.asked) == 1
        assert all("ZEBRA" in told for told in there.told)


async def test_parallel_turns_ask_once(tmp_path: Path) -> None:
    async with world(tmp_path) as there, Runtime.open(there.config) as runtime:
        sessions = [await runtime.session(model="far") for _ in range(4)]
        await asyncio.gather(*(session.send("What is this?", SHOT) for session in sessions))
        assert len(there.asked) == 1
        assert len(there.told) == 4
        assert all("ZEBRA" in told for told in there.told)


async def test_another_describer_is_another_author(tmp_path: Path) -> None:
    async with world(tmp_path) as there, Runtime.open(there.config) as runtime:
        session = await runtime.session(model="far")
        await session.send("What is this?", SHOT)
        describe_with(runtime, "loom/spark")
        reply = await session.send("And now?")
        assert "description by loom/spark" in picture_row(reply).detail
        assert "description by loom/spark" in there.told[1]
        assert len(there.asked) == 1


async def test_an_old_picture_is_described_for_a_model_that_sees(tmp_path: Path) -> None:
    async with world(tmp_path, vision=True) as there, Runtime.open(there.config) as runtime:
        session = await runtime.session(model="far")
        first = await session.send("What is this?", SHOT)
        assert picture_row(first).rendition == "full"
        assert there.asked == [], "as long as it is shown, nobody describes it"
        (row,) = [row for row in first.receipt.rows if row.kind == "image"]
        path = (await runtime.stores.forest.path((await runtime.stores.sessions.get(session.id)).head_id))[1:]
        await runtime.stores.sessions.update(session.id, overrides={f"{path[row.message].id}/{row.block}": "text"})
        second = await session.send("And now?")
        assert picture_row(second).detail == f"chosen by the user; description by {EYES}"
        assert "ZEBRA" in there.told[1]


async def test_a_describer_that_is_busy_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    busy = refusal(429, {"error": {"message": "slow down", "type": "rate_limit_error"}}, retry_after="0")
    async with (
        world(tmp_path, busy, speak("openai_responses", WORDS)) as there,
        Runtime.open(there.config) as runtime,
    ):
        await (await runtime.session(model="far")).send("What is this?", SHOT)
        assert len(there.asked) == 2
        assert "ZEBRA" in there.told[0]


async def test_the_words_of_a_person_are_not_replaced(tmp_path: Path) -> None:
    from loom.content.blocks import ImageBlock

    async with world(tmp_path) as there, Runtime.open(there.config) as runtime:
        (block,) = (await runtime.library.ingest(SHOT)).blocks
        assert isinstance(block, ImageBlock)
        await (await runtime.session(model="far")).send("What is this?", ImageBlock(block.media, alt="my flag"))
        assert there.asked == []
        assert "my flag" in there.told[0]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (refusal(401, {"error": {"message": "bad key", "type": "authentication_error"}}), "bad key"),
        (refusal(400, {"error": {"message": "no", "type": "invalid_request_error"}}), "no"),
        (refusal(400, {"error": {"message": "Invalid image data", "code": "invalid_image"}}), "Invalid image"),
        (Reply(body=b"<html>log in</html>", content_type="text/html"), "text/html"),
        (
            Reply(body=speak("openai_responses", WORDS).body[:300], content_type="text/event-stream"),
            "before the answer started",
        ),
        (speak("openai_responses", "   "), "no description"),
    ],
    ids=["key", "refused", "picture", "no API", "cut off", "empty"],
)
async def test_a_describer_that_fails_gives_the_label_and_one_notice(reply: Reply, said: str, tmp_path: Path) -> None:
    async with world(tmp_path, reply) as there, Runtime.open(there.config) as runtime:
        session = await runtime.session(model="far")
        events = [event async for event in session.stream("What is this?", SHOT)]
        assert isinstance(events[-1], TurnFinished)
        (notice,) = [text for text in notices(events) if "could not describe" in text]
        assert said in notice
        assert "[image: " in there.told[0]
        assert "description by" not in there.told[0]
        before = len(there.asked)
        again = [event async for event in session.stream("And now?")]
        assert not any("could not describe" in text for text in notices(again))
        assert len(there.asked) == before, "it is left alone for a while"


async def test_a_describer_that_is_not_there_delays_nobody(tmp_path: Path) -> None:
    async with world(tmp_path, describer="nobody/nothing") as there, Runtime.open(there.config) as runtime:
        session = await runtime.session(model="far")
        events = [event async for event in session.stream("What is this?", SHOT)]
        assert isinstance(events[-1], TurnFinished)
        assert any("Images are not described" in text for text in notices(events))
        describe_with(runtime, "deepseek/deepseek-v4-pro")
        events = [event async for event in session.stream("And now?")]
        assert any("does not support images" in text for text in notices(events))
        assert "[image: " in there.told[1]


async def test_of_many_pictures_the_newest_are_described_and_a_long_description_is_cut(tmp_path: Path) -> None:
    long = speak("openai_responses", "word " * 5_000)
    async with world(tmp_path, long) as there, Runtime.open(there.config) as runtime:
        session = await runtime.session(model="far")
        shots = [sample_png(20 + number, 20) for number in range(26)]
        reply = await session.send("What are these?", *shots)
        described = [row for row in reply.receipt.rows if "description by" in row.detail]
        assert len(there.asked) == len(described) == 24
        assert {row.block for row in described} == set(range(3, 27))
        assert max(row.wire_bytes for row in described) < 3_000
        await session.send("And now?")
        assert len(there.asked) == 26


async def test_looking_at_the_plan_sends_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, describer="") as there, Runtime.open(there.config) as runtime:
        session = await runtime.session(model="far")
        await session.send("What is this?", SHOT)
        describe_with(runtime, "eyes")
        (plan,) = await session.plan(["far"])
        assert there.asked == []
        assert not any("description by" in row.detail for row in plan.rows)
        await session.send("And now?")
        (plan,) = await session.plan(["far"])
        assert len(there.asked) == 1
        assert any("description by" in row.detail for row in plan.rows)
