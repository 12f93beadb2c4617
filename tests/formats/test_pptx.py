"""PowerPoint presentations as text. Small slides show one thing each; whole decks are compared with python-pptx."""

from __future__ import annotations

import io
from typing import Any

import pptx
import pytest

from formats.made_office import (
    LIMITS,
    ODP,
    PPT,
    PPTX,
    SLIDE_NAMESPACES,
    A,
    container,
    deck,
    oracle_pptx,
    png,
    recall,
    relations,
    shape,
    slides,
    text_of,
)
from loom.content.media import Media, digest_of
from loom.content.recipes import EmbeddedImage, Text
from loom.formats.office import inspect_office, render_office


def oracle_text(data: bytes) -> str:
    """What python-pptx finds: text frames, tables, groups, notes."""
    texts: list[str] = []

    def walk(shapes: Any) -> None:
        for found in shapes:
            if found.has_text_frame:
                texts.append(found.text_frame.text)
            elif getattr(found, "has_table", False):
                texts.extend(cell.text for row in found.table.rows for cell in row.cells)
            elif hasattr(found, "shapes"):
                walk(found.shapes)

    for slide in pptx.Presentation(io.BytesIO(data)).slides:
        walk(slide.shapes)
        texts.append(slide.notes_slide.notes_text_frame.text)
    return "\n".join(texts)


@pytest.mark.parametrize("source", ["python-pptx", "LibreOffice"])
def test_every_word_that_python_pptx_finds_is_found(source: str) -> None:
    data = oracle_pptx().read_bytes() if source == "python-pptx" else deck("pptx")
    assert recall(text_of(data, PPTX), oracle_text(data)) == 1.0


@pytest.mark.parametrize(("kind", "media_type"), [("pptx", PPTX), ("odp", ODP), ("ppt", PPT)])
def test_a_deck_keeps_its_structure_in_every_format(kind: str, media_type: str) -> None:
    text = text_of(deck(kind), media_type)
    sections = text.split("[slide ")
    assert len(sections) == 7
    assert sections[1].splitlines()[:3] == ["1]", "# Title1 of the talk", "- point1 alpha"]
    assert "  - sub1 beta" in text
    assert "freebox1 gamma" in text
    assert "grouped1 delta" in text
    assert "[notes] spoken1 words for the speaker" in text
    assert "| tab10 | tab11 | tab12 |" in sections[2]
    assert "[image 1" in sections[4]


def test_slides_are_chosen_by_number_and_pictures_keep_theirs() -> None:
    data = oracle_pptx().read_bytes()
    assert inspect_office(data, PPTX, "talk.pptx", LIMITS).media.pages == 6
    text = text_of(data, PPTX, "4-5")
    assert text.startswith("[slide 4]\n# Title4 of the talk")
    assert "[slide 5]" in text
    assert "[slide 3]" not in text
    assert "[slide 6]" not in text
    assert "[image 1" in text
    media = Media(digest=digest_of(data), media_type=PPTX, size_bytes=len(data))
    beyond = render_office(data, media, Text("5-9"), LIMITS)
    assert beyond.notices == ("The document has 6 pages: pages 5-6 instead of 5-9.",)
    assert "[slide 6]" in beyond.data.decode()


def test_slides_come_in_the_order_of_the_show_and_not_of_their_names() -> None:
    data = container(
        {
            "_rels/.rels": relations(("r1", "officeDocument", "ppt/presentation.xml")),
            "ppt/presentation.xml": f'<p:presentation {SLIDE_NAMESPACES}><p:sldIdLst><p:sldId id="256" r:id="b"/>'
            '<p:sldId id="257" r:id="a"/><p:sldId id="258" r:id="missing"/></p:sldIdLst></p:presentation>',
            "ppt/_rels/presentation.xml.rels": relations(
                ("a", "slide", "slides/1.xml"), ("b", "slide", "slides/2.xml")
            ),
            "ppt/slides/1.xml": f"<p:sld {SLIDE_NAMESPACES}>{shape('first file')}</p:sld>",
            "ppt/slides/2.xml": f'<p:sld {SLIDE_NAMESPACES} show="0">{shape("second file")}</p:sld>',
        }
    )
    assert text_of(data, PPTX) == "[slide 1, hidden]\nsecond file\n\n[slide 2]\nfirst file"


def test_the_title_comes_first_and_the_rest_in_the_order_of_the_file() -> None:
    named = '<p:nvGrpSpPr><p:cNvPr id="9" name="g" descr="a pair"/></p:nvGrpSpPr><p:grpSpPr/>'
    grouped = f"<p:grpSp>{named}{shape('in group')}</p:grpSp>"
    tree = (
        shape("free text") + grouped + shape("The title", holder="ctrTitle") + shape("under it", holder="subTitle")
        + shape("7", holder="sldNum") + shape("point", holder="")
        + shape("deep", holder="body", paragraph_properties='<a:pPr lvl="1"/>')
        + shape("no bullet", holder="body", paragraph_properties="<a:pPr><a:buNone/></a:pPr>")
        + shape("", alt="an arrow")
    )  # fmt: skip
    assert text_of(slides(tree), PPTX).splitlines() == [
        "[slide 1]",
        "# The title",
        "free text",
        "[group: a pair]",
        "in group",
        "under it",
        "- point",
        "  - deep",
        "no bullet",
        "[drawing: an arrow]",
    ]


def test_numbered_points_count_by_level() -> None:
    def point(text: str, level: int, bullet: str = '<a:buAutoNum type="arabicPeriod"/>') -> str:
        return f'<a:p><a:pPr lvl="{level}">{bullet}</a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>'

    body = point("a", 0) + point("b", 1) + point("c", 1) + point("d", 0) + point("e", 1)
    body += point("f", 0, "<a:buNone/>") + point("g", 0, '<a:buAutoNum type="arabicPeriod" startAt="5"/>')
    tree = f"<p:sp><p:txBody>{body}</p:txBody></p:sp>"
    lines = ["1. a", "  1. b", "  2. c", "2. d", "  1. e", "f", "5. g"]
    assert text_of(slides(tree), PPTX).splitlines()[1:] == lines


def test_runs_breaks_and_fields_make_one_paragraph() -> None:
    runs = '<a:r><a:rPr lang="de"><a:latin typeface="A"/></a:rPr><a:t>one </a:t></a:r><a:r><a:rPr/><a:t>two</a:t></a:r>'
    rest = '<a:br/><a:r><a:t>three</a:t></a:r><a:fld type="datetime"><a:t> today</a:t></a:fld>'
    data = slides(f"<p:sp><p:txBody><a:p>{runs}{rest}</a:p></p:txBody></p:sp>{shape('x' * 1200)}")
    assert text_of(data, PPTX).startswith("[slide 1]\none two\nthree today\nxxx")


def test_tables_keep_their_columns_when_cells_are_merged() -> None:
    def cell(text: str, extra: str = "") -> str:
        return f"<a:tc {extra}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody><a:tcPr/></a:tc>"

    first = cell("wide", 'gridSpan="2"') + cell("", 'hMerge="1"') + cell("c|d")
    second = cell("tall", 'rowSpan="2"') + cell("e") + cell("f")
    third = cell("no", 'vMerge="1"') + cell("g") + cell("h")
    rows = "".join(f"<a:tr>{row}</a:tr>" for row in (first, second, third))
    data = slides(f"<p:graphicFrame><a:graphic><a:tbl>{rows}</a:tbl></a:graphic></p:graphicFrame>")
    assert text_of(data, PPTX).splitlines()[2:] == [
        "| wide |  | c\\|d |",
        "| --- | --- | --- |",
        "| tall | e | f |",
        "|  | g | h |",
    ]


def test_pictures_are_counted_across_slides_and_told_with_their_slide() -> None:
    def picture(relation: str, alt: str) -> str:
        return (
            f'<p:pic><p:nvPicPr><p:cNvPr id="3" name="n" descr="{alt}"/>'
            f'</p:nvPicPr><p:blipFill><a:blip r:embed="{relation}"/>'
            "</p:blipFill></p:pic>"
        )

    filled = '<p:sp><p:spPr><a:blipFill><a:blip r:embed="i1"/></a:blipFill></p:spPr></p:sp>'
    linked = '<p:pic><p:cNvPr descr="far away"/><p:blipFill><a:blip r:link="l1"/></p:blipFill></p:pic>'
    ole = (
        "<p:graphicFrame><mc:AlternateContent><mc:Choice Requires='v'><p:oleObj/></mc:Choice><mc:Fallback><p:oleObj>"
        f"{picture('i2', 'a sheet')}</p:oleObj></mc:Fallback></mc:AlternateContent></p:graphicFrame>"
    )
    data = slides(
        picture("i1", "sunrise") + linked,
        filled + ole,
        parts={
            "ppt/slides/_rels/slide1.xml.rels": relations(("i1", "image", "../media/a.png")),
            "ppt/slides/_rels/slide2.xml.rels": relations(
                ("i1", "image", "../media/a.png"), ("i2", "image", "../media/b.png")
            ),
            "ppt/media/a.png": png(7, 5),
            "ppt/media/b.png": png(9, 8),
        },
    )
    assert text_of(data, PPTX).splitlines() == [
        "[slide 1]",
        "[image 1: sunrise]",
        "[image: far away]",
        "",
        "[slide 2]",
        "[image 1]",
        "[image 2: a sheet]",
    ]
    found = inspect_office(data, PPTX, "", LIMITS).pictures
    assert [(p.number, p.page, p.width, p.height) for p in found] == [(1, 1, 7, 5), (2, 2, 9, 8)]
    media = Media(digest=digest_of(data), media_type=PPTX, size_bytes=len(data))
    assert render_office(data, media, EmbeddedImage(2), LIMITS).data == png(9, 8)


def test_charts_diagrams_notes_and_both_kinds_of_comments_are_read() -> None:
    diagram = (
        f'<dgm:dataModel {SLIDE_NAMESPACES}><dgm:ptLst><dgm:pt modelId="1">'
        f"<dgm:t><a:p><a:r><a:t>step one</a:t></a:r></a:p>"
        "</dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>"
    )
    waterfall = (
        f'<cx:chartSpace xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex" xmlns:a="{A}">'
        f"<cx:chartData>"
        '<cx:data id="0"><cx:strDim type="cat"><cx:lvl><cx:pt idx="0">Start</cx:pt></cx:lvl></cx:strDim></cx:data>'
        "</cx:chartData><cx:chart><cx:title><cx:tx><cx:rich><a:p><a:r><a:t>Bridge</a:t></a:r></a:p></cx:rich></cx:tx>"
        "</cx:title></cx:chart></cx:chartSpace>"
    )
    old = (
        f'<p:cmLst {SLIDE_NAMESPACES}><p:cm authorId="0">'
        f'<p:pos x="1" y="1"/><p:text>old remark</p:text></p:cm></p:cmLst>'
    )
    new = (
        f'<p188:cmLst xmlns:p188="http://schemas.microsoft.com/office/powerpoint/2018/8/main" xmlns:a="{A}">'
        '<p188:cm authorId="{X}"><p188:replyLst><p188:reply authorId="{X}">'
        "<p188:txBody><a:p><a:r><a:t>an answer</a:t></a:r>"
        "</a:p></p188:txBody></p188:reply></p188:replyLst><p188:txBody><a:p><a:r><a:t>new remark</a:t></a:r></a:p>"
        "</p188:txBody></p188:cm></p188:cmLst>"
    )
    spoken = shape("slide image", holder="sldImg") + shape("say this", holder="body")
    notes = f"<p:notes {SLIDE_NAMESPACES}>{spoken}</p:notes>"
    frame = '<p:graphicFrame><a:graphic><dgm:relIds r:dm="d"/></a:graphic></p:graphicFrame>'
    chart = (
        '<p:graphicFrame><mc:AlternateContent><mc:Choice Requires="cx1"><cx:chart '
        'xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex" r:id="w"/>'
        "</mc:Choice></mc:AlternateContent>"
        "</p:graphicFrame>"
    )
    old_authors = f'<p:cmAuthorLst {SLIDE_NAMESPACES}><p:cmAuthor id="0" name="Ana"/></p:cmAuthorLst>'
    new_authors = (
        '<p188:authorLst xmlns:p188="http://schemas.microsoft.com/office/powerpoint/2018/8/main">'
        '<p188:author id="{X}" name="Bo"/></p188:authorLst>'
    )
    data = slides(
        frame + chart,
        parts={
            "ppt/_rels/presentation.xml.rels": relations(
                ("s1", "slide", "slides/slide1.xml"), ("c1", "commentAuthors", "a.xml"), ("c2", "authors", "b.xml")
            ),
            "ppt/a.xml": old_authors,
            "ppt/b.xml": new_authors,
            "ppt/slides/_rels/slide1.xml.rels": relations(
                ("d", "diagramData", "d.xml"),
                ("w", "chartEx", "w.xml"),
                ("n", "notesSlide", "n.xml"),
                ("o", "comments", "o.xml"),
                ("m", "comments", "m.xml"),
            ),
            "ppt/slides/d.xml": diagram,
            "ppt/slides/w.xml": waterfall,
            "ppt/slides/n.xml": notes,
            "ppt/slides/o.xml": old,
            "ppt/slides/m.xml": new,
        },
    )
    assert text_of(data, PPTX).splitlines() == [
        "[slide 1]",
        "[diagram]",
        "- step one",
        "[chart: Bridge]",
        "| Start |",
        "| --- |",
        "[notes] say this",
        "[comment] Ana: old remark",
        "[comment] Bo: new remark",
        "[comment] Bo: an answer",
    ]


@pytest.mark.parametrize("shape_tag", ["<p:sp>", '<p:sp useBgFill="1">', "<p:sp\n>"])
@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("is_alternative", [False, True])
def test_notes_are_read_however_they_are_written(shape_tag: str, quote: str, is_alternative: bool) -> None:
    """PowerPoint writes a shape with an equation twice: for programs that know equations, and for others."""
    spoken = (
        shape("say this", holder="body").replace("<p:sp>", shape_tag).replace('type="body"', f"type={quote}body{quote}")
    )
    if is_alternative:
        spoken = (
            f'<mc:AlternateContent><mc:Choice Requires="a14">{spoken}</mc:Choice>'
            f"<mc:Fallback>{spoken}</mc:Fallback></mc:AlternateContent>"
        )
    data = slides(
        shape("seen"),
        parts={
            "ppt/slides/_rels/slide1.xml.rels": relations(("n", "notesSlide", "n.xml")),
            "ppt/slides/n.xml": f"<p:notes {SLIDE_NAMESPACES}><p:spTree>{shape('7', holder='sldNum', alt='a slide')}"
            f"{spoken}{shape('2024', holder='dt')}</p:spTree></p:notes>",
        },
    )
    assert text_of(data, PPTX) == "[slide 1]\nseen\n[notes] say this"


def test_notes_without_prefixes_are_read() -> None:
    notes = f"<p:notes {SLIDE_NAMESPACES}>{shape('say this', holder='body')}</p:notes>"
    plain = notes.replace("<p:", "<").replace("</p:", "</").replace("xmlns:p=", "xmlns=")
    data = slides(
        shape("seen"),
        parts={
            "ppt/slides/_rels/slide1.xml.rels": relations(("n", "notesSlide", "n.xml")),
            "ppt/slides/n.xml": plain,
        },
    )
    assert text_of(data, PPTX) == "[slide 1]\nseen\n[notes] say this"


def test_links_say_where_they_lead_once() -> None:
    deck = pptx.Presentation()
    frame = deck.slides.add_slide(deck.slide_layouts[1]).placeholders[1].text_frame
    for text, address in (
        ("see ", ""),
        ("the ", "https://example.com/a"),
        ("page", "https://example.com/a"),
        (" or ", ""),
        ("https://example.com/b", "https://example.com/b"),
        (" script", "javascript:alert(1)"),
    ):
        run = frame.paragraphs[0].add_run()
        run.text = text
        run.hyperlink.address = address or None
    buffer = io.BytesIO()
    deck.save(buffer)
    assert text_of(buffer.getvalue(), PPTX) == (
        "[slide 1]\n- see the page (https://example.com/a) or https://example.com/b script"
    )


def test_equations_on_slides_keep_their_meaning() -> None:
    root = "<m:rad><m:deg><m:r><m:t>3</m:t></m:r></m:deg><m:e><m:r><m:t>8</m:t></m:r></m:e></m:rad>"
    math = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    data = slides(f"<p:sp><p:txBody><a:p><m:oMath {math}>{root}</m:oMath></a:p></p:txBody></p:sp>")
    assert text_of(data, PPTX) == "[slide 1]\n√[3](8)"
