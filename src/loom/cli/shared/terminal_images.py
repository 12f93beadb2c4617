"""Images in the terminal: Kitty, iTerm2, Sixel or half blocks."""

from __future__ import annotations

import base64
import importlib
import io
import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from loom.tui.image_protocol import ImageProtocol, choose_protocol

__all__ = ["ImageProtocol", "choose_protocol", "decode_png", "draw_image", "side_px", "sixels"]

COLUMNS: Final = 60
ROWS: Final = 20
_KITTY_CHUNK: Final = 4096
_CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def side_px(chosen: ImageProtocol) -> int:
    """Return the longest side of the PNG that `drawn` wants: a character is half as wide as it is high."""
    return {"halfcell": COLUMNS, "sixel": COLUMNS * 8}.get(chosen, 800)


def draw_image(png: bytes, width: int, height: int, chosen: ImageProtocol) -> str:
    """Return the characters that show a picture; empty where it cannot be shown."""
    columns, rows = _cells(width, height)
    match chosen:
        case "kitty":
            return "".join(_kitty(png, columns, rows)) + "\n"
        case "iterm2":
            data = base64.b64encode(png).decode()
            return f"\x1b]1337;File=inline=1;size={len(png)};width={columns};preserveAspectRatio=1:{data}\x07\n"
        case "sixel":
            return sixels(png) + "\n"
        case "halfcell":
            pixels = decode_png(png)
            return "" if pixels is None else _half_blocks(pixels)
        case "off":
            return ""


def _cells(width: int, height: int) -> tuple[int, int]:
    """Columns and rows of the same shape within the room there is; a character is half as wide as it is high."""
    columns, rows = min(COLUMNS, max(width // 8, 1)), max(height // 16, 1)
    scale = min(columns / max(width / 8, 1), ROWS / max(rows, 1), 1.0)
    return max(round(width / 8 * scale), 1), max(round(height / 16 * scale), 1)


def _kitty(png: bytes, columns: int, rows: int) -> Iterator[str]:
    data = base64.b64encode(png).decode()
    for at in range(0, len(data), _KITTY_CHUNK):
        head = f"a=T,f=100,q=2,c={columns},r={rows}," if at == 0 else ""
        more = int(at + _KITTY_CHUNK < len(data))
        yield f"\x1b_G{head}m={more};{data[at : at + _KITTY_CHUNK]}\x1b\\"


class Pixels(msgspec.Struct, frozen=True):
    """Rows of (red, green, blue)."""

    width: int
    rows: list[list[tuple[int, int, int]]]


def _half_blocks(pixels: Pixels) -> str:
    """Two rows of pixels in one of characters: the upper half in the foreground, the lower in the background."""
    lines: list[str] = []
    rows = pixels.rows if len(pixels.rows) % 2 == 0 else [*pixels.rows, pixels.rows[-1]]
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        cells = [
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m▀" for a, b in zip(upper, lower, strict=True)
        ]
        lines.append("".join(cells) + "\x1b[0m\n")
    return "".join(lines)


def decode_png(data: bytes) -> Pixels | None:
    """Return the pixels of a PNG as our own encoder writes them: eight bits or a palette, not interlaced. None for
    others."""
    chunks = dict(_chunks(data))
    header = chunks.get(b"IHDR", b"")
    if len(header) != 13 or b"IDAT" not in chunks:
        return None
    width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
    depth, colour, interlaced = header[8], header[9], header[12]
    if interlaced or colour not in _CHANNELS or not (depth == 8 or (colour in (0, 3) and depth < 8)):
        return None
    bits = depth * _CHANNELS[colour]
    stride = (width * bits + 7) // 8
    raw = zlib.decompressobj().decompress(chunks[b"IDAT"], (stride + 1) * height)
    if len(raw) < (stride + 1) * height:
        return None
    palette = chunks.get(b"PLTE", b"")
    rows: list[list[tuple[int, int, int]]] = []
    before = bytearray(stride)
    for at in range(0, len(raw), stride + 1):
        before = _undo_filter(raw[at], bytearray(raw[at + 1 : at + 1 + stride]), before, max(bits // 8, 1))
        rows.append(_row_colors(before, width, depth, colour, palette))
    return Pixels(width, rows)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    body = b""
    at = 8
    while at + 8 <= len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        content = data[at + 8 : at + 8 + length]
        body = body + content if kind == b"IDAT" else body
        yield kind, body if kind == b"IDAT" else content
        at += length + 12


def _undo_filter(kind: int, row: bytearray, above: bytearray, step: int) -> bytearray:
    for at in range(len(row)):
        left = row[at - step] if at >= step else 0
        up = above[at]
        corner = above[at - step] if at >= step else 0
        guess = (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind] if kind < 5 else 0
        row[at] = (row[at] + guess) & 0xFF
    return row


def _paeth(left: int, up: int, corner: int) -> int:
    estimate = left + up - corner
    return min((left, up, corner), key=lambda value: abs(estimate - value))


def _row_colors(row: bytearray, width: int, depth: int, colour: int, palette: bytes) -> list[tuple[int, int, int]]:
    """Transparent pixels lie on white, as pictures for models do."""
    if depth < 8:
        per_byte, mask = 8 // depth, (1 << depth) - 1
        values = [row[at // per_byte] >> (8 - depth * (at % per_byte + 1)) & mask for at in range(width)]
        if colour == 0:
            values = [value * 255 // mask for value in values]
    else:
        values = list(row)
    match colour:
        case 0:
            return [(value, value, value) for value in values]
        case 3:
            return [_entry(palette, value) for value in values]
        case 4:
            return [_on_white((grey, grey, grey), alpha) for grey, alpha in zip(values[::2], values[1::2], strict=True)]
        case 2:
            return list(zip(values[::3], values[1::3], values[2::3], strict=True))
        case _:
            channels = zip(values[::4], values[1::4], values[2::4], values[3::4], strict=True)
            return [_on_white((red, green, blue), alpha) for red, green, blue, alpha in channels]


def _entry(palette: bytes, number: int) -> tuple[int, int, int]:
    red, green, blue = (palette[number * 3 : number * 3 + 3] + bytes(3))[:3]
    return red, green, blue


def _on_white(colour: tuple[int, int, int], alpha: int) -> tuple[int, int, int]:
    red, green, blue = ((part * alpha + 255 * (255 - alpha)) // 255 for part in colour)
    return red, green, blue


_COLOURS: Final = 128
_BAND: Final = 6
_ZERO: Final = 0x3F
_RUN: Final = re.compile(rb"(.)\1{3,}", re.DOTALL)


def sixels(png: bytes) -> str:
    """Return the escape sequence that draws a PNG; transparent parts lie on white, as in pictures for models."""
    pillow: Any = importlib.import_module("PIL.Image")
    with pillow.open(io.BytesIO(png)) as opened:
        image = opened.convert("RGBA")
    paper = pillow.new("RGBA", image.size, "white")
    flat = pillow.alpha_composite(paper, image).convert("RGB").quantize(_COLOURS)
    width, height = flat.size
    palette: list[int] = flat.getpalette()
    used = max(flat.tobytes(), default=0) + 1
    colours = "".join(f"#{at};2;{_shares(palette[3 * at : 3 * at + 3])}" for at in range(used))
    bands = "-".join(_bands(flat.tobytes(), width, height))
    return f'\x1bPq"1;1;{width};{height}{colours}{bands}\x1b\\'


def _shares(colour: list[int]) -> str:
    """Red, green and blue in hundredths."""
    return ";".join(str(round(value * 100 / 255)) for value in colour)


def _bands(pixels: bytes, width: int, height: int) -> Iterator[str]:
    for top in range(0, height, _BAND):
        columns: dict[int, bytearray] = {}
        for row in range(min(_BAND, height - top)):
            bit = 1 << row
            start = (top + row) * width
            for x, colour in enumerate(pixels[start : start + width]):
                if colour not in columns:
                    columns[colour] = bytearray(width)
                columns[colour][x] |= bit
        yield "$".join(f"#{colour}{_encode_band(bits)}" for colour, bits in columns.items())


def _encode_band(bits: bytearray) -> str:
    """One colour of a band: a character a column, `!12~` for twelve alike, nothing for what is empty at the end."""
    characters = bytes(value + _ZERO for value in bits.rstrip(b"\0"))
    return _RUN.sub(lambda run: b"!%d%s" % (len(run[0]), run[1]), characters).decode("ascii")
