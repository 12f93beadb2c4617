"""The installed command in a real terminal, driven as a person would."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cli.loom_command import COMMAND, Loom
from tests.cli.test_daemon_commands import serving

from loom.testing import sample_pdf, sample_png

PATIENCE_SECONDS = 90.0


class Tmux:
    """One terminal of 100 by 34."""

    def __init__(self, folder: Path, name: str) -> None:
        self._command = ["tmux", "-S", str(folder / f"{name}.sock"), "-u", "-f", "/dev/null"]
        self._environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}  # no COLUMNS and LINES of the test runner

    def _tmux(self, *arguments: str) -> str:
        run = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, check=True, env=self._environ
        )
        return run.stdout

    def start(self, loom: Loom, *arguments: str) -> None:
        variables = {**loom.environ, "LANG": "C.UTF-8", "TERM": "tmux-256color", "COLORTERM": "truecolor"}
        given = [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]
        size = ["-x", "100", "-y", "34", "-c", str(loom.folder)]
        stays = (";", "set-option", "-g", "remain-on-exit", "on")  # so that an error can be read
        self._tmux("new-session", "-d", *size, *given, *COMMAND, *arguments, *stays)

    @property
    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    @property
    def pid(self) -> int:
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def wait_for(self, words: str) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in (screen := self.screen):
            assert time.monotonic() < deadline, f"{words!r} never came; the terminal shows:\n{screen}"
            time.sleep(0.05)
        return screen

    def wait_until_gone(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words in (screen := self.screen):
            assert time.monotonic() < deadline, f"{words!r} stays:\n{screen}"
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """In brackets, as terminals paste."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def end(self) -> None:
        subprocess.run([*self._command, "kill-server"], capture_output=True, check=False, env=self._environ)


@contextmanager
def terminals(folder: Path, *names: str) -> Generator[Sequence[Tmux]]:
    found = [Tmux(folder, name) for name in names]
    try:
        yield found
    finally:
        for terminal in found:
            terminal.end()


def test_ten_lines_a_dropped_picture_a_document_and_a_fork(tmp_path: Path) -> None:
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
        terminal.type("/fork")
        terminal.press("Enter")
        terminal.wait_for("This is a new session")
        terminal.press("C-d")

    sessions = loom("sessions", "--json").rows
    assert len(sessions) == 2
    said = [row["text"] for row in loom("tree", sessions[1]["id"], "--json").rows if row["speaker"] == "you"]
    assert len(said) == 2 and said[0].startswith("line 0\nline 1\n") and said[0].count("\n") == 9


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
