"""Welcome: the page of an empty conversation."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from loom.tui.glyphs import Glyphs
from loom.tui.image_protocol import ImageProtocol
from loom.tui.labels import short_model
from loom.tui.text_content import plain_text

_BUILT_IN = "loom/spark"


class Welcome(Vertical):
    DEFAULT_CSS = """
    Welcome { height: auto; padding: 1 2; }
    Welcome > Static { height: auto; margin: 0 0 1 0; }
    Welcome > .dim { color: $dim; }
    Welcome > SampleLine { margin: 0; }
    """

    def __init__(self, glyphs: Glyphs, protocol: ImageProtocol, model: str) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._protocol = protocol
        self._model = model

    def compose(self) -> ComposeResult:
        yield Static(Content.styled("Drop an image or a PDF here, or ask anything.", "bold"))
        if self._model == _BUILT_IN:
            text = "Built-in demo model: no API key needed, not a language model. Add a key: `loom keys set anthropic`."
        else:
            text = f"{short_model(self._model)} answers. Ctrl+L chooses another model."
        yield Static(plain_text(text), classes="dim")
        yield Static(plain_text("Try one of these (Tab, then Enter):"), classes="dim")
        for at, (sign, name, question) in enumerate(
            (
                (self._glyphs.image, "login.png", "What is wrong here?"),
                (self._glyphs.image, "receipt.jpg", "What does this look like?"),
                (self._glyphs.document, "leaflet.pdf", "Which pages talk about timeouts?"),
            )
        ):
            yield SampleLine(at, f"{sign} {name:<12} {question}")
        pictures = "as text" if self._protocol == "off" else f"as {self._protocol}"
        yield Static("")
        yield Static(
            plain_text(f"Images are shown {pictures}; change it with LOOM_IMAGES. F1 lists keys."), classes="dim"
        )


class SampleLine(Static, can_focus=True):
    """A sample; Enter or a click sends it."""

    DEFAULT_CSS = """
    SampleLine { height: 1; color: $secondary; padding: 0 1; }
    SampleLine:focus { background: $panel; color: $foreground; text-style: bold; }
    SampleLine:hover { background: $panel; }
    """
    BINDINGS = [("enter", "send", "Send")]  # noqa: RUF012

    def __init__(self, number: int, text: str) -> None:
        super().__init__(plain_text(text))
        self._number = number

    async def action_send(self) -> None:
        await self.run_action(f"screen.send_sample({self._number})")

    async def on_click(self) -> None:
        await self.action_send()
