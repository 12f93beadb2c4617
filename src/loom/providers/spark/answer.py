"""The answer of one step: the parts of directives, then tool calls, then descriptions of media, else a greeting."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from loom.content.blocks import TextBlock
from loom.content.media import Media, digest_of
from loom.content.recipes import Page, Text
from loom.errors import Corrupt, ExtraMissing, MediaError
from loom.formats import ocr, render
from loom.formats.facts import IntakeLimits
from loom.formats.image.describe_pixels import PixelFacts, describe
from loom.prompt import MediaRef, Prompt, ShownResult, ToolSpec
from loom.providers.media_body import BLOCK_BYTES, MediaSource
from loom.providers.samples import samples
from loom.providers.spark.answer_parts import AnswerPart, CallPart, TextPart, ThinkingPart
from loom.providers.spark.conversation import ShownThing, SparkTurn, thing_in
from loom.providers.spark.directives import call_with, run_directive, steps_of
from loom.providers.spark.documents import QuotedDocument, answer_from, cite, read_document

WHO: Final = "I am loom/spark, Loom's built-in demo model: no API key needed, not a language model."
CAN: Final = (
    "I describe images, quote documents with their pages, summarize tables, and call tools: "
    "“read a.png”, “list the files”. For anything else, choose another model."
)
NO_ENGINE: Final = "I cannot read words in images: no OCR engine is installed (pip install 'loom-runtime[ocr]')."
_MEANS_IMAGE: Final = re.compile(r"\b(?:picture|image|photo|screenshot|drawing|chart|colou?r)", re.IGNORECASE)
_MEANS_DOCUMENT: Final = re.compile(
    r"\b(?:document|pdf|page|report|file|manual|table|summar|quote|slide)", re.IGNORECASE
)
_POINTS_BACK: Final = re.compile(r"\b(?:it|this|that|these|those|again)\b", re.IGNORECASE)
_LIST: Final = re.compile(
    r"^\s*ls\b|\b(?:list|show|what|which)\b[^.?!\n]*\b(?:files|folder|directory)\b", re.IGNORECASE
)
_READ: Final = re.compile(r"\b(?:read|open|show|view|look at|describe|summari[sz]e|what(?: i|')s in)\b", re.IGNORECASE)
_FILE: Final = re.compile(
    r"`([^`\n]+\.\w{1,6})`|(?<![\w@/:.~-])((?!e\.g|i\.e)[\w./~-]*\w\.[A-Za-z]\w{0,5})(?=$|[\s,;:!?.)])"
)
_MAX_CALLS: Final = 4
_OCR_LIMITS: Final = IntakeLimits(ocr_seconds=20.0)
_SHORT_LINES: Final = 15
_SHORT_CHARS: Final = 800


class SparkReader:
    """Reads media once per answer."""

    def __init__(self, source: MediaSource, *, reads_text: bool) -> None:
        self._source = source
        self._reads_text = reads_text
        self._bytes: dict[MediaRef, bytes] = {}
        self._texts: dict[MediaRef, str] = {}

    async def data(self, ref: MediaRef) -> bytes:
        """Return the bytes of a medium. Raise `Corrupt` if their number differs from the prompt's."""
        if ref not in self._bytes:
            file = await self._source.open_local(ref)
            if file is None:
                data = b"".join([block async for block in self._source.blocks(ref, BLOCK_BYTES)])
            else:
                with file:
                    data = await asyncio.to_thread(file.readall)
            if ref.exact and len(data) != ref.size_bytes:
                raise Corrupt(f"A medium has {len(data)} bytes instead of {ref.size_bytes}.", hint="Run loom doctor.")
            self._bytes[ref] = data
        return self._bytes[ref]

    async def document(self, shown: ShownThing) -> QuotedDocument:
        if shown.media is None:
            return await asyncio.to_thread(read_document, shown.name, shown.text, pages=shown.pages)
        ref = shown.media.ref
        text = await self.text(ref, shown.name)
        first = int(shown.pages.partition("-")[0]) if shown.pages else 1
        return await asyncio.to_thread(
            read_document, shown.name, text, first_page=first, pages=shown.pages, digest=ref.digest
        )

    async def text(self, ref: MediaRef, name: str) -> str:
        """Return the text of a document. Its bytes may be a slice of the referenced medium."""
        if ref not in self._texts:
            self._texts[ref] = await _text_of(await self.data(ref), ref.media_type, name)
        return self._texts[ref]

    async def describe_image(self, data: bytes, prefix: str = "") -> AsyncIterator[TextPart]:
        """Yield a description of an image's pixels, then the text in it, which takes longer: both begin at once."""
        engine = ocr.is_available() if self._reads_text else ""
        reading = asyncio.create_task(ocr.run_in_ocr_thread(ocr.read_picture, data, _OCR_LIMITS)) if engine else None
        try:
            facts = await asyncio.to_thread(describe, data)
            yield TextPart(prefix + image_sentence(facts))
            if not self._reads_text or facts.kind == "plain image":
                return
            if reading is None:
                yield TextPart(NO_ENGINE)
                return
            lines = [" ".join(line.split()) for line in (await reading).splitlines() if line.strip()]
            if lines:
                yield TextPart(f"{prefix}Text I can read: {' · '.join(lines)[:2000]}")
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)  # reported above if its text was needed


async def _text_of(data: bytes, media_type: str, name: str) -> str:
    media = Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data), name=name)
    return (await asyncio.to_thread(render, data, media, Text())).data.decode()


def image_sentence(seen: PixelFacts) -> str:
    """Return `A bright screenshot or diagram, 900×500 PNG. Mostly white (84%), navy (14%).`"""
    size = f"{seen.width}×{seen.height} {seen.media_type.rpartition('/')[2].removeprefix('x-').upper()}"
    colors = ", ".join(f"{share.name} ({share.percent}%)" for share in seen.palette)
    if seen.kind == "plain image":
        return f"A plain {seen.palette[0].name} image, {size}."
    return f"A {seen.tone} {seen.kind}, {size}. Mostly {colors}."


async def answer(turn: SparkTurn, prompt: Prompt, reader: SparkReader) -> AsyncIterator[AnswerPart]:
    """Yield the parts of this step's answer. Raise what `run_directive` raises."""
    groups = steps_of(turn.directives)
    here = groups[turn.steps] if turn.steps < len(groups) else []
    for directive in here:
        if directive.name == "cite":
            yield await _cite_document(turn, reader)
        async for part in run_directive(directive, prompt):
            yield part
    if turn.steps < len(groups) - 1:
        return
    is_said = any(found.error or found.name in ("image", "cite", "echo", "tokens", "fail") for found in here)
    if turn.words or turn.things or turn.results or not is_said:
        async for part in _plain_answer(turn, prompt, reader):
            yield part


async def _plain_answer(turn: SparkTurn, prompt: Prompt, reader: SparkReader) -> AsyncIterator[AnswerPart]:
    if prompt.sampling.thinking != "off":
        names = ", ".join(thing.name for thing in turn.things) or "no media"
        yield ThinkingPart(f"Added: {names}; tools: {len(prompt.tools)}.")
    may_call = turn.steps == 0 and prompt.sampling.tool_choice != "none"
    calls = _tool_calls(turn, prompt.tools) if may_call else []
    if turn.results:
        for result in turn.results:
            async for part in _result_parts(result, turn.words, reader):
                yield part
    elif calls:
        yield TextPart(f"I will call {calls[0].name}.")
        for call in calls:
            yield call
    elif may_call and prompt.sampling.tool_choice == "any" and prompt.tools:
        yield call_with(prompt.tools[0].name, turn.words or ".", prompt.tools)
    elif things := turn.things or _things_meant(turn):
        async for part in _describe(things, turn.words, reader):
            yield part
    else:
        names = list(dict.fromkeys(thing.name for thing in turn.earlier))[-4:]
        yield TextPart(f"{WHO} You can ask about {', '.join(names)}." if names else f"{WHO} {CAN}")


def _things_meant(turn: SparkTurn) -> tuple[ShownThing, ...]:
    """Return the earlier medium that the message is about: the one it names, else the first or last of a kind."""
    named = [one for one in turn.earlier if one.name.lower() in turn.words.lower()]
    images = [one for one in turn.earlier if one.kind != "document" and _MEANS_IMAGE.search(turn.words)]
    others = [one for one in turn.earlier if one.kind == "document" and _MEANS_DOCUMENT.search(turn.words)]
    found = named or images or others or (turn.earlier if _POINTS_BACK.search(turn.words) else ())
    return (found[0 if "first" in turn.words.lower() else -1],) if found else ()


async def _describe(things: Sequence[ShownThing], question: str, reader: SparkReader) -> AsyncIterator[AnswerPart]:
    """Yield a description of each medium. A medium that cannot be read becomes a sentence, not an error."""
    for thing in things:
        prefix = f"{thing.name}: " if len(things) > 1 else ""
        try:
            if thing.kind == "document" and ((found := await reader.document(thing)).sentences or not thing.media):
                yield await asyncio.to_thread(answer_from, found, question)
            elif thing.media is None:
                yield TextPart(f"I was given {thing.name} only as text: {thing.text}.")
            else:
                data, media_type = await reader.data(thing.media.ref), thing.media.ref.media_type
                if thing.kind == "document":
                    yield TextPart(f"{thing.name} is a scan without a text layer. Its first page:")
                    media = Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data), name=thing.name)
                    data = (await asyncio.to_thread(render, data, media, Page(1))).data
                elif thing.media.detail == "low":
                    yield TextPart(f"{prefix}I was shown a small copy of it.")
                async for part in reader.describe_image(data, prefix):
                    yield part
        except (MediaError, ExtraMissing) as error:
            yield TextPart(f"I cannot read {thing.name}: {error}")


async def _result_parts(result: ShownResult, question: str, reader: SparkReader) -> AsyncIterator[AnswerPart]:
    """Yield the content of a tool result: errors and short text unchanged, quotes of long text, descriptions of
    media."""
    things = [thing for block in result.blocks if (thing := thing_in(block)) is not None]
    texts = [block.text for block in result.blocks if isinstance(block, TextBlock) and thing_in(block) is None]
    text = "\n".join(texts).strip("\n")
    lines = text.count("\n") + 1
    if result.is_error and text:
        yield TextPart(f"{result.name} failed: {text[:_SHORT_CHARS]}")
    elif len(text) > _SHORT_CHARS or lines > _SHORT_LINES:
        things = [ShownThing("document", f"The result of {result.name}", text=text), *things]
    elif lines > 1:
        fence = "```" if "```" not in text else "````"
        yield TextPart(f"{result.name} returned {lines} lines:\n\n{fence}text\n{text}\n{fence}")
    elif text:
        yield TextPart(f"{result.name} returned: {text.strip()}")
    async for part in _describe(things, question, reader):
        yield part


def _tool_calls(turn: SparkTurn, tools: Sequence[ToolSpec]) -> list[CallPart]:
    """Return the calls that the message asks for, if the prompt has such a tool. Media in the prompt are not read
    again."""
    names = {tool.name for tool in tools}
    shown = turn.things or turn.earlier
    labels = [one for one in shown if one.look and one.look[0] in names]
    if labels and _MEANS_IMAGE.search(turn.words):
        tool, parameter, value = labels[0 if "first" in turn.words.lower() else -1].look
        return [CallPart(tool, msgspec.json.encode({parameter: value}).decode())]
    if "list_files" in names and not turn.things and _LIST.search(turn.words):  # else the files that are attached
        return [CallPart("list_files", "{}")]
    if "read_file" not in names or not _READ.search(turn.words):
        return []
    known = {thing.name for thing in (*turn.things, *turn.earlier)}
    paths = dict.fromkeys(quoted or bare for quoted, bare in _FILE.findall(turn.words))
    return [call_with("read_file", path, tools) for path in paths if path.rpartition("/")[2] not in known][:_MAX_CALLS]


async def _cite_document(turn: SparkTurn, reader: SparkReader) -> TextPart:
    """Quote a document of the conversation, else the sample leaflet."""
    for thing in (*turn.things, *reversed(turn.earlier)):
        if thing.kind == "document" and (document := await reader.document(thing)).sentences:
            return cite(document, turn.words)
    leaflet = next(sample for sample in samples() if sample.media_type == "application/pdf")
    return cite(read_document(leaflet.name, await _text_of(leaflet.data, leaflet.media_type, leaflet.name)), turn.words)
