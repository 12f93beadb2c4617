"""Which sentences of a document, or rows of a table, answer a question: those that share its words, quoted exactly."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from loom.content.blocks import Citation, page_label
from loom.providers.spark.answer_parts import TextPart

MAX_CHARS: Final = 2_000_000
_MAX_QUOTE_CHARS: Final = 320
_QUOTES: Final = 3
_ROWS: Final = 5
_PAGES_LISTED: Final = 12
_MARK: Final = re.compile(r"^\[(page|slide|sheet) (\d+)[^\]\n]*\][^\n]*$", re.MULTILINE)
_LINE_NUMBER: Final = re.compile(r"^ {0,5}\d+\t", re.MULTILINE)
_HEADING: Final = re.compile(r"^(#+ .*)$", re.MULTILINE)
_PARAGRAPH_END: Final = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[|#•*-]|\d+[.)]) )|(?<=\|)\n|\n(?=[^\n]* \| )")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?…。])[\"”’)\]]*\s+(?=[\"“‘(\[]*[A-Z0-9À-ÞΑ-ΩА-Я])|(?<=[。！？])")
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w[\w'-]*")
_ASKS_PAGES: Final = re.compile(r"\b(?:which|what)\s+(?:\w+\s+)?(?:pages?|slides?|sheets?)\b|\bwhere\b", re.IGNORECASE)
_TABLE_NAME: Final = re.compile(r".*\.(?:csv|tsv)$", re.IGNORECASE)
_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """a about again all also an and any are as at be been but by can could did do does for from get give had has
        have how i if in into is it its just like me more most my no not now of on one or other our out page pages
        document file picture image please read say says show so some summarise summarize summary tell than that the
        their them then there these they this those through to up us was we were what when where which while who why
        will with would you your mention mentions here explain describe""",
    )
)


class Sentence(msgspec.Struct, frozen=True):
    """`page` is None if the text has no pages."""

    text: str
    page: int | None
    terms: frozenset[str]


class QuotedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """`unit` names its parts: page, slide, sheet, or nothing. `shown` is the part that was there to read, if not all of
    it. `rows` are the cells of a CSV, header first."""

    name: str
    sentences: tuple[Sentence, ...]
    words: int
    unit: str = ""
    pages: tuple[int, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    digest: str = ""
    shown: str = ""
    note: str = ""


def read_document(name: str, text: str, *, first_page: int = 1, shown: str = "", digest: str = "") -> QuotedDocument:
    """Split a text into sentences by page. `first_page` is the number of the page that the text calls page 1."""
    text = text[:MAX_CHARS]
    rows = _csv_rows(text) if _TABLE_NAME.fullmatch(name) else ()
    marks = list(_MARK.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    bodies = [(int(m[2]) + first_page - 1, text[m.end() : end]) for m, end in zip(marks, ends, strict=bool(marks))]
    parts: list[tuple[int | None, str]] = [*bodies] if marks else [(None, _LINE_NUMBER.sub("", text))]
    return QuotedDocument(
        name=name,
        sentences=tuple(Sentence(said, page, terms_of(said)) for page, body in parts for said in _sentences(body)),
        words=len(_WORD.findall(text)),
        unit=marks[0][1] if marks else "",
        pages=tuple(page for page, _ in bodies),
        rows=rows,
        digest=digest,
        shown=shown,
    )


def answer_from(document: QuotedDocument, question: str) -> TextPart:
    """Return what a document says to a question, or what it is if there is no question."""
    terms = question_terms(question, document.name)
    if document.rows:
        return TextPart(_table_answer(document, terms))
    found = _best(document.sentences, terms)
    if not document.sentences:
        return TextPart(f"{_size(document)} There is no text in it that I could read.")
    if found and document.pages and _ASKS_PAGES.search(question):
        best = max(len(one.terms & terms.keys()) for one in document.sentences)
        exact = [one for one in document.sentences if len(one.terms & terms.keys()) == best]
        pages = list(dict.fromkeys(one.page for one in exact if one.page is not None))
        quotes = [_best([one for one in exact if one.page == page], terms)[0] for page in pages[:_QUOTES]]
        words = _join(f"“{word}”" for stem, word in terms.items() if any(stem in one.terms for one in exact))
        plural = "" if len(pages) == 1 else "s"
        opening = f"{document.unit.capitalize()}{plural} {_numbers(pages)} of {document.name} mention"
        return _quoted(f"{opening}{'s' if not plural else ''} {words}:", document, quotes)
    if found:
        return _quoted(f"{_size(document)} Closest to your question:", document, found)
    missing = f" I found nothing about {_join(f'“{word}”' for word in terms.values())} in it." if terms else ""
    return _quoted(f"{_size(document)}{missing} It begins:", document, document.sentences[:_QUOTES])


def cite(document: QuotedDocument, question: str) -> TextPart:
    """Return one quote, whatever the question."""
    chosen = _best(document.sentences, question_terms(question, document.name)) or list(document.sentences)
    if not chosen:
        return TextPart(f"There is no sentence in {document.name} that I could quote.")
    return _quoted(f"{document.name} says:", document, chosen[:1])


def shares_words(document: QuotedDocument, question: str) -> bool:
    terms = question_terms(question, document.name).keys()
    return any(sentence.terms & terms for sentence in document.sentences)


def terms_of(text: str) -> frozenset[str]:
    """Return the words that carry meaning, reduced so that "timeouts" equals "timeout"."""
    words = _WORD.findall(text.lower())
    parts = [part for word in words for part in re.split(r"[_'-]", word) if len(part) > 1]
    return frozenset(_stem(word) for word in (*words, *parts) if word not in _STOP_WORDS)


def question_terms(question: str, name: str = "") -> dict[str, str]:
    """Return reduced word → word as it was written. The name of the document is not part of the question."""
    named = terms_of(name)
    found = {_stem(word): word for word in _WORD.findall(question.lower()) if word not in _STOP_WORDS}
    return {stem: word for stem, word in found.items() if stem not in named}


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)].removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word


def _sentences(body: str) -> Iterator[str]:
    body = _HEADING.sub(r"\n\1\n\n", body)
    for paragraph in _PARAGRAPH_END.split(body):
        for sentence in _SENTENCE_END.split(" ".join(paragraph.split()).lstrip("#•*- ")):
            if any(map(str.isalpha, sentence)):
                yield sentence.strip()


def _best(sentences: Sequence[Sentence], terms: dict[str, str]) -> list[Sentence]:
    """Return the few that share most of the rarest words, in the order of the document."""
    counts = Counter(term for sentence in sentences for term in sentence.terms & terms.keys())
    distinct = {one.text: (at, one) for at, one in reversed(list(enumerate(sentences))) if one.terms & terms.keys()}
    scored = [
        (sum(math.log(1 + len(sentences) / counts[term]) for term in one.terms & terms.keys()), at, one)
        for at, one in distinct.values()
    ]
    ranked = sorted(scored, key=lambda item: (-item[0], item[1]))[:_QUOTES]
    close = [item for item in ranked if item[0] >= ranked[0][0] / 2]
    return [one for _, _, one in sorted(close, key=lambda item: item[1])]


def _quoted(opening: str, document: QuotedDocument, sentences: Sequence[Sentence]) -> TextPart:
    """Return the opening and one line for each sentence, with citations that know where their quotes stand."""
    text, citations = opening, list[Citation]()
    for sentence in sentences:
        quote = sentence.text[:_MAX_QUOTE_CHARS].rstrip(" ,;:-–")
        text += "\n\n- “" if text == opening else "\n- “"
        where = {} if sentence.page is None else {"locator": "page", "first": sentence.page, "last": sentence.page}
        citations.append(
            msgspec.convert(
                {
                    "quote": quote,
                    "title": document.name,
                    "digest": document.digest,
                    "start": len(text),
                    "end": len(text) + len(quote),
                    **where,
                },
                Citation,
            )
        )
        text += f"{quote}”" + ("" if sentence.page is None else f" ({document.unit} {sentence.page})")
    return TextPart(text, tuple(citations))


def _size(document: QuotedDocument) -> str:
    if document.shown:
        has = f"I was shown {document.unit or 'page'}s {document.shown} of {document.name}."
    elif document.pages:
        count = len(document.pages)
        has = f"{document.name} has {count} {document.unit}{'' if count == 1 else 's'}."
    else:
        has = f"{document.name} has {document.words:,} word{'' if document.words == 1 else 's'}."
    return f"{has} {document.note}".strip()


def _csv_rows(text: str) -> tuple[tuple[str, ...], ...]:
    first = text.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    rows = [tuple(cell.strip() for cell in row) for row in csv.reader(text.splitlines(), delimiter=delimiter) if row]
    return tuple(rows) if len(rows) > 1 and len(rows[0]) > 1 else ()


def _table_answer(document: QuotedDocument, terms: dict[str, str]) -> str:
    """Return columns, rows and a few facts of each column, or the rows that share words with the question."""
    header, *rows = document.rows
    size = f"{document.name} has {len(header)} columns and {len(rows):,} row{'' if len(rows) == 1 else 's'}"
    matching = [row for row in rows if terms_of(" ".join(row)) & terms.keys()]
    if matching:
        words = _join(
            f"“{word}”" for stem, word in terms.items() if any(stem in terms_of(" ".join(r)) for r in matching)
        )
        return f"{size}; {len(matching):,} with {words}:\n\n{_markdown_table(header, matching[:_ROWS])}"
    facts = "\n".join(
        f"- {name}: {_column_facts([row[at] for row in rows if at < len(row)])}" for at, name in enumerate(header)
    )
    return f"{size}:\n\n{facts}\n\nThe first rows:\n\n{_markdown_table(header, rows[:_ROWS])}"


def _column_facts(cells: Sequence[str]) -> str:
    filled = [cell for cell in cells if cell]
    empty = f", {len(cells) - len(filled)} empty" if len(filled) < len(cells) else ""
    try:
        numbers = [float(cell) for cell in filled]
    except ValueError:
        numbers = []
    if numbers and all(map(math.isfinite, numbers)):
        mean = sum(numbers) / len(numbers)
        return f"numbers from {min(numbers):g} to {max(numbers):g}, mean {mean:g}, sum {sum(numbers):g}{empty}"
    counts = Counter(filled)
    if not counts:
        return "empty"
    value, times = counts.most_common(1)[0]
    common = f", most often “{value}” ({times}×)" if times > 1 else f", such as “{value}”"
    return f"text, {len(counts)} different value{'' if len(counts) == 1 else 's'}{common}{empty}"


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _join(words: Iterator[str]) -> str:
    found = list(words)[:4]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def _numbers(pages: Sequence[int]) -> str:
    """Return `3`, `3 and 14`, `2, 4, 7-10 and 12`."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and page == runs[-1][-1] + 1:
            runs[-1].append(page)
        else:
            runs.append([page])
    texts = [text for run in runs for text in ([page_label(run[0], run[-1])] if len(run) > 2 else map(str, run))]
    if len(texts) > _PAGES_LISTED:
        texts = [*texts[:_PAGES_LISTED], f"{len(texts) - _PAGES_LISTED} more"]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
