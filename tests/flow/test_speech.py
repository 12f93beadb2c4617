"""What is said in recordings reaches models that cannot hear, by a service on a real socket or by a local program."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flow.far_models import is_question, settings, speak
from flow.test_video import ten_minutes
from formats.made_images import sample
from loom.errors import ConfigError, ProviderError, Unsupported
from loom.formats.audio import inspect_audio, split_speech
from loom.runtime import Runtime
from loom.testing import memory_runtime
from providers.far_side import FarSide, Reply, Request, far_side, refusal

WORDS = b'{"text": "The valve opened.", "segments": [{"start": 61.5, "end": 63, "text": " The valve opened."}]}'


@asynccontextmanager
async def world(
    *, audio: dict[str, Any] | None = None, answer: Reply | None = None
) -> AsyncGenerator[tuple[Runtime, FarSide, FarSide]]:
    """A text-only model (`far`), and a speech service (`ears`)."""

    def chat(request: Request) -> Reply:
        return speak("openai_chat", "I read it.") if is_question(request) else refusal(404, {"error": "not found"})

    def hear(request: Request) -> Reply:
        if "/audio/speech" in request.target:
            return Reply(body=b"ID3" + request.body[:20], content_type="audio/mpeg")
        return answer or Reply(body=WORDS, content_type="application/json")

    async with far_side(chat) as far, far_side(hear) as ears:
        flags = settings("openai_chat", far.url, vision=False, native_pdf=False)
        flags["models"]["ears"] = {"provider": "openai-chat", "model": "whisper-1", "base_url": ears.url}
        flags["audio"] = {"transcriber": "ears", "speaker": "ears"} if audio is None else audio
        async with memory_runtime(flags) as runtime:
            yield runtime, far, ears


@pytest.mark.parametrize("kind", ["recording", "video"])
async def test_a_model_that_cannot_hear_reads_what_is_said_once_for_all_sessions(kind: str) -> None:
    data = ten_minutes() if kind == "video" else sample("tone.m4a")
    async with world() as (runtime, far, ears):
        for _ in range(2):
            session = await runtime.session(model="far")
            await session.send("What is said?", data)
        told = [request.body.decode() for request in far.requests if is_question(request)]
        assert len(told) == 2 and all("[1:01] The valve opened." in body for body in told)
        (asked,) = ears.requests
        assert asked.target.endswith("/audio/transcriptions")
        assert b"whisper-1" in asked.body and b"verbose_json" in asked.body
        assert b"ftyp" in asked.body if kind == "recording" else b"sound.mp3" in asked.body
        assert b"ftypisom" not in asked.body or kind == "recording", "of a video the sound alone is given away"


async def test_a_service_that_refuses_leaves_the_label_and_the_turn_goes_on() -> None:
    async with world(answer=refusal(401, {"error": {"message": "bad key"}})) as (runtime, far, _):
        session = await runtime.session(model="far")
        reply = await session.send("What is said?", sample("tone.m4a"))
        assert reply.text == "I read it."
        assert "[audio: " in far.requests[-1].body.decode()
        assert "A recording could not be transcribed: openai-chat/whisper-1 refused: bad key" in reply.receipt.notices
        with pytest.raises(ProviderError):
            await runtime.speech.transcribe(sample("tone.m4a"), "a.m4a")


async def test_a_local_program_writes_down_and_speaks(tmp_path: Path) -> None:
    script = tmp_path / "ears.py"
    script.write_text(
        "import sys, os; print('heard', os.path.getsize(sys.argv[1]) > 100, 'OPENAI_API_KEY' in os.environ)"
    )
    voice = tmp_path / "voice.py"
    voice.write_text(
        "import sys, wave\n"
        "with wave.open(sys.argv[2], 'wb') as file:\n"
        "    file.setnchannels(1); file.setsampwidth(2); file.setframerate(8000)\n"
        "    file.writeframes(bytes(16 * len(open(sys.argv[1]).read())))\n"
    )
    audio = {
        "transcribe_command": [sys.executable, str(script), "{file}"],
        "speak_command": [sys.executable, str(voice), "{text}", "{file}"],
    }
    async with world(audio=audio) as (runtime, _, ears):
        assert await runtime.speech.transcribe(sample("tone.m4a"), "memo.m4a") == "heard True False"
        sound = await runtime.speech.speak("Hello there")
        facts = inspect_audio(sound, "audio/wav")
        assert facts.duration_seconds == pytest.approx(16 * 11 / 2 / 8000)
        assert ears.requests == []


async def test_a_service_speaks_long_texts_in_parts() -> None:
    async with world() as (runtime, _, ears):
        sound = await runtime.speech.speak("A sentence that is spoken. " * 300)
        assert len(ears.requests) == 3 and sound.count(b"ID3") == 3
        assert ears.requests[0].json["voice"] == "alloy"


def test_speech_is_cut_at_the_ends_of_sentences() -> None:
    parts = split_speech("One sentence. " * 100, 200)
    assert all(part.endswith(".") and len(part) <= 200 for part in parts)
    assert " ".join(parts).count("One") == 100
    assert split_speech("x" * 500, 200) == ["x" * 200, "x" * 200, "x" * 100]
    assert split_speech("  ") == []


async def test_what_is_not_configured_or_no_recording_is_said() -> None:
    async with world(audio={}) as (runtime, _, _):
        with pytest.raises(ConfigError, match="No transcriber is configured"):
            await runtime.speech.transcribe(sample("tone.m4a"))
        with pytest.raises(ConfigError, match="No text-to-speech model is configured"):
            await runtime.speech.speak("x")
    async with world() as (runtime, _, _):
        with pytest.raises(Unsupported, match=r"a\.txt is not a recording"):
            await runtime.speech.transcribe(b"just words", "a.txt")
    async with world(audio={"transcribe_command": ["ears"]}) as (runtime, _, _):
        with pytest.raises(ConfigError, match=r"has no \{file\}"):
            await runtime.speech.transcribe(sample("tone.m4a"))
