"""Office files for the tests: made by LibreOffice, by python-docx, python-pptx and openpyxl, and by hand.

By hand means: a container with exactly the parts that a test is about.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import docx
import openpyxl
import openpyxl.chart
import pptx
from docx.shared import Inches
from openpyxl.comments import Comment
from PIL import Image
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches as SlideInches

from loom.content.media import Media, digest_of
from loom.content.recipes import Text
from loom.formats.facts import IntakeLimits
from loom.formats.office import render_office
from made import make_sample, run

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
ODT = "application/vnd.oasis.opendocument.text"
ODP = "application/vnd.oasis.opendocument.presentation"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
DOC = "application/msword"
PPT = "application/vnd.ms-powerpoint"
XLS = "application/vnd.ms-excel"
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
LIMITS = IntakeLimits()

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
WORD_NAMESPACES = (
    f'xmlns:w="{W}" xmlns:r="{R}" xmlns:a="{A}" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram" '
    'xmlns:v="urn:schemas-microsoft-com:vml" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
)
SLIDE_NAMESPACES = (
    f'xmlns:p="{P}" xmlns:r="{R}" xmlns:a="{A}" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"'
)


def text_of(data: bytes, media_type: str, pages: str = "", limits: IntakeLimits = LIMITS) -> str:
    """What a model would read."""
    media = Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data), name="sample")
    return render_office(data, media, Text(pages), limits).data.decode()


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def recall(found: str, wanted: str) -> float:
    expected = words(wanted)
    return len(expected & words(found)) / len(expected)


def png(width: int = 8, height: int = 6, color: str = "red") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), color).save(buffer, "PNG")
    return buffer.getvalue()


def container(parts: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def replaced(path: Path, name: str, part: str | bytes) -> bytes:
    """The container with another part in the place of one."""
    with zipfile.ZipFile(path) as archive:
        return container({member: archive.read(member) for member in archive.namelist()} | {name: part})


def relations(*entries: tuple[str, str, str], external: str = "") -> str:
    """(id, kind, target) triples as a .rels part; targets of the kind `external` lie outside the package."""
    outside = 'TargetMode="External"'
    lines = [
        f'<Relationship Id="{key}" Type="{R}/{kind}" Target="{target}" {outside if kind == external else ""}/>'
        for key, kind, target in entries
    ]
    namespace = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{namespace}">{"".join(lines)}</Relationships>'


def word(
    body: str, *, parts: Mapping[str, str | bytes] | None = None, relates: tuple[tuple[str, str, str], ...] = ()
) -> bytes:
    """A .docx with this body; `relates` are the relations of the document part."""
    return container(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relations(("r1", "officeDocument", "word/document.xml")),
            "word/document.xml": f"<w:document {WORD_NAMESPACES}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": relations(*relates, external="hyperlink"),
            **(parts or {}),
        }
    )


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def slides(*trees: str, parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A .pptx with one slide for each shape tree."""
    numbers = range(1, len(trees) + 1)
    listed = "".join(f'<p:sldId id="{255 + number}" r:id="s{number}"/>' for number in numbers)
    made_slides = {
        f"ppt/slides/slide{number}.xml": f"<p:sld {SLIDE_NAMESPACES}><p:spTree>{tree}</p:spTree></p:sld>"
        for number, tree in zip(numbers, trees, strict=True)
    }
    return container(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relations(("r1", "officeDocument", "ppt/presentation.xml")),
            "ppt/presentation.xml": f"<p:presentation {SLIDE_NAMESPACES}>{listed}</p:presentation>",
            "ppt/_rels/presentation.xml.rels": relations(
                *((f"s{number}", "slide", f"slides/slide{number}.xml") for number in numbers)
            ),
            **made_slides,
            **(parts or {}),
        }
    )


def shape(text: str, *, holder: str | None = None, paragraph_properties: str = "", alt: str = "") -> str:
    kind = "" if holder is None else f'<p:ph type="{holder}"/>' if holder else "<p:ph/>"
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="2" name="s" descr="{alt}"/><p:cNvSpPr/><p:nvPr>{kind}</p:nvPr></p:nvSpPr>'
        f"<p:txBody><a:bodyPr/><a:p>{paragraph_properties}<a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
    )


def libreoffice(source: Path, target: Path, how: str) -> None:
    """Convert with a profile of its own, so that several test processes do not disturb one another."""
    with tempfile.TemporaryDirectory() as folder:
        run(
            *(
                "soffice",
                "--headless",
                "--norestore",
                "--nolockcheck",
                f"-env:UserInstallation=file://{folder}/profile",
            ),
            *("--convert-to", how, "--outdir", folder, source),
        )
        shutil.move(Path(folder) / f"{source.stem}.{how.partition(':')[0]}", target)


def oracle_docx() -> Path:
    """Made by python-docx: headings, lists, tables in tables, merged cells, header, footer, a picture."""
    return make_sample("oracle.docx", _oracle_docx)


def _oracle_docx(path: Path) -> None:
    document = docx.Document()
    document.core_properties.title = "Harvest"
    document.add_heading("Harvest report", 0)
    for chapter in range(1, 6):
        document.add_heading(f"Chapter {chapter} about field{chapter}", 1)
        for place in range(8):
            document.add_paragraph(
                f"Wheat row{chapter}x{place} grew tall; the yield was {chapter * place} tonnes, größer als früher."
            )
        document.add_paragraph(f"bullet{chapter} first", style="List Bullet")
        document.add_paragraph(f"nested{chapter} second", style="List Bullet 2")
        document.add_paragraph(f"numbered{chapter} one", style="List Number")
        table = document.add_table(rows=3, cols=3)
        for row in range(3):
            for column in range(3):
                table.cell(row, column).text = f"cell{chapter}r{row}c{column}"
        inner = table.cell(2, 2).add_table(1, 2)
        inner.cell(0, 0).text, inner.cell(0, 1).text = f"inner{chapter}a", f"inner{chapter}b"
        table.cell(0, 0).merge(table.cell(0, 1))
    document.add_picture(io.BytesIO(png(40, 30)), width=Inches(1))
    section = document.sections[0]
    section.header.paragraphs[0].text = "Confidential headerword"
    section.footer.paragraphs[0].text = "Page footerword"
    document.save(str(path))


def oracle_pptx() -> Path:
    """Made by python-pptx: titles, levels, tables, groups, a chart, pictures, notes."""
    return make_sample("oracle.pptx", _oracle_pptx)


def _oracle_pptx(path: Path) -> None:
    deck = pptx.Presentation()
    for number in range(1, 7):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = f"Title{number} of the talk"
        frame = slide.placeholders[1].text_frame
        frame.text = f"point{number} alpha"
        inner = frame.add_paragraph()
        inner.text, inner.level = f"sub{number} beta", 1
        box = slide.shapes.add_textbox(SlideInches(1), SlideInches(4), SlideInches(3), SlideInches(1))
        box.text_frame.text = f"freebox{number} gamma"
        group = slide.shapes.add_group_shape()
        member = group.shapes.add_textbox(SlideInches(2), SlideInches(5), SlideInches(3), SlideInches(1))
        member.text_frame.text = f"grouped{number} delta"
        slide.notes_slide.notes_text_frame.text = f"spoken{number} words for the speaker"
    table = deck.slides[1].shapes.add_table(2, 3, SlideInches(1), SlideInches(1), SlideInches(6), SlideInches(1)).table
    for row in range(2):
        for column in range(3):
            table.cell(row, column).text = f"tab{row}{column}"
    data = CategoryChartData()
    data.categories = ["North", "South"]
    data.add_series("Revenue2024", (4.3, 2.5))
    deck.slides[2].shapes.add_chart(
        XL_CHART_TYPE.COLUMN_CLUSTERED, SlideInches(1), SlideInches(1), SlideInches(5), SlideInches(3), data
    )
    deck.slides[3].shapes.add_picture(io.BytesIO(png(64, 48, "blue")), SlideInches(1), SlideInches(1))
    deck.save(str(path))


def oracle_xlsx() -> Path:
    """Made by openpyxl: numbers, dates, booleans, text, a hidden sheet, a comment, a picture."""
    return make_sample("oracle.xlsx", _oracle_xlsx)


def _oracle_xlsx(path: Path) -> None:
    book = openpyxl.Workbook()
    first = book.active
    first.title = "Budget"
    first.append(["item", "amount", "due", "paid"])
    for number in range(1, 300):
        day = dt.date(2024, 1, 1) + dt.timedelta(days=number)
        first.append([f"thing{number}", number * 1.5, day, number % 2 == 0])
    first["A2"].comment = Comment("check this amount", "Ana")
    hidden = book.create_sheet("Secrets")
    hidden.sheet_state = "hidden"
    hidden["C3"] = "treasure"
    third = book.create_sheet("Währung & Co")
    third.append(["größe", 'quote "x"', "line one\nline two", "pipe | inside"])
    image = openpyxl.drawing.image.Image(io.BytesIO(png(20, 10, "green")))
    third.add_image(image, "B5")
    book.save(path)


def flat_text() -> Path:
    """The source of a text document, for LibreOffice."""
    return make_sample("story.fodt", _flat_text)


def _flat_text(path: Path) -> None:
    picture = base64.b64encode(png(24, 16)).decode()
    spaces = " ".join(
        f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for prefix, name in (
            ("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"), ("style", "style"),
            ("svg", "svg-compatible"), ("fo", "xsl-fo-compatible"),
        )
    )  # fmt: skip
    path.write_text(
        f"""<?xml version="1.0" encoding="UTF-8"?>
<office:document {spaces} xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xlink="http://www.w3.org/1999/xlink"
  office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.text">
<office:automatic-styles>
  <style:page-layout style:name="pm"><style:header-style/><style:footer-style/></style:page-layout>
  <text:list-style style:name="Bullets"><text:list-level-style-bullet text:level="1" text:bullet-char="•"/>
    <text:list-level-style-bullet text:level="2" text:bullet-char="◦"/></text:list-style>
  <text:list-style style:name="Numbers"><text:list-level-style-number text:level="1" style:num-format="1"
    style:num-suffix="."/></text:list-style>
</office:automatic-styles>
<office:master-styles><style:master-page style:name="Standard" style:page-layout-name="pm">
  <style:header><text:p>Runninghead of the orchard</text:p></style:header>
  <style:footer><text:p>Runningfoot of the orchard</text:p></style:footer>
</style:master-page></office:master-styles>
<office:body><office:text>
<text:tracked-changes><text:changed-region text:id="c1"><text:deletion><office:change-info><dc:creator>Bo</dc:creator>
  <dc:date>2024-01-01T00:00:00</dc:date></office:change-info><text:p>deletedword</text:p></text:deletion>
  </text:changed-region></text:tracked-changes>
<text:h text:outline-level="1">The orchard</text:h>
<text:p>Apples<text:s text:c="2"/>and pears<text:tab/>grow here<text:note text:note-class="footnote" text:id="f1">
  <text:note-citation>1</text:note-citation><text:note-body><text:p>footnoteword about pears</text:p></text:note-body>
  </text:note>, said <office:annotation office:name="a1"><dc:creator>Cleo</dc:creator>
  <dc:date>2024-01-01T00:00:00</dc:date><text:p>annotationword please check</text:p></office:annotation>
  the farmer.<text:change text:change-id="c1"/></text:p>
<text:h text:outline-level="2">Trees</text:h>
<text:list text:style-name="Bullets"><text:list-item><text:p>old tree</text:p>
  <text:list text:style-name="Bullets"><text:list-item><text:p>hollow branch</text:p></text:list-item></text:list>
  </text:list-item><text:list-item><text:p>young tree</text:p></text:list-item></text:list>
<text:list text:style-name="Numbers"><text:list-item><text:p>plant it</text:p></text:list-item>
  <text:list-item><text:p>water it</text:p></text:list-item></text:list>
<table:table table:name="t"><table:table-column table:number-columns-repeated="2"/>
  <table:table-row><table:table-cell><text:p>kind</text:p></table:table-cell><table:table-cell><text:p>count</text:p>
  </table:table-cell></table:table-row>
  <table:table-row><table:table-cell><text:p>quince</text:p></table:table-cell><table:table-cell><text:p>seventeen</text:p>
  </table:table-cell></table:table-row></table:table>
<text:p>A picture: <draw:frame text:anchor-type="as-char" svg:width="2cm" svg:height="1cm">
  <draw:image><office:binary-data>{picture}</office:binary-data></draw:image><svg:title>t</svg:title>
  <svg:desc>altword of a barn</svg:desc></draw:frame> and a box <draw:frame text:anchor-type="paragraph"
  svg:width="4cm" svg:height="2cm"><draw:text-box><text:p>boxword inside</text:p></draw:text-box></draw:frame>.</text:p>
<text:p>See <text:a xlink:type="simple" xlink:href="https://example.org/orchard">the page</text:a>
  or<text:line-break/>ask.</text:p>
{"".join(f"<text:p>Filler sentence {n} mentions plum{n} and cherry{n}.</text:p>" for n in range(60))}
</office:text></office:body></office:document>""",
        encoding="utf-8",
    )


def story(kind: str) -> bytes:
    """The flat text, saved by LibreOffice as docx, odt or doc."""
    return make_sample(f"story.{kind}", {"docx": _story_docx, "odt": _story_odt, "doc": _story_doc}[kind]).read_bytes()


def _story_docx(path: Path) -> None:
    libreoffice(flat_text(), path, "docx:MS Word 2007 XML")


def _story_odt(path: Path) -> None:
    libreoffice(flat_text(), path, "odt")


def _story_doc(path: Path) -> None:
    libreoffice(flat_text(), path, "doc:MS Word 97")


def deck(kind: str) -> bytes:
    """The presentation of python-pptx, opened and saved again by LibreOffice as pptx, odp or ppt."""
    return make_sample(f"deck.{kind}", {"pptx": _deck_pptx, "odp": _deck_odp, "ppt": _deck_ppt}[kind]).read_bytes()


def _deck_pptx(path: Path) -> None:
    libreoffice(oracle_pptx(), path, "pptx:Impress MS PowerPoint 2007 XML")


def _deck_odp(path: Path) -> None:
    libreoffice(oracle_pptx(), path, "odp")


def _deck_ppt(path: Path) -> None:
    libreoffice(oracle_pptx(), path, "ppt:MS PowerPoint 97")


def book(kind: str) -> bytes:
    """The workbook of openpyxl, opened and saved again by LibreOffice as xlsx, ods or xls."""
    return make_sample(f"book.{kind}", {"xlsx": _book_xlsx, "ods": _book_ods, "xls": _book_xls}[kind]).read_bytes()


def _book_xlsx(path: Path) -> None:
    libreoffice(oracle_xlsx(), path, "xlsx:Calc MS Excel 2007 XML")


def _book_ods(path: Path) -> None:
    libreoffice(oracle_xlsx(), path, "ods")


def _book_xls(path: Path) -> None:
    libreoffice(oracle_xlsx(), path, "xls:MS Excel 97")


def calculated(kind: str) -> bytes:
    """Formulas by openpyxl, calculated and saved by LibreOffice: errors, an empty text, a long time, and extras."""
    builds = {"xlsx": _calculated_xlsx, "ods": _calculated_ods, "xls": _calculated_xls}
    return make_sample(f"calculated.{kind}", builds[kind]).read_bytes()


def formulas_xlsx() -> Path:
    return make_sample("formulas.xlsx", _formulas_xlsx)


def _formulas_xlsx(path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    for name, formula in (("missing", "=NA()"), ("divided", "=1/0"), ("empty", '=IF(A1="zz","x","")'), ("sum", "=1+1")):
        sheet.append([name, formula])
    sheet.append(["long", dt.timedelta(hours=30)])
    sheet["B5"].number_format = "[h]:mm:ss"
    sheet.append(["remarked"])
    sheet["A6"].comment = Comment("is this right", "Ana")
    sheet.append(["a page", "https://said.example/"])
    sheet["A7"].hyperlink = "https://example.org/page"
    sheet["B7"].hyperlink = "https://said.example/"
    chart = openpyxl.chart.BarChart()
    chart.title = "Two bars"
    chart.add_data(openpyxl.chart.Reference(sheet, min_col=2, min_row=4, max_row=5))
    sheet.add_chart(chart, "D2")  # pyright: ignore[reportCallIssue]  # its stub lacks the anchor
    book.create_sheet("Other").append(["elsewhere"])
    book.save(path)


def _calculated_xlsx(path: Path) -> None:
    libreoffice(formulas_xlsx(), path, "xlsx:Calc MS Excel 2007 XML")


def _calculated_ods(path: Path) -> None:
    libreoffice(formulas_xlsx(), path, "ods")


def _calculated_xls(path: Path) -> None:
    libreoffice(formulas_xlsx(), path, "xls:MS Excel 97")
