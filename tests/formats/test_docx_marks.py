"""What stands among the words of a Word document: equations, fields, links, readings, deleted ends of paragraphs."""

from __future__ import annotations

from formats.made_office import DOCX, ODT, container, paragraph, png, text_of, word


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def symbols(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def argument(name: str, *inner: str) -> str:
    return f"<m:{name}>{''.join(inner)}</m:{name}>"


def element(text: str) -> str:
    return argument("e", symbols(text))


def equation(*inner: str) -> str:
    return text_of(word(f"<w:p><m:oMath>{''.join(inner)}</m:oMath></w:p>"), DOCX)


def field(instruction: str, result: str, *, form: str = "") -> str:
    def mark(kind: str, inner: str = "") -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}">{inner}</w:fldChar></w:r>'

    code = f"<w:r><w:instrText>{instruction}</w:instrText></w:r>"
    return mark("begin", form) + code + mark("separate") + result + mark("end")


def test_brackets_of_an_equation_are_kept_whatever_they_are() -> None:
    bars = '<m:dPr><m:begChr m:val="|"/><m:endChr m:val="|"/></m:dPr>'
    open_end = '<m:dPr><m:begChr m:val="{"/><m:endChr m:val=""/></m:dPr>'
    listed = '<m:dPr><m:sepChr m:val=","/></m:dPr>'
    assert equation(argument("d", element("a+b")), symbols("c")) == "(a+b)c"
    assert equation(argument("d", bars, element("x"))) == "|x|"
    assert equation(argument("d", open_end, element("x"))) == "{x"
    assert equation(argument("d", listed, element("x"), element("y"))) == "(x,y)"
    assert equation(argument("d", argument("e", argument("sSup", element("x"), argument("sup", symbols("2")))))) == (
        "(x^(2))"
    )


def test_sums_and_integrals_keep_their_sign_and_only_the_limits_that_they_have() -> None:
    total = '<m:naryPr><m:chr m:val="∑"/></m:naryPr>'
    assert equation(
        argument("nary", total, argument("sub", symbols("i=1")), argument("sup", symbols("n")), element("i"))
    ) == ("∑_(i=1)^(n) i")
    hidden = '<m:naryPr><m:subHide m:val="1"/><m:supHide m:val="1"/></m:naryPr>'
    assert equation(argument("nary", hidden, "<m:sub/><m:sup/>", element("f"))) == "∫ f"
    limit = argument("limLow", element("lim"), argument("lim", symbols("x→0")))
    assert equation(argument("func", argument("fName", limit), element("x"))) == "lim_(x→0) x"


def test_roots_accents_and_fractions_keep_their_meaning() -> None:
    assert equation(argument("rad", argument("deg", symbols("3")), element("8"))) == "√[3](8)"
    assert equation(argument("rad", '<m:radPr><m:degHide m:val="1"/></m:radPr><m:deg/>', element("8"))) == "√(8)"
    assert equation(argument("acc", element("x"))) == "x\N{COMBINING CIRCUMFLEX ACCENT}"
    arrow = '<m:accPr><m:chr m:val="⃗"/></m:accPr>'
    assert equation(argument("acc", arrow, element("AB"))) == "(AB)⃗"
    over = '<m:barPr><m:pos m:val="top"/></m:barPr>'
    assert equation(argument("bar", over, element("x"))) == "x\N{COMBINING OVERLINE}"
    chosen = argument("num", symbols("n")), argument("den", symbols("k"))
    assert equation(argument("d", argument("e", argument("f", *chosen)))) == "((n)/(k))"
    no_bar = '<m:fPr><m:type m:val="noBar"/></m:fPr>'
    assert equation(argument("d", argument("e", argument("f", no_bar, *chosen)))) == "((n)¦(k))"


def test_the_cells_of_a_matrix_stand_apart() -> None:
    rows = argument("mr", element("1"), element("2")) + argument("mr", element("3"), element("4"))
    assert equation(argument("d", argument("e", argument("m", rows)))) == "(1, 2; 3, 4)"
    assert equation(argument("eqArr", element("x=1"), element("y=2"))) == "x=1; y=2"


def test_a_formula_of_an_open_document_stands_in_its_sentence_as_it_was_typed() -> None:
    oasis = "urn:oasis:names:tc:opendocument:xmlns:"
    content = (
        f'<office:document-content xmlns:office="{oasis}office:1.0" xmlns:text="{oasis}text:1.0" '
        f'xmlns:draw="{oasis}drawing:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"><office:body><office:text>'
        '<text:p>so <draw:frame><draw:object xlink:href="./Object 1"/><draw:image xlink:href="./p.png"/></draw:frame>'
        " it is</text:p></office:text></office:body></office:document-content>"
    )
    formula = (
        '<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow>'
        '<annotation encoding="StarMath 5.0">{ a + b } over c</annotation></semantics></math>'
    )
    parts = {"content.xml": content, "Object 1/content.xml": formula, "p.png": png()}
    assert text_of(container(parts), ODT) == "so { a + b } over c it is"


def test_words_whose_paragraph_mark_was_deleted_stay_where_they_are() -> None:
    def merged(text: str) -> str:
        return f'<w:p><w:pPr><w:rPr><w:del w:id="5"/></w:rPr></w:pPr>{run(text)}</w:p>'

    def table(*cells: str) -> str:
        return f"<w:tbl><w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr></w:tbl>"

    body = table(merged("first"), paragraph("second")) + merged("before") + table(paragraph("a"), paragraph("b"))
    assert text_of(word(body + merged("the ") + merged("last")), DOCX).splitlines() == [
        "| first | second |",
        "| --- | --- |",
        "",
        "before",
        "",
        "| a | b |",
        "| --- | --- |",
        "",
        "the last",
    ]


def test_links_that_are_fields_say_where_they_lead() -> None:
    url = "https://example.com/page"
    within = r" HYPERLINK \l &quot;place&quot; "
    simple = f'<w:fldSimple w:instr=" HYPERLINK {url} ">{run("simple")}</w:fldSimple>'
    body = (
        f"<w:p>{field(f' HYPERLINK &quot;{url}&quot; ', run('a page'))}</w:p>"
        f"<w:p>{field(f' HYPERLINK &quot;{url}&quot; ', run(url))}</w:p>"
        f"<w:p>{field(within, run('below'))}</w:p><w:p>{simple}</w:p>"
    )
    assert text_of(word(body), DOCX).splitlines() == [f"a page ({url})", url, "below", f"simple ({url})"]


def test_fields_of_a_form_show_what_was_ticked_and_chosen() -> None:
    def box(state: str) -> str:
        return f"<w:ffData><w:checkBox>{state}</w:checkBox></w:ffData>"

    entries = "".join(f'<w:listEntry w:val="{color}"/>' for color in ("red", "green"))
    boxes = ("<w:checked/>", '<w:default w:val="1"/><w:checked w:val="0"/>', '<w:default w:val="1"/>', "")
    lists = ('<w:result w:val="1"/><w:default w:val="0"/>', "", '<w:result w:val="9"/>')
    body = "".join(f"<w:p>{field(' FORMCHECKBOX ', '', form=box(state))}{run(' box')}</w:p>" for state in boxes)
    for state in lists:
        form = f"<w:ffData><w:ddList>{state}{entries}</w:ddList></w:ffData>"
        body += f"<w:p>{field(' FORMDROPDOWN ', '', form=form)}{run(' list')}</w:p>"
    body += f"<w:p>{field(' FORMTEXT ', run('typed'), form='<w:ffData><w:textInput/></w:ffData>')}</w:p>"
    assert text_of(word(body), DOCX).splitlines() == [
        *("☒ box", "☐ box", "☒ box", "☐ box"),
        *("green list", "red list", "list"),
        "typed",
    ]


def test_a_document_that_word_would_take_in_is_named() -> None:
    data = word(
        paragraph("before") + '<w:altChunk r:id="a"/>' + paragraph("after") + '<w:altChunk r:id="gone"/>',
        parts={"word/chunk.html": "<p>the whole report</p>"},
        relates=(("a", "aFChunk", "chunk.html"),),
    )
    assert text_of(data, DOCX).splitlines() == [
        "before",
        "[embedded document chunk.html, not shown]",
        "after",
        "[embedded document, not shown]",
    ]


def test_the_reading_of_characters_follows_them() -> None:
    ruby = f"<w:ruby><w:rt>{run('とう')}</w:rt><w:rubyBase>{run('東')}</w:rubyBase></w:ruby>"
    assert text_of(word(f"<w:p>{run('in ')}<w:r>{ruby}</w:r>{run(' city')}</w:p>"), DOCX) == "in 東(とう) city"
