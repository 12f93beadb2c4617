"""Sheets as people see them: what a cell displays, in every kind of workbook."""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
import struct
import subprocess
import zipfile
from pathlib import Path

import openpyxl
import pytest

from formats.made_office import LIMITS, ODS, XLS, XLSX, text_of
from loom.errors import Encrypted
from loom.formats import inspect
from loom.formats.libreoffice import to_office
from loom.formats.office.number_formats import BUILT_IN, display_number
from loom.formats.office.ooxml import Package
from loom.formats.office.xlsb import read_xlsb
from loom.formats.ole import OleError, OleFile

XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
DISPLAYED = [
    (0.1234, "0.00%", "12.34%"),
    (42, "00000", "00042"),
    (1234.5, '#,##0.00 "€"', "1,234.50 €"),
    (1234.5, "[$€-407] #,##0.00", "€ 1,234.50"),
    (-1234.5, "#,##0.00;(#,##0.00)", "(1,234.50)"),
    (-5, "#,##0_);[Red](#,##0)", "(5)"),
    (0, '#,##0;-#,##0;"-"', "-"),
    (1234567, '#,##0,"k"', "1,235k"),
    (12345.678, "0.00E+00", "1.23E+04"),
    (12345.678, "##0.0E+0", "12.3E+3"),
    (1.5, "# ?/?", "1 1/2"),
    (0.333, "# ?/?", "1/3"),
    (12.3, "# ?/10", "12 3/10"),
    (-1.2, "# ??/100", "-1 20/100"),
    (-12345.7, r"[<=9999999]###\-####;\(###\)\ ###\-####", "-1-2346"),
    (-5, "[<0](0);0", "(5)"),
    (44197, "yyyy-mm-dd", "2021-01-01"),
    (44197, "dddd, mmmm d, yyyy", "Friday, January 1, 2021"),
    (44197.75, "d/m/yy h:mm AM/PM", "1/1/21 6:00 PM"),
    (1.5, "[h]:mm:ss", "36:00:00"),
    (44197.123456, "mm:ss.0", "57:46.6"),
    (5551234567, "(000) 000-0000", "(555) 123-4567"),
    (123456789, "000-00-0000", "123-45-6789"),
    (0.5, "#.##", ".5"),
    (5, '[<10]"low";[>=10]"high"', "low"),
    (9007199254740991, "General", "9007199254740991"),
    (1234567890123456, "0", "1234567890123456"),
    (12, '0" kg"', "12 kg"),
    (7, "@", "7"),
]


@pytest.mark.parametrize(("value", "code", "shown"), DISPLAYED)
def test_a_number_is_displayed_in_its_format(value: float, code: str, shown: str) -> None:
    assert display_number(value, code) == shown


def test_no_format_code_however_odd_breaks_a_sheet() -> None:
    dice = random.Random(11)
    alphabet = '0#?.,%eE+-/;[]"\\_*@ymdhsAMP/ $€<>=()General'
    for _ in range(3000):
        code = "".join(dice.choices(alphabet, k=dice.randrange(1, 24)))
        value = dice.choice([0, -1, 1e300, -1e-300, 0.5, 44197.5, 2_958_466.0, dice.uniform(-1e6, 1e6)])
        assert isinstance(display_number(value, code), str), code


def saved(workbook: openpyxl.Workbook) -> bytes:
    buffer = io.BytesIO()
    workbook.save(buffer)
    return buffer.getvalue()


def _book() -> openpyxl.Workbook:
    workbook = openpyxl.Workbook()
    sheet = workbook.worksheets[0]
    for row, (value, code) in enumerate(
        [
            (0.1234, "0.00%"),
            (42, "00000"),
            (1234.5, '#,##0.00 "€"'),
            (-7.25, "#,##0.00;(#,##0.00)"),
            (dt.date(2021, 3, 4), "d mmm yyyy"),
            (dt.timedelta(hours=30), "[h]:mm:ss"),
            (9007199254740991, "0"),
            (1234567890123, "General"),
        ],
        1,
    ):
        sheet.cell(row, 1, value).number_format = code
        sheet.cell(row, 2, f"row {row}")
    return workbook


EXPECTED = ["12.34%", "00042", "1,234.50 €", "(7.25)", "4 Mar 2021", "30:00:00", "9007199254740991", "1234567890123"]


@pytest.mark.parametrize("media_type", [XLSX, XLS, ODS])
def test_cells_are_shown_as_they_are_displayed_in_every_kind_of_workbook(media_type: str) -> None:
    data = saved(_book())
    if media_type != XLSX:
        data = to_office(data, XLSX, media_type, LIMITS)
    lines = text_of(data, media_type).splitlines()[1:9]
    assert [line.split(" | ")[0] for line in lines] == EXPECTED


def test_cells_are_what_libreoffice_exports(tmp_path: Path) -> None:
    """Its export rounds as it displays; formats of the user's locale are left out (they are ISO here)."""
    dice = random.Random(5)
    local = {5, 6, 7, 8, 14, 22, 41, 42, 43, 44, *range(27, 37), *range(50, 59)}
    codes = [code for number, code in BUILT_IN.items() if number not in local]
    codes += ["#,##0.0", '0.0" m"', "0000", "mmm d, yyyy", "hh:mm:ss", "0.###", '"a "0', "#,##0;[Red]-#,##0"]
    workbook = openpyxl.Workbook()
    sheet = workbook.worksheets[0]
    for row in range(1, 200):
        for column, code in enumerate(dice.sample(codes, 8), 1):
            value = dice.choice(
                [dice.randrange(61, 50_000), dice.randrange(61, 4000) + dice.choice([0.25, 0.125, 0.5, 0.75])]
            )
            sheet.cell(row, column, value).number_format = code
    file = tmp_path / "numbers.xlsx"
    file.write_bytes(saved(workbook))
    options = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,true"
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    command = ["soffice", profile, "--headless", "--convert-to", options, "--outdir", str(tmp_path), str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    theirs = list(csv.reader(io.StringIO((tmp_path / "numbers.csv").read_text())))
    ours = [line.split(" | ") for line in text_of(file.read_bytes(), XLSX).splitlines()[1:200]]
    different = [
        (sheet.cell(row, column).value, sheet.cell(row, column).number_format, his, mine)
        for row, (left, right) in enumerate(zip(theirs, ours, strict=True), 1)
        for column, (his, mine) in enumerate(zip(left, right, strict=True), 1)
        if " ".join(his.split()) != " ".join(mine.split())
    ]
    # LibreOffice shows a bare number with ten decimals at most; all digits are kept here.
    assert [found for found in different if found[1] != "General"] == []


def test_merged_and_hidden_cells_are_named() -> None:
    workbook = _book()
    sheet = workbook.worksheets[0]
    sheet.merge_cells("D1:F2")
    sheet["D1"] = "over three"
    sheet.row_dimensions[3].hidden = True
    sheet.row_dimensions[4].hidden = True
    sheet.column_dimensions["B"].hidden = True
    workbook.create_sheet("secret").sheet_state = "hidden"
    data = saved(workbook)
    for media_type in (XLSX, XLS):
        text = text_of(data if media_type == XLSX else to_office(data, XLSX, media_type, LIMITS), media_type)
        assert "[merged cells: D1:F2]" in text
        assert "[hidden rows: 3-4]" in text
        assert "[hidden columns: B]" in text
        assert "[sheet 2: secret, hidden]" in text


def test_a_locked_workbook_of_before_2007_is_called_locked() -> None:
    plain = to_office(saved(_book()), XLSX, XLS, LIMITS)
    stream = OleFile(plain).read("Workbook")
    size = int.from_bytes(stream[2:4], "little") + 4
    at = plain.index(stream[:size])
    # the record that follows the first one becomes the sign of a password
    locked = plain[: at + size] + b"\x2f\x00" + plain[at + size + 2 :]
    with pytest.raises(Encrypted, match="needs a password"):
        inspect(locked, "budget.xls", LIMITS)


def test_a_container_whose_sectors_turn_in_circles_is_an_error() -> None:
    plain = to_office(saved(_book()), XLSX, XLS, LIMITS)
    dice = random.Random(2)
    for _ in range(300):
        spoilt = bytearray(plain)
        for _ in range(20):
            spoilt[dice.randrange(24, 2048)] = dice.randrange(256)
        try:
            container = OleFile(bytes(spoilt))
            for entry in list(container.entries.values()):
                if entry.is_stream:
                    container.read(*entry.path)
        except OleError:
            continue


def _record(kind: int, body: bytes = b"") -> bytes:
    """A record of a binary workbook: number and length of seven bits a byte."""

    def packed(number: int) -> bytes:
        out = bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes([*out, number])

    return packed(kind) + packed(len(body)) + body


def _wide(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def binary_workbook() -> bytes:
    """The least that calamine reads: a sheet with formats, an error, a merged area, a hidden row and column."""
    formats = ["0.00%", '#,##0.00 "€"', "General"]
    styles = b"".join(_record(44, struct.pack("<H", 164 + n) + _wide(code)) for n, code in enumerate(formats))
    styles += _record(617, struct.pack("<I", 3))
    styles += b"".join(_record(47, struct.pack("<HH", 0, 164 + n) + bytes(12)) for n in range(3)) + _record(618)
    cells = [
        (0, 5, 0, struct.pack("<d", 0.1234)),
        (1, 5, 1, struct.pack("<d", 1234.5)),
        (2, 2, 2, struct.pack("<I", 42 << 2 | 2)),
    ]
    sheet = _record(129) + _record(148, struct.pack("<IIII", 0, 1, 0, 3))
    sheet += _record(60, struct.pack("<IIIIH", 1, 1, 2560, 0, 1)) + _record(145)
    sheet += _record(0, struct.pack("<IIHBBBI", 0, 0, 300, 0, 0x10, 0, 0))
    sheet += b"".join(_record(kind, struct.pack("<II", column, style) + value) for column, kind, style, value in cells)
    sheet += _record(3, struct.pack("<IIB", 3, 2, 7)) + _record(146)
    sheet += _record(176, struct.pack("<IIII", 3, 4, 0, 1)) + _record(130)
    book = _record(131) + _record(153, struct.pack("<II", 0, 0) + _wide("")) + _record(143)
    book += _record(156, struct.pack("<II", 0, 1) + _wide("rId1") + _wide("Prices")) + _record(144) + _record(132)
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relations = "".join(
        f'<Relationship Id="rId{number}" Type="{relation}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate((("worksheet", "worksheets/sheet1.bin"), ("styles", "styles.bin")), 1)
    )
    head = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    root = f'<Relationship Id="rId1" Type="{relation}/officeDocument" Target="xl/workbook.bin"/>'
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("_rels/.rels", f"{head}{root}</Relationships>")
        archive.writestr("xl/_rels/workbook.bin.rels", f"{head}{relations}</Relationships>")
        for name, data in (("workbook", book), ("styles", styles), ("worksheets/sheet1", sheet)):
            archive.writestr(f"xl/{name}.bin", data)
    return buffer.getvalue()


def test_a_binary_workbook_is_shown_as_people_see_it() -> None:
    text = text_of(binary_workbook(), XLSB)
    assert "12.34% | 1,234.50 € | 42 | #DIV/0!" in text
    assert "[merged cells: A4:B5]" in text
    assert "[hidden rows: 1]" in text
    assert "[hidden columns: B]" in text


def test_no_damage_in_a_binary_workbook_breaks_its_reader() -> None:
    data = binary_workbook()
    dice = random.Random(5)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(200):
        spoilt = dict(parts)
        name = dice.choice([name for name in parts if name.endswith(".bin")])
        changed = bytearray(spoilt[name])
        for _ in range(4):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        spoilt[name] = bytes(changed)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for part, content in spoilt.items():
                archive.writestr(part, content)
        read_xlsb(Package(buffer.getvalue(), name="", limits=LIMITS))
