"""Pains of other agents, by their number in the list, shown to be gone here: those of tools, switching and turns."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from flow.far_models import far_model, speak
from flow.judge import problems
from loom.compile.policy import DetachedMessage
from loom.compile.request import RequestInput
from loom.config import load_config
from loom.content.blocks import TextBlock, ToolCall
from loom.content.messages import broken_pairs
from loom.errors import ContentError
from loom.events import Event, NoticeRaised, Stopped, TextDelta, TurnFinished
from loom.prompt import ShownMedia, ShownResult
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import tool
from providers.far_side import Reply, Request, refusal

MODEL = "anthropic/claude-opus-5"
BLIND = "deepseek/deepseek-v4-pro"
SHOT = sample_png(320, 200)


@tool
def shoot() -> bytes:
    """Take a picture."""
    return SHOT


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, NoticeRaised)]


async def test_pain_20_a_pasted_picture_survives_its_temporary_file_and_a_resume(tmp_path: Path) -> None:
    pasted = tmp_path / "pasted.png"
    pasted.write_bytes(SHOT)
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")})
    session_id = ""
    for words, shown in (("look", 1), ("and now?", 1), ("it is lost", 0)):
        provider = ScriptedProvider(["all right"])
        async with Runtime.open(config, providers={"anthropic": provider}) as runtime:
            session = await runtime.session(session_id, model=MODEL)
            session_id = session.id
            if words == "it is lost":
                await runtime.stores.media.delete(f"sha256:{hashlib.sha256(SHOT).hexdigest()}")
                shutil.rmtree(runtime.config.data_folder() / "media" / "derived", ignore_errors=True)
            said = [words, pasted] if words == "look" else [words]
            assert (await session.send(*said)).text == "all right", "even a lost medium is no reason to fail"
            assert len(provider.prompts[0].media()) == shown
        pasted.unlink(missing_ok=True)


async def test_pain_21_a_tools_picture_reaches_a_chat_completions_model() -> None:
    async with far_model("openai_chat", ToolCall("c1", "shoot"), "Blue.", tools=[shoot]) as far:
        session = await far.runtime.session(model="far")
        await session.send("look")
        roles = [message["role"] for message in far.requests[1]["messages"]]
        assert roles == ["user", "assistant", "tool", "user"]
        assert isinstance(far.requests[1]["messages"][2]["content"], str)
        ((digest, place),) = far.pictures(1).items()
        assert digest == f"sha256:{hashlib.sha256(SHOT).hexdigest()}"
        assert place.startswith("messages.3.content.")


async def test_pain_22_parallel_calls_with_pictures_replay_in_a_valid_order() -> None:
    async with far_model(
        "openai_chat", [ToolCall("c1", "shoot"), ToolCall("c2", "shoot")], "Seen.", "Again.", tools=[shoot]
    ) as far:
        session = await far.runtime.session(model="far")
        await session.send("both")
        await (await far.runtime.session(session.id)).send("and again?")
        roles = [message["role"] for message in far.requests[2]["messages"]]
        assert roles == ["user", "assistant", "tool", "tool", "user", "assistant", "user"]


async def test_pain_23_a_screenshot_in_json_is_a_picture_and_not_millions_of_tokens() -> None:
    @tool
    def browse() -> dict[str, Any]:
        """Look at a page."""
        return {"status": 200, "screenshot": f"data:image/png;base64,{base64.b64encode(SHOT).decode()}"}

    provider = ScriptedProvider([ToolCall("c1", "browse"), "Seen."])
    async with memory_runtime(providers={"anthropic": provider}, tools=[browse]) as runtime:
        reply = await (await runtime.session(model=MODEL)).send("look")
        result = provider.prompts[1].messages[-1].blocks[0]
        assert isinstance(result, ShownResult)
        assert any(isinstance(block, ShownMedia) for block in result.blocks)
        assert not re.search(r"[A-Za-z0-9+/]{200}", repr(provider.prompts[1].messages))
        assert reply.receipt.totals.tokens < 2_000


async def test_pain_24_and_25_switching_to_a_model_without_eyes_always_works_and_loses_nothing() -> None:
    provider = ScriptedProvider([ToolCall("c1", "shoot"), "seen", "read", "seen again"])
    async with memory_runtime(providers={"anthropic": provider, "deepseek": provider}, tools=[shoot]) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("look", sample_png(50, 40))
        before = await session.path()
        await session.use(BLIND)
        assert (await session.send("and you?")).text == "read"
        assert provider.prompts[2].media() == ()
        await session.use(MODEL)
        await session.send("and you again?")
        assert len(provider.prompts[3].media()) == 2, "what was said is as it was"
        assert (await session.path())[: len(before)] == before


async def test_pain_26_after_a_blind_model_a_seeing_one_sees_and_nothing_tells_it_otherwise() -> None:
    provider = ScriptedProvider(["I have only its label.", "It is blue."])
    async with memory_runtime(providers={"anthropic": provider, "deepseek": provider}) as runtime:
        session = await runtime.session(model=BLIND)
        await session.send("what color?", SHOT)
        words = repr(provider.prompts[0].messages).lower()
        assert not any(word in words for word in ("error", "cannot", "unable", "inform the user", "not support"))
        await session.use(MODEL)
        await session.send("and now?")
        assert len(provider.prompts[1].media()) == 1


async def test_pain_27_an_unknown_model_is_tried_once_and_the_user_is_told() -> None:
    """A server that nobody knows: it is shown the picture. Where it refuses, that is learned, and told."""
    refused = refusal(400, {"error": {"message": "This model does not support image input.", "type": "invalid"}})

    def answer(request: Request) -> Reply:
        return refused if b"image_url" in request.body else speak("openai_chat", "Words.")

    async with far_model("openai_chat", answer) as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("look", SHOT)]
        assert isinstance(events[-1], TurnFinished)
        assert len(far.pictures(0)) == 1
        assert any("does not support images" in text for text in notices(events))
        await session.send("again")
        assert len(far.requests) == 3, "it is not tried in vain again"


@pytest.mark.parametrize("empty", ["", " ", "\n\t ", "\u2003"])
async def test_pain_32_white_space_is_never_a_block_wherever_it_comes_from(empty: str) -> None:
    @tool
    def mute() -> list[Any]:
        """Say nothing."""
        return [empty, sample_png(), empty]

    blank = [TextDelta(index=0, text=empty), TextDelta(index=1, text="words"), Stopped(reason="end")]
    provider = ScriptedProvider([[empty + "\n", ToolCall("c1", "mute")], blank])
    async with memory_runtime(providers={"anthropic": provider}, tools=[mute]) as runtime:
        session = await runtime.session(model=MODEL)
        with pytest.raises(ContentError):
            await session.send(empty)
        await session.send("go", empty)
        for message in await session.path():
            assert not any(isinstance(block, TextBlock) and not block.text.strip() for block in message.blocks)


async def test_pain_33_pairs_stay_whole_when_old_turns_are_dropped() -> None:
    @tool
    def much(number: int) -> str:
        """Say much."""
        return f"{number} " * 3_000

    answers: list[Any] = []
    for turn in range(8):
        answers += [
            [ToolCall(f"a{turn}", "much", {"number": turn}), ToolCall(f"b{turn}", "much", {"number": turn})],
            "ok",
        ]
    provider = ScriptedProvider(answers)
    async with memory_runtime(
        {"context.max_tokens": 12_000}, providers={"anthropic": provider}, tools=[much]
    ) as runtime:
        session = await runtime.session(model=MODEL)
        for turn in range(8):
            await session.send(f"turn {turn}")
        for prompt in provider.prompts:
            calls = [block.id for m in prompt.messages for block in m.blocks if isinstance(block, ToolCall)]
            results = [block.call_id for m in prompt.messages for block in m.blocks if isinstance(block, ShownResult)]
            assert calls == results
        assert len(provider.prompts[-1].messages) < len(await session.path()), "something was dropped"
        path = await session.path()
        assert broken_pairs(path) == ()
        placed = [DetachedMessage(str(at), message) for at, message in enumerate(path)]
        for reference in (MODEL, "openai-chat/gpt-5.5", "gemini/gemini-4-argon", "ollama/gemma3"):
            model, policy = runtime.models.resolve(reference), runtime.config.context_policy()
            request = RequestInput(path=tuple(placed), model=model, policy=policy)
            prepared = await runtime.settler.settle(request, "preview")
            assert problems(prepared) == []
