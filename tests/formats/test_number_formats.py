"""Sheets as people see them: what a cell displays, in every kind of workbook."""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
import subprocess
from pathlib import Path

import openpyxl
import pytest

from formats.made_office import LIMITS, ODS, XLS, XLSX, text_of
from loom.errors import Encrypted
from loom.formats import inspect
from loom.formats.libreoffice import to_office
from loom.formats.office.number_formats import BUILT_IN, display_number
from loom.formats.ole import OleError, OleFile

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
