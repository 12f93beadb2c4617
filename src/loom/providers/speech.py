"""Transcription and text-to-speech by a service with OpenAI's audio API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.errors import ProviderError, Unavailable, Unreadable
from loom.formats.audio import AudioTranscript, SpokenPart, split_speech
from loom.models import Model
from loom.providers.connections import Connections, KeyLookup, endpoint, transport_errors
from loom.providers.http_errors import complete_error, page, unreachable_error
from loom.struct_types import decode_json

if TYPE_CHECKING:
    import httpx2

ACCEPTED: Final = ("audio/mpeg", "audio/wav", "audio/flac", "audio/ogg", "audio/mp4")
_SUFFIXES: Final = {"audio/mpeg": "mp3", "audio/mp4": "m4a"}
_MOST_SOUND_BYTES: Final = 100_000_000
_SECONDS: Final = 600.0


class _SpeechSegment(msgspec.Struct):
    start: float = 0.0
    end: float = 0.0
    text: str = ""


class _TranscriptAnswer(msgspec.Struct):
    text: str = ""
    segments: list[_SpeechSegment] | None = None
    language: str | None = None


class _RefusalWords(msgspec.Struct):
    message: str = ""


class _Refusal(msgspec.Struct):
    error: _RefusalWords = msgspec.field(default_factory=_RefusalWords)


class ServiceTranscriber:
    """Transcribes recordings with `POST …/audio/transcriptions` of the model's platform."""

    accepts: tuple[str, ...] = ACCEPTED

    def __init__(self, model: Model, key: KeyLookup, connections: Connections) -> None:
        self._model, self._key, self._connections = model, key, connections

    @property
    def name(self) -> str:
        return self._model.reference

    async def transcribe(self, data: bytes, media_type: str, *, name: str = "") -> AudioTranscript:
        """Return the transcript. Raise a `ProviderError` if the service refuses or is unavailable."""
        suffix = _SUFFIXES.get(media_type, media_type.partition("/")[2])
        # Only Whisper reports times; newer models refuse that response format.
        form = "verbose_json" if "whisper" in self._model.name else "json"
        raw = await _post(
            self._model,
            self._key,
            self._connections,
            "/audio/transcriptions",
            data={"model": self._model.name, "response_format": form},
            files={"file": (f"sound.{suffix}", data, media_type)},
        )
        try:
            heard = decode_json(raw, _TranscriptAnswer)
        except msgspec.DecodeError:
            raise Unreadable(f"{self.name} returned no transcript of {name or 'the recording'}.", name=name) from None
        parts = tuple(SpokenPart(part.start, part.text) for part in heard.segments or ())
        return AudioTranscript(text=heard.text, parts=parts, language=heard.language or "")


class ServiceSpeaker:
    """Speaks a text with `POST …/audio/speech` of the model's platform; returns MP3."""

    media_type = "audio/mpeg"

    def __init__(self, model: Model, voice: str, key: KeyLookup, connections: Connections) -> None:
        self._model, self._voice, self._key, self._connections = model, voice, key, connections

    @property
    def name(self) -> str:
        return self._model.reference

    async def speak(self, text: str) -> bytes:
        """Return the speech for a text; long texts are spoken in parts and joined. Raise a `ProviderError` if the
        service refuses or is unavailable."""
        parts: list[bytes] = []
        for part in split_speech(text):
            body = {"model": self._model.name, "input": part, "voice": self._voice, "response_format": "mp3"}
            parts.append(await _post(self._model, self._key, self._connections, "/audio/speech", json=body))
        return b"".join(parts)


async def _post(model: Model, key: KeyLookup, connections: Connections, path: str, **body: Any) -> bytes:
    target = endpoint(model.base_url, path)
    secret = key(model)
    headers: Mapping[str, str] = connections.access(model, secret)
    client = connections.client()
    try:
        response: httpx2.Response = await client.post(target.url, headers=headers, timeout=_SECONDS, **body)
    except transport_errors() as error:
        raise unreachable_error(model, target, error) from error
    if response.is_success:
        if len(response.content) > _MOST_SOUND_BYTES:
            raise Unavailable(f"{model.reference} sent more than {_MOST_SOUND_BYTES // 1_000_000} MB.")
        return response.content
    try:
        words = decode_json(response.content, _Refusal).error.message
    except msgspec.DecodeError:
        words = response.text[:300].strip()
    words = words or f"status {response.status_code}"
    error = page(response, model, target.url) or ProviderError(f"{model.reference} refused: {words}")
    raise complete_error(error, response, connections.secrets(model, secret))
