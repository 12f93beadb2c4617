"""Find the sentences of a document, or rows of a table, that share the most words with a question, and quote them."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from loom.content.blocks import Citation
from loom.providers.spark.answer_parts import TextPart

MAX_CHARS: Final = 2_000_000
_MAX_QUOTE_CHARS: Final = 320
_QUOTES: Final = 3
_LISTED: Final = 12
_MARK: Final = re.compile(r"^\[(page|slide|sheet) (\d+)[^\]\n]*\][^\n]*$", re.MULTILINE)
_LINE_NUMBER: Final = re.compile(r"^ {0,5}\d+\t", re.MULTILINE)
_HEADING: Final = re.compile(r"^(#+ .*)$", re.MULTILINE)
_SENTENCE_END: Final = re.compile(
    r"\n\s*\n|\n(?=\s*[|#•*-])|\n(?=[^\n]* \| )|(?<=[.!?…。])[\"”’)\]]*\s+(?=[\"“‘(\[]*[A-Z0-9À-ÞΑ-ΩА-Я])"
)
_WORD: Final = re.compile(r"\w[\w'-]*")
_ASKS_PAGES: Final = re.compile(r"\b(?:which|what)\s+(?:\w+\s+)?(?:pages?|slides?|sheets?)\b|\bwhere\b", re.IGNORECASE)
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
    """A sentence or a table row. `page` is None if the text has no pages."""

    text: str
    page: int | None
    terms: frozenset[str]


class QuotedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document split into sentences. `size` is a sentence about its length; `unit` is `page`, `slide`, `sheet` or
    empty; `facts` describe a table."""

    name: str
    sentences: tuple[Sentence, ...]
    size: str
    unit: str = ""
    facts: str = ""
    digest: str = ""


def read_document(name: str, text: str, *, first_page: int = 1, pages: str = "", digest: str = "") -> QuotedDocument:
    """Split a text into sentences by page. `first_page` is the real number of the text's page 1; `pages` names the part
    that was shown, if not all."""
    text = text[:MAX_CHARS]
    if name.lower().endswith((".csv", ".tsv")) and (table := _read_table(name, text)):
        return table
    marks = list(_MARK.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    parts: list[tuple[int | None, str]] = [(None, _LINE_NUMBER.sub("", text))]
    if marks:
        parts = [(int(m[2]) + first_page - 1, text[m.end() : end]) for m, end in zip(marks, ends, strict=True)]
    unit = marks[0][1] if marks else ""
    size = f"{name} has {_count(len(marks), unit) if marks else _count(len(_WORD.findall(text)), 'word')}."
    return QuotedDocument(
        name=name,
        sentences=tuple(
            Sentence(sentence, page, terms_of(sentence))
            for page, body in parts
            for found in _SENTENCE_END.split(_HEADING.sub(r"\n\1\n\n", body))
            if any(map(str.isalpha, sentence := " ".join(found.split()).lstrip("#•*- ")))
        ),
        size=f"I was shown {unit or 'page'}s {pages} of {name}." if pages else size,
        unit=unit,
        digest=digest,
    )


def answer_from(document: QuotedDocument, question: str) -> TextPart:
    """Answer a question with quotes of a document; without a question, describe the document."""
    terms = question_terms(question, document.name)
    found = _best_sentences(document.sentences, terms)
    if found and document.unit and _ASKS_PAGES.search(question):
        most = max(len(one.terms & terms.keys()) for one in document.sentences)
        exact = [one for one in document.sentences if len(one.terms & terms.keys()) == most]
        pages = list(dict.fromkeys(one.page for one in exact))
        words = _join(f"“{word}”" for stem, word in terms.items() if any(stem in one.terms for one in exact))
        which = f"{document.unit.capitalize()}{'s' if pages[1:] else ''} {_join(map(str, pages))}"
        quotes = [_best_sentences([one for one in exact if one.page == page], terms)[0] for page in pages[:_QUOTES]]
        return _quote(f"{which} of {document.name} mention{'' if pages[1:] else 's'} {words}:", document, quotes)
    if found:
        return _quote(f"{document.size} Closest to your question:", document, found)
    if document.facts:
        return TextPart(f"{document.size}\n\n{document.facts}")
    if not document.sentences:
        return TextPart(f"{document.size} There is no text in it that I could read.")
    missing = f" I found nothing about {_join(f'“{word}”' for word in terms.values())} in it." if terms else ""
    return _quote(f"{document.size}{missing} It begins:", document, document.sentences[:_QUOTES])


def cite(document: QuotedDocument, question: str) -> TextPart:
    """Return one quote of a document, which must have sentences, even if none matches the question."""
    chosen = _best_sentences(document.sentences, question_terms(question, document.name)) or document.sentences
    return _quote(f"{document.name} says:", document, chosen[:1])


def terms_of(text: str) -> frozenset[str]:
    """Return the stems of the words of a text, without stop words: "timeouts" and "timeout" have the same stem."""
    words = _WORD.findall(text.lower())
    parts = [part for word in words for part in re.split(r"[_'-]", word) if len(part) > 1]
    return frozenset(_stem(word) for word in (*words, *parts) if word not in _STOP_WORDS)


def question_terms(question: str, name: str = "") -> dict[str, str]:
    """Return the words of a question by their stems, without stop words and the words of the document's name."""
    named = terms_of(name)
    found = {_stem(word): word for word in _WORD.findall(question.lower()) if word not in _STOP_WORDS}
    return {stem: word for stem, word in found.items() if stem not in named}


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)].removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word


def _best_sentences(sentences: Sequence[Sentence], terms: dict[str, str]) -> list[Sentence]:
    """Return the few sentences that share the most and rarest words, in the order of the document."""
    counts = Counter(term for sentence in sentences for term in sentence.terms & terms.keys())
    distinct = {one.text: (at, one) for at, one in reversed(list(enumerate(sentences))) if one.terms & terms.keys()}
    scored = [
        (sum(math.log(1 + len(sentences) / counts[term]) for term in one.terms & terms.keys()), at, one)
        for at, one in distinct.values()
    ]
    ranked = sorted(scored, key=lambda item: (-item[0], item[1]))[:_QUOTES]
    close = [item for item in ranked if item[0] >= ranked[0][0] / 2]
    return [one for _, _, one in sorted(close, key=lambda item: item[1])]


def _quote(opening: str, document: QuotedDocument, sentences: Sequence[Sentence]) -> TextPart:
    """Return the opening and one line for each sentence, with a citation at the position of each quote."""
    text, citations = f"{opening}\n", list[Citation]()
    for sentence in sentences:
        quote = sentence.text[:_MAX_QUOTE_CHARS].rstrip(" ,;:-–")
        text += "\n- “"
        citation = Citation(
            quote=quote,
            title=document.name,
            digest=document.digest,
            start=len(text),
            end=len(text) + len(quote),
            locator="" if sentence.page is None else "page",
            first=sentence.page,
            last=sentence.page,
        )
        citations.append(citation)
        text += f"{quote}”" + ("" if sentence.page is None else f" ({document.unit} {sentence.page})")
    return TextPart(text, tuple(citations))


def _read_table(name: str, text: str) -> QuotedDocument | None:
    """Return the rows of a CSV file as sentences, with facts about its columns; None if it is not a table."""
    delimiter = max(",;\t|", key=text.partition("\n")[0].count)
    header, *rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if row] or [[]]
    if not rows or len(header) < 2:
        return None
    facts: list[str] = []
    for at, column in enumerate(header):
        cells = [row[at].strip() for row in rows if at < len(row)]
        filled = Counter(cell for cell in cells if cell)
        try:
            numbers = [float(cell) for cell in filled.elements()]
            total = sum(numbers)
            low, high, mean, total = (
                f"{round(value, 3):,.15g}" for value in (min(numbers), max(numbers), total / len(numbers), total)
            )
            fact = f"numbers from {low} to {high}, mean {mean}, sum {total}"
        except (ValueError, ZeroDivisionError):
            value, times = next(iter(filled.most_common(1)), ("", 0))
            often = f", most often “{value}” ({times}×)" if times > 1 else ""
            fact = f"text, {_count(len(filled), 'different value')}{often}"
        empty = f", {len(cells) - filled.total()} empty" if filled.total() < len(cells) else ""
        facts.append(f"- {column}: {fact if filled else 'empty'}{empty if filled else ''}")
    return QuotedDocument(
        name=name,
        sentences=tuple(Sentence(" | ".join(row), None, terms_of(" ".join(row))) for row in rows),
        size=f"{name} has {_count(len(header), 'column')} and {_count(len(rows), 'row')}.",
        facts="\n".join(facts),
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _join(words: Iterable[str]) -> str:
    found = list(words)
    if len(found) > _LISTED:
        found = [*found[:_LISTED], f"{len(found) - _LISTED} more"]
    return " and ".join([", ".join(found[:-1]), found[-1]] if found[1:] else found)
