"""`loom` alone: a conversation on the line."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pytest

from cli.loom_command import Loom, Terminal
from cli.model_server import model_server
from cli.test_daemon_commands import serving
from loom.cli.line_chat import split_attachments
from loom.content.inputs import Attachment
from loom.testing import sample_pdf, sample_png


def test_a_conversation_on_a_terminal(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("my notes.pdf", sample_pdf("The timeout is 30 seconds."))

    with Terminal(loom, "chat", "-R", LOOM_PLAIN="1") as terminal:
        terminal.wait_for("/help, Ctrl+D to exit")
        terminal.wait_for("› ")
        terminal.type("hello\n")
        terminal.wait_for("I am loom/spark")
        terminal.wait_for("› ")
        terminal.type("/attach my notes.pdf\n")
        terminal.wait_for("[my notes.pdf] › ")
        terminal.type("what does it say about the timeout?\n")
        terminal.wait_for("30 seconds")
        terminal.wait_for("› ")
        terminal.type("/context spark,gpt-5.5\n")
        assert "my notes.pdf" in terminal.wait_for("total ≈")
        terminal.type("/fork\n")
        terminal.wait_for("now in ")
        terminal.type("/model gpt-5.5\n")
        terminal.wait_for("openai-responses/gpt-5.5 is now the model")
        terminal.type("and now?\n")
        terminal.wait_for("OPENAI_API_KEY, or run: loom keys set")
        terminal.type("/nonsense\n")
        terminal.wait_for("Unknown command /nonsense. /help")
        terminal.type("/quit\n")
        assert terminal.end() == 0

    titles = [row["title"] for row in loom("sessions", "--json").rows]
    assert titles == ["hello", "hello"]


def test_what_is_typed_during_an_answer_waits_for_the_next_prompt(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("It takes a while.", delay_seconds=1.0) as server:
        (loom.home / "loom.toml").write_text(server.config)
        with Terminal(loom, "chat", "-m", "local", LOOM_PLAIN="1") as terminal:
            terminal.wait_for("› ")
            terminal.type("first\n")
            terminal.wait_for("first")
            while not server.requests:
                terminal.read(0.1)
            terminal.type("second\n/quit\n")
            assert "second" not in terminal.wait_for("It takes a while.")
            assert "second" in terminal.wait_for("It takes a while.")
            assert terminal.end() == 0

    assert [request["messages"][-1]["content"] for request in server.requests] == ["first", "second"]


@pytest.mark.parametrize("place", ["here", "daemon"])
def test_a_line_typed_while_a_tool_runs_reaches_the_model_at_its_next_step(tmp_path: Path, place: str):
    loom = Loom(tmp_path, LOOM_MODEL="")
    wait = {"name": "run_command", "arguments": {"command": "touch began; until [ -e go ]; do sleep 0.05; done"}}

    with model_server(wait, "I have read the log.", "Bye.") as server:
        (loom.home / "loom.toml").write_text(f'model = "local"\n{server.config}')
        command = ["attach", "--plain"] if place == "daemon" else ["chat", "--plain"]
        with serving(loom) if place == "daemon" else nullcontext(), Terminal(loom, *command) as terminal:
            terminal.wait_for("› ")
            terminal.type("what is slow?\n")
            terminal.wait_for("[n] no › ")
            terminal.type("y\n")
            _wait(terminal, (loom.folder / "began").exists)
            terminal.type("look at the log first\n")
            _wait(terminal, lambda: _queued(loom) == 1)
            (loom.folder / "go").touch()
            terminal.wait_for("the model reads: look at the log first")
            terminal.wait_for("I have read the log.")
            terminal.wait_for("› ")
            terminal.type("thanks\n")
            terminal.wait_for("Bye.")
            terminal.type("/quit\n")
            assert terminal.end() == 0

    assert [message["role"] for message in server.requests[1]["messages"]] == ["user", "assistant", "tool", "user"]
    assert server.requests[1]["messages"][-1]["content"] == "look at the log first"
    assert [request["messages"][-1]["content"] for request in server.requests[2:]] == ["thanks"]


def test_a_line_typed_during_a_last_step_is_the_next_message_also_through_a_daemon(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")
    with model_server("It takes a while.", delay_seconds=1.0) as server:
        (loom.home / "loom.toml").write_text(f'model = "local"\n{server.config}')
        with serving(loom), Terminal(loom, "attach", "--plain") as terminal:
            terminal.wait_for("› ")
            terminal.type("first\n")
            _wait(terminal, lambda: bool(server.requests))
            terminal.type("second\n/quit\n")
            assert "second" not in terminal.wait_for("It takes a while.")
            assert "second" in terminal.wait_for("It takes a while.")
            assert terminal.end() == 0

    assert [request["messages"][-1]["content"] for request in server.requests] == ["first", "second"]


def _wait(terminal: Terminal, is_met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_met():
        assert time.monotonic() < deadline, terminal.text
        terminal.read(0.05)


def _queued(loom: Loom) -> int:
    with closing(sqlite3.connect(loom.home / "loom.db")) as database:
        return database.execute("SELECT count(*) FROM queued WHERE node = ''").fetchone()[0]


def test_bare_loom_on_a_terminal_is_a_conversation(tmp_path: Path):
    loom = Loom(tmp_path)

    with Terminal(loom) as terminal:
        terminal.wait_for("Drop an image or a PDF here")
        terminal.type("\x04")
        assert terminal.end() == 0

    assert loom("sessions", "--json").rows == []


def test_ctrl_c_ends_an_answer_and_not_the_conversation(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server(("It begins and",), "whole") as server:
        (loom.home / "loom.toml").write_text(server.config)
        with Terminal(loom, "chat", "--plain", "-m", "local") as terminal:
            terminal.wait_for("› ")
            terminal.type("hello\n")
            terminal.wait_for("It begins")
            terminal.interrupt()
            terminal.wait_for("interrupted; the conversation is saved")
            terminal.wait_for("› ")
            terminal.type("hello\n")
            terminal.wait_for("whole")
            terminal.type("/quit\n")
            assert terminal.end() == 0


def test_compact_goes_on_from_a_summary_and_keeps_the_whole_conversation(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("login.png", sample_png(64, 48))

    with model_server("A blue picture.", "They showed a blue picture.", "Yes.") as server:
        (loom.home / "loom.toml").write_text(server.config + "[models.local.capabilities]\nvision = true\n")
        lines = b"/compact\nwhat is @login.png ?\n/compact\nand was it blue?\n"
        ran = loom("chat", "--plain", "-m", "local", stdin=lines)

    assert "The conversation is empty: nothing to summarize." in ran.err
    assert "They showed a blue picture.\n2 messages summarized into one; all of them stay as a branch\nYes." in ran.out
    asked, after = (str(request["messages"]) for request in server.requests[1:])
    assert "image_url" not in asked + after and "They showed a blue picture." in after
    assert [row["text"] for row in loom("tree", "--json").rows].count("A blue picture.") == 1


@contextmanager
def clipboard() -> Generator[str]:
    """An X server of its own; gives its name for DISPLAY."""
    read, write = os.pipe()
    command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "100x100x8", "-nolisten", "tcp"]
    with subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL) as server:
        os.close(write)
        with os.fdopen(read) as told:
            display = f":{told.readline().strip()}"
        try:
            yield display
        finally:
            server.terminate()


def copy(data: bytes, kind: str, display: str) -> None:
    environ = {**os.environ, "DISPLAY": display}
    command = ["xclip", "-selection", "clipboard", "-target"]
    subprocess.run([*command, kind], input=data, env=environ, stderr=subprocess.DEVNULL, check=True)
    # xclip comes back before its child owns the clipboard: wait until the clipboard itself says what is on it.
    deadline = time.monotonic() + 60
    while (
        kind.encode()
        not in subprocess.run(
            [*command, "TARGETS", "-out"], env=environ, capture_output=True, check=False
        ).stdout.splitlines()
    ):
        assert time.monotonic() < deadline, f"{kind} never came to the clipboard"
        time.sleep(0.02)


def test_a_picture_on_the_clipboard_is_pasted_and_sent(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_PLAIN="1")

    with clipboard() as display, Terminal(loom, "chat", "-T", "none", DISPLAY=display) as terminal:
        terminal.wait_for("› ")
        for words in (b"", b"only words"):
            if words:
                copy(words, "text/plain", display)
            terminal.type("/paste\n")
            terminal.wait_for("No image on the clipboard. Copy one first.")
            terminal.wait_for("› ")
        copy(sample_png(64, 48), "image/png", display)
        terminal.type("/paste\n")
        terminal.wait_for("[pasted.png] › ")
        terminal.type("what is it?\n")
        terminal.wait_for("64×48 PNG. Mostly")
        terminal.type("/quit\n")
        assert terminal.end() == 0


def test_a_template_begins_a_conversation(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("t.toml", 'prompt = "Explain $input."\nsystem = "Be brief."\nmodel = "local"\ntools = ["none"]\n')

    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config)
        assert loom("chat", "--plain", "-t", "t.toml", stdin=b"tides\nand more\n").code == 0

    said = [request["messages"] for request in server.requests]
    assert [message["content"] for message in said[0]] == ["Be brief.", "Explain tides."]
    assert said[1][-1]["content"] == "and more"


def test_lines_from_a_pipe_are_a_conversation_too(tmp_path: Path):
    loom = Loom(tmp_path)

    ran = loom("chat", "--plain", "-R", stdin=b"hello\n\nand what can you do?\n/quit\n")

    assert ran.code == 0
    assert ran.out.count("I am loom/spark") >= 1
    assert len(loom("log", "--json").rows) == 4


def test_the_error_of_the_last_turn_is_shown_when_its_conversation_is_opened(tmp_path: Path):
    loom = Loom(tmp_path)
    assert loom("!fail 400 the words of the provider").code != 0
    failed = "The last turn did not finish: loom/spark: the words of the provider. `loom wire`"

    assert failed in loom("chat", "--plain", "-c", stdin=b"/quit\n").err
    shown = loom("log")
    assert failed in shown.err and "!fail 400" in shown.out
    with serving(loom):
        assert failed in loom.process("attach", "--plain", "-c", stdin=b"/quit\n").err
    assert loom("!echo hello").code == 0
    assert "did not finish" not in loom("log").err


def test_mentions_name_files_of_the_folder_of_the_conversation(tmp_path: Path):
    loom = Loom(tmp_path)
    there = tmp_path / "there"
    there.mkdir()
    (there / "there.txt").write_text("the words of the file\n")
    (there / "login.png").write_bytes(sample_png())
    loom.file("here.txt", "here\n")
    assert loom("!echo hello", cwd=there).code == 0
    where = f"The files of this conversation are in {there}."

    at_home = loom("-r", "latest", "!echo see @there.txt", cwd=there)
    asked = loom("-r", "latest", "!echo see @there.txt")
    chatted = loom("chat", "--plain", "-r", "latest", stdin=b"!echo see @login.png and @here.txt\n")
    with Terminal(loom, "-r", "latest", "!echo see @there.txt and @here.txt") as terminal:
        terminal.wait_for("File not found: here.txt")
        terminal.type("n\n")
        assert terminal.end() == 5
    with Terminal(loom, "chat", "--plain", "-r", "latest") as terminal:
        terminal.wait_for("›")
        terminal.type("see @here.txt\n")
        terminal.wait_for("File not found: here.txt")
        terminal.type("n\n/quit\n")
        assert terminal.end() == 0

    assert where in asked.err and where in chatted.err and where not in at_home.err
    assert "File not found" not in asked.err + at_home.err and "File not found: here.txt" in chatted.err
    assert "64×48 PNG" in loom("log", "latest").out, "the image of the folder of the conversation was sent"


def test_files_come_along_by_mention_and_by_drop(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("login.png", "my notes.txt"):
        (tmp_path / name).write_text("x")

    def split(line: str) -> tuple[str, list[Attachment]]:
        return split_attachments(line, Path())

    assert [file.source for file in split("look at @login.png and @nobody")[1]] == [Path("login.png")]
    assert split("look at @login.png, ok") == ("look at login.png, ok", split("login.png")[1])
    assert split('see @"my notes.txt" now') == ('see @"my notes.txt" now', []), "the session tracks it"
    for dropped in ("my\\ notes.txt", "'my notes.txt'", f"file://{tmp_path}/login.png"):
        words, files = split(dropped)
        assert words == "" and len(files) == 1, dropped
    assert split("mail me@example.org") == ("mail me@example.org", [])


def test_an_attached_chat_has_the_commands_for_the_work_of_an_agent(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")
    todos = {"name": "update_todos", "arguments": {"todos": [{"text": "read the log", "state": "in_progress"}]}}
    with model_server(todos, "noted", "We read a log.") as server:
        (loom.home / "loom.toml").write_text(f'model = "local"\n{server.config}')
        with serving(loom):
            typed = b"begin\n/todos\n/processes\n/undo\n/compact\n"
            ran = loom.process("attach", "--plain", stdin=typed)

    assert ran.code == 0
    assert "[~] read the log" in ran.out and "No background processes." in ran.out
    assert "messages summarized into one" in ran.out
    assert "Nothing to undo." in ran.err


def test_a_mentioned_text_file_is_tracked(tmp_path: Path):
    loom = Loom(tmp_path)
    notes = loom.file("notes.txt", "alpha one\n")
    with model_server("ok") as server:
        (loom.home / "loom.toml").write_text(server.config)
        assert loom("chat", "--plain", "-m", "local", stdin=b"what is in @notes.txt?\n").code == 0
        notes.write_text("alpha two\n")
        assert loom("chat", "--plain", "-m", "local", "-c", stdin=b"and now?\n").code == 0

    first, second = (request["messages"][-1]["content"] for request in server.requests)
    assert "alpha one" in first
    assert "-alpha one" in second and "+alpha two" in second


@pytest.mark.parametrize("end", [b"", b"/quit\n"])
def test_a_file_that_was_attached_and_never_sent_is_said(tmp_path: Path, end: bytes):
    loom = Loom(tmp_path)
    loom.file("login.png", sample_png())

    left = loom("chat", "--plain", "-R", stdin=b"/attach login.png\n/attach https://example.org/a.png\n" + end)
    sent = loom("chat", "--plain", "-R", stdin=b"/attach login.png\nwhat is it?\n" + end)

    assert left.code == sent.code == 0
    assert "not sent: login.png, https://example.org/a.png" in left.err and "not sent" not in sent.err


def test_an_agent_that_is_chosen_before_the_first_message_brings_its_model(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="spark")
    with model_server("Here I am.") as server:
        agents = '[agents.fast]\nmodel = "local"\nsystem = "Be fast."\n[agents.slow]\ntools = []\n'
        (loom.home / "loom.toml").write_text(server.config + agents)
        said = loom("chat", "--plain", stdin=b"/agent fast\nhello\n/agent slow\nagain\n")
    assert said.out.count("Here I am.") == 2
    first, second = server.requests
    assert first["messages"][0]["content"].startswith("Be fast.")
    assert first["tools"] and not second.get("tools")
    assert "the model and the system prompt stay" in said.err
