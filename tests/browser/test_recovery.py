"""Nothing is lost: reloads, lost connections, a daemon that is killed under the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser.desk import Daemon, Desk, OpenDesk
from browser.samples import carried, picture


@pytest.fixture
def mortal(built: Path, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that a test may kill."""
    running = Daemon(tmp_path / "home")
    running.start()
    yield running
    running.stop()


def test_a_reload_in_mid_turn_loses_nothing(desk: Desk) -> None:
    desk.say("!slow 40tps\n!echo the very first words\n!tokens 80")
    expect(desk.answers.last).to_contain_text("the very first words")
    desk.page.reload()
    expect(desk.answers.last).to_contain_text("the very first words")
    expect(desk.page.locator(".answer[aria-busy=true]")).to_have_count(1)
    desk.quiet()
    live = desk.answers.last.locator(".prose").inner_text()
    desk.page.reload()
    expect(desk.answers.last.locator(".prose")).to_have_text(live, use_inner_text=True)
    expect(desk.answers).to_have_count(1)


def test_a_draft_with_its_pictures_survives_a_reload(desk: Desk) -> None:
    desk.say_and_hear("!echo hello")
    desk.paste_files(carried("kept.png", picture("kept")))
    expect(desk.attachments).to_contain_text("640×400")
    desk.box.fill("not yet sent")
    desk.page.reload()
    expect(desk.box).to_have_value("not yet sent")
    expect(desk.attachments).to_contain_text("kept.png")


def test_a_killed_daemon_comes_back_under_the_page_and_nothing_is_lost(open_desk: OpenDesk, mortal: Daemon) -> None:
    desk = open_desk(on=mortal)
    desk.say_and_hear("!echo before the kill")
    desk.say("!slow 20tps\n!echo half of it\n!tokens 300")
    expect(desk.answers.last).to_contain_text("half of it")
    mortal.kill()
    expect(desk.page.get_by_text("Reconnecting… nothing is lost")).to_be_visible(timeout=10_000)
    desk.say("!echo sent while it was away")
    expect(desk.page.get_by_text("sending…")).to_be_visible()
    mortal.start()
    expect(desk.page.get_by_text("Reconnecting… nothing is lost")).to_have_count(0, timeout=20_000)
    expect(desk.answers.last).to_contain_text("sent while it was away", timeout=20_000)
    desk.quiet()
    expect(desk.page.get_by_text("sending…")).to_have_count(0)
    assert desk.asked.all_inner_texts().__str__().count("sent while it was away") == 1
    desk.page.reload()
    expect(desk.answers.last).to_contain_text("sent while it was away")
    expect(desk.page.locator(".chat")).to_contain_text("half of it")
    expect(desk.asked).to_have_count(3)


def test_two_pages_on_one_session_show_the_same(open_desk: OpenDesk) -> None:
    first = open_desk()
    first.say_and_hear("!echo hello")
    second = open_desk(path=f"/#/s/{first.session}")
    first.say("!slow 60tps\n!tokens 40")
    expect(second.page.locator(".answer[aria-busy=true]")).to_have_count(1)
    first.quiet()
    second.quiet()
    expect(second.answers.last.locator(".prose")).to_have_text(first.answers.last.locator(".prose").inner_text())


def test_without_the_cookie_the_page_says_how_to_get_in(open_desk: OpenDesk) -> None:
    desk = open_desk()
    desk.page.context.clear_cookies()
    desk.page.reload()
    expect(desk.page.get_by_role("heading", name="This Loom is locked")).to_be_visible()
    expect(desk.page.locator("body")).to_contain_text("loom web")
