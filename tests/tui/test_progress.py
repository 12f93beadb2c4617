"""Tool calls that take time: what they are doing stands in their line."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.tui.pilots import driven

from loom.content.blocks import ToolCall
from loom.events import ToolProgressed
from loom.tui.glyphs import ASCII, UNICODE
from loom.tui.status_line import ActivityLine
from loom.tui.tool_card import ToolCard

COMMAND = "echo step $((1)); cat gate; echo step $((2)); cat gate"


@pytest.mark.parametrize("permission", ["ask", "auto"])
async def test_a_running_command_shows_its_newest_line_once_it_is_approved(tmp_path: Path, permission: str) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = ToolCall("c1", "run_command", {"command": COMMAND})
    async with driven(tmp_path, answers=[run, "done"], permission=permission) as screen:
        await screen.paste("run it")
        await screen.press("enter")
        if permission == "ask":
            await screen.wait_for_approval()
            assert "approval needed" in str(screen.chat.query_one(ToolCard).title())
            await screen.approve()
        for words in ("  step 1", "  step 2"):
            await screen.wait(
                lambda words=words: any(words in str(it.title()) for it in screen.chat.query(ToolCard)), words
            )
            assert "approval" not in screen.text
            await asyncio.to_thread(gate.write_text, "")  # both ends meet here: the command goes on
        await screen.wait_until_idle()
        title = str(screen.chat.query_one(ToolCard).title())
        assert "step 2" not in title and " s" in title


async def test_nothing_moves_while_an_approval_is_pending(tmp_path: Path) -> None:
    calls = [ToolCall(f"c{number}", "run_command", {"command": f"echo $(({number}))"}) for number in (1, 2)]
    async with driven(tmp_path, answers=[calls, "done"]) as screen:
        await screen.paste("run both")
        await screen.press("enter")
        await screen.wait_for_approval()
        first, second = screen.chat.query(ToolCard)
        assert "approval needed" in str(first.title()) and "waiting" in str(second.title())
        line = screen.chat.query_one(ActivityLine)
        drawn: set[tuple[str, ...]] = set()
        for _ in range(3):
            first.tick()
            second.tick()
            line.show("waiting for your approval", 7.0, is_waiting=True)
            drawn.add((str(first.title()), str(second.title()), str(line.render())))
        assert len(drawn) == 1
        await screen.approve()
        await screen.wait(lambda: "approval needed" in str(second.title()), "the approval of the second call")
        assert "waiting" not in str(second.title())
        await screen.approve()
        await screen.wait_until_idle()


@pytest.mark.parametrize(
    ("fraction", "bar"), [(-1.0, "░" * 16), (0.0, "░" * 16), (0.5, "█" * 8 + "░" * 8), (1.0, "█" * 16), (7.0, "█" * 16)]
)
def test_a_fraction_is_a_bar_of_the_same_width(fraction: float, bar: str) -> None:
    card = ToolCard(UNICODE, "render", ToolCall("c1", "render", {}))
    card.show_progress(ToolProgressed(call_id="c1", text="page 3", fraction=fraction))
    assert f"{bar} {max(0.0, min(fraction, 1.0)):.0%} page 3" in str(card.title())


def test_progress_without_unicode_is_drawn_in_ascii() -> None:
    card = ToolCard(ASCII, "render", ToolCall("c1", "render", {}))
    card.show_progress(ToolProgressed(call_id="c1", text="page 3", fraction=0.25))
    assert "####............ 25% page 3" in str(card.title())
