"""Images as a terminal receives them: the bytes that the installed command writes are read back into pixels."""

from __future__ import annotations

import base64
import io
import re
import subprocess
from pathlib import Path

from PIL import Image
from tests.cli.loom_command import Loom
from tests.tui.terminals import ByteTerminal

from loom.cli.shared.terminal_images import draw_image

RED, GREEN, BLUE, YELLOW = (220, 30, 30), (30, 200, 60), (40, 60, 220), (240, 220, 40)
_KITTY = re.compile(rb"\x1b_G([^;\x1b]*);([^\x1b]*)\x1b\\")
_SIXEL = re.compile(rb"\x1bP[0-9;]*q.*?\x1b\\", re.DOTALL)
_ITERM = re.compile(rb"\x1b\]1337;File=([^:]*):([A-Za-z0-9+/=]+)\x07")


def quarters(loom: Loom) -> Path:
    """Write an image of four colors."""
    image = Image.new("RGB", (80, 80), RED)
    for color, corner in ((GREEN, (40, 0)), (BLUE, (0, 40)), (YELLOW, (40, 40))):
        image.paste(color, (*corner, corner[0] + 40, corner[1] + 40))
    image.save(loom.folder / "quarters.png")
    return loom.folder / "quarters.png"


def send_image(loom: Loom, terminal: ByteTerminal) -> None:
    terminal.wait_for(b"Drop an image")
    terminal.paste(str(quarters(loom)))
    terminal.wait_for(b"[Image #1]")
    terminal.press_enter()


def has_quarters(image: Image.Image) -> bool:
    """Whether the middle of each quarter has its color."""
    shown = image.convert("RGB")
    width, height = shown.size
    places = {RED: (1, 1), GREEN: (3, 1), BLUE: (1, 3), YELLOW: (3, 3)}
    found = {color: shown.getpixel((x * width // 4, y * height // 4)) for color, (x, y) in places.items()}
    return all(
        isinstance(pixel, tuple) and all(abs(a - b) <= 12 for a, b in zip(pixel, color, strict=True))
        for color, pixel in found.items()
    )


def test_kitty_receives_the_pixels_and_the_characters_that_place_them(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    with ByteTerminal(loom, LOOM_IMAGES="kitty") as terminal:
        send_image(loom, terminal)
        terminal.wait_for("\U0010eeee".encode())
        written = terminal.written

    sent = [(dict(pair.split(b"=") for pair in keys.split(b",")), data) for keys, data in _KITTY.findall(written)]
    data = b"".join(base64.b64decode(piece) for keys, piece in sent if keys.get(b"a") != b"d")
    assert next(keys for keys, _ in sent if b"f" in keys)[b"f"] == b"100"
    assert has_quarters(Image.open(io.BytesIO(data)))


def test_iterm2_receives_an_inline_file(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    with ByteTerminal(loom, LOOM_IMAGES="iterm2") as terminal:
        send_image(loom, terminal)
        terminal.wait_for(b"\x1b]1337;File=")
        terminal.wait_for(b"\x07")
        terminal.wait_for(b"quarters.png, 80")
        written = terminal.written

    keys, data = _ITERM.findall(written)[-1]
    assert b"inline=1" in keys and b"width=80px" in keys
    assert has_quarters(Image.open(io.BytesIO(base64.b64decode(data))))


def test_sixels_are_drawn_by_another_program_as_the_image_that_was_sent(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    with ByteTerminal(loom, LOOM_IMAGES="sixel") as terminal:
        send_image(loom, terminal)
        terminal.wait_for(b"\x1bP")
        terminal.wait_for(b"quarters.png, 80")
        terminal.wait_for(b"\x1b\\")
        written = terminal.written

    (tmp_path / "seen.six").write_bytes(_SIXEL.findall(written)[-1])
    subprocess.run(["convert", f"sixel:{tmp_path / 'seen.six'}", tmp_path / "seen.png"], check=True)
    assert has_quarters(Image.open(tmp_path / "seen.png"))


def colors_come_first(sixels: bytes) -> bool:
    """Whether all colors are defined before the first pixel: xterm draws what is above a later definition wrongly."""
    data = sixels.partition(b"q")[2]
    definitions = list(re.finditer(rb"#[0-9]+;2;[0-9;]+", data))
    return bool(re.fullmatch(rb'"[0-9;]+(?:#[0-9]+;2;[0-9;]+){4,}', data[: definitions[-1].end()]))


def test_colors_of_sixels_are_defined_before_the_first_pixel(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    with ByteTerminal(loom, LOOM_IMAGES="sixel") as terminal:
        send_image(loom, terminal)
        terminal.wait_for(b"quarters.png, 80")
        terminal.wait_for(b"\x1b\\")
        written = terminal.written

    assert colors_come_first(_SIXEL.findall(written)[-1])
    drawn = draw_image(quarters(loom).read_bytes(), 80, 80, "sixel").encode()
    assert colors_come_first(_SIXEL.findall(drawn)[0])


def test_half_blocks_have_the_colors_of_the_image(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    with ByteTerminal(loom, LOOM_IMAGES="halfcell") as terminal:
        send_image(loom, terminal)
        terminal.wait_for("▀".encode())
        for color in (RED, GREEN, BLUE, YELLOW):
            terminal.wait_for("8;2;{};{};{}".format(*color).encode())


def test_without_images_the_terminal_receives_a_line_of_text(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    with ByteTerminal(loom, LOOM_IMAGES="off") as terminal:
        send_image(loom, terminal)
        terminal.wait_for(b"quarters.png, 80")
        terminal.wait_for(b" out")
        written = terminal.written

    assert not _KITTY.search(written) and not _SIXEL.search(written) and not _ITERM.search(written)
    assert "▀".encode() not in written
