"""Which sentences of a document answer a question: those that share its words, quoted word for word with their page."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from loom.content.blocks import Citation, page_label
from loom.providers.spark.answer_parts import TextBuilder, TextPart
from loom.providers.spark.sentences import (
    Readable,
    Sentence,
    question_terms,
    shorten,
    terms_of,
    words_of,
)

QUOTES: Final = 3
RUNS_LISTED: Final = 12
HEADINGS_LISTED: Final = 10
_CLOSE: Final = 0.5
"""What shares less than half of what the best one shares is not quoted beside it."""
_OPENING_WEIGHT: Final = 2.0
_SMALL_PRINT: Final = re.compile(r"\b(?:copyright|permission is granted|all rights reserved|isbn)\b", re.IGNORECASE)
_TELLS: Final = re.compile(
    r"\b(?:th(?:is|e present) (?:document|manual|paper|report|guide|article|specification|book|leaflet)|"
    r"we (?:present|describe|show|propose)|in (?:short|summary|conclusion))\b",
    re.IGNORECASE,
)
_ASKS_PAGES: Final = re.compile(
    r"\b(?:which|what|any|list|on what)\s+(?:\w+\s+)?(?:pages?|slides?|sheets?)\b|\bwhere\b", re.IGNORECASE
)
_ASKS_OUTLINE: Final = re.compile(
    r"\b(?:outline|headings?|structure|chapters?|sections?|table of contents)\b", re.IGNORECASE
)


class QuotedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it is cited. `shown` names the part of it that there was to read, where it was not all; `note`
    says what else there is to know."""

    name: str
    text: Readable
    digest: str = ""
    shown: str = ""
    note: str = ""


def about(source: QuotedDocument, question: str) -> TextPart:
    """What a document says to a question, or what it is about where there is none."""
    draft = TextBuilder()
    terms = _terms(question, source.name)
    found = [sentence for sentence in source.text.sentences if sentence.terms & terms.keys()]
    titled = [heading for heading in source.text.headings if terms_of(heading[0]) & terms.keys()]
    if not source.text.sentences and not source.text.headings:
        draft.add(f"{_size(source)} There is no text in it that I could read.")
    elif terms and (found or titled) and _ASKS_PAGES.search(question):
        _pages(draft, source, terms, found)
    elif terms and found:
        draft.add(f"{_size(source)} Closest to your question:\n\n")
        _bullets(draft, source, _best(found, terms, source.text.sentences))
    else:
        _summary(draft, source, question, terms)
    if source.text.is_cut:
        draft.add("\n\nIt is very long: I stopped reading after two million characters.")
    return draft.build()


def cite(source: QuotedDocument, question: str) -> TextPart:
    """One quote, whatever the question."""
    terms = _terms(question, source.name)
    found = [sentence for sentence in source.text.sentences if sentence.terms & terms.keys()]
    chosen = _best(found, terms, source.text.sentences, 1) or _central(source.text.sentences)
    draft = TextBuilder()
    if not chosen:
        draft.add(f"There is no sentence in {source.name} that I could quote.")
        return draft.build()
    draft.add(f"{source.name} says: ")
    draft.quote(_citation(source, chosen[0]))
    draft.add(_on_page(source, chosen[0].page))
    return draft.build()


def shares_words(source: QuotedDocument, question: str) -> bool:
    terms = _terms(question, source.name).keys()
    return any(sentence.terms & terms for sentence in source.text.sentences)


def lookup_summary(source: QuotedDocument, question: str) -> str:
    """What was looked at, for the record of thinking."""
    terms = _terms(question, source.name)
    count = len(source.text.sentences)
    scored = f"scored {count} sentences" if count != 1 else "scored one sentence"
    by = (
        f"by the words they share with the question: {', '.join(terms.values())}"
        if terms
        else "by how common their words are"
    )
    return f"{source.name}: found {len(source.text.headings)} headings, {scored} {by}."


# ── kinds of answers ─────────────────────────────────────────────────────────────────────────────────────────────────


def _pages(draft: TextBuilder, source: QuotedDocument, terms: dict[str, str], found: Sequence[Sentence]) -> None:
    """`Pages 3 and 14 mention “timeout”:` and a quote from each."""
    by_page: dict[int | None, set[str]] = {}
    places: list[tuple[int | None, frozenset[str]]] = [(sentence.page, sentence.terms) for sentence in found]
    places += [(page, terms_of(heading)) for heading, page in source.text.headings]
    for page, words in places:
        if hit := words & terms.keys():
            by_page.setdefault(page, set()).update(hit)
    most = max(len(hit) for hit in by_page.values())
    pages = sorted(page for page, hit in by_page.items() if len(hit) == most and page is not None)
    said = [_surface(source, term) or terms[term] for term in terms if any(term in hit for hit in by_page.values())]
    words = (
        f"“{said[0]}”" if len(said) == 1 else f"{'all of ' if most == len(terms) else 'most of '}{_quote_words(said)}"
    )
    if not pages:
        draft.add(f"{source.name} has no pages, and mentions {words}:\n\n")
        _bullets(draft, source, _best(found, terms, source.text.sentences))
        return
    unit = source.text.unit
    verb = "mentions" if len(pages) == 1 else "mention"
    draft.add(
        f"{unit.capitalize()}{'' if len(pages) == 1 else 's'} {_numbers(pages)} of {source.name} {verb} {words}:\n\n"
    )
    every = source.text.sentences
    quotes = [_best([one for one in found if one.page == page], terms, every, 1) for page in pages[: QUOTES + 1]]
    _bullets(draft, source, [sentence for quote in quotes for sentence in quote])


def _summary(draft: TextBuilder, source: QuotedDocument, question: str, terms: dict[str, str]) -> None:
    draft.add(_size(source))
    if terms:
        draft.add(f" I found nothing about {_quote_words(list(terms.values())[:4])} in it.")
    headings = [heading for heading, _ in source.text.headings]
    if headings:
        shown = headings if _ASKS_OUTLINE.search(question) else headings[:HEADINGS_LISTED]
        more = f" · and {len(headings) - len(shown)} more" if len(shown) < len(headings) else ""
        draft.add(f"\n\nIts headings: {' · '.join(shown)}{more}.")
    central = _central(source.text.sentences)
    if central:
        draft.add("\n\nIn its own words:\n\n")
        _bullets(draft, source, central)


def _bullets(draft: TextBuilder, source: QuotedDocument, sentences: Iterable[Sentence]) -> None:
    for at, sentence in enumerate(sentences):
        draft.add("\n- " if at else "- ")
        draft.quote(_citation(source, sentence))
        draft.add(_on_page(source, sentence.page))


def _citation(source: QuotedDocument, sentence: Sentence) -> Citation:
    quote = shorten(sentence.text)
    if sentence.page is None:
        return Citation(quote=quote, title=source.name, digest=source.digest)
    return Citation(
        quote=quote,
        title=source.name,
        digest=source.digest,
        locator="page",
        first=sentence.page,
        last=sentence.page,
    )


def _on_page(source: QuotedDocument, page: int | None) -> str:
    return "" if page is None else f" ({source.text.unit} {page})"


def _size(source: QuotedDocument) -> str:
    text = source.text
    if not text.pages:
        words = "1 word" if text.words == 1 else f"{text.words:,} words"
        return f"{source.name} has {words}."
    count = len(text.pages)
    has = f"{source.name} has {count} {text.unit}{'' if count == 1 else 's'}."
    if source.shown:
        has = f"I was shown {text.unit}s {source.shown} of {source.name}."
    blank = [page for page in text.blank_pages if page in text.pages]
    if blank and len(blank) < count:
        which = f"{text.unit.capitalize()}{'' if len(blank) == 1 else 's'} {_numbers(blank)}"
        has += f" {which} {'has' if len(blank) == 1 else 'have'} no text."
    return f"{has} {source.note}".strip()


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _terms(question: str, name: str) -> dict[str, str]:
    """Reduced word → as it was written; the document's own name is no part of the question."""
    named = terms_of(name)
    return {stem: word for stem, word in question_terms(question).items() if stem not in named}


def _best(
    found: Sequence[Sentence], terms: dict[str, str], every: Sequence[Sentence], count: int = QUOTES
) -> list[Sentence]:
    """The few that share most of the rarest words, in the order of the document."""
    counts = Counter(term for sentence in every for term in sentence.terms & terms.keys())
    weight = {term: math.log(1 + len(every) / seen) for term, seen in counts.items()}
    scored = [
        (sum(weight[term] for term in sentence.terms & terms.keys()) * _fit(sentence), -at, sentence)
        for at, sentence in enumerate(_distinct(found))
    ]
    ranked = sorted(scored, key=lambda item: item[:2], reverse=True)[:count]
    close = [item for item in ranked if item[0] >= _CLOSE * ranked[0][0]]
    return [sentence for _, _, sentence in sorted(close, key=lambda item: -item[1])]


def _central(sentences: Sequence[Sentence]) -> list[Sentence]:
    """The few whose words are the most common in the document; its opening, and where it speaks of itself, say more.
    Of a table, the first rows."""
    if sum(" | " in sentence.text for sentence in sentences) * 2 > len(sentences):
        return list(sentences[:QUOTES])
    counts = Counter(term for sentence in sentences for term in sentence.terms)
    whole = [sentence for sentence in _distinct(sentences) if len(sentence.terms) >= 3] or list(_distinct(sentences))
    opening = max(3, len(whole) // 8)

    def weight(at: int, sentence: Sentence) -> float:
        common = sum(math.log(1 + counts[term]) for term in sentence.terms) / (len(sentence.terms) + 3)
        tells = _OPENING_WEIGHT if _TELLS.search(sentence.text) else 1.0
        return common * tells * _fit(sentence) * (_OPENING_WEIGHT if at < opening else 1.0)

    ranked = sorted(enumerate(whole), key=lambda item: (-weight(*item), item[0]))
    return [sentence for _, sentence in sorted(ranked[:QUOTES])]


def _distinct(sentences: Iterable[Sentence]) -> list[Sentence]:
    return list({sentence.text: sentence for sentence in reversed(list(sentences))}.values())[::-1]


def _fit(sentence: Sentence) -> float:
    """Sentences are quoted rather than fragments and rather than rows of a table."""
    length = len(sentence.text)
    if _SMALL_PRINT.search(sentence.text):
        return 0.2
    whole = 1.0 if sentence.text.endswith((".", "!", "?", "。", "…", "”", ")")) else 0.75
    return (
        whole * (0.5 if length < 25 else 0.8 if length > 400 else 1.0) * (0.6 if sentence.text.startswith("|") else 1.0)
    )


def _surface(source: QuotedDocument, term: str) -> str:
    """How the document itself writes a reduced word, most of the time."""
    texts = [sentence.text for sentence in source.text.sentences if term in sentence.terms]
    texts += [heading for heading, _ in source.text.headings]
    counts = Counter(word for text in texts[:200] for word in words_of(text) if term in terms_of(word))
    return min(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))[0] if counts else ""


def _quote_words(words: Sequence[str]) -> str:
    marked = [f"“{word}”" for word in words]
    return marked[0] if len(marked) == 1 else f"{', '.join(marked[:-1])} and {marked[-1]}"


def _numbers(pages: Sequence[int]) -> str:
    """`3`, `3 and 14`, `2, 4, 7-10 and 12`, in the words that a page range takes."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and page == runs[-1][-1] + 1:
            runs[-1].append(page)
        else:
            runs.append([page])
    texts: list[str] = []
    for run in runs:
        texts += [page_label(run[0], run[-1])] if len(run) > 2 else [str(page) for page in run]
    if len(texts) > RUNS_LISTED:
        texts = [*texts[:RUNS_LISTED], f"{len(texts) - RUNS_LISTED} more"]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
