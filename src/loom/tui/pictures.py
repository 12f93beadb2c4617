"""Images in the terminal UI: the image itself, in the protocol of the terminal, and a caption that stays."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final, TypeAlias

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from loom.content.media import Media
from loom.content.recipes import Fit
from loom.errors import LoomError
from loom.tui.cell_images import cell_size, define_colors_first, import_quietly
from loom.tui.image_protocol import ImageProtocol
from loom.tui.text_content import plain_text

LoadMedia: TypeAlias = Callable[[str, str], Awaitable[bytes]]
"""Reads a medium, by its digest, in a form of `Library.open_media`."""

MAX_COLUMNS: Final = 64
MAX_ROWS: Final = 18
_SIDE_PX: Final = 1024


class Picture(Vertical):
    """An image, or one page of a document, that is loaded when it is mounted. Without an image protocol, only its
    caption."""

    DEFAULT_CSS = """
    Picture { height: auto; width: 100%; margin: 0 0 0 0; }
    Picture > .caption { color: $dim; height: auto; }
    Picture > .image-error { color: $warning; height: auto; }
    """

    def __init__(
        self,
        media: Media,
        load: LoadMedia,
        protocol: ImageProtocol,
        *,
        caption: str = "",
        page: int = 0,
        max_columns: int = MAX_COLUMNS,
        max_rows: int = MAX_ROWS,
    ) -> None:
        super().__init__()
        self.media = media
        self.page = page
        self._load = load
        self._protocol: ImageProtocol = protocol
        self._max = (max_columns, max_rows)
        self._caption = Static(plain_text(caption or media.label), classes="caption")

    def compose(self) -> ComposeResult:
        yield self._caption

    def set_caption(self, text: str) -> None:
        self._caption.update(plain_text(text))

    def on_mount(self) -> None:
        if self._protocol != "off":
            self.run_worker(self._show, exclusive=True)

    async def _show(self) -> None:
        try:
            data = await self._load(self.media.digest, f"page:{self.page}" if self.page else "full")
            if not self.page:  # Loom rendered the page itself; an image may be untrusted bytes
                data = await asyncio.to_thread(render_png, data, self.media)
        except LoomError as error:
            await self.mount(Static(plain_text(f"cannot be shown: {error.message}"), classes="image-error"))
            return
        widget = await asyncio.to_thread(make_image_widget, data, self._protocol)
        room = max((self.container_size.width or MAX_COLUMNS) - 2, 8)
        columns, rows = fit_cells(widget.image.size, (min(self._max[0], room), self._max[1]), self._protocol)
        widget.styles.width, widget.styles.height = columns, rows
        await self.mount(widget, before=0)


def render_png(data: bytes, media: Media) -> bytes:
    """Return the image as PNG, scaled down for a terminal; decoded in a worker process."""
    from loom.formats import render

    return render(data, media, Fit(_SIDE_PX, formats=("image/png",))).data


def fit_cells(size: tuple[int, int], room: tuple[int, int], protocol: ImageProtocol) -> tuple[int, int]:
    """Return the columns and rows that keep the aspect ratio of an image of `size` pixels within `room`."""
    cell_width, cell_height = (1, 2) if protocol == "halfcell" else cell_size()
    width, height = max(size[0], 1), max(size[1], 1)
    natural = width if protocol == "halfcell" else -(-width // cell_width)
    columns = min(natural, room[0])
    rows = columns * cell_width * height / width / cell_height
    if rows > room[1]:
        columns, rows = round(columns * room[1] / rows), room[1]
    return max(int(columns), 1), max(round(rows), 1)


def make_image_widget(data: bytes, protocol: ImageProtocol) -> Any:
    """Return a widget of textual-image for these bytes."""
    from PIL import Image

    picture = Image.open(io.BytesIO(data))
    picture.thumbnail((_SIDE_PX, _SIDE_PX))
    made: Any = image_widgets()[protocol]
    return made(picture.convert("RGBA"))


@cache
def image_widgets() -> dict[ImageProtocol, type[Widget]]:
    """Return the widget class of each protocol."""
    with import_quietly():
        from textual_image import widget
        from textual_image.widget.sixel import Image as SixelImage
        from textual_image.widget.sixel import _ImageSixelImpl  # pyright: ignore[reportPrivateUsage]

    class SixelPixels(_ImageSixelImpl):
        def _image_to_sixels(self, image: Any, sixel_options: Any = None, background: Any = None) -> str:
            return define_colors_first(super()._image_to_sixels(image, sixel_options, background))

    class SixelPicture(SixelImage, Renderable=vars(SixelImage)["_Renderable"]):
        def compose(self) -> ComposeResult:
            yield SixelPixels(self.image)

    class ItermPixels(_ImageSixelImpl):
        """Writes iTerm2's inline image sequence in place of Sixel data."""

        def _image_to_sixels(self, image: Any, sixel_options: Any = None, background: Any = None) -> str:
            file = io.BytesIO()
            image.save(file, "PNG")
            data = base64.b64encode(file.getvalue()).decode()
            size = f"width={image.width}px;height={image.height}px"
            return f"\x1b]1337;File=inline=1;size={file.tell()};{size};preserveAspectRatio=0:{data}\x07"

    class ItermImage(SixelImage, Renderable=vars(SixelImage)["_Renderable"]):
        def compose(self) -> ComposeResult:
            yield ItermPixels(self.image)

    return {
        "kitty": widget.TGPImage,
        "sixel": SixelPicture,
        "iterm2": ItermImage,
        "halfcell": widget.HalfcellImage,
    }
