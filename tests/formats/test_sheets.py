"""Workbooks and delimited text as tables. Whole workbooks are compared with what openpyxl finds."""

from __future__ import annotations

import datetime as dt
import io
import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import openpyxl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openpyxl.chart import BarChart, Reference

from formats.made_office import (
    LIMITS,
    ODS,
    XLS,
    XLSX,
    R,
    book,
    calculated,
    container,
    oracle_xlsx,
    png,
    recall,
    relations,
    text_of,
)
from loom.content.media import Media, digest_of
from loom.content.recipes import EmbeddedImage, Text
from loom.errors import Encrypted
from loom.formats.facts import IntakeLimits
from loom.formats.libreoffice import to_office
from loom.formats.office import inspect_office, render_office, sheet_rows
from loom.formats.office.biff import read_biff
from loom.formats.office.delimited import delimiter_of, read_rows
from loom.formats.office.number_formats import display_number
from loom.formats.office.ooxml import Package
from loom.formats.office.sheet_rows import Cell, area, row_line, row_lines
from loom.formats.office.sheets import ROWS_OF_MANY, ROWS_OF_ONE, Spreadsheet
from loom.formats.office.xlsx_cells import needs_care
from loom.formats.ole import OleFile


def saved(workbook: openpyxl.Workbook) -> bytes:
    buffer = io.BytesIO()
    workbook.save(buffer)
    return buffer.getvalue()


def oracle_text(data: bytes) -> str:
    """Every value that openpyxl finds, dates as ISO."""
    values: list[str] = []
    for sheet in openpyxl.load_workbook(io.BytesIO(data), data_only=True):
        values.append(sheet.title)
        for row in sheet.iter_rows(values_only=True):
            for value in row:
                match value:
                    case None:
                        pass
                    case dt.datetime():
                        values.append(value.date().isoformat() if value.time() == dt.time() else value.isoformat(" "))
                    case bool():
                        values.append(str(value).upper())
                    case _:
                        values.append(str(value))
    return "\n".join(values)


@pytest.mark.parametrize("source", ["openpyxl", "LibreOffice"])
def test_every_value_that_openpyxl_finds_is_found(source: str) -> None:
    data = oracle_xlsx().read_bytes() if source == "openpyxl" else book("xlsx")
    assert recall(text_of(data, XLSX), oracle_text(data)) == 1.0


@pytest.mark.parametrize(("kind", "media_type"), [("xlsx", XLSX), ("ods", ODS), ("xls", XLS)])
def test_a_workbook_reads_the_same_in_every_format(kind: str, media_type: str) -> None:
    data = book(kind)
    lines = text_of(data, media_type).splitlines()
    assert lines[:2] == ["[sheet 1: Budget] A1:D300", "item | amount | due | paid"]
    assert lines[2].startswith("thing1 | 1.5 | 2024-01-02 | ")
    assert lines[3].startswith("thing2 | 3 | 2024-01-03 | ")
    assert "[sheet 2: Secrets, hidden] C3:C3" in lines
    assert "[sheet 3: Währung & Co] A1:D1" in lines
    assert 'größe | quote "x" | line one<br>line two | pipe \\| inside' in lines
    assert inspect_office(data, media_type, "", LIMITS).media.pages == 3


def test_values_are_written_for_readers() -> None:
    moments = [
        dt.datetime.fromisoformat("2024-05-01"),
        dt.datetime.fromisoformat("2024-05-01T12:30"),
        dt.date(1999, 12, 31),
        dt.time(8, 15),
    ]
    assert row_line(moments) == "2024-05-01 | 2024-05-01 12:30:00 | 1999-12-31 | 08:15:00"
    assert row_line([1, 2.0, -3.0, 0.1 + 0.2, 1e20, 12345678.5, 1 / 3]) == (
        "1 | 2 | -3 | 0.3 | 100000000000000000000 | 12345678.5 | 0.333333333333333"
    )
    assert row_line([True, False, dt.timedelta(hours=30, minutes=5), "", None, " a\tb ", ""]) == (
        "TRUE | FALSE | 30:05:00 |  |  | a b"
    )
    assert row_line(["x"] * 600).endswith("x [88 more cells]")
    assert area((0, 0), (9, 27)) == "A1:AB10"


_NUMBERS = st.floats() | st.integers(-(10**17), 10**17).map(float) | st.decimals(-9, 9, places=6).map(float)
_COLUMN = st.one_of(
    st.lists(_NUMBERS, min_size=6, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.lists(st.text("ab |\n", max_size=3), min_size=6, max_size=6),
    st.lists(st.sampled_from(["", 1.5, True, dt.date(2026, 1, 2)]), min_size=6, max_size=6),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(columns=st.lists(_COLUMN, min_size=1, max_size=4))
@example(columns=[[0.00001, -0.0, 0.1 + 0.2, 1e15, 1e16, 123456.0]])
def test_rows_written_column_by_column_are_the_rows_written_one_by_one(columns: list[list[Cell]]) -> None:
    rows = list(zip(*columns, strict=True))
    assert row_lines(rows) == [row_line(row) for row in rows]


def test_errors_and_formulas_without_a_stored_value_are_shown() -> None:
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    sheet.append(
        ["text", 1.5, True, dt.datetime.fromisoformat("2024-05-01"), dt.time(8, 15), dt.timedelta(hours=30), "=A1&B1"]
    )
    sheet["C4"] = "#N/A"
    sheet["C4"].data_type = "e"
    lines = text_of(saved(workbook), XLSX).splitlines()
    assert lines[1:] == [
        "text | 1.5 | TRUE | 2024-05-01 0:00:00 | 8:15:00 | 30:00:00 | =A1&B1",
        "[2 empty rows]",
        " |  | #N/A",
    ]


def rewritten_sheet(data: bytes, change: Callable[[str], str]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    return container(parts | {name: change(parts[name].decode()).encode()})


def with_prefix(xml: str) -> str:
    return re.sub(r"<(/?)(?=[a-zA-Z])", r"<\1x:", xml).replace("xmlns=", "xmlns:x=")


def without_addresses(xml: str) -> str:
    return re.sub(r'(<(?:c|row)) r="[A-Z]*\d+"', r"\1", xml)


@pytest.mark.parametrize("change", [with_prefix, without_addresses])
def test_a_sheet_reads_the_same_however_a_program_writes_it(change: Callable[[str], str]) -> None:
    """The OpenXML SDK gives every element a prefix; addresses of cells may be left out."""
    workbook = openpyxl.Workbook()
    sheet = workbook.worksheets[0]
    sheet.append(["word", 0.25, dt.date(2023, 3, 15), 7])
    sheet.append(["more", 0.5, dt.date(2024, 1, 31), 8])
    sheet["B1"].number_format = sheet["B2"].number_format = "0.0%"
    sheet["C1"].number_format = sheet["C2"].number_format = "mmm-yy"
    for has_formula in (False, True):
        if has_formula:
            sheet.append(["=B1+B2", "x"])
        data = saved(workbook)

        lines = text_of(rewritten_sheet(data, change), XLSX).splitlines()

        assert lines == text_of(data, XLSX).splitlines()
        assert "word | 25.0% | Mar-23 | 7" in lines


def test_empty_rows_above_the_first_value_are_counted_if_the_area_has_them() -> None:
    """A cell with an empty text begins the area; the first line must not seem to be its first row."""
    workbook = openpyxl.Workbook()
    sheet = workbook.worksheets[0]
    sheet["B1"] = "here"
    sheet["A5"], sheet["B5"] = 1, 2
    data = rewritten_sheet(
        saved(workbook), lambda xml: re.sub(r'<c r="B1".*?</c>', '<c r="B1" t="inlineStr"><is><t></t></is></c>', xml)
    )

    lines = text_of(data, XLSX).splitlines()

    assert lines in (["[sheet 1: Sheet] A1:B5", "[4 empty rows]", "1 | 2"], ["[sheet 1: Sheet] A5:B5", "1 | 2"])


def test_an_error_that_calamine_does_not_know_spoils_no_workbook() -> None:
    workbook = openpyxl.Workbook()
    first = workbook.worksheets[0]
    first.append(["spilled", 1])
    first["A2"] = "#SPILL!"
    first["A2"].data_type = "e"
    workbook.create_sheet("plain").append(["as ever", 2])

    text = text_of(saved(workbook), XLSX)

    assert "spilled | 1\n#SPILL!" in text
    assert "as ever | 2" in text


def test_both_readers_of_xlsx_give_the_same_text() -> None:
    far = b'<row r="2000"><c r="C2000" t="e"><v>#REF!</v></c></row></sheetData>'

    def plain_lines(text: str) -> list[str]:
        lines = [re.sub(r"\] [A-Z]+\d+:[A-Z]+\d+$", "]", line) for line in text.splitlines()]
        return [line for line in lines if "#REF!" not in line and "empty rows]" not in line]

    for data in (oracle_xlsx().read_bytes(), book("xlsx")):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        sheets = [name for name in parts if name.startswith("xl/worksheets/sheet")]
        altered = {name: parts[name].replace(b"</sheetData>", far) for name in sheets}
        careful = text_of(container(parts | altered), XLSX)  # an error in a far corner: our own reader takes the sheets
        assert careful.count("#REF!") == 3
        assert plain_lines(careful) == plain_lines(text_of(data, XLSX))


def test_escapes_times_and_days_are_the_same_in_both_readers() -> None:
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    cells = (
        '<c r="A1" t="inlineStr"><is><t>a_x000A_b _x005F_x000D_ _xD83D_</t></is></c><c r="B1" s="1"><v>0.5</v></c>'
        '<c r="C1" s="1"><v>366.25</v></c><c r="D1" t="d"><v>2024-05-01T12:30:00</v></c>'
    )

    def text(is_1904: bool, more: str) -> str:
        return text_of(
            container(
                {
                    "_rels/.rels": relations(("r1", "officeDocument", "xl/workbook.xml")),
                    "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{R}"><workbookPr date1904="{int(is_1904)}"/>'
                    '<sheets><sheet name="S" sheetId="1" r:id="s"/></sheets></workbook>',
                    "xl/_rels/workbook.xml.rels": relations(
                        ("s", "worksheet", "worksheets/sheet1.xml"), ("t", "styles", "styles.xml")
                    ),
                    "xl/styles.xml": f'<styleSheet xmlns="{main}"><cellXfs><xf numFmtId="0"/><xf numFmtId="22"/>'
                    "</cellXfs></styleSheet>",
                    "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData><row r="1">{cells}</row>'
                    f'<row r="2">{more}</row></sheetData></worksheet>',
                }
            ),
            XLSX,
        )

    for is_1904, noon, day in ((False, "1899-12-31", "1900-12-31"), (True, "1904-01-01", "1905-01-01")):
        line = f"a<br>b _x000D_ _xD83D_ | {noon} 12:00 | {day} 6:00 | 2024-05-01 12:30:00"
        assert text(is_1904, '<c r="A2"><v>1</v></c>').splitlines() == ["[sheet 1: S] A1:D2", line, "1"]
        assert text(is_1904, '<c r="A2" t="e"><v>#N/A</v></c>').splitlines() == ["[sheet 1: S] A1:D2", line, "#N/A"]


def test_a_day_beyond_the_last_one_stays_a_number() -> None:
    last = 2_958_465
    assert display_number(last, "yyyy-mm-dd", is_1904=False) == "9999-12-31"
    assert display_number(last, "yyyy-mm-dd", is_1904=True) == str(int(last))
    assert display_number(last + 0.9999999, "yyyy-mm-dd h:mm", is_1904=False) == str(last + 0.9999999)


def test_a_formula_that_gave_an_empty_text_is_an_empty_cell_for_both_readers() -> None:
    data = calculated("xlsx")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml")
        assert b"/f><v></v>" in sheet
        plain = container(
            {name: archive.read(name) for name in archive.namelist()}
            | {"xl/worksheets/sheet1.xml": sheet.replace(b't="e"', b't="str"')}
        )
    part = "xl/worksheets/sheet1.xml"
    assert needs_care(Package(data, name="", limits=LIMITS), part)
    assert not needs_care(Package(plain, name="", limits=LIMITS), part)
    assert text_of(data, XLSX).splitlines()[:6] == text_of(plain, XLSX).splitlines()[:6]
    assert "\nempty\n" in text_of(data, XLSX)


def test_two_cells_far_apart_are_read_though_calamine_cannot() -> None:
    workbook = openpyxl.Workbook()
    workbook.active["A1"] = "near"
    workbook.active["XFD1048576"] = "far"
    workbook.active["B1048576"] = "low"
    lines = text_of(saved(workbook), XLSX).splitlines()
    assert lines[0] == "[sheet 1: Sheet] A1:XFD1048576"
    assert lines[1:] == ["near", "[1048574 empty rows]", " | low [1 more cells]"]


def test_long_sheets_are_cut_with_a_sentence_that_says_how_to_go_on() -> None:
    workbook = openpyxl.Workbook()
    for number in range(ROWS_OF_MANY + 500):
        workbook.active.append([number, f"n{number}"])
    workbook.create_sheet("Next").append(["second"])
    data = saved(workbook)
    text = text_of(data, XLSX)
    assert '[the first 1000 of 1500 rows; pages="1" shows more]' in text
    assert "n999" in text
    assert "n1000" not in text
    assert "second" in text
    whole = text_of(data, XLSX, "1")
    assert "n1499" in whole
    assert "second" not in whole
    assert "rows;" not in whole
    assert text_of(data, XLSX, "2") == "[sheet 2: Next] A1:A1\nsecond"
    assert ROWS_OF_ONE > ROWS_OF_MANY


def test_charts_comments_and_pictures_follow_their_sheet() -> None:
    workbook = openpyxl.load_workbook(oracle_xlsx())
    chart = BarChart()
    chart.title = "Spending"
    chart.add_data(Reference(workbook["Budget"], min_col=2, min_row=1, max_row=3), titles_from_data=True)
    workbook["Secrets"].add_chart(chart)
    data = saved(workbook)
    text = text_of(data, XLSX)
    assert "[comment A2] Ana: check this amount" in text.split("[sheet 2")[0]
    assert "[chart: Spending]" in text.split("[sheet 2")[1].split("[sheet 3")[0]
    assert "[image 1" in text.split("[sheet 3")[1]
    found = inspect_office(data, XLSX, "", LIMITS).pictures
    assert [(p.number, p.page, p.media_type, p.width, p.height) for p in found] == [(1, 3, "image/png", 20, 10)]
    media = Media(digest=digest_of(data), media_type=XLSX, size_bytes=len(data))
    assert render_office(data, media, EmbeddedImage(1), LIMITS).data[:4] == png()[:4]


def test_kinds_of_sheets_and_empty_ones_are_named() -> None:
    workbook = openpyxl.Workbook()
    workbook.active.title = "Nothing\there"[:7]
    workbook.create_chartsheet("Only a chart")
    lines = text_of(saved(workbook), XLSX).splitlines()
    assert lines[0] == "[sheet 1: Nothing] empty"
    assert lines[2] == "[sheet 2: Only a chart, chart]"


def test_an_ods_with_a_password_is_told_from_a_damaged_one() -> None:
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><manifest:file-entry '
        'manifest:full-path="content.xml"><manifest:encryption-data/></manifest:file-entry></manifest:manifest>'
    )
    data = container({"content.xml": b"\x00garbage", "META-INF/manifest.xml": manifest})
    with pytest.raises(Encrypted, match="needs a password"):
        text_of(data, ODS)


def test_a_workbook_beyond_the_memory_of_the_worker_is_refused_and_the_next_one_is_read() -> None:
    tight = IntakeLimits(worker_memory_bytes=1_000_000_000)
    workbook = openpyxl.Workbook()
    workbook.active["A1"] = "a"
    workbook.active["XFD1048576"] = "z"
    data = saved(workbook)
    alone = Spreadsheet(data, name="sparse.xlsx", limits=tight, package=Package(data, name="", limits=tight))
    assert [sheet.name for sheet in alone.sheets] == ["Sheet"]
    assert "a" in alone.texts(1, 1, is_selected=False)[0]
    assert "thing1" in text_of(oracle_xlsx().read_bytes(), XLSX)


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b,c\n1,2,3\n", ","),
        ("a;b;c\n1,5;2,5;3,5\n", ";"),
        ("a\tb\n1\t2,3\n", "\t"),
        ("a|b|c\n1|2|3\n", "|"),
        ('"x,y";2\n"z,w";3\n', ";"),
        ("one word\nanother\n", ","),
        ("", ","),
    ],
)
def test_the_delimiter_is_found_out(text: str, delimiter: str) -> None:
    assert delimiter_of(text) == delimiter


def test_delimited_text_is_a_table_with_quotes_understood_and_rows_paged() -> None:
    text = 'name,says\r\nAna,"a, b ""c"""\r\nBo,"two\nlines"\r\n,\r\nCy,x|y\r\n'
    found = read_rows(text, 1, 100)
    assert found.lines == ["name | says", 'Ana | a, b "c"', "Bo | two<br>lines", "", "Cy | x\\|y"]
    assert (found.head, found.total, found.delimiter) == ("name | says", 5, ",")
    many = "".join(f"{number},n{number}\n" for number in range(1, 2_501))
    second = read_rows(many, 1_001, 1_000)
    assert (second.lines[0], second.lines[-1], second.total) == ("1001 | n1001", "2000 | n2000", 2_500)
    assert second.head == "1 | n1"
    assert read_rows(many, 2_001, 1_000).lines[-1] == "2500 | n2500"
    assert read_rows(many, 9_000, 1_000).lines == []


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_very_long_cell_is_shown_once_as_are_the_rows_around_it(quote: str) -> None:
    long = "x" * 200_000
    assert read_rows(f"a,b\n1,{quote}{long}{quote}\n2,c\n", 1, 100).lines == ["a | b", f"1 | {long}", "2 | c"]


def test_the_line_in_which_excel_tells_the_delimiter_is_no_row() -> None:
    found = read_rows("sep=;\r\na,b;c\r\n1;2\r\n", 1, 100)
    assert (found.lines, found.head, found.total, found.delimiter) == (["a,b | c", "1 | 2"], "a,b | c", 2, ";")
    assert read_rows("sep=x\na,b\n", 1, 100).lines == ["sep=x", "a | b"]


def test_a_quote_that_never_closes_does_not_swallow_the_rest() -> None:
    text = "a,b\n" + '5" pipe,3\n"open,4\n' + "".join(f"x{number},1\n" for number in range(30_000))
    table = read_rows(text, 1, 40_000).lines
    assert table[1] == '5" pipe | 3'
    assert table[2] == '"open | 4'
    assert table[-1] == "x29999 | 1"


@pytest.mark.parametrize("needs_care", [False, True])
def test_rows_beyond_the_first_twenty_thousand_can_be_paged(needs_care: bool) -> None:
    """Also where our own reader takes the place of calamine, for a formula without a value."""
    workbook = openpyxl.Workbook(write_only=True)
    sheet = workbook.create_sheet("Long")
    sheet.append(["number", "=1+1" if needs_care else "name"])
    for number in range(2, 20_003):
        sheet.append([number, f"n{number}"])
    data = saved(workbook)
    media = Media(digest=digest_of(data), media_type=XLSX, size_bytes=len(data), name="long.xlsx")
    whole = render_office(data, media, Text("1"), LIMITS).data.decode()
    assert whole.endswith('[the first 20000 of 20002 rows; pages="1", offset=20001 shows more]')
    found = sheet_rows(data, media, LIMITS, pages="1", first_row=20_001, max_rows=1)
    assert (found.text, found.area, found.next_row) == ("20001 | n20001", "A1:B20002", 20_002)
    last = sheet_rows(data, media, LIMITS, pages="", first_row=20_002, max_rows=1)
    assert (last.text, last.next_row) == ("20002 | n20002", None)
    assert sheet_rows(data, media, LIMITS, pages="1", first_row=30_000, max_rows=1).rows == 0


@given(
    top=st.integers(0, 6),
    left=st.integers(0, 4),
    cells=st.lists(
        st.lists(st.sampled_from(["word", 0.25, 3, None]), min_size=1, max_size=4), min_size=1, max_size=6
    ).filter(lambda rows: any(cell is not None for cell in rows[0]) and all(row[0] is not None for row in rows)),
)
def test_every_cell_stands_where_it_is_wherever_the_sheet_begins(top: int, left: int, cells: list[list[Any]]) -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for row, values in enumerate(cells):
        for column, value in enumerate(values):
            cell = sheet.cell(top + row + 1, left + column + 1, value)
            if value == 0.25:
                cell.number_format = "0.00%"
    file = io.BytesIO()
    book.save(file)
    data = file.getvalue()
    wanted = [
        " | ".join("" if value is None else "25.00%" if value == 0.25 else str(value) for value in values).rstrip(" |")
        for values in cells
    ]

    found = inspect_office(data, XLSX, "a.xlsx", IntakeLimits())
    shown = render_office(data, found.media, Text("1"), IntakeLimits()).data.decode().split("\n")[1:]
    assert [line.rstrip(" |") for line in shown] == wanted
    for first in range(1, top + len(cells) + 1):
        rows = sheet_rows(data, found.media, IntakeLimits(), pages="1", first_row=first, max_rows=2)
        expected = wanted[max(0, first - 1 - top) :][:2]
        assert [line.rstrip(" |") for line in rows.text.split("\n")] == expected


def test_numbers_that_an_embedded_chart_repeats_are_no_cells_of_its_sheet() -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for row in [["Month", "Sold"], ["January", 11], ["February", 22], ["March", 33]]:
        sheet.append(row)
    for number in range(200):
        sheet.append([f"{number} is a row that makes the workbook as long as most are"])
    chart = BarChart()
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=4), titles_from_data=True)
    sheet.add_chart(chart, "E5")
    data = with_repeated_numbers(to_office(saved(book), XLSX, XLS, LIMITS))

    found = inspect_office(data, XLS, "a.xls", LIMITS)
    text = render_office(data, found.media, Text("1"), LIMITS).data.decode()

    assert text.split("\n")[1:5] == ["Month | Sold", "January | 11", "February | 22", "March | 33"]


def with_repeated_numbers(data: bytes) -> bytes:
    """Excel writes the numbers of a chart into the chart, too; here in place of records that say where it stands."""
    container = OleFile(data)
    stream = bytearray(container.read("Workbook"))
    at = depth = row = 0
    while at + 4 <= len(stream):
        kind, size = struct.unpack_from("<HH", stream, at)
        depth += {0x0809: 1, 0x000A: -1}.get(kind, 0)
        if depth == 2 and size == 20:
            struct.pack_into("<HHHHHdHHH", stream, at, 0x0203, 14, row, 0, 0, 900.0 + row, 0x08FF, 2, 0)
            row += 1
        at += 4 + size
    assert row, "the chart has such records"
    return container.replace(bytes(stream), "Workbook")


@pytest.mark.parametrize("version", [0x0500, 0x0600], ids=["Excel 5.0 and 95", "Excel 97"])
def test_number_formats_of_old_workbooks_are_applied(version: int) -> None:
    """The records that both versions have; only the text of a format is stored in another way."""

    def record(kind: int, body: bytes) -> bytes:
        return struct.pack("<HH", kind, len(body)) + body

    code = b'#,##0.00 "kg"'
    text = struct.pack("<HB", 164, len(code)) if version == 0x0500 else struct.pack("<HHB", 164, len(code), 0)
    styles = b"".join(record(0x00E0, struct.pack("<HH", 0, number) + bytes(16)) for number in (0, 10, 17, 164))
    head = record(0x0809, struct.pack("<HHI", version, 5, 0)) + record(0x041E, text + code) + styles
    end = record(0x000A, b"")
    sheet = record(0x0809, struct.pack("<HHI", version, 16, 0))
    for column, number in enumerate((0.25, 41689.0, 1234.5), 1):
        sheet += record(0x0203, struct.pack("<HHHd", 0, column, column, number))
    start = len(head) + 4 + 8 + len(end)
    stream = head + record(0x0085, struct.pack("<IH", start, 0) + b"\1A") + end + sheet + end

    found = read_biff(stream)

    assert found is not None
    assert found.displayed_cells(0, 0, 10) == [(0, 1, "25.00%"), (0, 2, "Feb-14"), (0, 3, "1,234.50 kg")]
