"""The test kit: a provider that follows a script, a runtime that leaves nothing behind, small media made by code.

    async with memory_runtime() as runtime:
        provider = ScriptedProvider(["it says 502"])
        ...
        assert provider.prompts[0].media()

Public: Loom's own suite uses it, and so can yours.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import msgspec

from loom.config import load_config
from loom.content.blocks import TextBlock, ToolCall
from loom.errors import LoomError
from loom.events import CallDelta, CallFinished, CallStarted, DecoderEvent, Stopped, TextDelta, UsageReported
from loom.models import PDF, PLAIN_IMAGES, Capabilities, Usage
from loom.prompt import Prompt
from loom.runtime import Runtime
from loom.runtime.options import RuntimeKeywords

ScriptedAnswer: TypeAlias = "str | ToolCall | Sequence[str | ToolCall | DecoderEvent] | LoomError"


class SeenImage(msgspec.Struct, frozen=True):
    """An image in a request."""

    media_type: str
    size: tuple[int, int]


class SeenRequest(msgspec.Struct, frozen=True):
    """A request that the model received."""

    prompt: Prompt

    @property
    def text(self) -> str:
        """The text of the last message."""
        blocks = self.prompt.messages[-1].blocks
        return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))

    @property
    def images(self) -> tuple[SeenImage, ...]:
        found = (ref for ref in self.prompt.media() if ref.media_type.startswith("image/"))
        return tuple(SeenImage(ref.media_type, (ref.width or 0, ref.height or 0)) for ref in found)


class ScriptedProvider:
    """Answers with the items of a script, one per request, and records every prompt.

    An answer is a text, a tool call, a list of these and of model events, or an error to raise. Texts and calls end
    with `Stopped`; a list with events is played unchanged, so that an interrupted stream can be tested.
    """

    def __init__(self, answers: Iterable[ScriptedAnswer]) -> None:
        self._answers = list(answers)
        self.prompts: list[Prompt] = []

    def add(self, *answers: ScriptedAnswer) -> None:
        """Append answers to the script."""
        self._answers += answers

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        self.prompts.append(prompt)
        if not self._answers:
            raise AssertionError(f"the script has ended, and request {len(self.prompts)} came")
        answer = self._answers.pop(0)
        if isinstance(answer, LoomError):
            raise answer
        for event in events_of(answer):
            yield event


class FakeModel(ScriptedProvider):
    """A `ScriptedProvider` that is passed as a model: `loom.ask("what does it say?", "login.png",
    model=FakeModel(["502"]))`."""

    name = "fake"
    capabilities = Capabilities(accepts=(*PLAIN_IMAGES, PDF), result_accepts=(*PLAIN_IMAGES, PDF))

    @property
    def requests(self) -> tuple[SeenRequest, ...]:
        return tuple(SeenRequest(prompt) for prompt in self.prompts)


def events_of(answer: str | ToolCall | Sequence[str | ToolCall | DecoderEvent]) -> list[DecoderEvent]:
    """Return the events of a scripted answer."""
    parts = [answer] if isinstance(answer, str | ToolCall) else list(answer)
    if any(not isinstance(part, str | ToolCall) for part in parts):
        return [event for at, part in enumerate(parts) for event in _part(at, part)]
    events = [event for at, part in enumerate(parts) for event in _part(at, part)]
    called = any(isinstance(part, ToolCall) for part in parts)
    usage = Usage(input_tokens=10, output_tokens=len(events))
    return [*events, UsageReported(usage=usage), Stopped(reason="tool_calls" if called else "end")]


def _part(index: int, part: str | ToolCall | DecoderEvent) -> list[DecoderEvent]:
    if isinstance(part, str):
        return [TextDelta(index=index, text=word) for word in part.splitlines(keepends=True)]
    if isinstance(part, ToolCall):
        written = part.raw_arguments
        arguments = msgspec.json.encode(part.arguments).decode() if written is None else written
        return [
            CallStarted(index=index, id=part.id, name=part.name),
            CallDelta(index=index, arguments=arguments),
            CallFinished(index=index, opaque=part.opaque),
        ]
    return [part]


@asynccontextmanager
async def memory_runtime(
    settings: Mapping[str, Any] | None = None, **options: Unpack[RuntimeKeywords]
) -> AsyncGenerator[Runtime]:
    """Open a runtime with a database in memory and media in a temporary folder.

    `settings` are as in `loom.toml`; the user's own configuration and environment are not read. `options` are the
    keywords of `Runtime.open`.
    """
    with tempfile.TemporaryDirectory(prefix="loom-test-") as folder:
        flags = {"store.url": "sqlite://:memory:", **(settings or {})}
        config = load_config(cwd=Path(folder), environ={"LOOM_HOME": folder}, flags=flags)
        options.setdefault("instructions", False)
        async with Runtime.open(config, **options) as runtime:
            yield runtime


# Sample media ------------------------------------------------------------------------------------------------------


def sample_png(width: int = 64, height: int = 48, colour: tuple[int, int, int] = (32, 64, 160)) -> bytes:
    """Return a PNG of one color with a lighter diagonal, so that rotation and cropping are visible."""
    rows = bytearray()
    for y in range(height):
        row = bytearray(bytes(colour) * width)
        x = y * width // max(height, 1)
        row[x * 3 : x * 3 + 3] = b"\xff\xff\xff"
        rows += b"\0" + row
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def sample_pdf(*pages: str) -> bytes:
    """Return a PDF with one line of text on each page."""
    texts = pages or ("Hello from page one",)
    kids = " ".join(f"{3 + 2 * at} 0 R" for at in range(len(texts)))
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(texts)} >>"]
    for at, text in enumerate(texts):
        escaped = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
        stream = f"BT /F1 24 Tf 72 700 Td ({escaped}) Tj ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {4 + 2 * at} 0 R"
            f" /Resources << /Font << /F1 {font} >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    out = bytearray(b"%PDF-1.4\n")
    offsets: list[int] = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1", "replace")
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)


def sample_wav(seconds: float = 0.5, rate_hz: int = 8_000) -> bytes:
    """Return a WAV file with silence, 16 bit, one channel."""
    data = bytes(int(seconds * rate_hz) * 2)
    form = struct.pack("<HHIIHH", 1, 1, rate_hz, rate_hz * 2, 2, 16)
    return (
        struct.pack("<4sI4s4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16)
        + form
        + struct.pack("<4sI", b"data", len(data))
        + data
    )
