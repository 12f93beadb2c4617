"""Every state of the terminal UI, as it looks: `python -m tests.tui.gallery FOLDER` writes SVG files."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.tui.pilots import Driven, driven
from textual.command import CommandPalette
from textual.widgets import Input, LoadingIndicator, OptionList

from loom.content.blocks import ToolCall
from loom.events import Stopped, TextDelta, ThinkingDelta, UsageReported
from loom.models import Usage
from loom.providers.samples import samples
from loom.testing import ScriptedAnswer, sample_pdf
from loom.tui.glyphs import ASCII, UNICODE
from loom.tui.slash_commands import COMMANDS

_ID = re.compile(r"terminal-\d+")
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
_RULES = re.compile(r"\.terminal-(r\d+|matrix) \{([^}]*)\}")
_TEXT = re.compile(r"<text [^>]*>([^<]*)</text>")
_TIME = re.compile(
    r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]|Esc&#160;to&#160;interrupt|^(?:&#160;)*▶|Thought|[0-9]\.[0-9]&#160;s\b"
    r"|(?:&#160;){5}(?:now|[0-9]+&#160;min)\b"
)
_EMPTY = re.compile(r"<text [^>]*>(?:&#160;|\s)*</text>")

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
    await screen.type("does the manual say anything? @re")
    await screen.wait_for("receipt.jpg")


async def approval(screen: Driven, folder: Path) -> None:
    await screen.paste("raise the timeout")
    await screen.press("enter")
    await screen.wait_for_approval()
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
        await screen.library.create(title=title, model="loom/spark")
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
    await screen.wait_for("this path: 2 answers")


async def help_page(screen: Driven, folder: Path) -> None:
    await screen.press("f1")
    await screen.wait_for("Shift+Enter")


async def palette(screen: Driven, folder: Path) -> None:
    await screen.press("ctrl+p")
    await screen.wait(lambda: isinstance(screen.app.screen, CommandPalette), "the palette")
    await screen.wait_for("/model")
    found = screen.app.screen
    await screen.wait(lambda: found.query_one(OptionList).option_count == len(COMMANDS), "all commands")
    await screen.wait(lambda: not found.query_one(LoadingIndicator).has_class("--visible"), "the end of the search")


async def failure(screen: Driven, folder: Path) -> None:
    await screen.paste("go on\n!fail 401 invalid x-api-key")
    await screen.press("enter")
    await screen.wait_for("Check the key for this provider")
    await screen.wait(lambda: not screen.chat.is_busy)
    await screen.wait_for("ctx 10%")


async def thinking(screen: Driven, folder: Path) -> None:
    await screen.press("alt+t", "alt+t", "alt+t", "alt+t")
    await screen.wait_for("thinking high")
    await screen.say("what is wrong here?")
    await screen.press("ctrl+o")
    await screen.wait_for("The red line is an error")


async def work(screen: Driven, folder: Path) -> None:
    await screen.say("fix the login page")
    await screen.press("f2")
    await screen.wait_for("run the tests")
    await screen.wait_for("sleep 600")


async def command_approval(screen: Driven, folder: Path) -> None:
    await screen.paste("run the tests")
    await screen.press("enter")
    await screen.wait_for_approval()
    await screen.wait_for("make test")


async def tools(screen: Driven, folder: Path) -> None:
    await screen.say("raise the timeout")
    await screen.press("ctrl+o")
    await screen.wait_for("+    proxy_read_timeout 60s;")


async def queue(screen: Driven, folder: Path) -> None:
    await screen.paste("go\n!slow 1tps\n!tokens 900")
    await screen.press("enter")
    await screen.wait_for("is answering")
    await screen.paste("be brief")
    await screen.press("enter")
    await screen.wait_for("next step: be brief")
    await screen.paste("then run the tests")
    await screen.press("tab")
    await screen.wait_for("queued: then run the tests")


async def commands(screen: Driven, folder: Path) -> None:
    await screen.type("/")
    await screen.wait_for("/model")


async def found_model(screen: Driven, folder: Path) -> None:
    await _ask_about_picture(screen, folder)
    await screen.press("ctrl+l")
    await screen.wait_for("loom/spark")
    await screen.type("loom/spark")
    await screen.wait(lambda: screen.text.count("≈ $") == 1, "the price")


async def text_page(screen: Driven, folder: Path) -> None:
    await screen.paste(str(folder / "report.pdf"))
    await screen.wait(lambda: "[report.pdf 1-20]" in screen.chat.composer.text)
    await screen.say("summarize it")
    await screen.wait_for("pages 1–20 of 47")
    await screen.type("/view ")
    await screen.press("enter")
    await screen.wait_for("page 1 of 47")
    if screen.app.protocol != "off":
        await screen.press("t")
    await screen.press("right")
    await screen.wait_for("Page 2 of the report")


TODOS = ToolCall(
    "c1",
    "update_todos",
    {
        "todos": [
            {"text": "read the log", "state": "done"},
            {"text": "raise the timeout", "state": "in_progress"},
            {"text": "run the tests", "state": "pending"},
        ]
    },
)
SERVER = ToolCall("c2", "start_process", {"command": "sleep 600"})

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
    "thinking": (thinking, ANSWER, WIDE, {}),
    "work": (work, [TODOS, SERVER, "The server runs; the timeout is next."], (120, 30), {"permission": "auto"}),
    "command": (command_approval, [ToolCall("c1", "run_command", {"command": "make test"}), "done"], WIDE, {}),
    "tools": (
        tools,
        [ToolCall("c0", "read_file", {"path": "nginx.conf"}), EDIT, "The timeout is 60 s now."],
        WIDE,
        {"permission": "auto"},
    ),
    "queue": (queue, None, WIDE, {}),
    "commands": (commands, [], WIDE, {}),
    "found-model": (found_model, ANSWER, (120, 30), {}),
    "text-page": (text_page, ["It has 47 pages."], WIDE, {}),
    "light": (answer, ANSWER, (110, 44), {"theme": "loom-light"}),
    "narrow": (answer, ANSWER, (60, 40), {}),
    "ascii": (answer, ANSWER, (100, 34), {"glyphs": ASCII, "protocol": "off"}),
}


SNAPSHOTS = tuple(name for name in STATES if name not in ("models", "document", "queue", "light"))
"""States that look the same in every run. The list of models follows the catalog, a page the renderer."""


def normalize(svg: str) -> str:
    """Return the picture without what differs from run to run: ids, and texts that hold a time."""
    svg = _ID.sub("terminal", svg)
    rules = "".join(f".terminal-{name} {{{rule}}}\n" for name, rule in _RULES.findall(svg))
    svg = _STYLE.sub(f"<style>\n{rules}</style>", svg)
    svg = _TEXT.sub(lambda found: "<text/>" if _TIME.search(found[1]) else found[0], _EMPTY.sub("", svg))
    return re.sub(r"<clipPath.*?</clipPath>\s*| clip-path=\"[^\"]*\"| textLength=\"[^\"]*\"", "", svg, flags=re.DOTALL)


async def draw(name: str, folder: Path, protocol: str = "") -> str:
    """Return a state as SVG."""
    state, answers, size, more = STATES[name]
    _write_samples(folder)
    async with driven(
        folder,
        answers=answers,
        size=size,
        protocol=protocol or more.get("protocol", "halfcell"),  # type: ignore[arg-type]
        glyphs=more.get("glyphs", UNICODE),  # type: ignore[arg-type]
        permission=str(more.get("permission", "ask")),
    ) as screen:
        screen.app.theme = str(more.get("theme", "loom-dark"))
        screen.chat.composer.cursor_blink = False
        await state(screen, folder)
        before, drawn = "", _still(screen)
        while before != normalize(drawn):  # until nothing moves any more
            before = normalize(drawn)
            await screen.pilot.pause(0.3)
            drawn = _still(screen)
        return drawn


def _still(screen: Driven) -> str:
    screen.app.clear_notifications()
    for line in screen.app.screen.query(Input):
        line.cursor_blink, line._cursor_visible = False, True
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
