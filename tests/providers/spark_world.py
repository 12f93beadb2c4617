"""Conversations with the built-in model: real files, prompts by `prepare`, recipes executed, bytes from memory."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any

from loom import formats
from loom.compile.policy import DerivedFacts, DetachedMessage, Known, Need, Policy, Request
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import Block, ContentBlock, ImageBlock
from loom.content.media import Media
from loom.content.messages import Message
from loom.content.recipes import Ocr, Recipe, Text, recipe_key
from loom.events import DecoderEvent, Folded, ImageAdded, MediaArrived, ModelEvent, fold
from loom.formats.intake import accept
from loom.models import Model
from loom.prompt import MediaRef, Prompt
from loom.providers.catalog import model as catalogd
from loom.providers.spark import SparkProvider

SPARK = catalogd("loom/spark")


class _Raw(io.RawIOBase):
    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._rest), 5000)
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class Shelf:
    """Media in memory, with what recipes make of them. `remote` media are read in blocks, as from a bucket."""

    def __init__(self, *, remote: bool = False) -> None:
        self.remote = remote
        self.media: dict[str, tuple[Media, bytes]] = {}
        self.derived: dict[tuple[str, str], formats.Rendered] = {}

    def attach(self, data: bytes, name: str, *, pages: str = "") -> ContentBlock:
        block = accept(data, name, pages=pages).block
        media = getattr(block, "media", None)
        if media is not None:
            self.media[media.digest] = (media, data)
        return block

    def damage(self, data: bytes) -> None:
        """From now on every medium, and whatever is made of it, has these bytes."""
        self.bytes_of = lambda ref: data

    def kept(self, arrived: MediaArrived) -> ImageBlock:
        block = self.attach(arrived.data, "drawn.png")
        assert isinstance(block, ImageBlock)
        return block

    def render(self, digest: str, recipe: Recipe) -> formats.Rendered:
        key = (digest, recipe_key(recipe))
        if key not in self.derived:
            media, data = self.media[digest]
            self.derived[key] = formats.render(data, media, recipe)
        return self.derived[key]

    def prompt(self, *messages: Message, **options: Any) -> Prompt:
        return self.prepared(*messages, **options).prompt

    def prepared(
        self,
        *messages: Message,
        model: Model = SPARK,
        request: Request | None = None,
        policy: Policy | None = None,
    ) -> Prepared:
        """Prepared, settled and prepared again, as the runtime does it."""
        path = [DetachedMessage(f"n{at}", message) for at, message in enumerate(messages)]
        known = self._known(())
        while True:
            made = prepare(path, model, request=request, policy=policy, known=known)
            if not made.needs:
                return made
            known = self._known(made.needs)

    def _known(self, needs: tuple[Need, ...]) -> Known:
        """Everything that was ever rendered; the words of every document; nothing where a picture has no words."""
        for need in needs:
            if not isinstance(need.recipe, Ocr):
                self.render(need.digest, need.recipe)
        for digest, (media, _) in self.media.items():
            if media.pages:
                self.render(digest, Text())
        return Known(
            derived={
                key: DerivedFacts(
                    media_type=made.media_type,
                    size_bytes=len(made.data),
                    width=made.width,
                    height=made.height,
                )
                for key, made in self.derived.items()
            },
            texts={
                **{(need.digest, recipe_key(need.recipe)): "" for need in needs if isinstance(need.recipe, Ocr)},
                **{key: made.data.decode() for key, made in self.derived.items() if made.media_type == "text/plain"},
            },
        )

    def bytes_of(self, ref: MediaRef) -> bytes:
        return self.media[ref.digest][1] if ref.recipe is None else self.render(ref.digest, ref.recipe).data

    async def open_local(self, ref: MediaRef) -> io.RawIOBase | None:
        return None if self.remote else _Raw(self.bytes_of(ref))

    async def blocks(self, ref: MediaRef, block_bytes: int) -> AsyncIterator[bytes]:
        data = self.bytes_of(ref)
        for at in range(0, len(data), block_bytes):
            yield data[at : at + block_bytes]


async def events_of(shelf: Shelf, prompt: Prompt, *, reads_text: bool = False) -> list[DecoderEvent]:
    return [event async for event in SparkProvider(shelf, reads_text=reads_text).stream(prompt)]


def folded(shelf: Shelf, events: list[DecoderEvent]) -> Folded:
    """As the runtime stores them: pictures that the model drew are kept first."""
    stored: list[ModelEvent] = [
        ImageAdded(index=event.index, image=shelf.kept(event)) if isinstance(event, MediaArrived) else event
        for event in events
    ]
    return fold(stored)


async def answered(shelf: Shelf, *messages: Message, reads_text: bool = False, **options: Any) -> Message:
    """The message of one step that ended well."""
    prompt = shelf.prompt(*messages, **options)
    step = folded(shelf, await events_of(shelf, prompt, reads_text=reads_text))
    assert step.complete
    assert step.message is not None
    return step.message


def blocks_of(message: Message, kind: type[Block]) -> list[Block]:
    return [block for block in message.blocks if isinstance(block, kind)]
