"""Attachments by name: a file, pages of a file, a URL; and how many pages are read at once."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from loom.content.blocks import ContentBlock, DocumentBlock, page_label, page_range
from loom.content.inputs import Attachment
from loom.errors import Unreadable

PIPED: Final = "stdin"
"""The name of input that was piped into a command."""
_PAGES: Final = re.compile(r"(.+)#([1-9][0-9]{0,6}(?:-[1-9][0-9]{0,6})?)")
_LONGEST_PATH: Final = 4_096


def attachment(name: str, folder: Path = Path()) -> Attachment:
    """Return the attachment that a name refers to: a file of `folder`, pages of one (`report.pdf#3-7`), or a URL. Raise
    `Unreadable` if there is none."""
    if name.startswith(("http://", "https://")):
        return Attachment(source=name)
    path = str(folder / name)
    found = attachment_from_word(path)
    if found is not None:
        return found
    if stat.S_ISDIR(_file_mode(path)):
        raise Unreadable(f"{name} is a folder.", name=name, hint="Attach individual files.")
    if is_special_file(path):
        hint = 'Pipe it in: COMMAND | loom "…"'
        raise Unreadable(f"{name} is a pipe or a device, not a file.", name=name, hint=hint)
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


def _file_mode(path: str) -> int:
    """Return the type and the permissions of what is at a path; 0 if nothing is."""
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):  # a whole sentence can be longer than a file name may be
        return 0


def _is_file(word: str) -> bool:
    return stat.S_ISREG(_file_mode(word))


def is_special_file(word: str) -> bool:
    """Return whether a word names something that is neither a file nor a folder: a pipe or a device."""
    mode = _file_mode(word)
    return mode != 0 and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


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
        notices.append(f"Attached {block.media.label}; sending {first}, more with {again}#{more}.")
    return shown, notices
