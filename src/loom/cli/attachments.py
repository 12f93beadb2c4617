"""What a command line hands over: files, page ranges, standard input, words.

loom report.pdf#3-7 "…"      an existing path is an attachment
loom "…" -a photo.png        so is what follows -a
cat x.png | loom "…"         bytes on stdin are recognised; text goes before the words

What is asked of the files themselves (`--no-resize`, `--pdf-password-file`, `--at`) is done in `preparing`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from loom.content.blocks import ContentBlock, DocumentBlock, page_label, page_range
from loom.content.inputs import Attachment, Content
from loom.errors import Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.sniff import sniff
from loom.formats.text import decode_text

_RANGE: Final = r"#([1-9][0-9]{0,6}(?:-[1-9][0-9]{0,6})?)"
_PAGES: Final = re.compile(f"(.+){_RANGE}")
_STDIN: Final = re.compile(f"-(?:{_RANGE})?")
_PIPED: Final = "stdin"
_LONGEST_PATH: Final = 4_096


class MessageInput(msgspec.Struct, frozen=True):
    """The words and the files of one message, in the order in which they are sent: files, piped text, words."""

    words: str
    files: tuple[Attachment, ...]
    piped: str = ""

    @property
    def contents(self) -> list[Content]:
        return [text for text in (self.piped, self.words) if text]

    @property
    def content(self) -> list[Content]:
        return [*self.files, *self.contents]

    @property
    def names(self) -> str:
        return ", ".join(file.name or _name_of(file) for file in self.files)

    @property
    def title(self) -> str:
        return " ".join((self.words or self.names or self.piped).split())[:80]


def read_message(words: Sequence[str], attached: Sequence[str], limits: IntakeLimits) -> MessageInput:
    """The message of a command line. Bytes are read only from stdin; paths are read at the door."""
    said, names = named_files(words)
    from_stdin = [found for name in attached if (found := _STDIN.fullmatch(name))]
    files = [attachment(name) for name in (*names, *attached) if not _STDIN.fullmatch(name)]
    piped = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    if from_stdin:
        if not piped:
            raise Unreadable("stdin is empty.", hint="Pipe a file into loom, or name it: -a FILE.")
        whole = [Attachment(source=piped, name=_PIPED, pages=found[1] or "") for found in from_stdin]
        return MessageInput(" ".join(said), (*files, *whole))
    if not piped.strip():
        return MessageInput(" ".join(said), tuple(files))
    if sniff(piped).category != "text" or len(piped) > limits.max_text_bytes:
        return MessageInput(" ".join(said), (*files, Attachment(source=piped, name=_PIPED)))
    return MessageInput(" ".join(said), tuple(files), decode_text(piped)[0].strip("\n"))


def named_files(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words, and those of them that name an existing file."""
    names = [word for word in words if _attachment_from_word(word) is not None]
    return [word for word in words if word not in names], names


def attachment(name: str) -> Attachment:
    """A file, a file with pages (`report.pdf#3-7`), or an address."""
    if name.startswith(("http://", "https://")):
        return Attachment(source=name)
    found = _attachment_from_word(name)
    if found is not None:
        return found
    if Path(name).is_dir():
        raise Unreadable(f"{name} is a folder.", name=name, hint="Attach individual files.")
    raise Unreadable(f"File not found: {name}", name=name, hint="Check the name; paths are relative to this folder.")


def existing_file(word: str) -> Attachment | None:
    """The file, or the pages of a file, that a word names; None where it names none."""
    if not word or len(word) > _LONGEST_PATH or "\0" in word:
        return None
    if _is_file(word):
        return Attachment(source=Path(word))
    pages = _PAGES.fullmatch(word)
    if pages and _is_file(pages[1]):
        return Attachment(source=Path(pages[1]), pages=pages[2])
    return None


def _attachment_from_word(word: str) -> Attachment | None:
    """The same; what stands behind the # of a file and is no range of pages is a mistake, not words to send."""
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


def _name_of(file: Attachment) -> str:
    return file.source.name if isinstance(file.source, Path) else "attachment"


def limit_pages(blocks: Sequence[ContentBlock], pages_per_read: int) -> tuple[list[ContentBlock], list[str]]:
    """Long documents begin with their first pages, and it is said how to get the others."""
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
        again = "-a -" if block.media.name == _PIPED else block.media.name
        notices.append(f"attached {block.media.label}; sending {first}, more with {again}#{more}")
    return shown, notices
