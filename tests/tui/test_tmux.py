"""The installed command in a real terminal, driven as a person would."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.cli.loom_command import Loom
from tests.cli.model_server import model_server
from tests.cli.test_chat import clipboard, copy
from tests.cli.test_daemon_commands import serving
from tests.tui.terminals import terminals

from loom.testing import sample_pdf, sample_png


def test_ten_lines_a_dropped_picture_a_paged_document_and_a_fork(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    picture = loom.file("my picture.png", sample_png(200, 100))
    loom.file("report.pdf", sample_pdf(*(f"words of page {n}" for n in range(1, 4))))

    with terminals(tmp_path, "one") as (terminal,):
        terminal.start(loom)
        terminal.wait_for("Drop an image or a PDF here")
        terminal.paste("\n".join(f"line {n}" for n in range(10)))
        terminal.wait_for("line 9")
        terminal.paste(str(picture).replace(" ", "\\ "))
        terminal.wait_for("[Image #1]")
        terminal.press("Enter")
        terminal.wait_for("● my picture.png, 200×100")
        terminal.wait_for("▀")
        terminal.wait_for(" out · $0")
        terminal.type("@rep")
        terminal.wait_for("report.pdf")
        terminal.press("Enter")
        terminal.wait_for("[report.pdf]")
        terminal.press("Enter")
        terminal.wait_for("[PDF: report.pdf, 3 pages]")
        terminal.wait_until_gone("Esc to interrupt")
        terminal.type("/view")
        terminal.press("Enter")
        terminal.wait_for("page 1 of 3 (image)")
        terminal.press("t")
        terminal.wait_for("words of page 1")
        terminal.press("Right")
        terminal.wait_for("words of page 2")
        terminal.press("Right")
        terminal.wait_for("words of page 3")
        terminal.press("Left")
        terminal.wait_for("page 2 of 3 (text)")
        terminal.press("Escape")
        terminal.wait_until_gone("page 2 of 3")
        terminal.type("/fork")
        terminal.press("Enter")
        terminal.wait_for("This is a new session")
        terminal.press("C-d")

    sessions = loom("sessions", "--json").rows
    assert len(sessions) == 2
    said = [row["text"] for row in loom("tree", sessions[1]["id"], "--json").rows if row["speaker"] == "you"]
    assert len(said) == 2 and said[0].startswith("line 0\nline 1\n") and said[0].count("\n") == 9


def test_nothing_in_a_folder_is_used_until_the_user_trusts_it(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    started = tmp_path / "started"
    server = {"command": sys.executable, "args": ["-c", f"open({str(started)!r}, 'w')"]}
    loom.file(".mcp.json", json.dumps({"mcpServers": {"project": server}}))
    loom.file("loom.toml", "[images]\nmax_pixels = 999_000_000\n")

    with terminals(tmp_path, "one") as (terminal,):
        terminal.start(loom)
        screen = terminal.wait_for("y: trust this folder")
        assert ".mcp.json" in screen and "max_pixels" in screen and "next time" not in screen
        assert not started.exists() and not list(loom.home.rglob("*.db"))
        terminal.press("y")
        terminal.wait_for("Drop an image or a PDF here")
        terminal.type("hello")
        terminal.press("Enter")
        terminal.wait_for(" out · $0")  # a turn waits for its servers
        assert started.exists()
        terminal.press("C-d")
    assert "999000000" in loom("config", "show").out


def test_a_tool_is_approved_and_the_model_switched(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    with terminals(tmp_path, "one") as (terminal,):
        terminal.start(loom, "chat")
        terminal.wait_for("Drop an image or a PDF here")
        terminal.paste('please\n!tool run_command {"command": "echo yes > made.txt"}')
        terminal.press("Enter")
        terminal.wait_for("Approve run_command?")
        assert "echo yes > made.txt" in terminal.screen
        time.sleep(0.5)
        terminal.press("y")
        terminal.wait_for("✔ run_command")
        terminal.wait_until_gone("Esc to interrupt")
        terminal.press("C-l")
        terminal.wait_for("Choose a model")
        terminal.type("gpt-5.5")
        terminal.wait_for("openai/gpt-5.5")
        terminal.press("Enter")
        terminal.wait_for("gpt-5.5 · ask")
        terminal.press("C-q")

    assert (loom.folder / "made.txt").read_text() == "yes\n"
    assert loom("sessions", "--json").rows[0]["model"].endswith("gpt-5.5")


def test_an_answer_is_interrupted_and_a_killed_one_is_continued(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    with terminals(tmp_path, "one", "two") as (terminal, again):
        terminal.start(loom)
        terminal.wait_for("Drop an image or a PDF here")
        terminal.paste("go\n!slow 20tps\n!tokens 2000")
        terminal.press("Enter")
        terminal.wait_for("is answering")
        terminal.press("Escape")
        terminal.wait_until_gone("Esc to interrupt")
        terminal.paste("once more\n!slow 20tps\n!tokens 120\n!echo the very end")
        terminal.press("Enter")
        terminal.wait_for("is answering")
        os.kill(terminal.pid, signal.SIGKILL)
        again.start(loom, "chat", "-c")
        again.wait_for("the very end")
        again.wait_until_gone("Esc to interrupt")
        again.press("C-d")


def test_two_terminals_show_one_session_of_a_daemon(tmp_path: Path) -> None:
    loom = Loom(tmp_path, LOOM_MODEL="")
    (loom.home / "loom.toml").write_text('model = "loom/spark"\n')

    with serving(loom), terminals(tmp_path, "one", "two") as (one, two):
        one.start(loom, "attach")
        one.wait_for("http://127.0.0.1")
        one.paste("hello\n!echo first answer")
        one.press("Enter")
        one.wait_for(" out · $0")
        two.start(loom, "attach", "-c")
        two.wait_for("first answer")
        two.paste("and you?\n!echo second answer")
        two.press("Enter")
        one.wait_for("second answer")
        two.wait_for("second answer")
        one.press("C-d")
        two.press("C-d")


def test_a_template_an_own_command_the_editor_and_the_clipboard(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    loom.file("t.toml", 'prompt = "Explain $input."\nsystem = "Be brief."\nattach = ["a.png"]\n')
    loom.file("a.png", sample_png(20, 10))
    editor = loom.file("editor", '#!/bin/sh\nprintf "written outside" > "$1"\n')
    editor.chmod(0o755)
    (loom.home / "commands").mkdir()
    (loom.home / "commands" / "review.md").write_text("---\ndescription: look for mistakes\n---\nReview $ARGUMENTS.")

    with clipboard() as display, terminals(tmp_path, "one") as (terminal,):
        terminal.start(loom, "chat", "-t", "t.toml", "--think", "low", EDITOR=str(editor), DISPLAY=display)
        terminal.wait_for("[Image #1]")
        terminal.wait_for("thinking low")
        terminal.type("tides")
        terminal.press("Enter")
        terminal.wait_for("Explain [Image #1] tides.")
        terminal.wait_for(" out · $0")
        terminal.type("/rev")
        terminal.wait_for("look for mistakes")
        terminal.press("Tab")
        terminal.type("src")
        terminal.press("Enter")
        terminal.wait_for("Review src.")
        terminal.wait_until_gone("Esc to interrupt")
        terminal.press("C-g")
        terminal.wait_for("› written outside")
        copy(sample_png(64, 48), "image/png", display)
        terminal.press("C-v")
        terminal.wait_for("written outside [Image #2]")
        terminal.press("Enter")
        terminal.wait_for("pasted.png, 64×48")
        terminal.press("C-d")

    (session,) = loom("sessions", "--json").rows
    assert "Be brief." in loom("wire", session["id"], "-m", "openai/gpt-5.5").out


def test_the_default_model_is_used_with_all_its_settings(tmp_path: Path) -> None:
    loom = Loom(tmp_path, LOOM_MODEL="")
    with model_server("Here I am.") as server, terminals(tmp_path, "one") as (terminal,):
        (loom.home / "loom.toml").write_text(f'model = "local"\n{server.config}')
        terminal.start(loom)
        terminal.wait_for("Message; paste or drop files")
        terminal.type("hello")
        terminal.press("Enter")
        terminal.wait_for("Here I am.")
        terminal.press("C-d")
        terminal.wait_until_ended()
    assert [row["model"] for row in loom("sessions", "--json").rows] == ["local"]
