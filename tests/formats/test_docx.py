"""Word documents as text. Small bodies show one thing each; whole files are compared with what python-docx finds."""

from __future__ import annotations

import io
from collections.abc import Iterator

import docx
import pytest
from docx.table import Table

from formats.made_office import (
    DOC,
    DOCX,
    LIMITS,
    ODT,
    WORD_NAMESPACES,
    container,
    oracle_docx,
    paragraph,
    png,
    recall,
    relations,
    story,
    text_of,
    word,
)
from loom.content.media import Media, digest_of
from loom.content.recipes import EmbeddedImage, Text
from loom.errors import TooLarge, Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.office import inspect_office, render_office


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr><w:p>{run(text)}</w:p></w:tc>"


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def part(root: str, inner: str) -> str:
    return f"<w:{root} {WORD_NAMESPACES}>{inner}</w:{root}>"


def oracle_texts(document: object) -> Iterator[str]:
    """Every paragraph and cell that python-docx gives, tables in tables included."""
    for item in document.iter_inner_content():  # type: ignore[attr-defined]
        if isinstance(item, Table):
            for row in item.rows:
                for inner in row.cells:
                    yield from oracle_texts(inner)
        else:
            yield item.text


@pytest.mark.parametrize("source", ["python-docx", "LibreOffice"])
def test_every_word_that_python_docx_finds_is_found(source: str) -> None:
    data = oracle_docx().read_bytes() if source == "python-docx" else story("docx")
    document = docx.Document(io.BytesIO(data))
    margins = [p.text for s in document.sections for part in (s.header, s.footer) for p in part.paragraphs]
    assert recall(text_of(data, DOCX), "\n".join([*oracle_texts(document), *margins])) == 1.0


@pytest.mark.parametrize(("kind", "media_type"), [("docx", DOCX), ("odt", ODT), ("doc", DOC)])
def test_a_story_keeps_its_structure_in_every_format(kind: str, media_type: str) -> None:
    text = text_of(story(kind), media_type)
    for line in (
        "# The orchard",
        "## Trees",
        "- old tree",
        "  - hollow branch",
        "- young tree",
        "1. plant it",
        "2. water it",
        "| kind | count |",
        "| quince | seventeen |",
        "boxword inside",
        "[^1] footnoteword about pears",
        "[header] Runninghead of the orchard",
        "[footer] Runningfoot of the orchard",
        "Filler sentence 59 mentions plum59 and cherry59.",
    ):
        assert line in text.splitlines(), line
    assert "Apples  and pears\tgrow here[^1], said" in text
    assert "Cleo: annotationword please check" in text
    assert "the page (https://example.org/orchard)" in text
    assert "[image 1" in text
    assert "deletedword" not in text


def test_headings_are_known_by_the_names_of_their_styles_and_by_outline_levels() -> None:
    styles = part(
        "styles",
        '<w:style w:type="paragraph" w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
        '<w:style w:type="paragraph" w:styleId="Mine"><w:name w:val="Mine"/><w:basedOn w:val="berschrift1"/></w:style>'
        '<w:style w:type="paragraph" w:styleId="Deep"><w:name w:val="x"/>'
        '<w:pPr><w:outlineLvl w:val="2"/></w:pPr></w:style>'
        '<w:style w:type="paragraph" w:styleId="Loop"><w:name w:val="l"/><w:basedOn w:val="Loop"/></w:style>'
        '<w:style w:type="table" w:styleId="T"><w:name w:val="heading 9"/></w:style>',
    )
    body = "".join(
        paragraph(text, f'<w:pStyle w:val="{style}"/>')
        for text, style in (
            ("One", "berschrift1"),
            ("Two", "Mine"),
            ("Three", "Deep"),
            ("Four", "Loop"),
            ("Five", "None"),
        )
    ) + paragraph("Six", '<w:outlineLvl w:val="1"/>')
    data = word(body, parts={"word/styles.xml": styles}, relates=(("r1", "styles", "styles.xml"),))
    assert text_of(data, DOCX) == "# One\n\n# Two\n\n### Three\nFour\nFive\n\n## Six"


def test_lists_have_bullets_and_running_numbers_on_every_level() -> None:
    def level(at: int, kind: str, pattern: str, start: int = 1) -> str:
        shown = f'<w:numFmt w:val="{kind}"/><w:lvlText w:val="{pattern}"/>'
        return f'<w:lvl w:ilvl="{at}"><w:start w:val="{start}"/>{shown}</w:lvl>'

    numbering = part(
        "numbering",
        f'<w:abstractNum w:abstractNumId="0">{level(0, "decimal", "%1.")}{level(1, "lowerLetter", "%1.%2)", 3)}'
        f"{level(2, 'upperRoman', '%3')}</w:abstractNum>"
        f'<w:abstractNum w:abstractNumId="1">{level(0, "bullet", "•")}{level(1, "bullet", "o")}</w:abstractNum>'
        f'<w:abstractNum w:abstractNumId="2">{level(0, "lowerLetter", "%1.", 999999999)}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>'
        '<w:num w:numId="3"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/>'
        '</w:lvlOverride></w:num><w:num w:numId="4"><w:abstractNumId w:val="2"/></w:num>',
    )
    items = [("a", 1, 0), ("b", 1, 1), ("c", 1, 1), ("d", 1, 2), ("e", 1, 0), ("f", 1, 1), ("g", 2, 0), ("h", 2, 1)]
    items += [("i", 3, 0), ("j", 3, 0), ("k", 0, 0), ("l", 99, 0), ("m", 4, 0)]
    body = "".join(
        paragraph(text, f'<w:numPr><w:ilvl w:val="{at}"/><w:numId w:val="{number}"/></w:numPr>')
        for text, number, at in items
    )
    data = word(body, parts={"word/numbering.xml": numbering}, relates=(("r1", "numbering", "numbering.xml"),))
    assert text_of(data, DOCX).splitlines() == [
        "1. a", "  1.c) b", "  1.d) c", "    I d", "2. e", "  2.c) f", "- g", "  - h", "7. i", "8. j", "k", "l",
        "999999999. m",
    ]  # fmt: skip


def test_tables_keep_their_columns_whatever_is_merged_and_nested() -> None:
    inner = f"<w:tc>{table(cell('in1') + cell('in2'), cell('in3') + cell('in4'))}<w:p/></w:tc>"
    data = word(
        table(
            cell("wide", '<w:gridSpan w:val="2"/>') + cell("c"),
            cell("tall", '<w:vMerge w:val="restart"/>') + cell("b|b") + cell("two"),
            cell("hidden", "<w:vMerge/>") + inner + cell(""),
            '<w:trPr><w:gridBefore w:val="1"/></w:trPr>' + cell("x") + cell("y"),
        )
        + paragraph("after")
    )
    assert text_of(data, DOCX).splitlines() == [
        "| wide |  | c |",
        "| --- | --- | --- |",
        "| tall | b\\|b | two |",
        "|  | in1; in2<br>in3; in4 |  |",
        "|  | x | y |",
        "",
        "after",
    ]


def test_a_table_of_one_column_is_a_frame_around_text() -> None:
    framed = f"<w:tc>{paragraph('Framed')}{table(cell('a') + cell('b'))}<w:p/></w:tc>"
    assert text_of(word(table(framed)), DOCX) == "Framed\n\n| a | b |\n| --- | --- |"


def test_insertions_are_kept_and_deletions_left_out() -> None:
    data = word(
        f'<w:p>{run("kept ")}<w:ins w:id="1">{run("inserted ")}</w:ins>'
        f'<w:del w:id="2"><w:r><w:delText>gone </w:delText></w:r>'
        f'{run("gonetoo ")}</w:del><w:moveFrom w:id="3">{run("movedaway ")}</w:moveFrom>'
        f'<w:moveTo w:id="4">{run("here")}'
        "</w:moveTo></w:p>"
        f'<w:p><w:pPr><w:rPr><w:del w:id="5"/></w:rPr></w:pPr>{run("joined ")}</w:p><w:p>{run("lines")}</w:p>'
        f'<w:p><w:pPr><w:pPrChange w:id="6"><w:pPr><w:outlineLvl w:val="0"/>'
        f"</w:pPr></w:pPrChange></w:pPr>{run('plain')}</w:p>"
        + table(
            cell("row") + cell("stays"),
            '<w:trPr><w:del w:id="7"/></w:trPr>' + cell("row") + cell("goes"),
        )
    )
    text = text_of(data, DOCX)
    assert text.splitlines()[:3] == ["kept inserted here", "joined lines", "plain"]
    assert "stays" in text
    assert "goes" not in text


def test_fields_show_their_result_and_not_their_instruction() -> None:
    def mark(kind: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'

    nested = f"{mark('begin')}{run('IF ')}{mark('begin')}<w:r><w:instrText>DATE</w:instrText></w:r>{mark('separate')}"
    nested += f"{run('inner')}{mark('end')}{mark('separate')}{run('result')}{mark('end')}"
    simple = f'<w:fldSimple w:instr="PAGE">{run("7")}</w:fldSimple>'
    broken = f"<w:p>{run('before ')}{mark('begin')}{run('swallowed')}</w:p><w:p>{run('not swallowed')}</w:p>"
    data = word(f"<w:p>{run('a ')}{nested}{run(' z ')}{simple}</w:p>{broken}")
    assert text_of(data, DOCX).splitlines() == ["a result z 7", "before", "not swallowed"]


def test_text_boxes_follow_their_paragraph_and_alternatives_are_read_once() -> None:
    box = f"<w:txbxContent>{paragraph('boxed')}{paragraph('twice')}</w:txbxContent>"
    data = word(
        f"<w:p>{run('before ')}<w:r><mc:AlternateContent>"
        f"<mc:Choice Requires='wps'><w:drawing><wps:txbx>{box}</wps:txbx>"
        f"</w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>{box}</v:textbox></w:pict></mc:Fallback>"
        f"</mc:AlternateContent></w:r>{run('after')}</w:p>"
        f"<w:p><w:r><mc:AlternateContent><mc:Choice Requires='wpi'>{run('ink')}</mc:Choice><mc:Fallback>{run('old')}"
        "</mc:Fallback></mc:AlternateContent></w:r></w:p>"
    )
    assert text_of(data, DOCX).splitlines() == ["before after", "boxed", "twice", "old"]


def test_notes_and_comments_are_marked_in_the_text_and_given_at_the_end() -> None:
    def note(kind: str, key: int, text: str, extra: str = "") -> str:
        return f'<w:{kind} w:id="{key}" {extra}>{paragraph(text)}</w:{kind}>'

    body = (
        f"<w:p>{run('See')}<w:r><w:footnoteReference w:id='5'/>"
        f"</w:r>{run(' and')}<w:r><w:endnoteReference w:id='2'/></w:r>"
        f"{run(' or')}<w:r><w:footnoteReference w:id='3'/></w:r><w:r><w:commentReference w:id='0'/></w:r></w:p>"
    )
    data = word(
        body,
        parts={
            "word/footnotes.xml": part(
                "footnotes", note("footnote", 0, "line") + note("footnote", 3, "third") + note("footnote", 5, "fifth")
            ),
            "word/endnotes.xml": part("endnotes", note("endnote", 2, "the end")),
            "word/comments.xml": part("comments", note("comment", 0, "really?", 'w:author="Ana B."')),
        },
        relates=(
            ("r1", "footnotes", "footnotes.xml"),
            ("r2", "endnotes", "endnotes.xml"),
            ("r3", "comments", "comments.xml"),
        ),
    )
    assert text_of(data, DOCX).split("\n\n") == [
        "See[^1] and[^e1] or[^2][comment 1]",
        "[^1] fifth\n[^2] third",
        "[^e1] the end",
        "[comment 1] Ana B.: really?",
    ]


def test_headers_and_footers_are_given_once() -> None:
    body = paragraph("text") + "".join(
        f'<w:p><w:pPr><w:sectPr><w:headerReference r:id="{one}"/><w:footerReference r:id="f"/></w:sectPr></w:pPr></w:p>'
        for one in ("h1", "h2", "h3")
    )
    data = word(
        body,
        parts={
            "word/h1.xml": part("hdr", paragraph("same head")),
            "word/h2.xml": part("hdr", paragraph("same head")),
            "word/h3.xml": part("hdr", paragraph("other head")),
            "word/f.xml": part("ftr", paragraph("foot")),
        },
        relates=(
            ("h1", "header", "h1.xml"),
            ("h2", "header", "h2.xml"),
            ("h3", "header", "h3.xml"),
            ("f", "footer", "f.xml"),
        ),
    )
    assert text_of(data, DOCX) == "text\n\n[header] same head\n[footer] foot\n[header] other head"


def test_inline_marks_symbols_equations_and_controls_become_text() -> None:
    inline = (
        '<w:p><w:pPr><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr>'
        "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t>"
        '<w:noBreakHyphen/><w:t>d</w:t><w:softHyphen/><w:sym w:font="Wingdings" w:char="F0FC"/>'
        '<w:sym w:font="Symbol" w:char="F061"/><w:sym w:font="Odd" w:char="zz"/></w:r></w:p>'
    )
    math = (
        "<w:p><m:oMath><m:f><m:num><m:r><m:t>x+1</m:t></m:r></m:num><m:den><m:r><m:t>y</m:t></m:r></m:den></m:f>"
        "<m:sSup><m:e><m:r><m:t>z</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></w:p>"
    )
    control = (
        '<w:sdt><w:sdtPr><w:alias w:val="n"/><w:placeholder/></w:sdtPr><w:sdtContent>'
        f"{paragraph('controlled')}</w:sdtContent></w:sdt>"
    )
    links = (
        f'<w:p><w:hyperlink r:id="l1">{run("a page")}</w:hyperlink> <w:hyperlink r:id="l2">{run("https://b.example/")}'
        f'</w:hyperlink><w:hyperlink r:id="l3">{run(" script")}</w:hyperlink></w:p>'
    )
    data = word(
        inline + math + control + links,
        relates=(
            ("l1", "hyperlink", "https://a.example/"),
            ("l2", "hyperlink", "https://b.example/"),
            ("l3", "hyperlink", "javascript:alert(1)"),
        ),
    )
    assert text_of(data, DOCX).splitlines() == [
        "a\tb",
        "c-d✓α\N{REPLACEMENT CHARACTER}",
        "(x+1)/(y)z^(2)",
        "controlled",
        "a page (https://a.example/)https://b.example/ script",
    ]


def test_pictures_have_numbers_in_the_order_of_the_text_and_keep_their_alternative_text() -> None:
    def drawing(relation: str, alt: str) -> str:
        return (
            f'<w:r><w:drawing><wp:inline><wp:docPr id="1" name="n" descr="{alt}"/>'
            f'<a:graphic><a:blip r:embed="{relation}"/>'
            "</a:graphic></wp:inline></w:drawing></w:r>"
        )

    body = (
        f"<w:p>{run('see ')}{drawing('p2', 'a red&#10;barn')}{drawing('p1', '')}{drawing('p2', 'again')}"
        f"{drawing('gone', 'lost')}"
        '<w:r><w:pict><v:shape alt="old style"><v:imagedata r:id="p3"/></v:shape></w:pict></w:r>'
        '<w:r><w:drawing><wp:docPr descr="only a shape"/></w:drawing></w:r></w:p>'
    )
    parts = {
        "word/media/one.png": png(3, 4),
        "word/media/two.png": png(5, 6),
        "word/media/three.emf": bytes(40) + b" EMF",
    }
    relates = (
        ("p1", "image", "media/one.png"),
        ("p2", "image", "/word/media/two.png"),
        ("p3", "image", "media/three.emf"),
    )
    data = word(body, parts=parts, relates=relates)
    assert text_of(data, DOCX) == (
        "see [image 1: a red barn][image 2][image 1: again][image: lost][image 3: old style][drawing: only a shape]"
    )
    found = inspect_office(data, DOCX, "a.docx", LIMITS).pictures
    assert [(p.number, p.page, p.media_type, p.width, p.height, p.name) for p in found] == [
        (1, 0, "image/png", 5, 6, "two.png"),
        (2, 0, "image/png", 3, 4, "one.png"),
        (3, 0, "image/emf", None, None, "three.emf"),
    ]
    media = Media(digest=digest_of(data), media_type=DOCX, size_bytes=len(data), name="a.docx")
    taken = render_office(data, media, EmbeddedImage(1), LIMITS)
    assert (taken.data, taken.media_type, taken.width, taken.height) == (png(5, 6), "image/png", 5, 6)
    with pytest.raises(Unsupported, match=r"a\.docx has 3 images; image 4 does not exist"):
        render_office(data, media, EmbeddedImage(4), LIMITS)


def test_charts_and_diagrams_give_their_words() -> None:
    chart = (
        '<c:chartSpace xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main">'
        "<c:chart><c:title><c:tx><c:rich><a:p><a:r><a:t>Sales"
        "</a:t></a:r></a:p></c:rich></c:tx></c:title><c:ser><c:tx>"
        "<c:strRef><c:strCache><c:pt idx='0'><c:v>2024</c:v></c:pt>"
        "</c:strCache></c:strRef></c:tx><c:cat><c:strRef><c:strCache>"
        "<c:pt idx='0'><c:v>North</c:v></c:pt><c:pt idx='1'>"
        "<c:v>South</c:v></c:pt></c:strCache></c:strRef></c:cat><c:val><c:numRef><c:numCache><c:pt idx='0'>"
        "<c:v>4.2999999999999998</c:v></c:pt><c:pt idx='1'><c:v>2</c:v></c:pt></c:numCache></c:numRef></c:val></c:ser>"
        "</c:chart></c:chartSpace>"
    )
    diagram = (
        '<dgm:dataModel xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram" '
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main">'
        '<dgm:ptLst><dgm:pt modelId="b"><dgm:t><a:p><a:r>'
        "<a:t>child</a:t></a:r></a:p></dgm:t></dgm:pt>"
        '<dgm:pt modelId="0" type="doc"/><dgm:pt modelId="a"><dgm:t><a:p><a:r>'
        "<a:t>parent</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst>"
        '<dgm:cxnLst><dgm:cxn srcId="0" destId="a" srcOrd="0"/>'
        '<dgm:cxn srcId="a" destId="b" srcOrd="0"/>'
        '<dgm:cxn srcId="b" destId="a" srcOrd="0"/></dgm:cxnLst></dgm:dataModel>'
    )
    body = (
        '<w:p><w:r><w:drawing><c:chart r:id="c"/></w:drawing></w:r></w:p>'
        '<w:p><w:r><w:drawing><dgm:relIds r:dm="d"/></w:drawing></w:r></w:p>'
    )
    data = word(
        body,
        parts={"word/charts/c.xml": chart, "word/diagrams/d.xml": diagram},
        relates=(("c", "chart", "charts/c.xml"), ("d", "diagramData", "diagrams/d.xml")),
    )
    assert text_of(data, DOCX).splitlines() == [
        "[chart: Sales]",
        "|  | 2024 |",
        "| --- | --- |",
        "| North | 4.3 |",
        "| South | 2 |",
        "[diagram]",
        "- parent",
        "  - child",
    ]


def test_pages_of_a_text_are_ignored_with_a_notice() -> None:
    data = word(paragraph("all of it"))
    media = Media(digest=digest_of(data), media_type=DOCX, size_bytes=len(data))
    made = render_office(data, media, Text("2-3"), LIMITS)
    assert made.data == b"all of it"
    assert made.pages is None
    assert made.notices == ("A text document has no pages until it is laid out: the whole text is given.",)


def test_the_main_part_may_have_any_name_and_a_document_may_be_empty() -> None:
    moved = {
        "_rels/.rels": relations(("r1", "officeDocument", "/office/doc2.xml")),
        "office/doc2.xml": part("document", paragraph("moved")),
    }
    assert text_of(container(moved), DOCX) == "moved"
    assert text_of(word(""), DOCX) == "[this document contains no text]"


def test_a_document_of_200000_paragraphs_keeps_to_its_deadline() -> None:
    data = word("".join(paragraph(f"Paragraph {number}") for number in range(200_000)))
    with pytest.raises(TooLarge, match=r"takes (too long|longer than)"):
        inspect_office(data, DOCX, "long.docx", IntakeLimits(deadline_seconds=0.2))
