"""What a workbook holds beside its values: errors, charts of every kind, comments and links, in every format."""

from __future__ import annotations

import datetime as dt
import io
import zipfile

import pptx
import pytest
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from formats.made_office import LIMITS, ODS, PPTX, XLS, XLSX, R, calculated, container, oracle_xlsx, relations, text_of
from loom.content.media import Media, digest_of
from loom.formats.office import inspect_office, sheet_rows

CELLS = ["missing | #N/A", "divided | #DIV/0!", "empty", "sum | 2", "long | 30:00:00", "remarked"]


@pytest.mark.parametrize(("kind", "media_type"), [("xlsx", XLSX), ("ods", ODS)])
def test_errors_long_times_and_empty_texts_read_the_same_in_both_open_formats(kind: str, media_type: str) -> None:
    data = calculated(kind)
    assert text_of(data, media_type).splitlines()[1:7] == CELLS
    media = Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data))
    assert sheet_rows(data, media, LIMITS, pages="1", first_row=2, max_rows=1).text == "divided | #DIV/0!"


@pytest.mark.parametrize(("kind", "media_type"), [("xlsx", XLSX), ("ods", ODS)])
def test_comments_charts_and_links_follow_their_sheet_in_both_open_formats(kind: str, media_type: str) -> None:
    first, second = text_of(calculated(kind), media_type).split("\n\n[sheet 2")
    assert "is this right" in next(line for line in first.splitlines() if line.startswith("[comment A6] "))
    assert "[link A7] https://example.org/page" in first.splitlines()
    assert "[link B7]" not in first
    assert "[chart" in first
    assert "Two bars" in first
    assert second == ": Other] A1:A1\nelsewhere"


def test_what_cannot_be_read_in_an_old_workbook_is_said() -> None:
    data = calculated("xls")
    assert text_of(data, XLS).splitlines()[-1] == "[not shown: comments, links and charts]"
    assert inspect_office(data, XLS, "", LIMITS).notices == ("Comments, links and charts in .xls files are not shown.",)
    assert inspect_office(calculated("ods"), ODS, "", LIMITS).notices == ()


def test_a_chart_of_the_newer_kind_is_shown_and_not_the_sentence_for_old_programs() -> None:
    chart = (
        '<cx:chartSpace xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex"><cx:chartData>'
        '<cx:data id="0"><cx:strDim type="cat"><cx:lvl><cx:pt idx="0">Start</cx:pt></cx:lvl></cx:strDim>'
        '<cx:numDim type="val"><cx:lvl><cx:pt idx="0">100</cx:pt></cx:lvl></cx:numDim></cx:data></cx:chartData>'
        "<cx:chart><cx:title><cx:tx><cx:txData><cx:v>Bridge</cx:v></cx:txData></cx:tx></cx:title></cx:chart>"
        "</cx:chartSpace>"
    )
    drawing = (
        '<xdr:wsDr xmlns:xdr="http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing" '
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><xdr:twoCellAnchor>'
        '<mc:AlternateContent><mc:Choice Requires="cx1"><xdr:graphicFrame><cx:chart '
        f'xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex" xmlns:r="{R}" r:id="c"/>'
        "</xdr:graphicFrame></mc:Choice><mc:Fallback><xdr:sp><xdr:txBody><a:p><a:r><a:t>This chart isn't available"
        "</a:t></a:r></a:p></xdr:txBody></xdr:sp></mc:Fallback></mc:AlternateContent></xdr:twoCellAnchor></xdr:wsDr>"
    )
    parts = {"xl/worksheets/_rels/sheet2.xml.rels": relations(("d", "drawing", "../drawings/new.xml"))}
    parts |= {"xl/drawings/new.xml": drawing, "xl/charts/new.xml": chart}
    parts["xl/drawings/_rels/new.xml.rels"] = relations(("c", "chartEx", "../charts/new.xml"))
    with zipfile.ZipFile(oracle_xlsx()) as archive:
        data = container({name: archive.read(name) for name in archive.namelist()} | parts)
    sheet = text_of(data, XLSX, "2")
    assert sheet.splitlines()[-3:] == ["[chart: Bridge]", "| Start | 100 |", "| --- | --- |"]


def test_the_categories_of_a_chart_are_dates_and_have_levels() -> None:
    deck = pptx.Presentation()

    def show(data: CategoryChartData) -> None:
        shapes = deck.slides.add_slide(deck.slide_layouts[6]).shapes
        shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, Inches(4), Inches(3), data)

    days = CategoryChartData()
    days.categories = [dt.date(2022, 1, 1), dt.date(2022, 2, 1)]
    days.add_series("visits", (44562, 2))
    show(days)
    levels = CategoryChartData()
    for year in ("2023", "2024"):
        category = levels.add_category(year)
        category.add_sub_category("Q1")
        category.add_sub_category("Q2")
    levels.add_series("sales", (1, 2, 3, 4))
    show(levels)
    buffer = io.BytesIO()
    deck.save(buffer)

    first, second = text_of(buffer.getvalue(), PPTX).split("\n\n")

    assert first.splitlines()[4:] == ["| 2022-01-01 | 44562 |", "| 2022-02-01 | 2 |"]
    assert second.splitlines()[4:] == [
        "| 2023 / Q1 | 1 |",
        "| 2023 / Q2 | 2 |",
        "| 2024 / Q1 | 3 |",
        "| 2024 / Q2 | 4 |",
    ]
