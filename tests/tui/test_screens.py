"""Model switcher, conversations, context table, usage, help; narrow, without color, in ASCII."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from tests.runtime.billed import OPUS, billed_session
from tests.tui.pilots import Driven, driven

from loom.testing import sample_png
from loom.tui.context_screen import ContextScreen
from loom.tui.glyphs import ASCII, UNICODE, choose_glyphs
from loom.tui.help_screen import HelpScreen
from loom.tui.image_protocol import choose_screen_protocol
from loom.tui.model_screen import ModelScreen
from loom.tui.session_screen import SessionScreen


async def with_picture(screen: Driven, folder: Path) -> None:
    (folder / "login.png").write_bytes(sample_png(300, 200))
    await screen.paste(str(folder / "login.png"))
    await screen.say("what is this?")


async def test_the_model_switcher_shows_what_each_would_receive_and_switches(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["blue"], size=(120, 36)) as screen:
        await with_picture(screen, tmp_path)
        await screen.press("ctrl+l")
        await screen.wait(lambda: isinstance(screen.app.screen, ModelScreen))
        await screen.type("spark")
        await screen.wait_for("loom/spark")
        await screen.wait_for("1●")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.model == "loom/spark")
        assert screen.chat.conversation is not None
        assert (await screen.chat.conversation.session.info()).model == "loom/spark"


async def test_a_model_that_is_not_listed_can_be_typed(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[]) as screen:
        await screen.type("/model ollama/llava")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.model == "ollama/llava")
        await screen.wait_for("llava")


async def test_conversations_are_listed_searched_and_opened(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["about tides", "about ferns"]) as screen:
        await screen.say("tell me of the sea")
        await screen.type("/new")
        await screen.press("escape", "enter")
        await screen.wait_for("Drop an image")
        await screen.say("tell me of plants")
        await screen.press("ctrl+s")
        await screen.wait(lambda: isinstance(screen.app.screen, SessionScreen))
        await screen.wait_for("tell me of the sea")
        await screen.type("tides")
        await screen.wait_for("1 found")
        await screen.press("enter")
        await screen.wait(lambda: screen.app.screen is screen.chat)
        await screen.wait_for("about tides")


async def test_the_context_table_sets_a_rendition_and_adds_a_model(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["blue"], size=(130, 36)) as screen:
        await with_picture(screen, tmp_path)
        await screen.press("ctrl+x")
        await screen.wait(lambda: isinstance(screen.app.screen, ContextScreen))
        await screen.wait_for("[Image #1]")
        await screen.wait_for("● full")
        await screen.press("t")
        await screen.wait_for("○ text")
        await screen.wait_for("override")
        await screen.press("a")
        await screen.wait(lambda: "override" not in screen.text)
        await screen.press("m")
        await screen.wait(lambda: isinstance(screen.app.screen, ModelScreen))
        await screen.type("spark")
        await screen.press("enter")
        await screen.wait(lambda: screen.text.count("full") >= 3, "two columns")
        await screen.press("escape")
        await screen.wait(lambda: screen.app.screen is screen.chat)


async def test_usage_and_help_open_and_close(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["blue"]) as screen:
        await screen.say("hello")
        await screen.type("/usage")
        await screen.press("escape", "enter")
        await screen.wait_for("this path: 1 answer, 10 in")
        await screen.wait_for("all branches: 1 answer")
        await screen.press("escape")
        await screen.press("f1")
        await screen.wait(lambda: isinstance(screen.app.screen, HelpScreen))
        await screen.wait_for("Shift+Enter")
        await screen.press("escape")
        await screen.wait(lambda: screen.app.screen is screen.chat)


async def test_the_palette_offers_the_commands(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[]) as screen:
        await screen.press("ctrl+p")
        await screen.type("conversations")
        await screen.wait_for("open another conversation")
        await screen.press("enter")
        await screen.wait(lambda: isinstance(screen.app.screen, SessionScreen))


async def test_the_palette_begins_a_command_that_needs_an_argument(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[]) as screen:
        await screen.press("ctrl+p")
        await screen.type("/rename")
        await screen.wait_for("rename this conversation")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.composer.text == "/rename ", "the command")
        await screen.wait(lambda: screen.app.focused is screen.chat.composer)


async def test_a_narrow_terminal_shows_everything_on_sixty_columns(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["word " * 60], size=(60, 24)) as screen:
        await screen.say("hello")
        assert all(len(line) <= 60 for line in screen.text.splitlines())
        await screen.press("ctrl+t")
        await screen.wait_for("Branches")
        await screen.press("escape")
        await screen.press("ctrl+l")
        await screen.wait_for("Choose a model")


async def test_ascii_alone_where_the_locale_has_no_unicode(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["plain words"], glyphs=ASCII) as screen:
        await screen.say("hello")
        odd = {character for character in screen.text if ord(character) > 126}
        assert odd == set(), odd


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, UNICODE),
        ({"LANG": "en_US.UTF-8"}, UNICODE),
        ({"LANG": "C"}, ASCII),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, UNICODE),
        ({"TERM": "linux", "LANG": "en_US.UTF-8"}, ASCII),
        ({"LOOM_ASCII": "1", "LANG": "en_US.UTF-8"}, ASCII),
    ],
)
def test_the_signs_follow_the_locale(environ: dict[str, str], expected: object) -> None:
    assert choose_glyphs(environ) is expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm-kitty", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "sixel"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm", "LOOM_IMAGES": "kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "tmux-256color", "TMUX": "x", "KITTY_WINDOW_ID": "1"}, "halfcell"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "off"),
        ({"TERM": "xterm-256color", "LOOM_IMAGES": "off"}, "off"),
    ],
)
def test_the_protocol_of_pictures_follows_the_terminal(environ: dict[str, str], expected: str) -> None:
    assert choose_screen_protocol(environ) == expected


async def test_the_price_and_the_discarded_cache_are_shown_before_an_action(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    async with billed_session(tmp_path / "home", OPUS, random.Random(5)) as (_, session, _biller):
        messages = len(await session.path())
    async with driven(tmp_path, session=session.id, model=OPUS, size=(120, 36)) as screen:
        await screen.wait_for("next ≈$")
        await screen.paste("/context")
        await screen.press("enter")
        await screen.wait_for("last request")
        assert re.search(r"tokens \([\d.]+k cached, [\d.]+k? new\)", screen.text)
        assert re.search(r"cheaper: blind costs .* and loses nothing", screen.text)
        await screen.press("o")
        await screen.wait_for("Change this block?")
        assert re.search(r"This discards about [\d.]+k cached tokens", screen.text)
        await screen.press("escape")
        await screen.wait(lambda: isinstance(screen.app.screen, ContextScreen))
        await screen.press("escape")

        await screen.press("ctrl+l")
        await screen.wait(lambda: isinstance(screen.app.screen, ModelScreen))
        await screen.type("gpt")
        await screen.wait_for("This discards about")
        await screen.press("escape")

        await screen.paste("/compact")
        await screen.press("enter")
        await screen.wait_for("Summarize the conversation?")
        assert re.search(r"The request for a summary costs about [\d.]+k tokens", screen.text)
        await screen.press("escape")
        await screen.wait(lambda: "Summarize the conversation?" not in screen.text)
        assert screen.chat.conversation is not None
        assert len(await screen.chat.conversation.path()) == messages
