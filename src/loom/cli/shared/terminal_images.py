"""Images between the lines of a terminal: Kitty, iTerm2, Sixel or half blocks."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Final

from loom.tui.cell_images import cell_size, define_colors_first, import_quietly
from loom.tui.image_protocol import ImageProtocol, choose_protocol

__all__ = ["ImageProtocol", "choose_protocol", "draw_image", "side_px"]

COLUMNS: Final = 60
ROWS: Final = 20
_KITTY_CHUNK: Final = 4096


def side_px(chosen: ImageProtocol) -> int:
    """Return the longest side in pixels that `draw_image` needs."""
    return COLUMNS if chosen == "halfcell" else COLUMNS * cell_size()[0]


def draw_image(png: bytes, width: int, height: int, chosen: ImageProtocol) -> str:
    """Return the escape sequences or characters that show an image."""
    cell = (1, 2) if chosen == "halfcell" else cell_size()
    scale = min(COLUMNS * cell[0] / width, ROWS * cell[1] / height, 1.0)
    columns, rows = max(round(width * scale / cell[0]), 1), max(round(height * scale / cell[1]), 1)
    match chosen:
        case "kitty":
            return "".join(_kitty(png, columns, rows)) + "\n"
        case "iterm2":
            data = base64.b64encode(png).decode()
            return f"\x1b]1337;File=inline=1;size={len(png)};width={columns};preserveAspectRatio=1:{data}\x07\n"
        case "sixel" | "halfcell":
            return _draw_cells(png, columns, rows, chosen)
        case "off":
            return ""


def _kitty(png: bytes, columns: int, rows: int) -> Iterator[str]:
    """Yield the escape sequences of a Kitty image. textual-image places these by placeholder characters, which not all
    terminals with Kitty images support."""
    data = base64.b64encode(png).decode()
    for at in range(0, len(data), _KITTY_CHUNK):
        head = f"a=T,f=100,q=2,c={columns},r={rows}," if at == 0 else ""
        more = int(at + _KITTY_CHUNK < len(data))
        yield f"\x1b_G{head}m={more};{data[at : at + _KITTY_CHUNK]}\x1b\\"


def _draw_cells(png: bytes, columns: int, rows: int, chosen: ImageProtocol) -> str:
    """Return the characters of an image. Transparent parts become white, as in images for models."""
    from PIL import Image
    from rich.console import Console

    with import_quietly():
        from textual_image.renderable import HalfcellImage, SixelImage

    with Image.open(io.BytesIO(png)) as opened:
        image = opened.convert("RGBA")
    flat = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    renderable = (SixelImage if chosen == "sixel" else HalfcellImage)(flat, width=columns, height=rows)
    file = io.StringIO()
    console = Console(file=file, width=columns + 1, height=rows + 1, force_terminal=True, color_system="truecolor")
    console.print(renderable, end="")
    return define_colors_first(file.getvalue())
