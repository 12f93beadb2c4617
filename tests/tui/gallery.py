"""Every state of the terminal UI, as it looks: `python -m tests.tui.gallery FOLDER` writes SVG files."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.tui.pilots import Driven, driven

from loom.content.blocks import ToolCall
from loom.events import Stopped, TextDelta, ThinkingDelta, UsageReported
from loom.models import Usage
from loom.providers.samples import samples
from loom.testing import ScriptedAnswer, sample_pdf
from loom.tui.approval_card import ApprovalCard
from loom.tui.glyphs import ASCII, UNICODE

REPLY = """The form is fine; the red line says **Error 502: upstream timed out after 30 s**.

| setting | now | try |
|---|---|---|
| `proxy_read_timeout` | 30 s | 60 s |
| `keepalive` | 16 | 32 |

```nginx
location / {
    proxy_read_timeout 60s;
}
```
"""
USAGE = UsageReported(usage=Usage(input_tokens=31_200, output_tokens=212, cache_read_tokens=23_400))
ANSWER: list[ScriptedAnswer] = [
    [
        ThinkingDelta(index=0, text="The page shows a form and a red line. The red line is an error."),
        TextDelta(index=1, text=REPLY),
        USAGE,
        Stopped(reason="end"),
    ]
]
EDIT = ToolCall(
    "c1", "edit_file", {"path": "nginx.conf", "old": "proxy_read_timeout 30s;", "new": "proxy_read_timeout 60s;"}
)


def _write_samples(folder: Path) -> None:
    for sample in samples():
        (folder / sample.name).write_bytes(sample.data)
    (folder / "report.pdf").write_bytes(sample_pdf(*(f"Page {n} of the report" for n in range(1, 48))))
    (folder / "nginx.conf").write_text("server {\n    proxy_read_timeout 30s;\n}\n")


async def _ask_about_picture(screen: Driven, folder: Path) -> None:
    await screen.paste(str(folder / "login.png"))
    await screen.say("what is wrong here?")
    if screen.app.protocol != "off":
        await screen.wait(lambda: any(len(it.children) > 1 for it in screen.chat.query("Picture")), "the picture")
    await screen.wait_for("media 1")


async def start(screen: Driven, folder: Path) -> None:
    await screen.wait_for("Drop an image")


async def answer(screen: Driven, folder: Path) -> None:
    await _ask_about_picture(screen, folder)


async def composing(screen: Driven, folder: Path) -> None:
    await screen.paste(str(folder / "login.png"))
    await screen.paste(str(folder / "report.pdf"))
    await screen.wait(lambda: "1-20]" in screen.chat.composer.text)
    await screen.type("does the manual say anything? @")
    await screen.wait_for("receipt.jpg")


async def approval(screen: Driven, folder: Path) -> None:
    await screen.paste("raise the timeout")
    await screen.press("enter")
    await screen.wait(lambda: screen.chat.query(ApprovalCard), "the approval")
    await screen.pilot.pause(0.5)


async def models(screen: Driven, folder: Path) -> None:
    await _ask_about_picture(screen, folder)
    await screen.press("ctrl+l")
    await screen.wait_for("loom/spark")
    await screen.wait(lambda: screen.text.count("≈ $") > 4, "prices")


async def context(screen: Driven, folder: Path) -> None:
    await _ask_about_picture(screen, folder)
    await screen.press("ctrl+x")
    await screen.wait_for("[Image #1]")
    await screen.press("m")
    await screen.wait_for("Choose a model")
    await screen.type("spark")
    await screen.press("enter")
    await screen.wait_for("tokens")
    await screen.press("down", "up")


async def sessions(screen: Driven, folder: Path) -> None:
    await _ask_about_picture(screen, folder)
    for title in ("Geometry script, chapter 1", "Refactor the uploader", "Receipt OCR"):
        await screen.library.new(title=title, model="loom/spark")
    await screen.press("ctrl+s")
    await screen.wait_for("Refactor the uploader")


async def branches(screen: Driven, folder: Path) -> None:
    await screen.say("what is wrong here?")
    await screen.say("and the manual?", turns=2)
    await screen.press("escape", "escape")
    await screen.wait_for("Edit an earlier message")
    await screen.press("enter")
    await screen.wait(lambda: screen.chat.composer.text == "and the manual?")
    await screen.press("ctrl+u")
    await screen.say("in one line", turns=3)
    await screen.press("ctrl+t")
    await screen.wait_for("◉")


async def document(screen: Driven, folder: Path) -> None:
    await screen.paste(str(folder / "leaflet.pdf"))
    await screen.wait(lambda: "[leaflet.pdf]" in screen.chat.composer.text)
    await screen.say("which pages talk about timeouts?")
    screen.chat.query_one("DocumentLine").focus()
    await screen.press("enter")
    await screen.wait(lambda: any(len(it.children) > 1 for it in screen.app.screen.query("Picture")), "the page")


async def usage(screen: Driven, folder: Path) -> None:
    await screen.say("what is wrong here?")
    await screen.say("and the manual?", turns=2)
    await screen.type("/usage")
    await screen.press("enter")
    await screen.wait_for("2 turns")


async def help_page(screen: Driven, folder: Path) -> None:
    await screen.press("f1")
    await screen.wait_for("Shift+Enter")


async def palette(screen: Driven, folder: Path) -> None:
    await screen.press("ctrl+p")
    await screen.wait_for("/model")


async def failure(screen: Driven, folder: Path) -> None:
    await screen.paste("go on\n!fail 401 invalid x-api-key")
    await screen.press("enter")
    await screen.wait_for("invalid x-api-key")
    await screen.wait(lambda: not screen.chat.is_busy)


State = Callable[[Driven, Path], Awaitable[None]]
WIDE = (110, 36)
STATES: dict[str, tuple[State, list[ScriptedAnswer] | None, tuple[int, int], dict[str, object]]] = {
    "start": (start, [], WIDE, {}),
    "answer": (answer, ANSWER, (110, 44), {}),
    "composing": (composing, [], WIDE, {}),
    "approval": (approval, [ToolCall("c0", "read_file", {"path": "nginx.conf"}), EDIT, "done"], WIDE, {}),
    "models": (models, ANSWER, (120, 40), {}),
    "context": (context, ANSWER, (120, 30), {}),
    "sessions": (sessions, ANSWER, WIDE, {}),
    "branches": (branches, ["The form is fine.", "It says 60 s.", "Raise the timeout."], (120, 30), {}),
    "document": (document, ["Page 2."], (110, 40), {}),
    "usage": (usage, [*ANSWER, *ANSWER], WIDE, {}),
    "help": (help_page, [], (110, 48), {}),
    "palette": (palette, [], WIDE, {}),
    "failure": (failure, None, WIDE, {}),
    "light": (answer, ANSWER, (110, 44), {"theme": "loom-light"}),
    "narrow": (answer, ANSWER, (60, 40), {}),
    "ascii": (answer, ANSWER, (100, 34), {"glyphs": ASCII, "protocol": "off"}),
}


async def draw(name: str, folder: Path) -> str:
    """Return a state as SVG."""
    import contextlib

    state, answers, size, more = STATES[name]
    _write_samples(folder)
    protocol = more.get("protocol", "halfcell")
    glyphs = more.get("glyphs", UNICODE)
    with contextlib.chdir(folder):
        async with driven(folder, answers=answers, size=size, protocol=protocol, glyphs=glyphs) as screen:  # type: ignore[arg-type]
            screen.app.theme = str(more.get("theme", "loom-dark"))
            await state(screen, folder)
            await screen.pilot.pause(0.3)
            return screen.app.export_screenshot(title="loom")


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or STATES:
        with tempfile.TemporaryDirectory() as folder:
            (out / f"tui-{name}.svg").write_text(asyncio.run(draw(name, Path(folder))), encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
