"""The installed command in terminals that can do less: narrow, without color, without Unicode, far away, or none."""

from __future__ import annotations

import os
import pty
import re
import shutil
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.loom_command import COMMAND, Loom
from tests.tui.terminals import terminals

from loom.testing import sample_png

_COLOR = re.compile(r"\x1b\[[0-9;]*?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9]+)*m")


def test_sixty_columns_hold_a_conversation_with_an_image_and_a_table(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    picture = loom.file("login.png", sample_png(200, 100))

    with terminals(tmp_path, "one") as (terminal,):
        terminal.start(loom, size=(60, 24))
        terminal.wait_for("Drop an image or a PDF here")
        terminal.paste(str(picture))
        terminal.wait_for("[Image #1]")
        terminal.press("Enter")
        terminal.wait_for("login.png, 200×100")
        terminal.wait_for(" out · $0")
        terminal.press("C-t")
        terminal.wait_for("─ Branches")
        terminal.press("Escape")
        terminal.wait_until_gone("─ Branches")
        terminal.press("C-l")
        terminal.wait_for("Choose a model")
        terminal.press("Escape")
        terminal.wait_until_gone("Choose a model")
        terminal.press("C-d")


def test_without_color_nothing_is_colored_and_the_choice_is_still_seen(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    with terminals(tmp_path, "one") as (terminal,):
        terminal.start(loom, NO_COLOR="1")
        terminal.wait_for("Drop an image or a PDF here")
        terminal.paste("hello\n!echo # Title\\n\\nsome `code` and **bold**")
        terminal.press("Enter")
        terminal.wait_for(" out · $0")
        terminal.press("C-s")
        terminal.wait_for("new conversation")
        shown = terminal.colored_screen

    assert not _COLOR.findall(shown)
    assert re.search(r"\x1b\[[0-9;]*4m[^\x1b]*new conversation", shown), "the chosen row is underlined"


def test_without_unicode_every_screen_is_ascii(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    picture = loom.file("login.png", sample_png(200, 100))

    with terminals(tmp_path, "one") as (terminal,):
        terminal.start(loom, LANG="C", LC_ALL="C", PYTHONUTF8="0", LOOM_IMAGES="off")
        terminal.wait_for("Drop an image or a PDF here")
        terminal.paste(str(picture))
        terminal.wait_for("[Image #1]")
        terminal.paste("größe 日本\n!echo | a | b |\\n|---|---|\\n| 1 – x | “2” |")
        terminal.press("Enter")
        terminal.wait_for(" out | $0")
        seen = terminal.screen
        for key, words in (("C-l", "Choose a model"), ("C-x", "Context:"), ("C-s", "Conversations"), ("F1", "Help")):
            terminal.press(key)
            seen += terminal.wait_for(words)
            terminal.press("Escape")
            terminal.wait_until_gone(words)

    assert {character for character in seen if ord(character) > 126} == set()
    assert "login.png, 200x100" in seen
    assert "grosse" in seen or "gro?e" in seen


@pytest.mark.parametrize("arguments", [("chat",), ("attach",)])
def test_a_pipe_is_told_what_to_use_instead(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    loom = Loom(tmp_path)

    if arguments == ("chat",):
        ran = loom.process(*arguments)
        assert ran.code != 0
        assert 'loom "…"' in ran.err and "loom chat --plain" in ran.err

    master, slave = pty.openpty()
    try:
        found = subprocess.run(
            [*COMMAND, *arguments],
            stdin=slave,
            capture_output=True,
            env=loom.environ,
            cwd=loom.folder,
            timeout=120,
            check=False,
        )
    finally:
        os.close(master)
        os.close(slave)
    assert found.returncode != 0 and b"\x1b[?1049h" not in found.stdout  # no full screen is drawn into a pipe


@contextmanager
def ssh_server(folder: Path) -> Generator[list[str]]:
    """An SSH server on this machine with a key of its own; gives the command that reaches it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "sshd.conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\nAuthorizedKeysFile {folder / 'user.pub'}\n"
        "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    process = subprocess.Popen([program, "-D", "-e", "-f", folder / "sshd.conf"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        while "listening" not in (line := process.stderr.readline()):
            assert line, "the SSH server ended"
        options = ["StrictHostKeyChecking=no", f"UserKnownHostsFile={folder / 'known'}", "LogLevel=ERROR"]
        given = [part for option in options for part in ("-o", option)]
        yield ["ssh", "-t", "-p", str(port), "-i", str(folder / "user"), *given, "127.0.0.1"]
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def test_over_ssh_it_is_the_same_and_says_what_replaces_the_clipboard(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    picture = loom.file("far.png", sample_png(200, 100))
    variables = [f"{name}={value}" for name, value in loom.environ.items()]
    far = ["cd", str(loom.folder), "&&", "env", *variables, "COLORTERM=truecolor", "LANG=C.UTF-8", *COMMAND]

    with ssh_server(tmp_path) as ssh, terminals(tmp_path, "one") as (terminal,):
        terminal.start(loom, command=[*ssh, *far])
        terminal.wait_for("Drop an image or a PDF here")
        terminal.paste("\n".join(f"line {n}" for n in range(10)))
        terminal.wait_for("line 9")
        terminal.paste(str(picture))
        terminal.wait_for("[Image #1]")
        terminal.press("Enter")
        terminal.wait_for("● far.png, 200×100")
        terminal.wait_for("▀")
        terminal.wait_until_gone("Esc to interrupt")
        terminal.press("C-v")
        terminal.wait_for("No clipboard available")
        assert "scp" in terminal.screen
        terminal.press("C-d")
        terminal.wait_until_ended()

    (session,) = loom("sessions", "--json").rows
    said = [row["text"] for row in loom("tree", session["id"], "--json").rows if row["speaker"] == "you"]
    assert len(said) == 1 and said[0].count("\n") == 9
