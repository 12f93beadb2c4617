"""The clipboard of the desktop: images, files and text, by the programs that the system has for it."""

from __future__ import annotations

import base64
import binascii
import importlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import msgspec

from loom.content.inputs import Attachment
from loom.errors import LoomError, NotFound

_SECONDS: Final = 10
"""How long a program of the system may take; the one that owns the clipboard may hang."""
_IMAGE_TYPES: Final = ("image/png", "image/webp", "image/jpeg", "image/gif", "image/tiff", "image/bmp")
"""Best first: programs offer one image in many forms."""
_FILE_TYPES: Final = ("text/uri-list", "x-special/gnome-copied-files")
_TEXT_TYPES: Final = ("text/plain;charset=utf-8", "UTF8_STRING", "text/plain", "STRING", "TEXT")
_NO_DESKTOP: Final = (b"Can't open display", b"Failed to connect to a Wayland server")
"""How xclip and wl-paste say that the desktop of a variable is gone, as in an old tmux session."""
_OTHER_WAYS: Final = "mention a file with @, or open loom web"
_WINDOWS_IMAGE: Final = (
    "$image = Get-Clipboard -Format Image; if ($image) { $file = New-Object IO.MemoryStream; "
    "$image.Save($file, 'Png'); [Convert]::ToBase64String($file.ToArray()) }"
)
_WINDOWS_TEXT: Final = (
    "[Console]::OutputEncoding = [Text.Encoding]::UTF8; "
    "Get-Clipboard -Raw | ForEach-Object { [Console]::Out.Write($_) }"
)


class ClipboardContent(msgspec.Struct, frozen=True):
    """What was copied: `attachments` (an image, or files), else `text`."""

    attachments: tuple[Attachment, ...] = ()
    text: str = ""


def read_clipboard() -> ClipboardContent:
    """Return what is on the clipboard. Raise `LoomError` if none can be reached, `NotFound` if it is empty."""
    if _is_wsl():
        found = _read_windows()
    elif sys.platform == "darwin":
        found = _read_mac()
    elif sys.platform == "win32":
        found = _read_with_pillow()
    else:
        found = _read_desktop()
    if not found.attachments and not found.text:
        raise NotFound("No image on the clipboard.", hint="Copy one first.")
    return found


def write_clipboard(text: str) -> bool:
    """Copy a text. Return False if no program of the system can: then only the terminal may."""
    if (command := _copy_command()) is None:
        return False
    try:
        # The programs of X11 and Wayland stay behind to hand the text out: a pipe of ours would be open as long.
        subprocess.run(
            command,
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def clipboard_program() -> str:
    """Return the name of the program that reads the clipboard here; empty if there is none, or none is needed."""
    if os.environ.get("WAYLAND_DISPLAY") and shutil.which("wl-paste"):
        return "wl-paste"
    return "xclip" if os.environ.get("DISPLAY") and shutil.which("xclip") else ""


def missing_clipboard_hint() -> str:
    """Return what to do where the clipboard cannot be reached."""
    if os.environ.get("SSH_CONNECTION"):
        return (
            "Over SSH, scp the file and mention it with @, or open loom web --lan; the terminal's own key pastes text."
        )
    if os.environ.get("WAYLAND_DISPLAY"):
        return f"Install wl-clipboard; or {_OTHER_WAYS}."
    if os.environ.get("DISPLAY"):
        return f"Install xclip; or {_OTHER_WAYS}."
    return f"{_OTHER_WAYS[0].upper()}{_OTHER_WAYS[1:]} --lan."


def _is_wsl() -> bool:
    return bool(os.environ.get("WSL_DISTRO_NAME")) and shutil.which("powershell.exe") is not None


def _copy_command() -> list[str] | None:
    if _is_wsl():
        return ["clip.exe"] if shutil.which("clip.exe") else None
    if sys.platform == "darwin":
        return None if os.environ.get("SSH_CONNECTION") else ["pbcopy"]
    match clipboard_program():
        case "wl-paste":
            return ["wl-copy", "--type", "text/plain;charset=utf-8"]
        case "xclip":
            return ["xclip", "-selection", "clipboard", "-in"]
        case _:
            return None


def _run(command: Sequence[str]) -> bytes | None:
    """Return what a program printed; None if it found nothing of what it was asked for."""
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise LoomError(
            f"The clipboard did not respond within {_SECONDS} s.", hint="Copy it again, or attach the file with @."
        ) from None
    except OSError:
        raise LoomError("No clipboard available.", hint=missing_clipboard_hint()) from None
    if ran.returncode and any(words in ran.stderr for words in _NO_DESKTOP):
        raise LoomError("The desktop does not respond.", hint=f"{_OTHER_WAYS[0].upper()}{_OTHER_WAYS[1:]}.")
    return ran.stdout if ran.returncode == 0 else None


# X11 and Wayland -----------------------------------------------------------------------------------------------------


def _read_desktop() -> ClipboardContent:
    match clipboard_program():
        case "wl-paste":
            list_types, read = ["wl-paste", "--list-types"], ["wl-paste", "--no-newline", "--type"]
        case "xclip":
            read = ["xclip", "-selection", "clipboard", "-out", "-target"]
            list_types = [*read, "TARGETS"]
        case _:
            raise LoomError("No clipboard available.", hint=missing_clipboard_hint())
    offered = (_run(list_types) or b"").decode(errors="replace").split("\n")
    images = [it for it in (*_IMAGE_TYPES, *offered) if it in offered and it.startswith("image/")]
    for media_type in images:
        if data := _run([*read, media_type]):
            suffix = media_type.removeprefix("image/").removeprefix("x-").split("+")[0]
            return ClipboardContent((Attachment(source=data, name=f"pasted.{suffix}"),))
    for kind in _FILE_TYPES:
        if kind in offered and (files := copied_files((_run([*read, kind]) or b"").decode(errors="replace"))):
            return ClipboardContent(tuple(Attachment(source=file) for file in files))
    for kind in _TEXT_TYPES:
        if kind in offered and (data := _run([*read, kind])):
            return ClipboardContent(text=data.decode(errors="replace"))
    return ClipboardContent()


def copied_files(text: str) -> list[Path]:
    """Return the local files that a list of URLs names, as file managers copy them."""
    urls = [urlsplit(line.strip()) for line in text.splitlines() if line.startswith("file:")]
    return [Path(unquote(url.path)) for url in urls if url.path]


# macOS, Windows ------------------------------------------------------------------------------------------------------


def _read_mac() -> ClipboardContent:
    """Every Mac has osascript and pbpaste. An image comes as `«data PNGf89504E47…»`, a file as its path."""
    if data := _run(["osascript", "-e", "get the clipboard as «class PNGf»"]):
        with_hex = data.decode(errors="replace").partition("PNGf")[2].rstrip("\n»")
        try:
            return ClipboardContent((Attachment(source=binascii.unhexlify(with_hex), name="pasted.png"),))
        except binascii.Error:
            pass  # something else than an image: it may be a file or a text
    if data := _run(["osascript", "-e", "POSIX path of (get the clipboard as «class furl»)"]):
        return ClipboardContent((Attachment(source=Path(data.decode().rstrip("\n"))),))
    return ClipboardContent(text=(_run(["pbpaste"]) or b"").decode(errors="replace"))


def _read_with_pillow() -> ClipboardContent:
    found: Any = importlib.import_module("PIL.ImageGrab").grabclipboard()
    if isinstance(found, list):
        return ClipboardContent(tuple(Attachment(source=Path(str(name))) for name in cast("list[Any]", found)))
    if found is None:
        return ClipboardContent()
    file = io.BytesIO()
    found.save(file, "PNG")
    return ClipboardContent((Attachment(source=file.getvalue(), name="pasted.png"),))


def _read_windows() -> ClipboardContent:
    """Return the clipboard of Windows, from inside its Linux subsystem."""
    powershell = ["powershell.exe", "-NoProfile", "-NonInteractive", "-STA", "-Command"]
    if data := base64.b64decode(_run([*powershell, _WINDOWS_IMAGE]) or b""):
        return ClipboardContent((Attachment(source=data, name="pasted.png"),))
    return ClipboardContent(text=(_run([*powershell, _WINDOWS_TEXT]) or b"").decode(errors="replace"))
