"""Who writes down and who speaks: the service or the program that the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from loom.config import Config
from loom.errors import ConfigError
from loom.formats.audio import Speaker, Transcriber
from loom.formats.audio.programs import ProgramSpeaker, ProgramTranscriber
from loom.models import Model

if TYPE_CHECKING:
    from loom.providers.connections import Connections, KeyLookup


class SpeechServices:
    """Chosen when it is needed, by the configuration of that moment."""

    def __init__(
        self,
        config: Callable[[], Config],
        model: Callable[[str], Model],
        key: KeyLookup,
        network: Callable[[], Connections],
    ) -> None:
        self._config, self._model, self._key, self._network = config, model, key, network

    def transcriber(self) -> Transcriber | None:
        """Return what writes down speech; None where nothing is configured."""
        audio = self._config().audio
        if audio.transcribe_command:
            return ProgramTranscriber(audio.transcribe_command, self._config().media_limits())
        if not audio.transcriber:
            return None
        from loom.providers.speech import ServiceTranscriber

        return ServiceTranscriber(self._model(audio.transcriber), self._key, self._network())

    def speaker(self) -> Speaker:
        """Return what speaks. Raises `ConfigError` where nothing is configured."""
        audio = self._config().audio
        if audio.speak_command:
            return ProgramSpeaker(audio.speak_command, self._config().media_limits())
        if not audio.speaker:
            raise ConfigError(
                "No speech is configured.",
                hint='Set audio.speaker = "openai/gpt-4o-mini-tts", or audio.speak_command for a local program.',
            )
        from loom.providers.speech import ServiceSpeaker

        return ServiceSpeaker(self._model(audio.speaker), audio.voice, self._key, self._network())
