"""PDF samples: made by common programs, and hostile ones assembled here."""

from __future__ import annotations

import zlib
from pathlib import Path

import docx
from PIL import Image

from made import make_sample, run

WORDS = "The quick brown fox jumps over the lazy dog while seven wizards box. "
CHROMIUM = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
CONVERT = "/usr/bin/convert"
SOFFICE = ("soffice", "--headless", "--norestore", "--nolockcheck")


def chromium_report() -> Path:
    """Return twelve pages by Chromium; the first links to the last and holds an emoji, the last a photograph."""

    def build(path: Path) -> None:
        photo = path.with_name("photo.jpg")
        run(CONVERT, "-size", "640x480", "plasma:tomato-steelblue", "-quality", "90", photo)
        chapters = "".join(
            f'<p class="chapter">Chapter {number}, codeword walnut{number}. {WORDS * 20}</p>' for number in range(2, 12)
        )
        page = path.with_name("report.html")
        page.write_text(
            '<meta charset="utf-8"><style>.chapter{page-break-before:always}</style>'
            f'<h1>Annual report 😀</h1><a href="#end">to the end</a>{chapters}'
            '<p class="chapter" id="end">The end</p><img src="photo.jpg" width="640" height="480">'
        )
        run(*CHROMIUM, "--no-pdf-header-footer", f"--print-to-pdf={path}", page)

    return make_sample("chromium.pdf", build)


def chromium_brochure() -> Path:
    """Return ten pages by Chromium with colors on each: headings, links, a table, bars and a shaded box."""

    def build(path: Path) -> None:
        bars = "".join(
            f'<rect x="{40 * bar}" y="{120 - 9 * bar}" width="30" height="{9 * bar}" fill="hsl({40 * bar},70%,50%)"/>'
            for bar in range(1, 9)
        )
        sheet = (
            '<section><h1 style="color:#c0392b">Chapter {0}</h1>'
            '<p style="color:#2c3e50">{1} <a href="https://example.com">see walnut{0}</a> {1}</p>'
            f'<svg width="400" height="130">{bars}</svg><table border="1">'
            '<tr style="background:#ffe08a"><td>part</td><td>price</td></tr><tr><td>nut</td><td>3.50</td></tr></table>'
            '<div style="height:60px;background:linear-gradient(90deg,#fff,#9cf)">shaded</div></section>'
        )
        page = path.with_name("brochure.html")
        style = '<meta charset="utf-8"><style>section{page-break-after:always}</style>'
        page.write_text(style + "".join(sheet.format(number, WORDS * 8) for number in range(1, 11)))
        run(*CHROMIUM, "--no-pdf-header-footer", f"--print-to-pdf={path}", page)

    return make_sample("brochure.pdf", build)


def ghostscript_book(pages: int) -> Path:
    """Return a book by Ghostscript with `pages` pages of text, each naming its number."""

    def build(path: Path) -> None:
        source = path.with_name("book.ps")
        source.write_text(
            f"/Helvetica findfont 11 scalefont setfont 1 1 {pages} {{ /n exch def"
            " 72 720 moveto (Page number ) show n 10 string cvs show"
            f" 0 1 45 {{ 700 exch 14 mul sub 72 exch moveto ({WORDS}) show }} for showpage }} for\n"
        )
        run("gs", "-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=pdfwrite", "-sPAPERSIZE=a4", f"-sOutputFile={path}", source)

    return make_sample(f"book{pages}.pdf", build)


def libreoffice_letter() -> Path:
    """Return a letter of one page by LibreOffice, with a table and an image."""

    def build(path: Path) -> None:
        logo = path.with_name("logo.png")
        run(CONVERT, "-size", "320x200", "gradient:navy-gold", logo)
        letter = docx.Document()
        letter.add_heading("Schöne Grüße")
        letter.add_paragraph("Œuvre, naïve café, ½ €.")
        letter.add_picture(str(logo))
        letter.add_table(1, 2).cell(0, 1).text = "42.50"
        letter.save(str(path.with_name("letter.docx")))
        profile = f"-env:UserInstallation={path.with_name('profile').as_uri()}"
        run(*SOFFICE, profile, "--convert-to", "pdf", "letter.docx", cwd=path.parent)
        path.with_name("letter.pdf").rename(path)

    return make_sample("libreoffice.pdf", build)


def print_html(program: str, body: str) -> Path:
    """Return a page of HTML, printed by Chromium or LibreOffice."""

    def build(path: Path) -> None:
        page = path.with_name("page.html")
        page.write_text(f'<html><meta charset="utf-8"><body>{body}</body></html>')
        if program == "chromium":
            run(*CHROMIUM, "--no-pdf-header-footer", f"--print-to-pdf={path}", page)
        else:
            profile = f"-env:UserInstallation={path.with_name('profile').as_uri()}"
            text = "--infilter=HTML (StarWriter)"  # else its first line is lost
            run(*SOFFICE, profile, text, "--convert-to", "pdf", page.name, cwd=path.parent)
            page.with_suffix(".pdf").rename(path)

    return make_sample(f"{program}-{zlib.crc32(body.encode()):08x}.pdf", build)


def scanned_pages() -> Path:
    """Return three pages like those of a scanner: JPEG images of text by ImageMagick, no text layer."""

    def build(path: Path) -> None:
        sheets: list[Path] = []
        for number in (1, 2, 3):
            sheet = path.with_name(f"sheet{number}.jpg")
            text = f"Scanned sheet {number}\\nInvoice total 4711 EUR\\nThank you for your order"
            paper = ("-size", "1240x1754", "xc:white", "-attenuate", "0.2", "+noise", "Gaussian")
            run(CONVERT, *paper, "-pointsize", "56", "-annotate", "+120+300", text, "-colorspace", "Gray", sheet)
            sheets.append(sheet)
        path.write_bytes(pages_of_jpegs(sheets))

    return make_sample("scan.pdf", build)


def photo_page() -> Path:
    """Return one page with a photograph by ImageMagick."""

    def build(path: Path) -> None:
        photo = path.with_name("photo.jpg")
        run(CONVERT, "-size", "900x1200", "-seed", "7", "plasma:fractal", "-blur", "0x2", photo)
        path.write_bytes(pages_of_jpegs([photo]))

    return make_sample("photo.pdf", build)


def joined_pdf() -> Path:
    """Return two image pages and twelve text pages, joined by poppler."""

    def build(path: Path) -> None:
        run("pdfunite", photo_page(), chromium_report(), photo_page(), path)

    return make_sample("joined.pdf", build)


def encrypted_pdf(user_password: str) -> Path:
    def build(path: Path) -> None:
        run("qpdf", "--encrypt", user_password, "owner", "256", "--", chromium_report(), path)

    return make_sample(f"encrypted-{len(user_password)}.pdf", build)


def attachments_pdf(*names: str) -> Path:
    """Return a book with files attached by qpdf, as in e-invoices and portfolios."""

    def build(path: Path) -> None:
        options: list[str | Path] = []
        for name in names:
            file = path.with_name(name)
            file.write_text("part,price\nnut,3.50\n")
            options += ["--add-attachment", file, "--"]
        run("qpdf", ghostscript_book(30), *options, path)

    return make_sample(f"attached-{len(names)}.pdf", build)


def linearized_pdf() -> Path:
    def build(path: Path) -> None:
        run("qpdf", "--linearize", chromium_report(), path)

    return make_sample("linearized.pdf", build)


def object_streams() -> Path:
    def build(path: Path) -> None:
        run("qpdf", "--object-streams=generate", "--recompress-flate", ghostscript_book(30), path)

    return make_sample("object-streams.pdf", build)


def one_page(content: bytes, *, media_box: str = "0 0 612 792", extra: bytes = b"", page: bytes = b"") -> bytes:
    """Return a document of one page. `content` is its stream object from the dictionary on, `extra` another object."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[" + media_box.encode() + b"]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>/XObject<</X1 6 0 R>>>>" + page + b">>",
        content,
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *([extra] if extra else []),
    ]
    return assemble(objects)


def assemble(objects: list[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.7\n")
    offsets: list[int] = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)


def pages_of_jpegs(jpegs: list[Path]) -> bytes:
    """Return a document in which each JPEG file fills a page at 150 dpi, as scanners and fax servers write it."""
    pages = len(jpegs)
    kids = b" ".join(b"%d 0 R" % (3 + 3 * index) for index in range(pages))
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[%b]/Count %d>>" % (kids, pages)]
    for index, jpeg in enumerate(jpegs):
        with Image.open(jpeg) as image:
            (width, height), gray = image.size, image.mode == "L"
        number = 3 + 3 * index
        box = b"%.2f %.2f" % (width * 0.48, height * 0.48)
        space = b"/DeviceGray" if gray else b"/DeviceRGB"
        entries = b"/Type/XObject/Subtype/Image/Width %d/Height %d/BitsPerComponent 8" % (width, height)
        objects += [
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %b]/Contents %d 0 R/Resources<</XObject<</X %d 0 R>>>>>>"
            % (box, number + 1, number + 2),
            stream(b"%b 0 0 %b 0 0 cm /X Do" % tuple(box.split())),
            stream(jpeg.read_bytes(), entries + b"/Filter/DCTDecode/ColorSpace" + space),
        ]
    return assemble(objects)


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<</Length %d%b>>stream\n%b\nendstream" % (len(data), entries, data)


def deflate(block: bytes, times: int) -> bytes:
    """Return `block` repeated and compressed. After a full flush equal bytes give equal code: it is compressed once."""
    packer = zlib.compressobj(9, wbits=-15)
    once = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x78\xda" + once * times + b"\x03\x00" + bytes(4)


def text_page(words: str, *, media_box: str = "0 0 612 792") -> bytes:
    return one_page(stream(b"BT /F1 24 Tf 72 700 Td (%b) Tj ET" % words.encode()), media_box=media_box)


def filled_form() -> bytes:
    """Return a form with a filled name, an empty field, an unchecked box, and a comment of a reviewer."""
    form = b"<</Fields[6 0 R 7 0 R 8 0 R]/DA(/F1 12 Tf)/DR<</Font<</F1 5 0 R>>>>>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>"
    widget = b"<</Type/Annot/Subtype/Widget/P 3 0 R"
    return assemble(
        [
            b"<</Type/Catalog/Pages 2 0 R/AcroForm " + form + b">>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            page + b"/Annots[6 0 R 7 0 R 8 0 R 9 0 R]>>",
            stream(b"BT /F1 12 Tf 72 700 Td (Your name) Tj ET"),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            widget + b"/FT/Tx/T(Name)/V(Ada Lovelace)/Rect[150 690 400 715]>>",
            widget + b"/FT/Tx/T(Street)/V()/Rect[150 660 400 685]>>",
            widget + b"/FT/Btn/T(Agreed)/V/Off/Rect[150 630 165 645]>>",
            b"<</Type/Annot/Subtype/Text/Contents(Please check the name)/Rect[500 700 520 720]/P 3 0 R>>",
        ]
    )


def operator_bomb(operators: int) -> bytes:
    """Return a page of `operators` strokes that all have to be drawn."""
    stroke = b"0 0 m 612 792 l 0 792 612 0 300 400 c S\n"
    return one_page(stream(deflate(stroke * 1000, operators // 1000), b"/Filter/FlateDecode"))


def deflate_bomb(megabytes: int) -> bytes:
    """Return a page whose content stream expands a thousandfold."""
    block = (b"BT /F1 1 Tf (" + b"A" * 10_000 + b") Tj ET\n") * 100
    return one_page(stream(deflate(block, megabytes), b"/Filter/FlateDecode"))


def nested_deflate_bomb(gigabytes: int) -> bytes:
    """Return a page with deflate inside deflate: a few kilobytes that expand to gigabytes."""
    inner = deflate(b" " * 1_000_000, gigabytes * 1000)
    outer = zlib.compress(inner, 9)
    return one_page(stream(outer, b"/Filter[/FlateDecode/FlateDecode]"))


def picture_bomb(side: int) -> bytes:
    """Return a page with a white image of `side`² pixels, in a few kilobytes."""
    rows = deflate(b"\xff" * side * 3, side)
    entries = b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceRGB/BitsPerComponent 8" % (side, side)
    picture = stream(rows, entries + b"/Filter/FlateDecode")
    return one_page(stream(b"q 500 0 0 500 50 50 cm /X1 Do Q"), extra=picture)
