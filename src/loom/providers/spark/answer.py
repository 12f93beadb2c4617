"""The answer of one step: first what directives ask for, then tool calls, then what the media show, else a greeting."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from loom.content.blocks import TextBlock
from loom.formats.image.describe_pixels import PixelFacts
from loom.prompt import Prompt, ShownResult, ToolSpec
from loom.providers.samples import samples
from loom.providers.spark.answer_parts import AnswerPart, CallPart, TextPart, ThinkingPart
from loom.providers.spark.directives import (
    answers_by_itself,
    draw_chart,
    fill_arguments,
    numbers_in,
    run_directive,
    steps_of,
)
from loom.providers.spark.documents import QuotedDocument, answer_from, cite, shares_words
from loom.providers.spark.media_reader import NO_ENGINE, SparkReader, UnreadableMedia, describe_image
from loom.providers.spark.turn import ShownDocument, ShownImage, ShownLabel, ShownThing, SparkTurn, thing_in

WHO: Final = "I am loom/spark, Loom's built-in demo model: no API key needed, not a language model."
CAN: Final = (
    "I describe images, compare two, quote documents with their pages, summarise tables, and call tools: "
    "“read a.png”, “list the files”, “make a chart of 3, 5, 8”. For anything else, choose another model."
)
_COMPARES: Final = re.compile(r"\b(?:compar|differ|chang|same\b|versus\b|vs\b)", re.IGNORECASE)
_MEANS_IMAGE: Final = re.compile(r"\b(?:picture|image|photo|screenshot|drawing|chart|colou?r)", re.IGNORECASE)
_MEANS_DOCUMENT: Final = re.compile(
    r"\b(?:document|pdf|page|report|file|manual|table|summar|quote|slide)", re.IGNORECASE
)
_POINTS_BACK: Final = re.compile(r"\b(?:it|this|that|these|those|again)\b", re.IGNORECASE)
_CHART: Final = re.compile(r"\b(?:chart|plot|graph|bars?)\b", re.IGNORECASE)
_LIST: Final = re.compile(
    r"^\s*ls\b|\b(?:list|show|what|which)\b[^.?!\n]*\b(?:files|folder|directory|workspace)\b", re.IGNORECASE
)
_READ: Final = re.compile(
    r"\b(?:read|open|show|view|look at|describe|summari[sz]e|check|what(?: i|')s in)\b", re.IGNORECASE
)
_FILE: Final = re.compile(
    r"[`\"“']([^`\"”'\n]+\.\w{1,6})[`\"”']|((?!e\.g|i\.e)[^\s,;()<>|`\"“”']*\w\.[A-Za-z]\w{0,5})(?=$|[\s,;:!?.)])"
)
_FOLDER: Final = re.compile(r"\b(?:in|of|under)\s+([\w.~-]*/[\w./-]*[\w/])")
_URL: Final = re.compile(r"https?://[^\s<>\"'`)\]]+")
_ORDER: Final = ("first", "second", "third", "fourth", "fifth")
_MAX_CALLS: Final = 4
_OCR_IMAGES: Final = 4
_SHORT_LINES: Final = 15
_SHORT_CHARS: Final = 800


async def answer(turn: SparkTurn, prompt: Prompt, reader: SparkReader) -> AsyncIterator[AnswerPart]:
    """Yield the parts of this step's answer."""
    groups = steps_of(turn.directives)
    here = groups[turn.steps] if turn.steps < len(groups) else ()
    for directive in here:
        if directive.name == "cite":
            yield await _cite_document(turn, reader)
        async for part in run_directive(directive, prompt):
            yield part
    if turn.steps < len(groups) - 1:
        return
    if turn.words or turn.things or turn.results or not answers_by_itself(here):
        async for part in _plain_answer(turn, prompt, reader):
            if not (isinstance(part, ThinkingPart) and prompt.sampling.thinking == "off"):
                yield part


async def _plain_answer(turn: SparkTurn, prompt: Prompt, reader: SparkReader) -> AsyncIterator[AnswerPart]:
    yield ThinkingPart(_inventory(turn, prompt))
    may_call = turn.steps == 0 and prompt.sampling.tool_choice != "none"
    calls = _tool_calls(turn, prompt.tools) if may_call else []
    numbers = numbers_in(turn.words) if _CHART.search(turn.words) and not turn.things else ()
    if turn.results:
        for result in turn.results:
            async for part in _result_parts(result, turn.words, reader):
                yield part
    elif calls:
        yield TextPart(f"I will call {', '.join(dict.fromkeys(name for name, _ in calls))}.")
        for name, arguments in calls:
            yield CallPart(name, msgspec.json.encode(arguments).decode())
    elif may_call and prompt.sampling.tool_choice == "any" and prompt.tools:
        tool = prompt.tools[0]
        yield CallPart(tool.name, msgspec.json.encode(fill_arguments(tool, turn.words or ".")).decode())
    elif len(numbers) > 1:
        yield TextPart(f"A chart of {', '.join(f'{number:g}' for number in numbers)}:")
        yield await draw_chart(numbers)
    else:
        things = turn.things or await _things_meant(turn, reader)
        before = [one for one in turn.earlier if isinstance(one, ShownImage)]
        if len(things) == 1 and isinstance(things[0], ShownImage) and before and _COMPARES.search(turn.words):
            things = (before[-1], *things)
        async for part in _describe(things, turn.words, reader):
            yield part
        if not things:
            names = list(dict.fromkeys(thing.name for thing in turn.earlier))[-4:]
            yield TextPart(f"{WHO} You can ask about {', '.join(names)}." if names else f"{WHO} {CAN}")


def _inventory(turn: SparkTurn, prompt: Prompt) -> str:
    kinds = [type(thing) for thing in turn.things]
    shown = [
        f"{kinds.count(kind)} {word}{'' if kinds.count(kind) == 1 else 's'}"
        for kind, word in ((ShownImage, "image"), (ShownDocument, "document"), (ShownLabel, "label"))
        if kind in kinds
    ]
    tools = f"{len(prompt.tools)} tool{'' if len(prompt.tools) == 1 else 's'}"
    results = f", {len(turn.results)} result(s)" if turn.results else ""
    names = f" ({', '.join(thing.name for thing in turn.things)})" if turn.things else ""
    return f"Shown: {', '.join(shown) or 'no media'}{names}; {tools}{results}."


async def _things_meant(turn: SparkTurn, reader: SparkReader) -> tuple[ShownThing, ...]:
    """Return the media shown earlier that the words are about."""
    words = turn.words.lower()
    images = [
        one
        for one in turn.earlier
        if isinstance(one, ShownImage) or (isinstance(one, ShownLabel) and one.kind == "image")
    ]
    documents = [one for one in turn.earlier if isinstance(one, ShownDocument)]
    named = [one for one in turn.earlier if one.name.lower() in words]
    if named:
        return (named[-1],)
    if len(images) > 1 and _COMPARES.search(words) and _MEANS_IMAGE.search(words):
        return tuple(images[-2:])
    for candidates, hint in ((images, _MEANS_IMAGE), (documents, _MEANS_DOCUMENT), (turn.earlier, _POINTS_BACK)):
        if candidates and hint.search(words):
            at = next((at for at, word in enumerate(_ORDER) if word in words.split()), len(candidates) - 1)
            return (candidates[min(at, len(candidates) - 1)],)
    for document in documents:
        read = await reader.read(document)
        if isinstance(read, QuotedDocument) and shares_words(read, turn.words):
            return (document,)
    return ()


async def _describe(things: Sequence[ShownThing], question: str, reader: SparkReader) -> AsyncIterator[AnswerPart]:
    """Yield what each thing shows, the difference of two images, and last the words in images, which takes seconds."""
    seen: list[ShownImage] = []
    readable: list[ShownImage] = []
    for thing in things:
        prefix = f"{thing.name}: " if len(things) > 1 else ""
        match thing:
            case ShownImage():
                found = await reader.look(thing)
                if isinstance(found, PixelFacts):
                    seen.append(thing)
                    readable += [thing] if found.kind != "plain image" else []
                    small = " I was shown a small copy of it." if thing.media.detail == "low" else ""
                    yield TextPart(f"{prefix}{describe_image(found)}{small}")
                else:
                    yield TextPart(f"I cannot read {thing.name}: {found}")
            case ShownDocument():
                read = await reader.read(thing)
                if isinstance(read, UnreadableMedia):
                    yield TextPart(f"I cannot read {thing.name}: {read}")
                else:
                    yield await asyncio.to_thread(answer_from, read, question)
            case ShownLabel():
                fewer = " Show me fewer of its pages, such as 1-20." if thing.kind == "document" else ""
                yield TextPart(f"I was given {thing.name} only as text: {thing.text}.{fewer}")
    if len(seen) == 2:
        percent = await reader.changed_percent(seen[0], seen[1])
        if not isinstance(percent, UnreadableMedia):
            yield TextPart(_difference(percent))
    if readable and reader.reads_text and not reader.engine:
        yield TextPart(NO_ENGINE)
    for image in readable[:_OCR_IMAGES] if reader.engine else ():
        words = await reader.words_in(image)
        lines = [" ".join(line.split()) for line in words.splitlines() if line.strip()]
        prefix = f"{image.name}: " if len(things) > 1 else ""
        if isinstance(words, UnreadableMedia):
            yield TextPart(f"{prefix}Reading its text failed: {words}")
        elif lines:
            yield TextPart(f"{prefix}Text I can read: {' · '.join(lines)[:2000]}")


def _difference(percent: float | None) -> str:
    if percent is None:
        return "Their shapes differ, so I did not compare their pixels."
    if percent == 0:
        return "No pixel differs visibly."
    return f"They differ in {'less than 0.1' if percent < 0.1 else f'{percent:.1f}'}% of the area."


async def _result_parts(result: ShownResult, question: str, reader: SparkReader) -> AsyncIterator[AnswerPart]:
    """Yield what a tool returned: errors and short text as they are, long text searched, media described."""
    things = [thing for block in result.blocks if (thing := thing_in(block)) is not None]
    text = "\n".join(block.text for block in result.blocks if isinstance(block, TextBlock) and thing_in(block) is None)
    text = text.strip("\n")
    lines = text.splitlines()
    if result.is_error and text:
        yield TextPart(f"{result.name} failed: {text[:_SHORT_CHARS]}")
    elif len(lines) == 1 and len(text) <= _SHORT_CHARS:
        yield TextPart(f"{result.name} says: {text.strip()}")
    elif text and len(lines) <= _SHORT_LINES and len(text) <= _SHORT_CHARS:
        fence = "```" if "```" not in text else "````"
        yield TextPart(f"{result.name} returned {len(lines)} lines:\n\n{fence}text\n{text}\n{fence}")
    elif text:
        things = [ShownDocument(f"The result of {result.name}", text=text), *things]
    async for part in _describe(things, question, reader):
        yield part


def _tool_calls(turn: SparkTurn, tools: Sequence[ToolSpec]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that plain words ask for, if such a tool is offered. Media that are shown are not read again."""
    offered = {tool.name: tool for tool in tools}
    words = turn.words
    if (chart := offered.get("make_chart")) and _CHART.search(words) and len(numbers_in(words)) > 1:
        numbers = [int(number) if number.is_integer() else number for number in numbers_in(words)]
        return [(chart.name, fill_arguments(chart, numbers))]
    labels = [thing for thing in (turn.things or turn.earlier) if isinstance(thing, ShownLabel) and thing.look]
    if labels and _MEANS_IMAGE.search(words):
        named = [label for label in labels if label.name.lower() in words.lower()]
        chosen = named[0] if named else labels[0] if "first" in words.lower() else labels[-1]
        if chosen.look and chosen.look[0] in offered:
            return [(chosen.look[0], {"media": chosen.look[1]})]
    if (lister := offered.get("list_files")) and _LIST.search(words):
        folder = _FOLDER.search(words)
        return [(lister.name, fill_arguments(lister, folder[1]) if folder else {})]
    known = {thing.name for thing in (*turn.things, *turn.earlier)}
    found = dict.fromkeys(quoted or bare for quoted, bare in _FILE.findall(_URL.sub(" ", words)))
    paths = [path for path in found if path.rpartition("/")[2] not in known]
    if (read := offered.get("read_file")) and _READ.search(words):
        return [(read.name, fill_arguments(read, path)) for path in paths[:_MAX_CALLS]]
    return []


async def _cite_document(turn: SparkTurn, reader: SparkReader) -> TextPart:
    """Quote a document of the conversation, else the leaflet that ships with Loom."""
    for thing in (*turn.things, *reversed(turn.earlier)):
        if isinstance(thing, ShownDocument):
            read = await reader.read(thing)
            if isinstance(read, QuotedDocument) and read.sentences:
                return cite(read, turn.words)
    leaflet = next(sample for sample in samples() if sample.media_type == "application/pdf")
    return cite(await reader.read_sample(leaflet), turn.words)
