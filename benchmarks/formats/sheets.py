"""F2, F3: compare cells with LibreOffice: `python -m benchmarks.formats.sheets FOLDER…` (folders of real workbooks).

Eighty workbooks are a random sample with a fixed seed, with a share for each kind. Every cell that Loom shows is
compared with the CSV that LibreOffice exports for the sheet with "as shown". A cell counts as

- equal: the strings are the same (white space counts as one space);
- more digits: both are plain numbers, and LibreOffice shows the first nine digits or more of Loom's (no format);
- by design: Excel itself has no fixed answer or another one than LibreOffice: the same day in the order of the
  system (format 14), which is an ISO date in Loom; a number below zero that LibreOffice shows as a date or a time, and
  Excel as `####`; the same two days before March 1900, one apart, because Excel counts a 29 February 1900; the same
  time of day, one second apart, because Excel rounds and LibreOffice truncates; an error with a name of LibreOffice's
  own (`Err:502`), or a value that is stored in the file and that LibreOffice cannot recalculate (`#NAME?`); columns
  after the 512th, which Loom counts and does not show;
- calculated: the cell has a formula and LibreOffice does not show the value that is stored in the file. It
  recalculates volatile functions, .xlsb files and files of unknown programs. Loom shows a formula that has no stored
  value. To find formulas, workbooks with differences are exported once more with them;
- in a pivot table, whose cells LibreOffice recalculates from their source (Loom shows the cells of the file);
- other: none of these. Every kind of difference is printed with examples; `--all` prints all of them.
"""

from __future__ import annotations

import csv
import datetime as dt
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path

import msgspec

from loom.content.recipes import Text
from loom.errors import MediaError
from loom.formats import inspect, render
from loom.formats.facts import IntakeLimits
from loom.formats.office import text_marks
from loom.formats.office.ooxml import Package
from loom.formats.office.sheet_rows import SEPARATOR
from loom.formats.office.xlsx_cells import sheet_parts

SHARES = {".xlsx": 50, ".xls": 16, ".xlsb": 8, ".ods": 6}
MAX_BYTES = 400_000
AS_SHOWN = "csv:Text - txt - csv (StarCalc):44,34,76,1,,1033,false,true,true,false,false,-1"
AS_FORMULAS = "csv:Text - txt - csv (StarCalc):44,34,76,1,,1033,false,true,true,true,false,-1"
EXAMPLES = 12
_HEAD = re.compile(r"\[sheet (\d+): (.*?)(?:, (?:hidden|chart|dialog|macros))*\](?: ([A-Z]+)(\d+):[A-Z]+\d+| empty)?")
_GAP = re.compile(r"\[(\d+) empty rows\]")
_BESIDE = re.compile(r"\[(the first \d|merged|hidden|comment|link|image|chart|diagram|not shown|axis|bar|line|pie)|\| ")
_LEAST_DIGITS = 9
"""LibreOffice shows ten significant digits of a number without a format; trailing zeros are omitted."""
_DAY = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[- ](?:Jan|Feb|Mar|Dec)[a-z]*[- ,]+\d{2,4}")
_DAY_FORMS = (
    "%Y-%m-%d",
    "%m/%d/%Y",
    "%m/%d/%y",
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%d-%b-%y",
    "%d-%b-%Y",
    "%d %b %Y",
    "%d %B %Y",
)
_TIME = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?(?= [AP]M$|$)")
_MORE_CELLS = re.compile(r"\[\d+ more cells\]")
_MAX_COLUMNS = 512
_FIRST_DAYS = (dt.date(1899, 12, 29), dt.date(1900, 3, 1))
Grid = dict[tuple[int, int], str]


class Difference(msgspec.Struct, frozen=True):
    file: Path
    sheet: Path
    """The CSV of the sheet."""
    place: tuple[int, int]
    kind: str
    shown: str


class Tally(msgspec.Struct):
    """Counts of one kind of workbook: files, then cells; `whole` are files without an unexplained difference."""

    files: int = 0
    whole: int = 0
    equal: int = 0
    digits: int = 0
    design: int = 0
    calculated: int = 0
    pivot: int = 0
    other: int = 0
    refused: int = 0


def choose(folders: list[str]) -> list[Path]:
    found = sorted(file for folder in folders for file in Path(folder).rglob("*") if file.suffix in SHARES)
    random.Random(80).shuffle(found)
    chosen: list[Path] = []
    for suffix, share in SHARES.items():
        fitting = (file for file in found if file.suffix == suffix and 0 < file.stat().st_size <= MAX_BYTES)
        chosen += [file for file, _ in zip(fitting, range(share * 2), strict=False)]
    return chosen


def export_by_libreoffice(files: list[Path], folder: Path, form: str = AS_SHOWN) -> None:
    """Export a CSV for each sheet of each workbook to `folder`; one process exports 40 workbooks."""
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    command = ["soffice", "--headless", "--norestore", profile, "--convert-to", form, "--outdir", str(folder)]
    for at in range(0, len(files), 40):
        subprocess.run([*command, *map(str, files[at : at + 40])], check=False, capture_output=True, timeout=900)


def grids_of_loom(file: Path) -> dict[str, Grid] | None:
    data = file.read_bytes()
    try:
        found = inspect(data, file.name)
        text = render(data, found.media, Text()).data.decode()
    except MediaError:
        return None
    grids: dict[str, Grid] = {}
    grid: Grid | None = None
    row = column = 0
    for line in text.split("\n"):
        if (head := _HEAD.fullmatch(line)) is not None:
            grid = grids[head[2]] = {}
            row, column = (int(head[4]) - 1, _number(head[3])) if head[3] else (0, 0)
        elif grid is None or _BESIDE.match(line):
            grid = None  # lists after the cells: charts, comments, merged cells
        elif (gap := _GAP.fullmatch(line)) is not None:
            row += int(gap[1])
        else:
            for at, cell in enumerate(line.split(SEPARATOR) if line else ()):
                if cell:
                    grid[row, column + at] = cell
            row += 1
    return grids


def sheets_with_pivots(file: Path) -> set[str]:
    """Return the names of the sheets of an .xlsx file that contain a pivot table."""
    if file.suffix not in (".xlsx", ".xlsm"):
        return set()
    package = Package(file.read_bytes(), name=file.name, limits=IntakeLimits())
    return {
        part.name for part in sheet_parts(package)[0] if part.part and package.related_parts(part.part, "pivotTable")
    }


def _number(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1


def grid_of_csv(file: Path) -> Grid:
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.reader(opened))
    return {
        (row, column): text_marks.cell(cell) if not cell.isprintable() or "|" in cell else cell
        for row, cells in enumerate(rows)
        for column, cell in enumerate(cells)
        if cell
    }


def is_same_number(ours: str, theirs: str) -> bool:
    """Return whether `theirs` is `ours`, rounded to nine significant digits or more."""
    try:
        full, short = Decimal(ours), Decimal(theirs)
    except InvalidOperation:
        return False
    if full == short:
        return True
    _, digits, places = short.normalize().as_tuple()
    if not isinstance(places, int) or len(digits) < _LEAST_DIGITS:
        return False
    return abs(full - short) <= Decimal(5).scaleb(places - 1)


def is_by_design(ours: str, theirs: str) -> bool:
    """Return whether the strings differ for one of the reasons in the module docstring."""
    if re.fullmatch(r"Err:\d+|#NAME\?|#VALUE!", theirs):
        return bool(ours)
    if _MORE_CELLS.search(ours) and _MORE_CELLS.sub("", ours).strip() == theirs:
        return True
    mine, yours = _days(ours), _days(theirs)
    if re.fullmatch(r"-\d+(\.\d+)?", ours):
        return bool(yours) or _seconds(theirs) is not None
    if mine and yours and _DAY.sub("", ours).split() == _DAY.sub("", theirs).split():
        is_early = any(_FIRST_DAYS[0] <= day <= _FIRST_DAYS[1] for day in mine)
        return bool(mine & yours) or (is_early and any(abs((a - b).days) == 1 for a in mine for b in yours))
    first, second = _seconds(ours), _seconds(theirs)
    is_beside = first is not None and second is not None and abs(first - second) <= 1
    return is_beside and _TIME.sub("", ours) == _TIME.sub("", theirs)


def _days(text: str) -> set[dt.date]:
    """Return all days that a date may mean: the order of day and month is not known."""
    found = _DAY.search(text)
    days: set[dt.date] = set()
    for form in _DAY_FORMS if found else ():
        try:
            day = dt.datetime.strptime(found[0] if found else "", form).date()  # noqa: DTZ007 - a day, not a point in time
        except ValueError:
            continue
        days |= {day, day.replace(year=day.year - 100)} if "%y" in form and day.year >= 1999 else {day}
    return days


def _seconds(text: str) -> int | None:
    found = _TIME.search(text)
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3] or 0) if found else None


def main() -> None:
    tallies: dict[str, Tally] = defaultdict(Tally)
    differences: dict[str, list[str]] = defaultdict(list)
    found: list[Difference] = []
    read: list[Path] = []
    seconds = 0.0
    with tempfile.TemporaryDirectory() as name:
        copies: dict[Path, Path] = {}
        for number, file in enumerate(choose([folder for folder in sys.argv[1:] if folder != "--all"])):
            copies[file] = Path(name, f"w{number:03}{file.suffix}")
            copies[file].write_bytes(file.read_bytes())
        out = Path(name, "out")
        export_by_libreoffice(list(copies.values()), out)
        for file, copy in copies.items():
            tally = tallies[file.suffix]
            sheets = sorted(out.glob(f"{copy.stem}-*.csv"))
            if tally.files == SHARES[file.suffix] or not any(map(grid_of_csv, sheets)):
                continue  # LibreOffice exports nothing: locked, damaged, or only charts
            tally.files += 1
            began = time.perf_counter()
            grids = grids_of_loom(file)
            seconds += time.perf_counter() - began
            if grids is None:
                tally.refused += 1
                differences["refused by Loom"].append(file.name)
                continue
            read.append(file)
            pivots = sheets_with_pivots(file)
            for sheet in sheets:
                title = sheet.stem.removeprefix(f"{copy.stem}-")
                theirs = grid_of_csv(sheet)
                if title in grids:
                    other = [
                        Difference(file, sheet, place, kind, shown)
                        for place, kind, shown in compare(grids[title], theirs, tally)
                    ]
                    if title in pivots:
                        tally.pivot += len(other)
                    else:
                        found += other
                elif theirs:
                    differences["sheets with another name in Loom (not compared)"].append(f"{file.name} {title}")
        formulas = Path(name, "formulas")
        export_by_libreoffice(
            [copies[file] for file in dict.fromkeys(one.file for one in found)], formulas, AS_FORMULAS
        )
        grids_of_formulas = {one.sheet: grid_of_csv(formulas / one.sheet.name) for one in found}
    unexplained: set[Path] = set()
    for one in found:
        tally = tallies[one.file.suffix]
        if grids_of_formulas[one.sheet].get(one.place, "").startswith(("=", "{=")):
            tally.calculated += 1
            continue
        tally.other += 1
        unexplained.add(one.file)
        title = one.sheet.stem.partition("-")[2]
        differences[f"{one.file.suffix} {one.kind}"].append(f"{one.file.name} {title} {one.place}: {one.shown}")
    for file in read:
        tallies[file.suffix].whole += file not in unexplained
    report(tallies, differences, seconds)


def report(tallies: dict[str, Tally], differences: dict[str, list[str]], seconds: float) -> None:
    print("kind   files  no difference  cells equal  more digits  by design  calculated  in pivots  other  refused")
    for suffix, tally in tallies.items():
        print(
            f"{suffix:6} {tally.files:5} {tally.whole:14} {tally.equal:12} {tally.digits:12} {tally.design:10} "
            f"{tally.calculated:11} {tally.pivot:10} {tally.other:6} {tally.refused:8}"
        )
    count = sum(tally.files for tally in tallies.values())
    whole = sum(tally.whole for tally in tallies.values())
    print(
        f"{whole} of {count} workbooks without an unexplained difference, {seconds / max(1, count) * 1000:.0f} ms each"
    )
    for kind, lines in differences.items():
        print(f"{len(lines):6} {kind}, examples:")
        for line in lines if "--all" in sys.argv else random.Random(4).sample(lines, min(EXAMPLES, len(lines))):
            print(f"           {line}")


def compare(ours: Grid, theirs: Grid, tally: Tally) -> Iterator[tuple[tuple[int, int], str, str]]:
    """Count the cells of a sheet in `tally`; yield place, kind and both strings of each unexplained difference."""
    for place in sorted(ours.keys() | theirs.keys()):
        if place[1] >= _MAX_COLUMNS:
            tally.design += 1
            continue
        mine, yours = ours.get(place, ""), theirs.get(place, "")
        if mine.split() == yours.split():
            tally.equal += 1
        elif is_same_number(mine, yours):
            tally.digits += 1
        elif is_by_design(mine, yours):
            tally.design += 1
        else:
            kind = "empty in Loom" if not mine else "empty in LibreOffice" if not yours else "other text"
            yield place, kind, f"{mine!r} / {yours!r}"


if __name__ == "__main__":
    main()
