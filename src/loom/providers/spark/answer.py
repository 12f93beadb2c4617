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
from loom.formats.eyes import Difference, Seen
from loom.prompt import Prompt, ShownResult
from loom.providers.spark.desk import NO_ENGINE, Desk, Unseen
from loom.providers.spark.intents import chart_numbers, filled, wishes
from loom.providers.spark.parts import Called, Part, Said, Thought
from loom.providers.spark.pictures import described, differences, listed, read_aloud
from loom.providers.spark.quotes import Source, about, checked, shares_words
from loom.providers.spark.script import drawn, obeyed, says_something, steps_of
from loom.providers.spark.sentences import question_terms
from loom.providers.spark.turn import Label, Paper, Picture, Thing, Turn, thing_in

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


class Examined(msgspec.Struct, frozen=True):
    """A thing and what was found in it; nothing was found in a label."""

    thing: Thing
    found: Seen | Source | Unseen | None


async def answer(turn: Turn, prompt: Prompt, desk: Desk) -> AsyncIterator[Part]:
    groups = steps_of(turn.directives)
    here = groups[turn.steps] if turn.steps < len(groups) else ()
    for directive in here:
        async for part in obeyed(directive, turn, prompt, desk):
            yield part
    if turn.steps < len(groups) - 1:
        return
    if turn.words or turn.things or turn.results or not says_something(here):
        may_call = turn.steps == 0 and prompt.sampling.tool_choice != "none"
        async for part in _plain(turn, prompt, desk, may_call=may_call):
            if not (isinstance(part, Thought) and prompt.sampling.thinking == "off"):
                yield part


async def _plain(turn: Turn, prompt: Prompt, desk: Desk, *, may_call: bool) -> AsyncIterator[Part]:
    yield Thought(_inventory(turn, prompt))
    calls = wishes(turn, prompt.tools) if may_call else ()
    numbers = () if turn.things or turn.results else chart_numbers(turn.words)
    if turn.results:
        async for part in _outcomes(turn, desk):
            yield part
    elif calls:
        for wish in calls:
            yield Said(wish.announcement)
        for wish in calls:
            yield Called(wish.tool, msgspec.json.encode(wish.arguments).decode())
    elif may_call and prompt.sampling.tool_choice == "any" and prompt.tools:
        tool = prompt.tools[0]
        yield Called(tool.name, msgspec.json.encode(filled(tool, turn.words or ".")).decode())
    elif numbers:
        yield Said(f"A chart of {listed([f'{number:g}' for number in numbers])}, which I drew myself:")
        yield await drawn(numbers)
    else:
        async for part in _shown(turn, desk):
            yield part


async def _shown(turn: Turn, desk: Desk) -> AsyncIterator[Part]:
    """What the message shows, else what it means of what was shown earlier, else who is speaking."""
    things = turn.things or _meant(turn)
    earlier = [thing for thing in turn.earlier if isinstance(thing, Picture)]
    if len(things) == 1 and isinstance(things[0], Picture) and earlier and _COMPARE.search(turn.words):
        others = [picture for picture in earlier if picture.media.ref.digest != things[0].media.ref.digest]
        things = (*others[-1:], *things)
    if not things and not _ASKS_ME.search(turn.words):
        sources = [await desk.read(thing) for thing in turn.earlier if isinstance(thing, Paper)]
        for source in sources:
            if isinstance(source, Source) and shares_words(source, turn.words):
                yield Thought(checked(source, turn.words))
                yield await asyncio.to_thread(about, source, turn.words)
                return
    if not things:
        yield Said(_introduction(turn))
        return
    examined = [await _examined(thing, desk) for thing in things]
    for one in examined:
        yield Thought(_record(one, turn.words))
    async for part in _told(examined, turn.words, desk):
        yield part


def _meant(turn: Turn) -> tuple[Thing, ...]:
    """Which of the things shown earlier the words are about."""
    words = turn.words.lower()
    named = [thing for thing in turn.earlier if thing.name.lower() in words or _stem(thing.name) in words.split()]
    if named:
        return (named[-1],)
    pictures = [
        one for one in turn.earlier if isinstance(one, Picture) or (isinstance(one, Label) and one.kind == "image")
    ]
    papers = [one for one in turn.earlier if isinstance(one, Paper)]
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


async def _examined(thing: Thing, desk: Desk) -> Examined:
    match thing:
        case Picture():
            return Examined(thing, await desk.look(thing))
        case Paper():
            return Examined(thing, await desk.read(thing))
        case _:
            return Examined(thing, None)


def _inventory(turn: Turn, prompt: Prompt) -> str:
    kinds = Counter(type(thing) for thing in turn.things)
    counts = [_count(kinds[kind], word) for kind, word in ((Picture, "picture"), (Paper, "document"), (Label, "label"))]
    shown = ", ".join(filter(None, counts)) or "no pictures and no documents"
    tools = _count(len(prompt.tools), "tool") or "no tools"
    came = f" {_count(len(turn.results), 'result')} came back from tools." if turn.results else ""
    return f"The message shows {shown}; I was offered {tools}.{came}"


def _count(number: int, word: str) -> str:
    return "" if not number else f"1 {word}" if number == 1 else f"{number} {word}s"


def _record(one: Examined, question: str) -> str:
    match one.found:
        case Unseen():
            return f"{one.thing.name}: could not be read."
        case Seen():
            return f"{one.thing.name}: decoded it, counted its colours, measured its edges in nine parts."
        case Source():
            return checked(one.found, question)
        case None:
            return f"{one.thing.name}: only a line of text stands for it."


async def _told(examined: Sequence[Examined], question: str, desk: Desk) -> AsyncIterator[Part]:
    alone = len(examined) == 1
    for one in examined:
        yield await _saying(one, question, alone=alone)
    pictures = [one.thing for one in examined if isinstance(one.thing, Picture) and isinstance(one.found, Seen)]
    if len(pictures) == 2:
        difference = await desk.compare(pictures[0], pictures[1])
        if isinstance(difference, Difference):
            names = (
                ("the first", "the second")
                if pictures[0].name == pictures[1].name
                else (pictures[0].name, pictures[1].name)
            )
            yield Said(differences(difference, names))
    async for part in _read(examined, question, desk, alone=alone):
        yield part


async def _saying(one: Examined, question: str, *, alone: bool) -> Said:
    name = one.thing.name
    match one.found:
        case Source():
            return await asyncio.to_thread(about, one.found, question)
        case Unseen():
            return Said(f"I cannot look at {name}: {one.found}")
        case Seen():
            words = described(one.found)
            small = isinstance(one.thing, Picture) and one.thing.media.detail == "low"
            words += " I was shown a small copy of it." if small else ""
            return Said(words if alone else f"{name}: {words[0].lower()}{words[1:]}")
        case None:
            label = one.thing if isinstance(one.thing, Label) else None
            fewer = ". Show me fewer of its pages, such as 1-20." if label and label.kind == "document" else ""
            return Said(f"I was given {name} as a line of text only: {label.text if label else ''}{fewer}")


async def _read(examined: Sequence[Examined], question: str, desk: Desk, *, alone: bool) -> AsyncIterator[Part]:
    """The words in pictures, where an engine is there to read them: slow, so they come last."""
    worth = [
        one.thing
        for one in examined
        if isinstance(one.thing, Picture)
        and isinstance(one.found, Seen)
        and one.found.kind in ("photograph", "screenshot or diagram", "drawing")
    ]
    if not worth or not desk.reads_text:
        return
    if not desk.engine:
        yield Said(NO_ENGINE)
        return
    for picture in worth[:_READ_PICTURES]:
        words = await desk.words_in(picture)
        said = f"Reading its text failed: {words}" if isinstance(words, Unseen) else read_aloud(words, question)
        yield Said(said if alone else f"{picture.name}: {said[0].lower()}{said[1:]}")


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _outcomes(turn: Turn, desk: Desk) -> AsyncIterator[Part]:
    """What tools gave, one result after another."""
    read: list[tuple[ShownResult, list[Examined]]] = []
    for result in turn.results:
        things = [thing for block in result.blocks if (thing := thing_in(block)) is not None]
        read.append((result, [await _examined(thing, desk) for thing in things]))
    for examined in read:
        for one in examined[1]:
            yield Thought(_record(one, turn.words))
    for result, examined in read:
        words = [block.text for block in result.blocks if isinstance(block, TextBlock) and thing_in(block) is None]
        if words:
            yield await _worded(result, "\n".join(words), turn.words, desk)
        if examined:
            yield Said(f"{result.name} shows {listed([one.thing.name for one in examined])}.")
            async for part in _told(examined, turn.words, desk):
                yield part


async def _worded(result: ShownResult, text: str, question: str, desk: Desk) -> Said:
    text = text.strip("\n")
    lines = text.splitlines()
    if result.is_error:
        return Said(f"{result.name} failed: {text[:_SHORT_CHARS]}")
    if len(lines) == 1 and len(text) <= _SHORT_CHARS:
        return Said(f"{result.name} says: {text.strip()}")
    if len(lines) <= _SHORT_LINES and len(text) <= _SHORT_CHARS:
        fence = "```" if "```" not in text else "````"
        return Said(f"{result.name} gave {len(lines)} lines:\n\n{fence}text\n{text}\n{fence}")
    return await _saying(await _examined(Paper(f"The result of {result.name}", text=text), desk), question, alone=True)


# ── words alone ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _introduction(turn: Turn) -> str:
    if not turn.words or _ASKS_ME.search(turn.words):
        return f"{WHO} {CAN}"
    terms = [f"“{word}”" for word in list(question_terms(turn.words).values())[:4]]
    topic = f" about {listed(terms)}" if terms else ""
    names = list(dict.fromkeys(thing.name for thing in turn.earlier))
    if names:
        return f"{WHO} I cannot say anything{topic}, but you can ask about {listed(names[-4:])}."
    return f"{WHO} So I cannot say anything{topic}: attach a picture or a document, and I will tell you what is in it."
