"""The clipboards of real desktops: an X server, and a Wayland compositor without a screen."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from tests.cli.test_chat import clipboard, copy

from loom.errors import LoomError, NotFound
from loom.runtime.clipboard import clipboard_program, copied_files, read_clipboard, write_clipboard
from loom.testing import sample_png

NOBODY = 65_534
Copy = Callable[[bytes, str], None]


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 10), "navy").save(file, "JPEG")
    return file.getvalue()


@contextmanager
def wayland(folder: Path) -> Generator[str]:
    """A compositor of its own; gives the path of its socket for WAYLAND_DISPLAY."""
    runtime = folder / "wayland"
    runtime.mkdir(mode=0o700)
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "WLR_BACKENDS": "headless", "WLR_RENDERER": "pixman"}
    command = ["sway", "-c", "/dev/null"]
    if os.geteuid() == 0:  # sway refuses to run as root
        for parent in (runtime, *runtime.parents[:-2]):
            parent.chmod(parent.stat().st_mode | 0o011)
        os.chown(runtime, NOBODY, NOBODY)
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    with subprocess.Popen(
        command, env={**environ, "WLR_LIBINPUT_NO_DEVICES": "1"}, stderr=subprocess.PIPE, text=True
    ) as compositor:
        try:
            deadline = time.monotonic() + 60
            while not (found := [file for file in runtime.iterdir() if file.is_socket() and "wayland" in file.name]):
                assert compositor.poll() is None and time.monotonic() < deadline, "no compositor"
                time.sleep(0.05)
            yield str(found[0])
        finally:
            compositor.terminate()


@pytest.fixture(params=["x11", "wayland"])
def copy_to(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Generator[Copy]:
    """The clipboard of a desktop, and how another program copies to it."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "x11":
        with clipboard() as display:
            monkeypatch.setenv("DISPLAY", display)
            yield lambda data, kind: copy(data, kind, display)
        return
    with wayland(tmp_path_factory.mktemp("desktop")) as display:
        monkeypatch.setenv("WAYLAND_DISPLAY", display)
        yield lambda data, kind: subprocess.run(["wl-copy", "--type", kind], input=data, check=True) and None


def test_an_image_a_text_and_files_are_read_as_they_were_copied(copy_to: Copy, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_clipboard()

    for data, kind in ((sample_png(20, 10), "image/png"), (jpeg(), "image/jpeg")):
        copy_to(data, kind)
        (found,) = read_clipboard().attachments
        assert found.source == data, f"{kind} is not encoded anew"
        assert found.name == f"pasted.{kind.removeprefix('image/')}"

    copy_to("zwei Zeilen:\nä €".encode(), "text/plain;charset=utf-8")
    assert read_clipboard().text == "zwei Zeilen:\nä €"

    files = [tmp_path / "a b.png", tmp_path / "ä.pdf"]
    copy_to("\r\n".join(["# two files", *(file.as_uri() for file in files)]).encode(), "text/uri-list")
    assert [it.source for it in read_clipboard().attachments] == files


def test_what_is_written_can_be_read(copy_to: Copy) -> None:
    text = "first\n" + "long " * 50_000 + "ä"

    assert write_clipboard(text)

    deadline = time.monotonic() + 60
    while True:  # xclip comes back before its child owns the clipboard
        try:
            found = read_clipboard().text
            break
        except NotFound:
            assert time.monotonic() < deadline, "the text never came to the clipboard"
            time.sleep(0.02)
    assert found == text


def test_a_list_of_urls_names_local_files_alone() -> None:
    assert copied_files("copy\nfile:///a%20b/%C3%A4.png\nhttps://example.com/c.png\n# no\nfile:///d") == [
        Path("/a b/ä.png"),
        Path("/d"),
    ]


@pytest.mark.parametrize(
    ("variables", "hint"),
    [
        ({}, "loom web --lan"),
        ({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, "scp"),
        ({"DISPLAY": ":99"}, "Install xclip"),
        ({"WAYLAND_DISPLAY": "wayland-9"}, "Install wl-clipboard"),
    ],
)
def test_without_a_clipboard_the_error_names_the_next_step(
    variables: dict[str, str], hint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("xclip") is None

    with pytest.raises(LoomError) as refused:
        read_clipboard()

    assert hint in refused.value.hint
    assert clipboard_program() == ""
    assert not write_clipboard("text")


def test_a_display_that_is_gone_is_no_clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":4711")

    with pytest.raises(LoomError, match="The desktop does not respond"):
        read_clipboard()
    assert not write_clipboard("text")
