"""The quick scanner of office XML against expat: for every well-formed part both report the same, in the same order."""

from __future__ import annotations

import io
import zipfile
from typing import Any
from unittest.mock import patch
from xml.parsers import expat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.made_office import LIMITS
from loom.errors import MediaError
from loom.formats.office import xml_reader
from loom.formats.office.archive import Archive
from loom.formats.office.xml_reader import XmlReader

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"

SPACE = st.sampled_from(["", "", "", " ", "\n", "\t ", "\r\n", "\r"])
GAP = st.sampled_from([" ", "  ", "\n", "\t", "\r\n"])
CHARACTERS = st.text(
    st.one_of(
        st.sampled_from(list("ab =/'\"]?!-:\t\n\r\u00e9\u4e2d\U0001f600\u2028")),
        st.characters(min_codepoint=0x20, max_codepoint=0x24F, exclude_characters="<&"),
    ),
    max_size=8,
).map(lambda text: text.replace("]]>", "").replace("&", "").replace("<", ""))
REFERENCES = st.sampled_from(
    ["&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&#10;", "&#13;", "&#x1F600;", "&#xe9;", "&#9;"]
)
TEXT = st.lists(st.one_of(CHARACTERS, REFERENCES), max_size=3).map("".join).filter(lambda text: "]]>" not in text)
TAGS = ("w:p", "w:r", "w:t", "w:tab", "w:other", "a:t", "w:skipped", "foreign", "q:x")
ODDITIES = st.sampled_from(
    [
        "<?x <w:t>ghost</w:t> ?>",
        "<?mso-application progid='Word'?>",
        "<!-- <w:t>ghost</w:t> -->",
        "<![CDATA[<w:t>ghost</w:t> & more]]>",
    ]
)


@st.composite
def attributes(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(["w:val", "w:id", "val", "q:a", "xml:space"]), unique=True, max_size=3))
    written = ""
    for name in names:
        quote = draw(st.sampled_from("\"'"))
        value = draw(TEXT).replace(quote, "")
        written += f"{draw(GAP)}{name}{draw(SPACE)}={draw(SPACE)}{quote}{value}{quote}"
    return written


@st.composite
def element(draw: st.DrawFn, depth: int = 0) -> str:
    tag = draw(st.sampled_from(TAGS))
    redeclared = draw(st.sampled_from(["", "", "", "", "", f' xmlns="{A}"', f' xmlns:w="{A}"', ' xmlns:q="urn:again"']))
    head = f"<{tag}{redeclared}{draw(attributes())}{draw(SPACE)}"
    if draw(st.booleans()) and depth:
        return f"{head}/>"
    children = (
        st.one_of(TEXT, TEXT, element(depth=depth + 1), ODDITIES) if depth < 3 else TEXT  # pyright: ignore[reportCallIssue]
    )
    inside = "".join(draw(st.lists(children, max_size=4)))
    return f"{head}>{inside}</{tag}{draw(SPACE)}>"


@st.composite
def part(draw: st.DrawFn) -> bytes:
    declaration = draw(st.sampled_from(["", "<?xml version='1.0'?>", '<?xml version="1.0" encoding="UTF-8"?>\r\n']))
    body = "".join(draw(st.lists(st.one_of(element(), SPACE), max_size=5)))
    root = draw(st.sampled_from(["w:document", "document", "q:root"]))
    default = draw(st.sampled_from(["", f' xmlns="{W}"', ' xmlns="urn:none"']))
    after = draw(st.sampled_from(["", "\n", "<?end?>", "<!-- end -->", " " * 80]))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    text = f'{mark}{declaration}<{root} xmlns:w="{W}" xmlns:a="{A}" xmlns:q="urn:q"{default}>{body}</{root}>{after}'
    return text.encode()


def is_well_formed(data: bytes) -> bool:
    try:
        expat.ParserCreate(None, " ").Parse(data, 1)
    except expat.ExpatError:
        return False
    return True


def reported(data: bytes) -> list[Any]:
    """Every call that a reader gets for one part; a refusal is the last entry."""
    log: list[Any] = []
    reader = XmlReader(
        {
            "w:p": lambda found: log.append(("p", sorted(found.items()))),
            "w:other": lambda found: log.append(("other", value_of(found))) if value_of(found) is not None else None,
            "w:skipped": lambda _: reader.skip(lambda: log.append("after skipped")),
        },
        {"w:p": lambda: log.append("/p"), "w:r": lambda: log.append("/r")},
        opens={"w:r": lambda: log.append("r"), "w:tab": lambda: log.append("tab")},
        words={"w:t": lambda text: log.append(("words", text)), "a:t": lambda text: log.append(("drawn", text))},
        skipped=("w:skipped",),
        telling={"w:other": "w:val|w:id"},
    )
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("part.xml", data)
    try:
        reader.read(Archive(held.getvalue(), name="x.docx", limits=LIMITS), "part.xml", name="x.docx")
    except MediaError:
        log.append("refused")
    return log


def value_of(found: dict[str, str]) -> str | None:
    return next((value for name, value in found.items() if name.endswith(("val", "id")) and name != "val"), None)


def by_expat(data: bytes) -> list[Any]:
    with patch.object(xml_reader, "scan_prefix", lambda _: None):
        return reported(data)


def plain_names(log: list[Any]) -> list[Any]:
    """Attributes by their usual prefix, whichever way their namespace was resolved."""
    return [
        ("p", sorted((name.replace(f"{W} ", "w:"), value) for name, value in entry[1]))
        if entry[:1] == ("p",)
        else entry
        for entry in log
    ]


@settings(max_examples=400, deadline=None)
@given(part().filter(is_well_formed))
def test_the_scanner_reports_what_expat_reports(data: bytes) -> None:
    assert plain_names(reported(data)) == plain_names(by_expat(data))


@pytest.mark.parametrize(
    "body",
    [
        "<?x <w:t>ghost</w:t> ?>",
        "<w:t>a<w:other>b</w:other>c</w:t>",
        "<w:t>a<w:tab/>b</w:t>",
        "<w:t/>",
        "<w:t></w:t >",
        "<w:other w:val = 'spaced'/>",
        "<w:other val='a > b' w:val='behind'/>",
        "<w:skipped><w:t>hidden</w:t><?pi?></w:skipped><w:t>shown</w:t>",
    ],
)
def test_cases_where_they_once_differed(body: str) -> None:
    data = f'<w:document xmlns:w="{W}" xmlns:a="{A}"><w:p>{body}</w:p></w:document>'.encode()
    assert plain_names(reported(data)) == plain_names(by_expat(data))
