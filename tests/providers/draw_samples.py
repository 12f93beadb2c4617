"""Draws the three samples that ship with the built-in model: `python tests/providers/draw_samples.py`.

They are kept in the repository, so that everybody looks at the same bytes; this is how they were made.
"""

from __future__ import annotations

import io
import random
import zlib
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter, ImageFont

FOLDER = Path(__file__).resolve().parents[2] / "src" / "loom" / "providers" / "samples"
NAVY, INK, FAINT, RED = "#1f3a6e", "#1f2937", "#9ca3af", "#c62828"

RECEIPT = [
    ("CAFE AURORA", ""),
    ("12 Harbour Street", ""),
    ("", ""),
    ("2x Flat white", "7.00"),
    ("1x Cinnamon bun", "3.20"),
    ("1x Orange juice", "2.80"),
    ("", ""),
    ("TOTAL", "13.00"),
    ("CARD", "13.00"),
    ("", ""),
    ("Thank you!", ""),
]

# One line each: (size in points, text). A line of size 0 is a gap.
LEAFLET = [
    [
        (24, "Acme Console"),
        (11, "A short guide for people who keep it running"),
        (0, ""),
        (16, "1. Signing in"),
        (11, "Open the console in a browser and sign in with your work address."),
        (11, "The form sends your password to the gateway, which asks the sign-in service."),
        (11, "A session lasts eight hours, or until you close the browser."),
        (0, ""),
        (16, "2. When the gateway times out"),
        (11, "A red line that says Error 502 means that the sign-in service did not answer in time."),
        (11, "The gateway waits 30 seconds for an answer before it gives up."),
        (11, "The timeout is usually harmless and goes away when the service has started."),
        (11, "If it comes back within an hour, look at the log of the service first."),
    ],
    [
        (16, "3. Raising the limit"),
        (11, "Set proxy_read_timeout to 60 seconds in the file gateway.conf."),
        (11, "Reload the gateway afterwards; a restart is not needed."),
        (11, "A timeout longer than two minutes hides real trouble and is not advised."),
        (0, ""),
        (16, "4. Where to ask"),
        (11, "The operations team answers between eight and six on every working day."),
        (11, "Send a picture of the page and the time at which you saw the error."),
    ],
]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, data in (("login.png", login()), ("receipt.jpg", receipt()), ("leaflet.pdf", leaflet())):
        (FOLDER / name).write_bytes(data)
        print(name, len(data))


def login() -> bytes:
    image = Image.new("RGB", (900, 500), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 900, 56), fill=NAVY)
    draw.text((24, 16), "Acme Console - Sign in", fill="white", font=ImageFont.load_default(22))
    draw.rectangle((270, 110, 630, 370), outline=FAINT, width=2)
    for top, label, value in ((130, "Email", "ana@example.org"), (210, "Password", "")):
        draw.text((300, top), label, fill=INK, font=ImageFont.load_default(18))
        draw.rectangle((300, top + 26, 600, top + 62), outline=FAINT, width=2)
        draw.text((312, top + 33), value, fill=INK, font=ImageFont.load_default(18))
    draw.rectangle((300, 305, 600, 345), fill=NAVY)
    draw.text((450, 325), "Sign in", fill="white", font=ImageFont.load_default(18), anchor="mm")
    words = "Error 502: upstream timed out after 30 s"
    draw.text((450, 410), words, fill=RED, font=ImageFont.load_default(22), anchor="mm")
    return encoded(image.quantize(64), "PNG", optimize=True)


def receipt() -> bytes:
    """A slip of paper on a wooden table, a little askew, with the grain and the light of a photograph."""
    dice = random.Random(7)
    table = Image.new("RGB", (60, 1))
    shades = [dice.randrange(30) for _ in range(60)]
    table.putdata([(100 + shade, 64 + shade * 2 // 3, 40 + shade // 2) for shade in shades])
    photo = table.resize((640, 800), Image.Resampling.BICUBIC)
    paper = Image.new("L", (360, 560), 236)
    draw = ImageDraw.Draw(paper)
    for at, (left, right) in enumerate(RECEIPT):
        font = ImageFont.load_default(30 if at == 0 or left == "TOTAL" else 22)
        draw.text((26, 34 + at * 44), left, fill=48, font=font)
        draw.text((334, 34 + at * 44), right, fill=48, font=font, anchor="ra")
    shadow = Image.new("L", paper.size, 120).rotate(4, expand=True, resample=Image.Resampling.BICUBIC)
    photo.paste((40, 26, 18), (138, 112), shadow.filter(ImageFilter.GaussianBlur(8)))
    turned = paper.rotate(4, expand=True, resample=Image.Resampling.BICUBIC)
    edge = Image.new("L", paper.size, 255).rotate(4, expand=True, resample=Image.Resampling.BICUBIC)
    photo.paste(Image.merge("RGB", (turned, turned, turned.point(lambda level: level * 0.94))), (124, 98), edge)
    light = Image.linear_gradient("L").resize(photo.size).point(lambda level: 255 - level // 3)
    photo = Image.composite(photo, Image.new("RGB", photo.size, (24, 16, 12)), light)
    grain = Image.new("L", (320, 400))
    grain.putdata([dice.randrange(256) for _ in range(320 * 400)])
    grain = grain.resize(photo.size, Image.Resampling.BICUBIC)
    photo = Image.blend(photo, Image.merge("RGB", (grain,) * 3), 0.04).filter(ImageFilter.GaussianBlur(0.7))
    return encoded(photo, "JPEG", quality=62, optimize=True, progressive=True)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def leaflet() -> bytes:
    """A PDF written by hand: two A5 pages in Helvetica."""
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [4 0 R 6 0 R] /Count 2 >>",
        3: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    }
    for at, lines in enumerate(LEAFLET):
        page, content = 4 + at * 2, 5 + at * 2
        objects[page] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 520 420] /Resources << /Font << /F 3 0 R >> >> "
            b"/Contents %d 0 R >>" % content
        )
        packed = zlib.compress(page_content(lines), 9)
        objects[content] = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)
    return written(objects)


def page_content(lines: list[tuple[int, str]]) -> bytes:
    y, out = 380.0, ["BT"]
    for size, text in lines:
        y -= 12 if size == 0 else size * 1.7
        if text:
            out.append(f"/F {size} Tf 1 0 0 1 36 {y:.1f} Tm ({text}) Tj")
    return "\n".join([*out, "ET"]).encode("latin-1")


def written(objects: dict[int, bytes]) -> bytes:
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    places: list[int] = []
    for number, body in sorted(objects.items()):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)


if __name__ == "__main__":
    main()
