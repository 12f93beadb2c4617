"""Transcription and speech by local programs such as whisper.cpp and espeak-ng, limited in time and memory, without API
keys."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from loom.errors import ConfigError, TooLarge, Unreadable
from loom.formats.audio import AudioTranscript
from loom.formats.facts import IntakeLimits
from loom.formats.sniff import sniff
from loom.formats.worker.program import run_program

_MEMORY_SHARE = 8
_DEADLINE_SHARE = 10
"""The time limit for one recording, as a multiple of `conversion_seconds`: an hour of speech takes minutes."""
_MOST_TEXT_BYTES = 10_000_000


class ProgramTranscriber:
    """Runs `command` with `{file}` replaced by an MP3 file and takes its output as the transcript."""

    accepts: tuple[str, ...] = ("audio/mpeg", "audio/wav")

    def __init__(self, command: Sequence[str], limits: IntakeLimits) -> None:
        if not any("{file}" in part for part in command):
            raise ConfigError(
                "audio.transcribe_command has no {file}.", hint='Write "{file}" where the recording goes.'
            )
        self._command, self._limits = tuple(command), limits

    @property
    def name(self) -> str:
        return Path(self._command[0]).name

    async def transcribe(self, data: bytes, media_type: str, *, name: str = "") -> AudioTranscript:
        """Return the transcript. Raise `Unreadable` if the program fails, `TooLarge` if it takes too long."""
        return await asyncio.to_thread(self._run, data, media_type, name)

    def _run(self, data: bytes, media_type: str, name: str) -> AudioTranscript:
        with tempfile.TemporaryDirectory(prefix="loom-speech-") as place:
            sound = Path(place) / ("sound.wav" if media_type == "audio/wav" else "sound.mp3")
            sound.write_bytes(data)
            printed = Path(place) / "printed.txt"
            command = [part.replace("{file}", str(sound)) for part in self._command]
            _run_bounded(
                command, Path(place), self._limits, what=f"transcribe {name or 'the recording'}", output=printed
            )
            with printed.open("rb") as file:
                return AudioTranscript(text=file.read(_MOST_TEXT_BYTES).decode(errors="replace").strip())


class ProgramSpeaker:
    """Runs `command` with `{text}` replaced by a text file and `{file}` by the WAV or MP3 file to write."""

    def __init__(self, command: Sequence[str], limits: IntakeLimits) -> None:
        if not any("{file}" in part for part in command) or not any("{text}" in part for part in command):
            raise ConfigError(
                "audio.speak_command needs {text} and {file}.",
                hint='For example ["espeak-ng", "-f", "{text}", "-w", "{file}"].',
            )
        self._command, self._limits = tuple(command), limits

    @property
    def name(self) -> str:
        return Path(self._command[0]).name

    async def speak(self, text: str) -> bytes:
        return await asyncio.to_thread(self._run, text)

    def _run(self, text: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="loom-speech-") as place:
            words, sound = Path(place) / "text.txt", Path(place) / "sound.wav"
            words.write_text(text)
            places = {"{text}": str(words), "{file}": str(sound)}
            command = [_fill_in(part, places) for part in self._command]
            _run_bounded(command, Path(place), self._limits, what="speak the text")
            if not sound.is_file():
                raise Unreadable(f"{self.name} wrote no audio.")
            data = sound.read_bytes()
        if sniff(data).category != "audio":
            raise Unreadable(f"{self.name} wrote a file that is not audio.")
        return data


def _fill_in(part: str, places: dict[str, str]) -> str:
    for mark, path in places.items():
        part = part.replace(mark, path)
    return part


def _run_bounded(
    command: list[str], folder: Path, limits: IntakeLimits, *, what: str, output: Path | None = None
) -> None:
    seconds = limits.conversion_seconds * _DEADLINE_SHARE
    memory_bytes = limits.worker_memory_bytes * _MEMORY_SHARE
    try:
        code = run_program(command, folder=folder, memory_bytes=memory_bytes, seconds=seconds, output=output)
    except TimeoutError:
        raise TooLarge(f"{Path(command[0]).name} takes longer than {seconds:g} s to {what}.") from None
    if code != 0:
        found = "is not installed" if code == 127 else f"ended with exit code {code}"
        raise Unreadable(f"Could not {what}: {Path(command[0]).name} {found}.", hint="Check audio.*_command.")
