"""Sentences about what can be seen in a picture, and about what separates two of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from loom.formats.image.describe_pixels import ImageDifference, PixelFacts
from loom.providers.spark.sentences import question_terms, terms_of

_FORMATS: Final = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/webp": "WebP",
    "image/gif": "GIF",
    "image/bmp": "BMP",
    "image/tiff": "TIFF",
    "image/avif": "AVIF",
    "image/heic": "HEIC",
    "image/x-icon": "icon file",
}
_ASKS_TROUBLE: Final = re.compile(r"\b(?:wrong|problem|error|fail|issue|matter|broken|trouble|bug)", re.IGNORECASE)
_TROUBLE: Final = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|warning|denied|invalid|refused|exception|traceback|fatal|timed? ?out|timeout|missing|"
    r"not found|cannot|could not|unable|forbidden|unauthori[sz]ed|unavailable|crash(?:ed)?|[45]\d\d)\b",
    re.IGNORECASE,
)
_NEARLY_ALL: Final = 0.9
MAX_READ_LINES: Final = 40
MAX_READ_CHARS: Final = 2_000


def describe_image(seen: PixelFacts) -> str:
    """`A bright landscape screenshot or diagram, 900×500 PNG. Mostly white (84%), navy (14%). …`"""
    size = f"{seen.width}×{seen.height} {_FORMATS.get(seen.media_type, seen.media_type)}"
    if seen.kind == "plain picture" and len(seen.palette) == 1:
        return f"A plain {seen.palette[0].name} picture, {size}. Nothing stands out in it."
    if seen.kind == "plain picture":
        first = f"A {seen.tone} {_shape(seen)} picture of soft colours without edges, {size}."
    else:
        first = f"A {seen.tone} {_shape(seen)} {seen.kind}, {size}."
    colours = ", ".join(f"{share.name} ({share.percent}%)" for share in seen.palette)
    return " ".join([first, f"Mostly {colours}.", *_accents(seen), *_rest(seen)])


def _shape(seen: PixelFacts) -> str:
    ratio = seen.width / seen.height
    if ratio > 3:
        return "very wide"
    if ratio < 1 / 3:
        return "very tall"
    return "square" if 0.95 <= ratio <= 1.05 else "landscape" if ratio > 1 else "portrait"


def _accents(seen: PixelFacts) -> list[str]:
    if not seen.accents:
        return []
    by_place: dict[str, list[str]] = {}
    for accent in seen.accents:
        by_place.setdefault(accent.place, []).append(accent.name)
    marked = [
        f"a little {join_words(names)} {f'in the {place}' if place else 'here and there'}"
        for place, names in by_place.items()
    ]
    words = " and ".join(marked)
    return [f"{words[0].upper()}{words[1:]} {'stands' if len(seen.accents) == 1 else 'stand'} out."]


def _rest(seen: PixelFacts) -> list[str]:
    said: list[str] = []
    if seen.kind not in ("plain picture", "icon"):
        said.append(f"Most detail is in the {seen.detail}." if seen.detail else "Its detail is spread evenly.")
    if seen.clear_percent:
        said.append(f"{seen.clear_percent}% of it is transparent.")
    if seen.frames > 1:
        said.append(f"It has {seen.frames} frames, and I looked at the first.")
    return said


def differences(found: ImageDifference, names: tuple[str, str]) -> str:
    """What separates the second from the first, in whole sentences."""
    first, second = found.first, found.second
    same_size = (first.width, first.height) == (second.width, second.height)
    if found.changed_percent == 0.0 and same_size:
        return f"{_initial(names[0])} and {names[1]} look the same: no pixel differs visibly."
    said: list[str] = []
    if not same_size:
        sizes = f"{first.width}×{first.height}", f"{second.width}×{second.height}"
        said.append(f"{_initial(names[0])} is {sizes[0]}, {names[1]} {sizes[1]}.")
    said.append(_difference_sentence(found))
    if first.tone != second.tone:
        said.append(f"{_initial(names[0])} is {first.tone}, {names[1]} {second.tone}.")
    if first.kind != second.kind:
        said.append(f"One is {_article(first.kind)}, the other {_article(second.kind)}.")
    if found.gained:
        said.append(f"Only {names[1]} has much {join_words(found.gained)}.")
    if found.lost:
        said.append(f"Only {names[0]} has much {join_words(found.lost)}.")
    return " ".join(said)


def _difference_sentence(found: ImageDifference) -> str:
    if found.changed_percent is None:
        return "Their shapes differ, so I did not lay one over the other."
    if found.changed_percent == 0.0:
        return "Apart from the size they look the same."
    share = f"{found.changed_percent:.0f}%" if found.changed_percent >= 10 else f"{found.changed_percent:.1f}%"
    if found.changed_percent < 0.05:
        share = "less than 0.1%"
    where = f", mostly in the {found.region}" if found.region else ""
    left, top, right, bottom = found.box or (0, 0, 0, 0)
    if (right - left) * (bottom - top) > _NEARLY_ALL * found.first.width * found.first.height:
        return f"They differ in {share} of the area, all over."
    return f"They differ in {share} of the area{where}, within ({left}, {top}) to ({right}, {bottom})."


def _initial(name: str) -> str:
    """A name at the beginning of a sentence: words get a capital, names of files stay as they are."""
    return f"T{name[1:]}" if name.startswith("the ") else name


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def join_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def read_aloud(text: str, question: str) -> str:
    """The words that were found in a picture; first the line that shares most with the question."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    if not lines:
        return "No text that I can read."
    kept: list[str] = []
    for line in lines[:MAX_READ_LINES]:
        if sum(map(len, kept)) + len(line) > MAX_READ_CHARS:
            break
        kept.append(line)
    more = f" · … and {len(lines) - len(kept)} more lines" if len(kept) < len(lines) else ""
    standout = _standout(lines, question)
    said = f"Text I can read: {' · '.join(kept)}{more}"
    return f"{said}\n\nThe line closest to your question: “{standout}”." if standout and len(lines) > 1 else said


def _standout(lines: Sequence[str], question: str) -> str:
    terms = question_terms(question)
    if _ASKS_TROUBLE.search(question):
        return next((line for line in lines if _TROUBLE.search(line)), "")
    scored = [(len(terms_of(line) & terms.keys()), -at, line) for at, line in enumerate(lines)]
    best = max(scored)
    return best[2] if best[0] else ""
