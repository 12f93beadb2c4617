"""Office files that are damaged at random: a text or a typed error comes out, never anything else."""

from __future__ import annotations

import contextlib
import io
import random
import zipfile
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.made_office import (
    DOCX,
    LIMITS,
    ODP,
    ODT,
    PPTX,
    WORD_NAMESPACES,
    XLSX,
    book,
    container,
    deck,
    oracle_docx,
    oracle_pptx,
    oracle_xlsx,
    slides,
    story,
    text_of,
    word,
)
from loom.content.media import Media, digest_of
from loom.content.recipes import EmbeddedImage
from loom.errors import MediaError
from loom.formats.office import inspect_office, render_office

SAMPLES: dict[str, tuple[Callable[[], bytes], str]] = {
    "python-docx": (lambda: oracle_docx().read_bytes(), DOCX),
    "LibreOffice docx": (lambda: story("docx"), DOCX),
    "python-pptx": (lambda: oracle_pptx().read_bytes(), PPTX),
    "LibreOffice pptx": (lambda: deck("pptx"), PPTX),
    "openpyxl": (lambda: oracle_xlsx().read_bytes(), XLSX),
    "LibreOffice xlsx": (lambda: book("xlsx"), XLSX),
    "LibreOffice odt": (lambda: story("odt"), ODT),
    "LibreOffice odp": (lambda: deck("odp"), ODP),
}
FUZZ = settings(
    max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
WORD_TAGS = (
    "w:p", "w:r", "w:t", "w:pPr", "w:rPr", "w:numPr", "w:numId", "w:ilvl", "w:pStyle", "w:tbl", "w:tr", "w:tc",
    "w:trPr", "w:gridSpan", "w:vMerge", "w:gridBefore", "w:del", "w:ins", "w:moveFrom", "w:hyperlink",
    "w:fldChar", "w:sym", "w:br", "w:tab", "w:txbxContent", "w:drawing", "wp:docPr", "a:blip", "c:chart", "dgm:relIds",
    "mc:AlternateContent", "mc:Choice", "mc:Fallback", "w:footnoteReference", "w:commentReference", "w:footnote",
    "w:comment", "w:sdt", "m:num", "m:t", "v:shape", "v:imagedata", "v:textpath", "w:headerReference",
    "w:sectPr", "w:outlineLvl",
)  # fmt: skip
SLIDE_TAGS = (
    "p:sp", "p:pic", "p:grpSp", "p:grpSpPr", "p:graphicFrame", "p:cNvPr", "p:ph", "a:p", "a:pPr", "a:buAutoNum",
    "a:buNone", "a:r", "a:rPr", "a:t", "a:br", "a:blip", "a:tbl", "a:tr", "a:tc", "c:chart", "dgm:relIds",
    "mc:AlternateContent", "mc:Choice", "mc:Fallback", "a:videoFile",
)  # fmt: skip
ATTRIBUTES = ("w:val", "w:id", "r:id", "r:embed", "r:dm", "w:fldCharType", "Requires", "lvl", "gridSpan")
VALUES = ("", "0", "1", "-1", "99999999999", "restart", "begin", "end", "separate", "p1", "wps", "&lt;")


def read(data: bytes, media_type: str) -> None:
    """Anything but a MediaError fails the test."""
    with contextlib.suppress(MediaError):
        found = inspect_office(data, media_type, "fuzzed", LIMITS)
        assert text_of(data, media_type)
        if found.pictures:
            media = Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data))
            render_office(data, media, EmbeddedImage(1), LIMITS)


def scarred(data: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, a piece cut out or doubled."""
    altered = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(altered)) if altered else 0
        size = min(chance.choice((1, 1, 2, 8, 64)), len(altered) - at)
        match chance.randrange(4):
            case 0:
                altered[at : at + size] = chance.randbytes(size)
            case 1:
                del altered[at : at + size]
            case 2:
                altered[at:at] = altered[at : at + size]
            case _:
                altered[at : at + size] = bytes(size)
    return bytes(altered)


def with_scarred_parts(data: bytes, chance: random.Random) -> bytes:
    """A sound container of which some parts are damaged or missing."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for name in chance.sample(sorted(parts), k=min(3, len(parts))):
        if chance.random() < 0.2:
            del parts[name]
        else:
            parts[name] = scarred(parts[name], chance)
    return container(parts)


@pytest.mark.parametrize("sample", SAMPLES)
@FUZZ
@given(seed=st.integers(0, 2**32))
def test_damaged_containers_are_read_or_refused(sample: str, seed: int) -> None:
    make, media_type = SAMPLES[sample]
    read(scarred(make(), random.Random(seed)), media_type)


@pytest.mark.parametrize("sample", SAMPLES)
@FUZZ
@given(seed=st.integers(0, 2**32))
def test_damaged_parts_in_sound_containers_are_read_or_refused(sample: str, seed: int) -> None:
    make, media_type = SAMPLES[sample]
    read(with_scarred_parts(make(), random.Random(seed)), media_type)


def nonsense(tags: tuple[str, ...], chance: random.Random, depth: int = 0) -> str:
    """Well-formed XML of known elements in places where they make no sense."""
    pieces: list[str] = []
    for _ in range(chance.randint(0, 5)):
        tag = chance.choice(tags)
        attribute = chance.choice(ATTRIBUTES)
        value = chance.choice(VALUES)
        inner = nonsense(tags, chance, depth + 1) if depth < 7 else ""
        pieces.append(f'<{tag} {attribute}="{value}">{chance.choice(("", "word", "&amp;|"))}{inner}</{tag}>')
    return "".join(pieces)


@settings(FUZZ, max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_known_elements_in_odd_places_are_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    xml = nonsense(WORD_TAGS, chance)
    notes = f"<w:footnotes {WORD_NAMESPACES}>{nonsense(WORD_TAGS, chance)}</w:footnotes>"
    looks = nonsense(("w:style", "w:name", "w:basedOn", "w:numPr", "w:numId"), chance)
    styles = f"<w:styles {WORD_NAMESPACES}>{looks}</w:styles>"
    relates = (("p1", "image", "document.xml"), ("f", "footnotes", "f.xml"), ("s", "styles", "s.xml"))
    read(word(xml, parts={"word/f.xml": notes, "word/s.xml": styles}, relates=relates), DOCX)
    read(word(f"<!-- uncut -->{xml}", relates=relates), DOCX)
    read(slides(nonsense(SLIDE_TAGS, chance), f"<!-- -->{nonsense(SLIDE_TAGS, chance)}"), PPTX)


def plain_nonsense(tags: tuple[str, ...], chance: random.Random, depth: int = 0) -> str:
    """As above, but words stand where office programs write them: alone inside an element of their own."""
    pieces: list[str] = []
    for _ in range(chance.randint(0, 5)):
        tag, quote = chance.choice(tags), chance.choice("\"'")
        head = f"{tag} {chance.choice(ATTRIBUTES)}={quote}{chance.choice(VALUES)}{quote}"
        if tag.endswith(":t"):
            inner = chance.choice(("", "word", "&amp;|", "gr\u00f6\u00dfe&#228;\r\nx"))
        else:
            inner = plain_nonsense(tags, chance, depth + 1) if depth < 6 else ""
        pieces.append(f"<{head}/>" if chance.random() < 0.2 else f"<{head}>{inner}</{tag}>")
    return "".join(pieces)


def outcome(data: bytes, media_type: str) -> str:
    try:
        return text_of(data, media_type)
    except MediaError as error:
        return error.code


@settings(FUZZ, max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_parts_that_are_scanned_give_what_the_parser_gives(seed: int) -> None:
    """A comment makes the reader leave a part to the parser."""
    chance = random.Random(seed)
    xml, relates = plain_nonsense(WORD_TAGS, chance), (("p1", "image", "document.xml"),)
    assert outcome(word(xml, relates=relates), DOCX) == outcome(word(f"<!-- -->{xml}", relates=relates), DOCX)
    shapes = plain_nonsense(SLIDE_TAGS, chance)
    assert outcome(slides(shapes), PPTX) == outcome(slides(f"<!-- -->{shapes}"), PPTX)
