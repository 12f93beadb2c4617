"""The answer of one step, part by part: what directives ask for, then calls, then what can be seen and read, else plain
words about what this model is."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from loom.content.blocks import TextBlock
from loom.formats.image.describe_pixels import ImageDifference, PixelFacts
from loom.prompt import Prompt, ShownResult
from loom.providers.spark.answer_parts import AnswerPart, CallPart, TextPart, ThinkingPart
from loom.providers.spark.intents import chart_numbers, fill_arguments, tool_intents
from loom.providers.spark.media_reader import NO_ENGINE, SparkReader, UnreadableMedia
from loom.providers.spark.pictures import describe_image, differences, join_words, read_aloud
from loom.providers.spark.quotes import QuotedDocument, about, lookup_summary, shares_words
from loom.providers.spark.script import draw_chart, run_directive, says_something, steps_of
from loom.providers.spark.sentences import question_terms
from loom.providers.spark.turn import ShownDocument, ShownImage, ShownLabel, ShownThing, SparkTurn, thing_in

WHO: Final = "I am loom/spark, the model built into Loom: I look at pictures and read documents, but I do not reason."
CAN: Final = (
    "I describe a picture, compare two, quote a document with its pages, and call a tool when you ask plainly: "
    "“read a.png”, “list the files”, “make a chart of 3, 5, 8”. For an answer that needs thought, choose another model."
)
_ASKS_ME: Final = re.compile(
    r"\b(?:who|what) are you\b|\bwhat can you\b|\bhelp\b|\bhow do you work\b|^\W*(?:hi|hello|hey|good \w+)\b",
    re.IGNORECASE,
)
_COMPARE: Final = re.compile(r"\b(?:compar|differ|chang|same\b|before\b|versus\b|vs\b)", re.IGNORECASE)
_PICTURE: Final = re.compile(r"\b(?:picture|image|photo|screenshot|drawing|chart|colou?r|see\b)", re.IGNORECASE)
_PAPER: Final = re.compile(
    r"\b(?:documents?|pdf|pages?|report|file|manual|text|summar\w*|outline|quotes?|slides?)\b", re.IGNORECASE
)
_POINTS: Final = re.compile(r"\b(?:it|this|that|these|those|again|more)\b", re.IGNORECASE)
_ORDER: Final = ("first", "second", "third", "fourth", "fifth")
_READ_PICTURES: Final = 4
_SHORT_LINES: Final = 15
_SHORT_CHARS: Final = 800


class ExaminedMedia(msgspec.Struct, frozen=True):
    """A thing and what was found in it; nothing was found in a label."""

    thing: ShownThing
    found: PixelFacts | QuotedDocument | UnreadableMedia | None


async def answer(turn: SparkTurn, prompt: Prompt, desk: SparkReader) -> AsyncIterator[AnswerPart]:
    groups = steps_of(turn.directives)
    here = groups[turn.steps] if turn.steps < len(groups) else ()
    for directive in here:
        async for part in run_directive(directive, turn, prompt, desk):
            yield part
    if turn.steps < len(groups) - 1:
        return
    if turn.words or turn.things or turn.results or not says_something(here):
        may_call = turn.steps == 0 and prompt.sampling.tool_choice != "none"
        async for part in _plain(turn, prompt, desk, may_call=may_call):
            if not (isinstance(part, ThinkingPart) and prompt.sampling.thinking == "off"):
                yield part


async def _plain(turn: SparkTurn, prompt: Prompt, desk: SparkReader, *, may_call: bool) -> AsyncIterator[AnswerPart]:
    yield ThinkingPart(_inventory(turn, prompt))
    calls = tool_intents(turn, prompt.tools) if may_call else ()
    numbers = () if turn.things or turn.results else chart_numbers(turn.words)
    if turn.results:
        async for part in _outcomes(turn, desk):
            yield part
    elif calls:
        for wish in calls:
            yield TextPart(wish.announcement)
        for wish in calls:
            yield CallPart(wish.tool, msgspec.json.encode(wish.arguments).decode())
    elif may_call and prompt.sampling.tool_choice == "any" and prompt.tools:
        tool = prompt.tools[0]
        yield CallPart(tool.name, msgspec.json.encode(fill_arguments(tool, turn.words or ".")).decode())
    elif numbers:
        yield TextPart(f"A chart of {join_words([f'{number:g}' for number in numbers])}, which I drew myself:")
        yield await draw_chart(numbers)
    else:
        async for part in _answer_about_media(turn, desk):
            yield part


async def _answer_about_media(turn: SparkTurn, desk: SparkReader) -> AsyncIterator[AnswerPart]:
    """What the message shows, else what it means of what was shown earlier, else who is speaking."""
    things = turn.things or _referenced_media(turn)
    earlier = [thing for thing in turn.earlier if isinstance(thing, ShownImage)]
    if len(things) == 1 and isinstance(things[0], ShownImage) and earlier and _COMPARE.search(turn.words):
        others = [picture for picture in earlier if picture.media.ref.digest != things[0].media.ref.digest]
        things = (*others[-1:], *things)
    if not things and not _ASKS_ME.search(turn.words):
        sources = [await desk.read(thing) for thing in turn.earlier if isinstance(thing, ShownDocument)]
        for source in sources:
            if isinstance(source, QuotedDocument) and shares_words(source, turn.words):
                yield ThinkingPart(lookup_summary(source, turn.words))
                yield await asyncio.to_thread(about, source, turn.words)
                return
    if not things:
        yield TextPart(_introduction(turn))
        return
    examined = [await _examine(thing, desk) for thing in things]
    for one in examined:
        yield ThinkingPart(_record(one, turn.words))
    async for part in _report(examined, turn.words, desk):
        yield part


def _referenced_media(turn: SparkTurn) -> tuple[ShownThing, ...]:
    """Which of the things shown earlier the words are about."""
    words = turn.words.lower()
    named = [thing for thing in turn.earlier if thing.name.lower() in words or _stem(thing.name) in words.split()]
    if named:
        return (named[-1],)
    pictures = [
        one
        for one in turn.earlier
        if isinstance(one, ShownImage) or (isinstance(one, ShownLabel) and one.kind == "image")
    ]
    papers = [one for one in turn.earlier if isinstance(one, ShownDocument)]
    if pictures and _COMPARE.search(words) and _PICTURE.search(words) and len(pictures) > 1:
        return tuple(pictures[-2:])
    for candidates, hint in ((pictures, _PICTURE), (papers, _PAPER), (list(turn.earlier), _POINTS)):
        if candidates and hint.search(words):
            place = next((at for at, word in enumerate(_ORDER) if re.search(rf"\b{word}\b", words)), -1)
            return (candidates[place] if place < len(candidates) else candidates[-1],)
    return ()


def _stem(name: str) -> str:
    return name.lower().rpartition(".")[0] or name.lower()


# ── looking and telling ──────────────────────────────────────────────────────────────────────────────────────────────


async def _examine(thing: ShownThing, desk: SparkReader) -> ExaminedMedia:
    match thing:
        case ShownImage():
            return ExaminedMedia(thing, await desk.look(thing))
        case ShownDocument():
            return ExaminedMedia(thing, await desk.read(thing))
        case _:
            return ExaminedMedia(thing, None)


def _inventory(turn: SparkTurn, prompt: Prompt) -> str:
    kinds = Counter(type(thing) for thing in turn.things)
    counts = [
        _count(kinds[kind], word)
        for kind, word in ((ShownImage, "picture"), (ShownDocument, "document"), (ShownLabel, "label"))
    ]
    shown = ", ".join(filter(None, counts)) or "no pictures and no documents"
    tools = _count(len(prompt.tools), "tool") or "no tools"
    came = f" {_count(len(turn.results), 'result')} came back from tools." if turn.results else ""
    return f"The message shows {shown}; I was offered {tools}.{came}"


def _count(number: int, word: str) -> str:
    return "" if not number else f"1 {word}" if number == 1 else f"{number} {word}s"


def _record(one: ExaminedMedia, question: str) -> str:
    match one.found:
        case UnreadableMedia():
            return f"{one.thing.name}: could not be read."
        case PixelFacts():
            return f"{one.thing.name}: decoded it, counted its colours, measured its edges in nine parts."
        case QuotedDocument():
            return lookup_summary(one.found, question)
        case None:
            return f"{one.thing.name}: only a line of text stands for it."


async def _report(examined: Sequence[ExaminedMedia], question: str, desk: SparkReader) -> AsyncIterator[AnswerPart]:
    alone = len(examined) == 1
    for one in examined:
        yield await _saying(one, question, alone=alone)
    pictures = [
        one.thing for one in examined if isinstance(one.thing, ShownImage) and isinstance(one.found, PixelFacts)
    ]
    if len(pictures) == 2:
        difference = await desk.compare(pictures[0], pictures[1])
        if isinstance(difference, ImageDifference):
            names = (
                ("the first", "the second")
                if pictures[0].name == pictures[1].name
                else (pictures[0].name, pictures[1].name)
            )
            yield TextPart(differences(difference, names))
    async for part in _read(examined, question, desk, alone=alone):
        yield part


async def _saying(one: ExaminedMedia, question: str, *, alone: bool) -> TextPart:
    name = one.thing.name
    match one.found:
        case QuotedDocument():
            return await asyncio.to_thread(about, one.found, question)
        case UnreadableMedia():
            return TextPart(f"I cannot look at {name}: {one.found}")
        case PixelFacts():
            words = describe_image(one.found)
            small = isinstance(one.thing, ShownImage) and one.thing.media.detail == "low"
            words += " I was shown a small copy of it." if small else ""
            return TextPart(words if alone else f"{name}: {words[0].lower()}{words[1:]}")
        case None:
            label = one.thing if isinstance(one.thing, ShownLabel) else None
            fewer = ". Show me fewer of its pages, such as 1-20." if label and label.kind == "document" else ""
            return TextPart(f"I was given {name} as a line of text only: {label.text if label else ''}{fewer}")


async def _read(
    examined: Sequence[ExaminedMedia], question: str, desk: SparkReader, *, alone: bool
) -> AsyncIterator[AnswerPart]:
    """The words in pictures, where an engine is there to read them: slow, so they come last."""
    worth = [
        one.thing
        for one in examined
        if isinstance(one.thing, ShownImage)
        and isinstance(one.found, PixelFacts)
        and one.found.kind in ("photograph", "screenshot or diagram", "drawing")
    ]
    if not worth or not desk.reads_text:
        return
    if not desk.engine:
        yield TextPart(NO_ENGINE)
        return
    for picture in worth[:_READ_PICTURES]:
        words = await desk.words_in(picture)
        said = (
            f"Reading its text failed: {words}" if isinstance(words, UnreadableMedia) else read_aloud(words, question)
        )
        yield TextPart(said if alone else f"{picture.name}: {said[0].lower()}{said[1:]}")


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _outcomes(turn: SparkTurn, desk: SparkReader) -> AsyncIterator[AnswerPart]:
    """What tools gave, one result after another."""
    read: list[tuple[ShownResult, list[ExaminedMedia]]] = []
    for result in turn.results:
        things = [thing for block in result.blocks if (thing := thing_in(block)) is not None]
        read.append((result, [await _examine(thing, desk) for thing in things]))
    for examined in read:
        for one in examined[1]:
            yield ThinkingPart(_record(one, turn.words))
    for result, examined in read:
        words = [block.text for block in result.blocks if isinstance(block, TextBlock) and thing_in(block) is None]
        if words:
            yield await _result_sentence(result, "\n".join(words), turn.words, desk)
        if examined:
            yield TextPart(f"{result.name} shows {join_words([one.thing.name for one in examined])}.")
            async for part in _report(examined, turn.words, desk):
                yield part


async def _result_sentence(result: ShownResult, text: str, question: str, desk: SparkReader) -> TextPart:
    text = text.strip("\n")
    lines = text.splitlines()
    if result.is_error:
        return TextPart(f"{result.name} failed: {text[:_SHORT_CHARS]}")
    if len(lines) == 1 and len(text) <= _SHORT_CHARS:
        return TextPart(f"{result.name} says: {text.strip()}")
    if len(lines) <= _SHORT_LINES and len(text) <= _SHORT_CHARS:
        fence = "```" if "```" not in text else "````"
        return TextPart(f"{result.name} gave {len(lines)} lines:\n\n{fence}text\n{text}\n{fence}")
    return await _saying(
        await _examine(ShownDocument(f"The result of {result.name}", text=text), desk), question, alone=True
    )


# ── words alone ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _introduction(turn: SparkTurn) -> str:
    if not turn.words or _ASKS_ME.search(turn.words):
        return f"{WHO} {CAN}"
    terms = [f"“{word}”" for word in list(question_terms(turn.words).values())[:4]]
    topic = f" about {join_words(terms)}" if terms else ""
    names = list(dict.fromkeys(thing.name for thing in turn.earlier))
    if names:
        return f"{WHO} I cannot say anything{topic}, but you can ask about {join_words(names[-4:])}."
    return f"{WHO} So I cannot say anything{topic}: attach a picture or a document, and I will tell you what is in it."
