"""Files on the command line: which words are files, their pages, declared types and passwords."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from loom.agent.ingest import read_own_file
from loom.cli.shared.options import FileOptions
from loom.cli.shared.questions import confirm
from loom.content.blocks import TextBlock
from loom.content.inputs import Attachment, Content, Ingested
from loom.content.media import size_label
from loom.errors import ConfigError, Encrypted, TooLarge, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.pdf.unlock import unlock_pdf
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import label_of
from loom.formats.text import decode_text
from loom.runtime import Runtime
from loom.runtime.attachments import PIPED, attachment, attachment_from_word, is_special_file
from loom.runtime.fetched_file import fetch_file
from loom.runtime.workspace_files import missing_files_notice, missing_mentions

_RANGE: Final = r"#([1-9][0-9]{0,6}(?:-[1-9][0-9]{0,6})?)"
_FILE_NAME: Final = re.compile(r"(?!\w+://)[^\s?!]*[^\s?!/.]\.(?:[A-Za-z][A-Za-z0-9]{0,4}|7z)(?:#[\d-]+)?", re.ASCII)
"""One word with a file extension. A sentence has spaces, a URL a scheme."""
_PATH: Final = re.compile(r"(?:\.{1,2}|~|/[^\s/]+)/\S+")
_STDIN: Final = re.compile(f"-(?:{_RANGE})?")


class MessageInput(msgspec.Struct, frozen=True):
    """The text and the files of one message, in the order in which they are sent: files, piped text, words."""

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
        return ", ".join(
            file.name or (file.source.name if isinstance(file.source, Path) else "attachment") for file in self.files
        )

    @property
    def title(self) -> str:
        return " ".join((self.words or self.names or self.piped).split())[:80]


def read_message(words: Sequence[str], attached: Sequence[str], limits: IntakeLimits) -> MessageInput:
    """Return the message of a command line. Only stdin is read here; files are read at intake."""
    texts, names = named_files(words)
    from_stdin = [found for name in attached if (found := _STDIN.fullmatch(name))]
    files = [attachment(name) for name in (*names, *attached) if not _STDIN.fullmatch(name)]
    piped = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    if from_stdin:
        if not piped:
            raise Unreadable("stdin is empty.", hint="Pipe a file into loom, or name it: -a FILE.")
        whole = [Attachment(source=piped, name=PIPED, pages=found[1] or "") for found in from_stdin]
        return MessageInput(" ".join(texts), (*files, *whole))
    if not piped.strip():
        return MessageInput(" ".join(texts), tuple(files))
    if sniff(piped).category != "text" or len(piped) > limits.max_text_bytes:
        return MessageInput(" ".join(texts), (*files, Attachment(source=piped, name=PIPED)))
    return MessageInput(" ".join(texts), tuple(files), decode_text(piped)[0].strip("\n"))


def named_files(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that are text, and those that name existing files. Raise `Unreadable` for a word that looks like
    the name of a missing file, unless the user confirms to send it as text."""
    names = [word for word in words if attachment_from_word(word) is not None]
    for word in words:
        if word in names:
            continue
        if is_special_file(word):
            attachment(word)  # raises the error that says what to do
        if _FILE_NAME.fullmatch(word) or _is_missing_path(word):
            _confirm_text(word)
    return [word for word in words if word not in names], names


def _is_missing_path(word: str) -> bool:
    """Return whether a word is written as a path to which nothing leads: `./x`, `../x`, `~/x`, or `/x/y` in a folder
    that exists. `/x` is a slash command, and `x/y` may be two words."""
    if _PATH.fullmatch(word) is None:
        return False
    try:
        path = Path(word.partition("#")[0]).expanduser()
        return not path.exists() and (word[0] != "/" or path.parent.is_dir())
    except (OSError, RuntimeError):  # too long for a name, a folder that cannot be read, or no home folder
        return False


def confirm_mentions(text: str, folder: Path) -> None:
    """Ask about mentions (`@src/ap.py`) of files that do not exist in the `folder` of the conversation; raise
    `Unreadable` if the user does not confirm to send them as text. Without a terminal they are sent, with a notice in
    the turn: `@types/node` need not be a file."""
    missing = missing_mentions(folder, text)
    if missing and sys.stdin.isatty() and sys.stderr.isatty():
        notice = missing_files_notice(missing)
        if not confirm(f"{notice} Send the message anyway?"):
            raise Unreadable(f"{notice} The message was not sent.", hint="Correct the name.")


def _confirm_text(word: str) -> None:
    """Ask whether to send the name of a missing file as text; raise `Unreadable` otherwise: a mistyped name must not
    become a paid question without its file."""
    hint = f'Check the name. To send it as text, put it into a sentence: "what is {word}?"'
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Unreadable(f"File not found: {word}", name=word, hint=hint)
    if not confirm(f"File not found: {word}. Send the name as text?"):
        raise Unreadable(f"File not found: {word}", name=word, hint=hint)


_MAX_PASSWORD_BYTES: Final = 4_096
_HEAD_BYTES: Final = 65_536
_LOCKED: Final = "needs a password"
_CUT_OFF: Final = "it ends too early"
_ENCRYPTED: Final = b"/Encrypt"
"""A PDF without these bytes is not encrypted, and stays unchanged."""


Ingest: TypeAlias = Callable[..., Awaitable[Ingested]]
"""Stores content and returns its blocks."""


async def prepare_files(files: Sequence[Attachment], wishes: FileOptions, runtime: Runtime) -> tuple[Attachment, ...]:
    """Return the files as bytes, with PDFs decrypted. Raise `TooLarge` for an image over the size limit if `wishes`
    forbid resizing."""
    if wishes.are_none:
        return tuple(files)
    limits = runtime.config.media_limits()
    password = read_password(wishes.pdf_password_file) if wishes.pdf_password_file else ""
    found: list[Attachment] = []
    for file in files:
        whole = await _bytes_of(file, limits)
        data, name = whole.source, whole.name
        assert isinstance(data, bytes)
        if not wishes.resizes:
            refuse_resizing(data, name, limits)
        if password and _ENCRYPTED in data and sniff(data, name).category == "pdf":
            data = await asyncio.to_thread(unlock_pdf, data, password, name=name, limits=limits)
        found.append(msgspec.structs.replace(whole, source=data))
    return tuple(found)


async def ingest_content(content: Sequence[Content], take: Ingest, runtime: Runtime) -> Ingested:
    """Return files and texts as blocks. A damaged image is replaced by a text with a notice, so that the conversation
    continues."""
    left = list(content)
    notices: list[str] = []
    while True:
        try:
            found = await take(*left)
        except Unreadable as error:
            at, what = await _damaged_picture(left, error, runtime)
            left[at] = TextBlock(f"[{what}; it cannot be displayed]")
            notices.append(f"{what}; a placeholder was sent.")
        else:
            return Ingested(found.blocks, (*notices, *found.notices))


async def _damaged_picture(content: Sequence[Content], error: Unreadable, runtime: Runtime) -> tuple[int, str]:
    """Return the position of the damaged image that `error` is about, and a description of the damage; raise `error` if
    it is not about an image."""
    for at, file in enumerate(content):
        if not isinstance(file, Attachment) or (file.name or getattr(file.source, "name", "")) != error.name:
            continue
        data = (await _bytes_of(file, runtime.config.media_limits())).source
        if isinstance(data, bytes) and sniff(data, error.name).category == "image":
            what = error.message.rstrip(".")
            is_cut_off = what.endswith(_CUT_OFF)
            name = error.name or "the image"
            return at, f"{name} is damaged after {size_label(len(data))}" if is_cut_off else what
    raise error


async def _bytes_of(file: Attachment, limits: IntakeLimits) -> Attachment:
    source = file.source
    if isinstance(source, str):
        fetched = await fetch_file(source)
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
    """Return the first line of the file; raise `ConfigError` if there is none."""
    try:
        with Path(file).open("rb") as opened:
            first = opened.read(_MAX_PASSWORD_BYTES).split(b"\n", 1)[0].rstrip(b"\r")
        password = first.decode()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.", hint="Use a file with the password.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} contains no text.", hint="Use a file with the password.") from None
    if not password:
        raise ConfigError(f"{file} is empty.", hint="Write the password into its first line.")
    return password


@contextmanager
def add_password_hint(wishes: FileOptions) -> Generator[None]:
    """Add the option for a password to the error about an encrypted PDF."""
    try:
        yield
    except Encrypted as error:
        if wishes.pdf_password_file or _LOCKED not in error.message or not error.name.lower().endswith(".pdf"):
            raise
        how = f"-a {error.name} --password-file FILE"
        raise Encrypted(f"{error.message.rstrip('.')}: {how}", name=error.name) from None


def type_notices(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return notices for `--at FILE MIME` about files whose bytes are of another type. The bytes decide."""
    notices: list[str] = []
    for name, media_type in pairs:
        try:
            with Path(name).open("rb") as opened:
                found = sniff(opened.read(_HEAD_BYTES), Path(name).name)
        except OSError:  # a missing file is reported when it is read
            continue
        same_kind = found.category == "text" and media_type.startswith("text/")
        if found.media_type != media_type and not same_kind:
            notices.append(f"{Path(name).name} was declared as {media_type} but is {label_of(found.media_type)}.")
    return notices
