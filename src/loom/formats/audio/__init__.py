"""Audio files: duration, sample rate and channels, read from the bytes in a worker. Nothing is decoded.

`Transcriber` is the port for programs and services that transcribe speech.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from loom.content.moments import time_label
from loom.errors import Unreadable
from loom.formats.facts import IntakeLimits
from loom.struct_types import decode_msgpack

__all__ = [
    "AudioFacts",
    "AudioTranscript",
    "Speaker",
    "SpokenPart",
    "Transcriber",
    "inspect_audio",
    "split_speech",
    "transcript_text",
]

_WORKER_MODULE: Final = "loom.formats.audio.job"


class AudioFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`duration_seconds` is None if the file does not contain it."""

    duration_seconds: float | None
    sample_rate_hz: int
    channels: int
    is_cut_off: bool = False


class SpokenPart(msgspec.Struct, frozen=True):
    """A part of a transcript, with its start in seconds from the beginning."""

    start_seconds: float
    text: str


class AudioTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """The transcript of a recording. `language` is a code such as `en`, or empty if it is not known."""

    text: str
    parts: tuple[SpokenPart, ...] = ()
    language: str = ""


class Speaker(Protocol):
    """A local program or a configured service that synthesizes speech."""

    @property
    def name(self) -> str:
        """The name that notices use."""
        ...

    async def speak(self, text: str) -> bytes:
        """Return MP3 or WAV. Raise a `LoomError` on failure."""
        ...


def split_speech(text: str, most: int = 4_000) -> list[str]:
    """Split `text` into parts of at most `most` characters, at the ends of sentences where possible."""
    parts: list[str] = []
    rest = text.strip()
    while len(rest) > most:
        cut = max(rest.rfind(mark, 0, most) + 1 for mark in (". ", "! ", "? ", "\n", "。"))
        cut = cut if cut > 0 else rest.rfind(" ", 0, most) + 1 or most
        parts.append(rest[:cut].strip())
        rest = rest[cut:].strip()
    return [part for part in (*parts, rest) if part]


class Transcriber(Protocol):
    """A local program or a configured service that transcribes speech."""

    @property
    def name(self) -> str:
        """The name that notices use."""
        ...

    @property
    def accepts(self) -> tuple[str, ...]:
        """Media types that are accepted unchanged; other types are converted to MP3 first."""
        ...

    async def transcribe(self, data: bytes, media_type: str, *, name: str = "") -> AudioTranscript:
        """Return the transcript. Raise a `MediaError` if the audio cannot be read or takes too long."""
        ...


def transcript_text(heard: AudioTranscript) -> str:
    """Return the text with the start time before each part, or the text alone if no times are known."""
    if not heard.parts:
        return heard.text.strip()
    lines = (f"[{time_label(part.start_seconds)}] {part.text.strip()}" for part in heard.parts if part.text.strip())
    return "\n".join(lines)


def inspect_audio(data: bytes, media_type: str, name: str = "", limits: IntakeLimits = IntakeLimits()) -> AudioFacts:
    """Return the facts of an audio file. Raise `Unreadable` if the file contains no playable audio."""
    from loom.formats.worker import (
        WorkerKind,
        current_pool,
    )  # imported late: the sniffer imports this package, but not these modules

    result, _ = current_pool().call(
        WorkerKind(_WORKER_MODULE),
        msgspec.msgpack.encode(media_type),
        data,
        name=name or "The recording",
        limits=limits,
        seconds=limits.deadline_seconds,
    )
    facts = decode_msgpack(result, AudioFacts | None)
    if facts is None or facts.sample_rate_hz < 1 or facts.channels < 1:
        raise Unreadable(
            f"{name or 'The recording'} is damaged: it contains no audio.",
            name=name,
            hint="Play it in another program; if that works, save it from there as WAV or MP3.",
        )
    return facts
