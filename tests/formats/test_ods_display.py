"""Numbers of an OpenDocument workbook become the text that the workbook displays; the quick way is checked against the
one that looks at each cell."""

from __future__ import annotations

import io
import zipfile
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from hypothesis import given
from hypothesis import strategies as st
from python_calamine import CalamineWorkbook

from loom.formats.office import ods

NAMESPACES = " ".join(
    f'xmlns:{name}="urn:{name}"' for name in ("office", "table", "text", "calcext", "hidden", "xlink")
)
HEAD = f"<office:document-content {NAMESPACES}><office:body><office:spreadsheet><table:table table:name='A'>"
TAIL = "</table:table></office:spreadsheet></office:body></office:document-content>"

FORMULA = " table:formula=" + quoteattr('of:=[.A1]&"office:v"')
words = st.sampled_from(
    [
        "",
        "12",
        "1.5",
        "1,250.00 €",
        "12 %",
        "2024-01-31",
        "a < b & c",
        ' office:value-type="float"',
        "office:value",
        "x\ny",
    ]
)
values = st.sampled_from(["1.5", "0", "-3", "12", "9007199254740993", "123456789012", "1E+30"])
typed = st.one_of(
    st.tuples(st.sampled_from(["float", "percentage"]), values).map(
        lambda one: f'office:value-type="{one[0]}" office:value="{one[1]}" calcext:value-type="{one[0]}"'
    ),
    values.map(lambda one: f'office:value-type="currency" office:currency="EUR" office:value="{one}"'),
    values.map(lambda one: f'office:value="{one}" office:value-type="float"'),
    values.map(lambda one: f"office:value-type='float' office:value='{one}'"),
    st.just('office:value-type="date" office:date-value="2024-01-31"'),
    st.sampled_from(["PT10H30M00S", "PT100H30M00S"]).map(
        lambda one: f'office:value-type="time" office:time-value="{one}"'
    ),
    st.just('office:value-type="string"'),
    st.just('office:value-type="boolean" office:boolean-value="true"'),
    st.just(""),
)


@st.composite
def cells(draw: st.DrawFn) -> str:
    attributes = " ".join(filter(None, (draw(st.sampled_from(["", 'table:number-columns-repeated="2"'])), draw(typed))))
    formula = draw(st.sampled_from(["", FORMULA]))
    shown = draw(words)
    inside = draw(
        st.sampled_from(
            [
                f"<text:p>{escape(shown)}</text:p>",
                f"<text:p>{escape(shown)}</text:p>",
                f"<text:p><text:span>{escape(shown)}</text:span></text:p>",
                "",
            ]
        )
    )
    if not inside and draw(st.booleans()):
        return f"<table:table-cell{formula} {attributes}/>"
    return f"<table:table-cell{formula} {attributes}>{inside}</table:table-cell>"


def read(content: bytes) -> list[list[Any]]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
        archive.writestr("content.xml", content)
    return CalamineWorkbook.from_filelike(io.BytesIO(buffer.getvalue())).get_sheet_by_index(0).to_python()


@given(st.lists(st.lists(cells(), min_size=1, max_size=4), min_size=1, max_size=4))
def test_numbers_are_displayed_alike_whether_or_not_each_cell_is_looked_at(rows):
    inner = "".join(f"<table:table-row>{''.join(row)}</table:table-row>" for row in rows)
    content = f"{HEAD}{inner}{TAIL}".encode()

    assert read(ods.displayed_numbers(content)) == read(ods.displayed_one_by_one(content))
