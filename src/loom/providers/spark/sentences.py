"""A document's text as pages, headings and sentences, and words reduced to what can be compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

MAX_CHARS: Final = 2_000_000
"""More than a thousand pages; what lies behind is not looked at, and that is said."""
MAX_QUOTE_CHARS: Final = 320

_MARK: Final = re.compile(r"^\[(page|slide|sheet) (\d+)([^\]\n]*)\][^\n]*$", re.MULTILINE)
_LINE_NUMBER: Final = re.compile(r"^ {0,5}\d+\t", re.MULTILINE)
_NUMBERED: Final = re.compile(
    r"(?:\d+(?:\.\d+)+\.?|\d+\.|[IVX]+\.|[A-Z]\.|(?:Chapter|Section|Appendix|Part) \w+:?)\s+[A-ZÀ-ÞΑ-ΩА-Я]|"
    r"\d+ [A-Z][a-z]"
)
_CODE: Final = re.compile(r"[<>{}=$\\;|@^~]|::|__|://")
_NO_WORDS: Final = re.compile(r"\[[^\]]*\]|\|[\s|:-]*|```.*")
"""Marks of the reader, the line under a table's head, fences."""
_LEADERS: Final = re.compile(r"\s*(?:\.\s?){3,}\s*\d*\s*$")
_SENTENCE_END: Final = re.compile(
    r"(?:(?<=[.!?…])|(?<=[.!?…][\"”’)\]]))\s+(?=[\"“‘(\[]*[A-Z0-9À-ÞΑ-ΩА-Я])|(?<=[。！？])"
)
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|al|dr|mr|mrs|ms|prof|st|no|nr|fig|figs|eq|sec|ch|vol|pp?|ca|approx|inc|ltd|jr|"
    r"[A-Za-z]|\d{1,3})\.$",
    re.IGNORECASE,
)
_FEW_LINES: Final = 5
"""A page with no more than these has no lines to spare."""
_RUNNING_CHARS: Final = 70
_PAGE_NUMBER: Final = re.compile(r"^\d+\s+|\s+\d+$")
_LONGEST_ABBREVIATION: Final = 12
_WORD: Final = re.compile(r"[^\W_]+(?:['’_-][^\W_]+)*")
_DENSE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

_STOP_WORDS: Final = """
    a about above after again all also am an and any are as at be because been before being below between both but
    by can could did do does doing down during each else few for from further get give go had has have having he her
    here hers him his how however i if in into is it its itself just let like may me might more most much must my no
    nor not now of off on once one only or other our out over own per please put same say says she should show shows
    so some such tell than that the their them then there these they thing things this those through to too under
    until up upon us use used using very was we well were what when where which while who whom why will with within
    without would yes yet you your anything everything nothing something s t re ve ll d m isn doesn don
"""
_ASKING_WORDS: Final = """
    talk talks talking mention mentions mentioned page pages document documents pdf file files report text leaflet
    manual summary summarise summarize summarised outline heading headings describe description explain find search
    look read reading written write picture image photo screenshot question answer know want need quote cite content
    contents mean means meaning tldr short brief overview words main point points key attached attachment
    compare compared difference different differ wrong problem matter issue here
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
ASKING_WORDS: Final = frozenset(_ASKING_WORDS.split())


class Sentence(msgspec.Struct, frozen=True):
    """`page` is None where the text has no pages."""

    text: str
    page: int | None
    terms: frozenset[str]


class Readable(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was read. `unit` is what its parts are called: page, slide, sheet, or nothing."""

    unit: str
    pages: tuple[int, ...]
    blank_pages: tuple[int, ...]
    headings: tuple[tuple[str, int | None], ...]
    sentences: tuple[Sentence, ...]
    words: int
    is_cut: bool = False


def read_text(text: str, first_page: int = 1) -> Readable:
    """`first_page` is the number of the document's page that the text calls page 1."""
    is_cut = len(text) > MAX_CHARS
    text = text[:MAX_CHARS]
    parts = _parts(text, first_page - 1)
    running = _running_lines([body for _, _, body in parts])
    headings: list[tuple[str, int | None]] = []
    sentences: list[Sentence] = []
    for number, _, body in parts:
        for is_heading, words in _blocks(body, running):
            if is_heading:
                headings.append((words, number))
            else:
                sentences += [Sentence(said, number, terms_of(said)) for said in split_sentences(words)]
    pages = [(number, bool(body.strip())) for number, _, body in parts if number is not None]
    return Readable(
        unit=parts[0][1],
        pages=tuple(number for number, _ in pages),
        blank_pages=tuple(number for number, has_words in pages if not has_words),
        headings=_distinct(headings),
        sentences=tuple(sentence for sentence in sentences if sentence.text),
        words=len(_WORD.findall(_DENSE.sub(" x ", text))),
        is_cut=is_cut,
    )


def terms_of(text: str) -> frozenset[str]:
    """The words that carry meaning, reduced so that "timeouts" meets "timeout"."""
    return frozenset(stem for word in words_of(text) if (stem := _stem(word)) and word not in STOP_WORDS)


def question_terms(question: str) -> dict[str, str]:
    """What a question is about: reduced word → the word as it was written."""
    found: dict[str, str] = {}
    for word in words_of(question):
        if word not in STOP_WORDS and word not in ASKING_WORDS:
            found.setdefault(_stem(word), word)
    return found


def words_of(text: str) -> Iterator[str]:
    """Lower case; `proxy_read_timeout` gives itself and its parts; writing without spaces gives pairs of signs."""
    for match in _WORD.finditer(text.lower().replace("’", "'")):
        word = match[0].removesuffix("'s")
        if _DENSE.search(word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
            continue
        yield word
        if not word.isalnum():
            yield from (part for part in re.split(r"['_-]", word) if len(part) > 1)


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    if len(word) <= 3 or not word.isascii():
        return word
    for ending, instead, least in (("ies", "y", 3), ("sses", "ss", 3), ("ing", "", 4), ("ed", "", 4), ("es", "e", 3)):
        if word.endswith(ending) and len(word) - len(ending) >= least:
            return _stem_e(word[: -len(ending)] + instead)
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return _stem_e(word[:-1])
    return _stem_e(word)


def _stem_e(word: str) -> str:
    """ "times" and "time", "raising" and "raise" meet without their last e."""
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def split_sentences(text: str) -> list[str]:
    whole: list[str] = []
    pieces: list[str] = []
    for piece in _SENTENCE_END.split(" ".join(text.split())):
        pieces.append(piece.strip())
        if not _ABBREVIATION.search(piece[-_LONGEST_ABBREVIATION:]):
            whole.append(" ".join(pieces))
            pieces = []
    return [sentence for sentence in (*whole, " ".join(pieces)) if sentence]


def shorten(sentence: str) -> str:
    """A quote that can be read at a glance, cut at a word's end."""
    if len(sentence) <= MAX_QUOTE_CHARS:
        return sentence
    cut = sentence.rfind(" ", MAX_QUOTE_CHARS // 2, MAX_QUOTE_CHARS)
    return sentence[: cut if cut > 0 else MAX_QUOTE_CHARS].rstrip(" ,;:-–")


def _distinct(headings: Sequence[tuple[str, int | None]]) -> tuple[tuple[str, int | None], ...]:
    """A heading that runs along the top of its pages counts once."""
    first: dict[str, tuple[str, int | None]] = {}
    for words, page in headings:
        first.setdefault(re.sub(r"\d+$", "", words.lower()).strip(), (words, page))
    return tuple(first.values())


# ── lines ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parts(text: str, before: int) -> list[tuple[int | None, str, str]]:
    """(page, unit, words) by the marks that reading a document leaves; one part without a page where there are none."""
    marks = list(_MARK.finditer(text))
    if not marks:
        return [(None, "", _LINE_NUMBER.sub("", text))]
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    parts: list[tuple[int | None, str, str]] = [
        (int(mark[2]) + before, mark[1], text[mark.end() : end]) for mark, end in zip(marks, ends, strict=True)
    ]
    head = text[: marks[0].start()]
    return [(None, marks[0][1], head), *parts] if head.strip() else parts


def _running_lines(bodies: Sequence[str]) -> frozenset[str]:
    """Lines that stand once at the top or the foot of many pages: they say nothing about any one of them."""
    if len(bodies) < 4:
        return frozenset()
    seen: Counter[str] = Counter()
    for body in bodies:
        lines = [line.strip() for line in body.strip().splitlines()]
        edges = (*lines[:2], *lines[-2:]) if len(lines) > _FEW_LINES else ()
        seen.update(
            {_drop_page_number(line) for line in edges if 0 < len(line) <= _RUNNING_CHARS and lines.count(line) == 1}
        )
    return frozenset(line for line, count in seen.items() if count >= max(3, len(bodies) // 3))


def _drop_page_number(line: str) -> str:
    """A line without the page number before or behind it."""
    return _PAGE_NUMBER.sub("", line)


def _blocks(body: str, running: frozenset[str]) -> Iterator[tuple[bool, str]]:
    """Headings and paragraphs: lines that a page's width broke are joined, rows and list items stand alone."""
    paragraph: list[str] = []
    lines = [line.strip() for line in body.splitlines()]
    for line, following in zip(lines, _following(lines), strict=True):
        if line.isdecimal() or (running and _drop_page_number(line) in running):
            continue
        heading = _heading(line, following, fresh=not paragraph or paragraph[-1].endswith((".", "!", "?", ":", "。")))
        alone = bool(heading) or not line or line.startswith(("|", "- ", "* ", "• ", "[", "```")) or " | " in line
        if alone and paragraph:
            yield False, " ".join(paragraph)
            paragraph = []
        if heading:
            yield True, heading
        elif alone:
            if line and not _NO_WORDS.fullmatch(line):
                yield False, line
        else:
            paragraph.append(_LEADERS.sub("", line))
    if paragraph:
        yield False, " ".join(paragraph)


def _following(lines: Sequence[str]) -> list[str]:
    """For each line the next one that is not empty."""
    found: list[str] = []
    later = ""
    for line in reversed(lines):
        found.append(later)
        later = line or later
    return found[::-1]


def _heading(line: str, following: str, *, fresh: bool) -> str:
    """The words of a heading, or nothing. `fresh`: no sentence is still open above."""
    if line.startswith("#"):
        return line.lstrip("# ").strip()
    words = line.split()
    letters = [sign for sign in line if sign.isalpha()]
    if not 3 <= len(line) <= 80 or len(words) > 10 or len(letters) < 3 or _LEADERS.search(line) or _CODE.search(line):
        return ""
    if line.endswith((".", ",", ";", ":", "!")) or line.startswith(("-", "[", "•", "*", "“")) or line[0].islower():
        return ""
    if _NUMBERED.match(line):
        return line if fresh or line[0].isdigit() else ""
    if not fresh:
        return ""
    if all(sign.isupper() for sign in letters):
        return line if len(words) > 1 or len(letters) >= 8 else ""
    title = len(words) <= 6 and len(line) <= 50 and len(following) >= max(40, len(line)) and following[0].isupper()
    return line if title else ""
