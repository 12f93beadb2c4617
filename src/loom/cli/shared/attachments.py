"""Files on the command line: which words are files, their pages, declared types, passwords, the clipboard."""

from __future__ import annotations

import asyncio
import importlib
import io
import os
import re
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec

from loom.agent.ingest import Ingested, read_own_file
from loom.content.blocks import ContentBlock, DocumentBlock, TextBlock, page_label, page_range
from loom.content.inputs import Attachment, Content
from loom.content.media import size_label
from loom.errors import ConfigError, Encrypted, LoomError, NotFound, TooLarge, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.pdf.unlock import unlock_pdf
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import label_of
from loom.formats.text import decode_text
from loom.runtime import Runtime

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


_MAX_PASSWORD_BYTES: Final = 4_096
_HEAD_BYTES: Final = 65_536
_LOCKED: Final = "needs a password"
_CUT_OFF: Final = "it ends too early"
_ENCRYPTED: Final = b"/Encrypt"
"""A PDF without this word is not locked, and stays as it is."""


Ingest: TypeAlias = Callable[..., Awaitable[Ingested]]
"""How content becomes blocks whose bytes are kept."""


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    resizes: bool = True
    pdf_password_file: str = ""

    @property
    def are_none(self) -> bool:
        return self.resizes and not self.pdf_password_file


async def prepare_files(files: Sequence[Attachment], wishes: FileOptions, runtime: Runtime) -> tuple[Attachment, ...]:
    """The same files as bytes, unlocked; a picture that would have to shrink is refused if that is the wish."""
    if wishes.are_none:
        return tuple(files)
    limits = runtime.config.media_limits()
    password = read_password(wishes.pdf_password_file) if wishes.pdf_password_file else ""
    found: list[Attachment] = []
    for file in files:
        whole = await _bytes_of(file, runtime, limits)
        data, name = whole.source, whole.name
        assert isinstance(data, bytes)
        if not wishes.resizes:
            refuse_resizing(data, name, limits)
        if password and _ENCRYPTED in data and sniff(data, name).category == "pdf":
            data = await asyncio.to_thread(unlock_pdf, data, password, name=name, limits=limits)
        found.append(msgspec.structs.replace(whole, source=data))
    return tuple(found)


async def ingest_content(content: Sequence[Content], take: Ingest, runtime: Runtime) -> Ingested:
    """Files and words as blocks. A picture that is damaged does not end a conversation: words hold its place."""
    left = list(content)
    notices: list[str] = []
    while True:
        try:
            found = await take(*left)
        except Unreadable as error:
            at, what = await _damaged_picture(left, error, runtime)
            left[at] = TextBlock(f"[{what}; it cannot be displayed]")
            notices.append(f"{what}; a placeholder was sent")
        else:
            return Ingested(found.blocks, (*notices, *found.notices))


async def _damaged_picture(content: Sequence[Content], error: Unreadable, runtime: Runtime) -> tuple[int, str]:
    """Where the picture is that an error tells of, and what is wrong with it; the error where it is no picture."""
    for at, file in enumerate(content):
        if not isinstance(file, Attachment) or (file.name or getattr(file.source, "name", "")) != error.name:
            continue
        data = (await _bytes_of(file, runtime, runtime.config.media_limits())).source
        if isinstance(data, bytes) and sniff(data, error.name).category == "image":
            what = error.message.rstrip(".")
            is_cut_off = what.endswith(_CUT_OFF)
            name = error.name or "the picture"
            return at, f"{name} is damaged after {size_label(len(data))}" if is_cut_off else what
    raise error


async def _bytes_of(file: Attachment, runtime: Runtime, limits: IntakeLimits) -> Attachment:
    source = file.source
    if isinstance(source, str):
        fetched = await runtime.fetch(source)
        return msgspec.structs.replace(file, source=fetched.source, name=file.name or fetched.name)
    if isinstance(source, Path):
        read = await read_own_file(limits)(source)
        return msgspec.structs.replace(file, source=read.data, name=file.name or read.name)
    return file


def refuse_resizing(data: bytes, name: str, limits: IntakeLimits) -> None:
    if len(data) > limits.max_image_bytes and sniff(data, name).category == "image":
        raise TooLarge(
            f"{name or 'the image'} has {size_label(len(data))}, over the limit of"
            f" {size_label(limits.max_image_bytes)} (images.max_size_bytes).",
            name=name,
            hint="Leave out --no-resize to use a smaller copy, or raise the limit.",
        )


def read_password(file: str) -> str:
    """The first line of the file."""
    try:
        with Path(file).open("rb") as opened:
            first = opened.read(_MAX_PASSWORD_BYTES).split(b"\n", 1)[0].rstrip(b"\r")
        password = first.decode()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.", hint="Give a file with the password.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} contains no text.", hint="Give a file with the password.") from None
    if not password:
        raise ConfigError(f"{file} is empty.", hint="Write the password into its first line.")
    return password


@contextmanager
def add_password_hint(wishes: FileOptions) -> Generator[None]:
    """On the command line there is a way to give a password: a PDF that needs one says so."""
    try:
        yield
    except Encrypted as error:
        if wishes.pdf_password_file or _LOCKED not in error.message or not error.name.lower().endswith(".pdf"):
            raise
        how = f"-a {error.name} --pdf-password-file FILE"
        raise Encrypted(f"{error.message.rstrip('.')}: {how}", name=error.name) from None


def type_notices(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """`--at FILE MIME`: what a file was said to be and is not. The bytes count; a name proves nothing."""
    notices: list[str] = []
    for name, media_type in pairs:
        try:
            with Path(name).open("rb") as opened:
                found = sniff(opened.read(_HEAD_BYTES), Path(name).name)
        except OSError:  # whether it is there at all is said when it is read
            continue
        same_kind = found.category == "text" and media_type.startswith("text/")
        if found.media_type != media_type and not same_kind:
            notices.append(f"{Path(name).name} was declared as {media_type} but is {label_of(found.media_type)}")
    return notices


_NONE_HERE: Final = "scp the file and @mention it, or open loom web --lan"


def read_clipboard() -> list[Attachment]:
    """Raises where there is no clipboard (over SSH there is none) or nothing on it that is a picture or a file."""
    if os.environ.get("SSH_CONNECTION"):
        raise LoomError("No clipboard available.", hint=_NONE_HERE)
    grab: Any = importlib.import_module("PIL.ImageGrab")
    try:
        found: Any = grab.grabclipboard()
    except importlib.import_module("PIL").UnidentifiedImageError:  # some programs give whatever they have
        found = None
    except (NotImplementedError, OSError):  # no program that could ask, or it failed: ChildProcessError is an OSError
        raise LoomError("No clipboard available.", hint=f"Install wl-clipboard or xclip; or {_NONE_HERE}") from None
    if isinstance(found, list):
        return [Attachment(source=Path(str(name))) for name in cast("list[Any]", found)]
    if found is None:
        raise NotFound("No image on the clipboard.", hint="Copy one first.")
    file = io.BytesIO()
    found.save(file, "PNG")
    return [Attachment(source=file.getvalue(), name="pasted.png")]
