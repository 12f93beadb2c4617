"""One session in a browser and in a terminal, on the same daemon."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import expect
from tests.browser.client import Daemon
from tests.browser.conftest import OpenClient
from tests.cli.loom_command import Loom
from tests.tui.terminals import terminals


def test_a_terminal_is_attached_while_a_browser_shows_the_same_session(
    own_daemon: Daemon, open_client: OpenClient, tmp_path: Path
) -> None:
    client = open_client(on=own_daemon)
    client.send_and_wait("hello\n!echo said in the browser")
    loom = Loom(tmp_path, LOOM_HOME=str(own_daemon.home), PATH=os.environ["PATH"])

    with terminals(tmp_path, "one") as (terminal,):
        terminal.start(loom, "attach", "-c")
        terminal.wait_for("said in the browser")
        terminal.paste("and you?\n!echo said in the terminal")
        terminal.press("Enter")
        terminal.wait_for("said in the terminal")
        expect(client.answers.last).to_contain_text("said in the terminal")
        client.send("once more\n!echo said once more")
        terminal.wait_for("said once more")
        terminal.press("C-d")
