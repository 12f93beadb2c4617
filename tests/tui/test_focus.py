"""Keys reach what has the focus, in the order in which they were pressed; typing elsewhere goes to the message."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tui.pilots import driven
from textual import events

from loom.config import load_config
from loom.runtime import Runtime
from loom.testing import sample_png
from loom.tui.welcome import SampleLine


@pytest.mark.parametrize(
    ("first", "keys"),
    [
        ("", ("tab", "enter")),
        ("", ("tab", "tab", "tab", "enter")),
        ("", ("tab", "shift+tab", "h", "i")),
        ("", ("h", "i", "enter", "y", "o", "u")),
        ("/mod", ("tab", "a", "b")),
        ("/", ("down", "down", "tab", "a", "b")),
        ("/exp", ("escape", "a", "b")),
    ],
)
async def test_keys_that_come_at_once_do_what_they_do_one_by_one(
    tmp_path: Path, first: str, keys: tuple[str, ...]
) -> None:
    async def state_after(name: str, *, at_once: bool) -> tuple[str, str, str]:
        folder = tmp_path / name
        folder.mkdir()
        async with driven(folder, answers=["fine"]) as screen:
            await screen.wait(lambda: screen.chat.query(SampleLine), "the samples")
            await screen.press(*first)
            await screen.wait(lambda: screen.chat.composer.is_completing == bool(first), "the list of commands")
            if at_once:
                for key in keys:
                    screen.app.post_message(events.Key(key, key if len(key) == 1 else None))
            else:
                await screen.press(*keys)
            if "enter" in keys:
                await screen.wait(lambda: screen.chat.conversation is not None, "the sample")
                await screen.wait_until_idle()
            await screen.pilot.pause()
            chat = screen.chat
            return chat.state.title, chat.composer.text, chat.state.permission

    assert await state_after("at_once", at_once=True) == await state_after("one_by_one", at_once=False)


async def test_what_is_typed_and_dropped_while_something_else_has_the_focus_goes_into_the_message(
    tmp_path: Path,
) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(sample_png())
    async with driven(tmp_path, answers=["fine"]) as screen:
        await screen.wait(lambda: screen.chat.query(SampleLine), "the samples")
        line = screen.chat.query(SampleLine).first()
        line.focus()
        await screen.wait(lambda: screen.app.focused is line)
        await screen.press("h", "e", "y")
        await screen.wait(lambda: screen.chat.composer.text == "hey", "the words")
        line.focus()
        await screen.wait(lambda: screen.app.focused is line)
        screen.app.post_message(events.Paste(str(picture)))
        await screen.wait_for("hey [Image #1]")
        assert screen.app.focused is screen.chat.composer


@pytest.mark.parametrize("exit_keys", [("ctrl+d",), ("ctrl+q",), ("ctrl+c", "ctrl+d")])
async def test_a_message_that_was_sent_is_stored_although_the_user_leaves_at_once(
    tmp_path: Path, exit_keys: tuple[str, ...]
) -> None:
    async with driven(tmp_path, answers=["fine"]) as screen:
        await screen.paste("remember this")
        for key in ("enter", *exit_keys):
            screen.app.post_message(events.Key(key, None))
        await screen.wait(lambda: not screen.app.is_running, "the end")

    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home"), "LOOM_OFFLINE": "1"})
    async with Runtime.open(config) as runtime:
        (session,) = (await runtime.library.sessions(query="", limit=5)).sessions
        assert session.title == "remember this"
