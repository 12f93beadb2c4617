"""Prompts, models and media for the tests of the network."""

from __future__ import annotations

import hashlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from loom.content.blocks import TextBlock
from loom.events import DecoderEvent, Folded, MediaArrived, RetryScheduled, fold
from loom.models import Model
from loom.prompt import MediaRef, Prompt, ShownMedia, ShownMessage
from loom.providers.http import HttpProvider
from loom.wire import anthropic, gemini, ollama, openai_chat, openai_responses
from wire.prompts import CLAUDE, GEMINI, GPT, GPT_CHAT, OLLAMA
from wire.streams import ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES
from wire.streams import GEMINI as GEMINI_STREAMS
from wire.streams import OLLAMA as OLLAMA_STREAMS

KEY = "sk-test-1234567890abcdef"

WIRES: dict[str, tuple[ModuleType, Model, dict[str, bytes]]] = {
    "anthropic": (anthropic, CLAUDE, ANTHROPIC),
    "openai_chat": (openai_chat, GPT_CHAT, OPENAI_CHAT),
    "openai_responses": (openai_responses, GPT, OPENAI_RESPONSES),
    "gemini": (gemini, GEMINI, GEMINI_STREAMS),
    "ollama": (ollama, OLLAMA, OLLAMA_STREAMS),
}


class Folder:
    """Media as files; `remote` gives them out as a bucket would."""

    def __init__(self, folder: Path, *, remote: bool = False) -> None:
        self._folder = folder
        self._remote = remote

    def add(self, data: bytes, media_type: str = "image/png") -> MediaRef:
        digest = hashlib.sha256(data).hexdigest()
        (self._folder / digest).write_bytes(data)
        return MediaRef(digest=f"sha256:{digest}", media_type=media_type, size_bytes=len(data))

    def path(self, ref: MediaRef) -> Path:
        return self._folder / ref.digest.removeprefix("sha256:")

    async def open_local(self, ref: MediaRef) -> io.RawIOBase | None:
        return None if self._remote else io.FileIO(self.path(ref))

    async def blocks(self, ref: MediaRef, block_bytes: int) -> AsyncIterator[bytes]:
        with self.path(ref).open("rb") as file:
            while block := file.read(block_bytes):
                yield block


def at(model: Model, url: str) -> Model:
    return msgspec.structs.replace(model, base_url=url)


def asking(model: Model, *media: MediaRef, text: str = "What is this?") -> Prompt:
    shown = tuple(ShownMedia(kind="image", ref=ref, name="picture.png") for ref in media)
    return Prompt(model=model, messages=(ShownMessage("user", (*shown, TextBlock(text))),))


async def collected(provider: HttpProvider, prompt: Prompt) -> list[DecoderEvent]:
    return [event async for event in provider.stream(prompt) if not isinstance(event, RetryScheduled)]


async def heard(provider: HttpProvider, prompt: Prompt, into: list[Any]) -> None:
    """Like `collected`, for streams that break: what came before is in `into`."""
    async for event in provider.stream(prompt):
        into += [event] if not isinstance(event, RetryScheduled) else []


async def answer(provider: HttpProvider, prompt: Prompt) -> Folded:
    return fold(event for event in await collected(provider, prompt) if not isinstance(event, MediaArrived))
