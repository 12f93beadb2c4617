"""Containers and XML from strangers: whatever they hold, a typed error or a text, soon, and in little memory."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.made_office import (
    DOCX,
    ODT,
    PPTX,
    WORD_NAMESPACES,
    XLSX,
    W,
    container,
    oracle_docx,
    oracle_pptx,
    oracle_xlsx,
    paragraph,
    relations,
    replaced,
    slides,
    text_of,
    word,
)
from loom.errors import TooLarge, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.office.archive import Archive

CHILD = """
import json, os, re, resource, sys
from pathlib import Path
from loom.content.media import Media, digest_of
from loom.content.recipes import Text
from loom.errors import MediaError
from loom.formats.facts import IntakeLimits
from loom.formats.office import inspect_office, render_office
from loom.formats.worker import current_pool

TICKS = os.sysconf("SC_CLK_TCK")

def worked(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS

def workers():
    # those of this process, and those that they have started themselves
    for pid in current_pool().pids():
        yield pid
        yield from map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())

def processor_seconds():
    ended = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in ended) + sum(map(worked, workers()))

def read(data, media_type):
    media = inspect_office(data, media_type, "sample", IntakeLimits()).media
    return render_office(data, media, Text(), IntakeLimits()).data.decode()

def peak():
    status = [Path(f"/proc/{pid}/status").read_text() for pid in (os.getpid(), *workers())]
    return sum(int(re.search(r"VmHWM:\\s+(\\d+)", lines)[1]) for lines in status) // 1024

tasks = json.loads(Path(sys.argv[1]).read_text())
for warm, media_type in json.loads(sys.argv[2]):  # the libraries are loaded, the worker runs
    read(Path(warm).read_bytes(), media_type)
idle = peak()
for path, media_type in tasks:
    data = Path(path).read_bytes()
    began = processor_seconds()
    try:
        outcome = "text: " + read(data, media_type)[:500]
    except MediaError as error:
        outcome = f"{error.code}: {error}"
    print(json.dumps([Path(path).name, outcome, processor_seconds() - began]))
print(json.dumps(["peak", peak() - idle, 0]))
"""
"""Inspects and reads every file, as an upload would; says what came out, how long processors worked for it (in this
process and its workers, which a busy machine does not change), and how far memory grew."""


class RawZip:
    """A container written byte by byte, so that its headers can lie."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._directory = bytearray()
        self._count = 0

    def add(
        self,
        name: str,
        packed: bytes,
        *,
        size: int | None = None,
        method: int = 8,
        flags: int = 0,
        crc: int = 0,
        at: int | None = None,
        directory_name: str | None = None,
    ) -> int:
        """Returns where the local header is; `at` reuses one that is there already."""
        size = len(packed) if size is None else size
        offset = len(self._body) if at is None else at
        fields = (flags, method, 0, 33, crc, len(packed), size)
        if at is None:
            self._body += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, *fields, len(name), 0) + name.encode() + packed
        listed = (directory_name or name).encode()
        self._directory += struct.pack(
            "<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, *fields, len(listed), 0, 0, 0, 0, 0, offset
        )
        self._directory += listed
        self._count += 1
        return offset

    def bytes(self) -> bytes:
        count = min(self._count, 0xFFFF)
        end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(self._directory), len(self._body), 0)
        return bytes(self._body + self._directory + end)


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def zeros(megabytes: int) -> bytes:
    """So many megabytes of zeros, deflated, without making them first."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * megabytes + packer.flush()


def document(xml: str | bytes) -> bytes:
    return container(
        {
            "_rels/.rels": relations(("r1", "officeDocument", "word/document.xml")),
            "word/document.xml": xml,
        }
    )


def laughs(root: str) -> str:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return f'<?xml version="1.0"?><!DOCTYPE {root} [<!ENTITY e0 "ha">{entities}]>'


Case = tuple[bytes, str, tuple[str, ...]]
"""The bytes, the type that they claim, and what may come out: `text` or codes of errors."""
LARGE, BROKEN, SECRET = ("media.too_large",), ("media.unreadable",), ("media.encrypted",)


def lying_containers() -> dict[str, Case]:
    bomb = RawZip()
    bomb.add("word/document.xml", zeros(3_900), size=3_900_000_000)
    nested = container({f"word/media/{n}.zip": container({"x": bytes(9_000_000)}) for n in range(40)})
    liar = RawZip()
    small = deflated(b"<a/>")
    liar.add("_rels/.rels", small, size=4, crc=zlib.crc32(b"<a/>"))
    liar.add("word/document.xml", zeros(200), size=1_000)
    kernel = deflated(bytes(200_000))
    overlapping = RawZip()
    place = overlapping.add("word/document.xml", kernel, size=200_000)
    for number in range(25):
        overlapping.add(f"word/{number}.xml", kernel, size=200_000, at=place)
    crowd = RawZip()
    for number in range(200_000):
        crowd.add(f"{number}", b"", method=0)
    locked = RawZip()
    locked.add("word/document.xml", small, size=4, flags=1)
    odd = RawZip()
    odd.add("word/document.xml", b"", method=12)
    twice = RawZip()
    twice.add("word/document.xml", small, size=4)
    twice.add("WORD/document.xml", small, size=4)
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le") + bytes(600)
    return {
        "bomb.docx": (bomb.bytes(), DOCX, LARGE),
        "nested.docx": (nested, DOCX, (*LARGE, *BROKEN)),
        "liar.docx": (liar.bytes(), DOCX, (*LARGE, *BROKEN)),
        "overlap.docx": (overlapping.bytes(), DOCX, BROKEN),
        "crowd.docx": (crowd.bytes(), DOCX, LARGE),
        "locked.docx": (locked.bytes(), DOCX, SECRET),
        "method.docx": (odd.bytes(), DOCX, BROKEN),
        "twice.docx": (twice.bytes(), DOCX, BROKEN),
        "ole.docx": (ole, DOCX, SECRET),
        "ole.xlsx": (ole, XLSX, SECRET),
        "slip.docx": (container({"../../../../evil": b"x", "/etc/evil": b"x"}), DOCX, BROKEN),
    }


def attacking_xml(canary: Path) -> dict[str, Case]:
    body = f"<w:document {WORD_NAMESPACES}><w:body>{{}}</w:body></w:document>"
    external = f'<!DOCTYPE w [<!ENTITY x SYSTEM "file://{canary}">]>'
    parameter = f'<!DOCTYPE w [<!ENTITY % p SYSTEM "file://{canary}"> %p;]>'
    noise = random.Random(0).randbytes(5_500_000).hex()
    attributes = " ".join(f'a{number}=""' for number in range(400_000))
    cell = '<w:tc><w:tcPr><w:gridSpan w:val="999999999"/></w:tcPr><w:p/></w:tc>'
    sheet = '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{}</sheetData></worksheet>'
    laughing = laughs("worksheet") + sheet.format('<row r="1"><c r="A1" t="str"><v>&e11;</v></c></row>')
    reading = external + sheet.format('<row r="1"><c r="A1" t="str"><v>&x;</v></c></row>')
    digits = paragraph("x", f'<w:numPr><w:ilvl w:val="{"9" * 9_000}"/></w:numPr>')
    return {
        "laughs.docx": (document(laughs("w") + body.format("<w:p><w:r><w:t>&e11;</w:t></w:r></w:p>")), DOCX, BROKEN),
        "xxe.docx": (document(external + body.format("<w:p><w:r><w:t>&x;</w:t></w:r></w:p>")), DOCX, BROKEN),
        "parameter.docx": (document(parameter + body.format("<w:p/>")), DOCX, BROKEN),
        "deep.docx": (document(f"<w:document {WORD_NAMESPACES}>" + "<w:p>" * 1_000_000), DOCX, BROKEN),
        "other_deep.docx": (document("<!-- -->" + "<a>" * 1_000_000), DOCX, BROKEN),
        "tag.docx": (document(body.format(f'<w:p a="{noise[:1_000_000]}"/>')), DOCX, ("text", *LARGE)),
        "comment.docx": (document(body.format(f"<!--{noise}-->")), DOCX, LARGE),
        "attributes.docx": (document(body.format(f"<w:p {attributes}/>")), DOCX, ("text", *BROKEN)),
        "runs.docx": (document(body.format("</w:t></w:r><w:r><w:rPr>" * 300_000)), DOCX, BROKEN),
        "spans.docx": (word(f"<w:tbl><w:tr>{cell * 2}</w:tr></w:tbl>"), DOCX, ("text",)),
        "digits.docx": (word(digits), DOCX, ("text",)),
        "laughs.odt": (container({"content.xml": laughs("a") + "<a>&e11;</a>"}), ODT, BROKEN),
        "deep.odt": (container({"content.xml": "<a>" * 1_000_000}), ODT, BROKEN),
        "laughs.xlsx": (replaced(oracle_xlsx(), "xl/worksheets/sheet1.xml", laughing), XLSX, ("text", *BROKEN)),
        "xxe.xlsx": (replaced(oracle_xlsx(), "xl/worksheets/sheet1.xml", reading), XLSX, ("text", *BROKEN)),
        "laughs.pptx": (replaced(oracle_pptx(), "ppt/slides/slide1.xml", laughs("a") + "<a>&e9;</a>"), PPTX, BROKEN),
    }


def damaged_files() -> dict[str, Case]:
    sound = word(paragraph("sound " * 500))
    middle = len(sound) // 2
    cases: dict[str, Case] = {
        "empty.docx": (b"", DOCX, BROKEN),
        "garbage.docx": (sound[:middle] + bytes(64) + sound[middle + 64 :], DOCX, BROKEN),
        "text.docx": (b"this is no container", DOCX, BROKEN),
        "renamed.docx": (container({"word/other.xml": b"<a/>"}), DOCX, BROKEN),
        "other.pptx": (sound, PPTX, BROKEN),
        "other.xlsx": (sound, XLSX, BROKEN),
        "none.pptx": (slides(), PPTX, ("text",)),
    }
    for path, kind in ((oracle_docx(), DOCX), (oracle_pptx(), PPTX), (oracle_xlsx(), XLSX)):
        whole = path.read_bytes()
        for number in range(1, 11):
            cases[f"cut{number}{path.suffix}"] = (whole[: len(whole) * number // 11], kind, BROKEN)
    return cases


def test_every_hostile_file_ends_in_a_typed_error_or_a_text_soon_and_in_little_memory(
    tmp_path: Path,
) -> None:
    canary = tmp_path / "canary.txt"
    canary.write_text("CANARYWORD")
    cases = lying_containers() | attacking_xml(canary) | damaged_files()
    tasks = [[str(tmp_path / name), kind] for name, (_, kind, _) in cases.items()]
    for name, (data, _, _) in cases.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    warm = [[str(oracle_docx()), DOCX], [str(oracle_xlsx()), XLSX]]
    command = [sys.executable, "-c", CHILD, str(tmp_path / "tasks.json"), json.dumps(warm)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: (outcome, seconds) for name, outcome, seconds in map(json.loads, done.stdout.splitlines())}
    growth_mb, _ = found.pop("peak")
    assert set(found) == set(cases)
    for name, (outcome, seconds) in found.items():
        assert outcome.partition(": ")[0] in cases[name][2], (name, outcome)
        assert seconds < 1, (name, seconds)  # both calls together
        assert "CANARYWORD" not in outcome
        assert str(tmp_path) not in outcome
        assert "0x" not in outcome
    assert growth_mb < 200


def test_a_member_that_inflates_to_more_than_its_header_says_is_not_inflated() -> None:
    liar = RawZip()
    liar.add("a", zeros(200), size=1_000)
    archive = Archive(liar.bytes(), name="liar.docx", limits=IntakeLimits())
    with pytest.raises(Unreadable, match=r"liar\.docx is incomplete or altered"):
        archive.read("a")


def test_a_member_is_found_in_any_case_and_with_either_slash() -> None:
    archive = Archive(container({"Word\\Document.XML": b"here"}), name="", limits=IntakeLimits())
    assert archive.read("word/document.xml") == b"here"
    assert archive.beginning("/word/document.xml", 2) == b"he"


def test_a_container_over_the_limit_names_the_limit() -> None:
    data = container({"word/document.xml": bytes(3_000_000)})
    with pytest.raises(TooLarge, match=r"a\.docx expands to 3\.0 MB, over the limit of 2\.0 MB"):
        Archive(data, name="a.docx", limits=IntakeLimits(max_expanded_bytes=2_000_000))


def test_a_container_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(TooLarge, match=r"takes (too long|longer than)"):
        text_of(word(paragraph("x")), DOCX, limits=IntakeLimits(deadline_seconds=-1))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "iso-8859-1"])
def test_xml_is_read_in_the_encoding_that_it_is_written_in(encoding: str) -> None:
    declared = encoding.removesuffix("-sig").removesuffix("-le")
    body = f"<w:document {WORD_NAMESPACES}>{paragraph('größe ' * 300)}</w:document>"
    xml = f'<?xml version="1.0" encoding="{declared}"?>{body}'
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    assert text_of(document(f"{mark}{xml}".encode(encoding)), DOCX).startswith("größe größe")


def test_namespaces_decide_and_not_prefixes() -> None:
    body = f"<w:p><w:pPr><w:outlineLvl w:val='0'/></w:pPr><w:r><w:t>{'usual ' * 300}</w:t></w:r></w:p>"
    usual = f"<w:document {WORD_NAMESPACES}>{body}</w:document>"
    renamed = usual.replace("w:", "ns0:").replace("xmlns:w=", "xmlns:ns0=")
    strict = usual.replace(
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "http://purl.oclc.org/ooxml/wordprocessingml/main",
    )
    plain = usual.replace("<w:", "<").replace("</w:", "</").replace("xmlns:w=", "xmlns=").replace("w:val", "x:val")
    plain = plain.replace("xmlns=", f'xmlns:x="{W}" xmlns=')
    borrowed = usual.replace("xmlns:w=", 'xmlns:w="urn:something-else" xmlns:word=').replace("<w:", "<word:")
    borrowed = borrowed.replace("</w:", "</word:").replace("w:val", "word:val")
    for spelling in (usual, renamed, strict, plain, borrowed):
        assert text_of(document(spelling), DOCX).startswith("# usual usual"), spelling[:200]
    foreign = usual.replace("wordprocessingml/2006/main", "something/else")
    with pytest.raises(Unreadable, match="does not match its file type"):
        text_of(document(foreign), DOCX)


@pytest.mark.parametrize("path", [oracle_docx, oracle_pptx])
def test_reading_only_the_tags_that_matter_changes_nothing(path: Callable[[], Path]) -> None:
    """A comment in each part makes the reader take the whole XML; the text must be the same."""
    with zipfile.ZipFile(path()) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    commented = {
        name: part.replace(b"?>", b"?><!-- c -->", 1) if name.endswith((".xml", ".rels")) else part
        for name, part in parts.items()
    }
    kind = DOCX if path is oracle_docx else PPTX
    assert text_of(container(commented), kind) == text_of(path().read_bytes(), kind)


def test_a_document_type_that_declares_nothing_is_passed_over_and_not_fetched() -> None:
    """So began the manifests of the first OpenOffice; its templates are still about."""
    named = '<!DOCTYPE manifest:manifest PUBLIC "-//OpenOffice.org//DTD Manifest 1.0//EN" "Manifest.dtd">'
    manifest = f"{named}<manifest:manifest/>"
    office = "urn:oasis:names:tc:opendocument:xmlns:"
    content = (
        f'<office:document-content xmlns:office="{office}office:1.0" xmlns:text="{office}text:1.0">'
        "<office:body><office:text><text:p>Dear Ada</text:p></office:text></office:body></office:document-content>"
    )
    assert text_of(container({"content.xml": content, "META-INF/manifest.xml": manifest}), ODT) == "Dear Ada"


def test_characters_that_xml_does_not_allow_do_not_get_out() -> None:
    assert text_of(word(paragraph("bell\x07 and shift\x0e")), DOCX) == "bell\ufffd and shift\ufffd"
    with pytest.raises(Unreadable):
        text_of(word(paragraph("&#7;")), DOCX)
    with pytest.raises(Unreadable):
        text_of(word(paragraph("R&D")), DOCX)
