"""Speech: the configured services or programs that transcribe and synthesize it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loom.config import Config
from loom.content.blocks import AudioBlock, VideoBlock
from loom.content.recipes import SpokenText
from loom.errors import ConfigError, Unsupported
from loom.formats.audio import Speaker, Transcriber
from loom.formats.audio.programs import ProgramSpeaker, ProgramTranscriber
from loom.formats.intake import accept
from loom.runtime.model_access import ModelAccess
from loom.runtime.stores import Stores


class SpeechServices:
    """Transcribes and speaks, with the service that is configured at the time of the call; `stores` returns where
    transcripts are kept."""

    def __init__(self, config: Callable[[], Config], models: ModelAccess, stores: Callable[[], Stores]) -> None:
        self._config, self._models, self._stores = config, models, stores

    async def transcribe(self, data: bytes, name: str = "") -> str:
        """Return the transcript of a recording or a video, with times if they are known. It is stored by digest.

        Raise `ConfigError` if neither `audio.transcriber` nor `audio.transcribe_command` is set.
        """
        if self.transcriber() is None:
            raise ConfigError(
                "No transcriber is configured.",
                hint='Set audio.transcriber = "openai/whisper-1", or audio.transcribe_command for a local program.',
            )
        accepted = await asyncio.to_thread(accept, data, name, limits=self._config().media_limits())
        if not isinstance(accepted.block, AudioBlock | VideoBlock):
            raise Unsupported(f"{name or 'The file'} is not a recording.", name=name)
        media, stores = accepted.block.media, self._stores()
        await stores.media.put(data)
        entry = await stores.renditions.get(media.digest, media.media_type, SpokenText())
        return await stores.renditions.text(media.digest, entry)

    async def speak(self, text: str) -> bytes:
        """Return `text` as audio (MP3 or WAV). Raise `ConfigError` if no speech is configured."""
        return await self.speaker().speak(text)

    def transcriber(self) -> Transcriber | None:
        """Return the configured transcriber; None if there is none."""
        audio = self._config().audio
        if audio.transcribe_command:
            return ProgramTranscriber(audio.transcribe_command, self._config().media_limits())
        if not audio.transcriber:
            return None
        from loom.providers.speech import ServiceTranscriber

        return ServiceTranscriber(self._models.resolve(audio.transcriber), self._models.key, self._models.network())

    def speaker(self) -> Speaker:
        """Return the configured speaker. Raise `ConfigError` if there is none."""
        audio = self._config().audio
        if audio.speak_command:
            return ProgramSpeaker(audio.speak_command, self._config().media_limits())
        if not audio.speaker:
            raise ConfigError(
                "No text-to-speech model is configured.",
                hint='Set audio.speaker = "openai/gpt-4o-mini-tts", or audio.speak_command for a local program.',
            )
        from loom.providers.speech import ServiceSpeaker

        return ServiceSpeaker(
            self._models.resolve(audio.speaker), audio.voice, self._models.key, self._models.network()
        )
