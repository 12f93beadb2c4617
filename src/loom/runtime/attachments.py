"""Attachments by name: a file, pages of a file, a URL, the clipboard; and a limit for the pages of a document."""

from __future__ import annotations

import base64
import importlib
import io
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import ContentBlock, DocumentBlock, page_label, page_range
from loom.content.inputs import Attachment
from loom.errors import LoomError, NotFound, Unreadable

PIPED: Final = "stdin"
"""The name of input that was piped into a command."""
_PAGES: Final = re.compile(r"(.+)#([1-9][0-9]{0,6}(?:-[1-9][0-9]{0,6})?)")
_LONGEST_PATH: Final = 4_096
_NO_CLIPBOARD: Final = "scp the file and @mention it, or open loom web --lan"
_POWERSHELL: Final = (
    "$image = Get-Clipboard -Format Image; if ($image) { $file = New-Object IO.MemoryStream; "
    "$image.Save($file, 'Png'); [Convert]::ToBase64String($file.ToArray()) }"
)
_POWERSHELL_SECONDS: Final = 20


def attachment(name: str) -> Attachment:
    """Return the attachment that a name refers to: a file, pages of a file (`report.pdf#3-7`), or a URL. Raise
    `Unreadable` if there is none."""
    if name.startswith(("http://", "https://")):
        return Attachment(source=name)
    found = attachment_from_word(name)
    if found is not None:
        return found
    if Path(name).is_dir():
        raise Unreadable(f"{name} is a folder.", name=name, hint="Attach individual files.")
    raise Unreadable(f"File not found: {name}", name=name, hint="Check the name; paths are relative to this folder.")


def existing_file(word: str) -> Attachment | None:
    """Return the file, or the pages of a file, that a word names; None if there is no such file."""
    if not word or len(word) > _LONGEST_PATH or "\0" in word:
        return None
    if _is_file(word):
        return Attachment(source=Path(word))
    pages = _PAGES.fullmatch(word)
    if pages and _is_file(pages[1]):
        return Attachment(source=Path(pages[1]), pages=pages[2])
    return None


def attachment_from_word(word: str) -> Attachment | None:
    """Return the file that a word names, like `existing_file`; raise `ContentError` if the file exists but the text
    after its # is not a page range."""
    found = existing_file(word)
    file, _, pages = word.rpartition("#")
    if found is None and file and _is_file(file):
        page_range(pages)
    return found


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # a whole sentence can be longer than a file name may be
        return False


def limit_pages(blocks: Sequence[ContentBlock], pages_per_read: int) -> tuple[list[ContentBlock], list[str]]:
    """Return the blocks with at most `pages_per_read` pages of each document, and notices on how to get the other
    pages."""
    shown: list[ContentBlock] = []
    notices: list[str] = []
    for block in blocks:
        if not isinstance(block, DocumentBlock) or block.pages or (block.media.pages or 0) <= pages_per_read:
            shown.append(block)
            continue
        count = block.media.pages or 0
        more = page_label(pages_per_read + 1, min(2 * pages_per_read, count))
        first = page_label(1, pages_per_read)
        shown.append(msgspec.structs.replace(block, pages=first))
        again = "-a -" if block.media.name == PIPED else block.media.name
        notices.append(f"attached {block.media.label}; sending {first}, more with {again}#{more}")
    return shown, notices


def read_clipboard() -> list[Attachment]:
    """Return the image or the files on the clipboard. Raise `LoomError` if there is no clipboard, as over SSH,
    `NotFound` if it holds neither."""
    if os.environ.get("SSH_CONNECTION"):
        raise LoomError("No clipboard available.", hint=_NO_CLIPBOARD)
    if os.environ.get("WSL_DISTRO_NAME") and shutil.which("powershell.exe"):
        return _read_windows_clipboard()
    grab: Any = importlib.import_module("PIL.ImageGrab")
    try:
        found: Any = grab.grabclipboard()
    except importlib.import_module("PIL").UnidentifiedImageError:  # some programs return arbitrary data
        found = None
    except (NotImplementedError, OSError):  # no clipboard program, or it failed: ChildProcessError is an OSError
        raise LoomError("No clipboard available.", hint=f"Install wl-clipboard or xclip; or {_NO_CLIPBOARD}") from None
    if isinstance(found, list):
        return [Attachment(source=Path(str(name))) for name in cast("list[Any]", found)]
    if found is None:
        raise _no_image()
    file = io.BytesIO()
    found.save(file, "PNG")
    return [Attachment(source=file.getvalue(), name="pasted.png")]


def _read_windows_clipboard() -> list[Attachment]:
    """Return the content of the Windows clipboard, from inside its Linux subsystem."""
    command = ["powershell.exe", "-NoProfile", "-NonInteractive", "-STA", "-Command", _POWERSHELL]
    try:
        ran = subprocess.run(command, capture_output=True, check=True, timeout=_POWERSHELL_SECONDS)
        data = base64.b64decode(ran.stdout, validate=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        raise LoomError("No clipboard available.", hint=_NO_CLIPBOARD) from None
    if not data:
        raise _no_image()
    return [Attachment(source=data, name="pasted.png")]


def _no_image() -> NotFound:
    return NotFound("No image on the clipboard.", hint="Copy one first.")
