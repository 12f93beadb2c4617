"""Write files of the workspace: atomically (except files with hard links, which are overwritten in place), never
through a link that leads out, and with the same encoding, line ends and mode as before.

The folder is opened first and checked by its real path; everything after that is relative to its descriptor, so a link
that is swapped in meanwhile has no effect. Replacing a name never follows it.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import secrets
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from loom.content.media import digest_of, size_label
from loom.errors import ToolError, Unreadable
from loom.formats.text import encoding_of
from loom.tools.workspace import is_linked_secret, is_sensitive, open_file, open_folder, starts_programs

MAX_EDITED_BYTES: Final = 10_000_000
_MARKS: Final = {
    "utf-8-sig": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
_WRITING: Final = threading.Lock()
_LABELS: Final = {"utf-8-sig": "UTF-8", "utf-8": "UTF-8", "cp1252": "Windows-1252"}


class TextEncoding(msgspec.Struct, frozen=True):
    """The encoding of a text in its file."""

    codec: str = "utf-8"
    mark: bytes = b""
    newline: str = "\n"
    """The line end of most lines."""

    def encode(self, text: str, name: str) -> bytes:
        """Return the bytes of `text`. Bytes that were not valid text before are restored unchanged."""
        errors = "surrogateescape" if self.codec == "utf-8" else "strict"
        try:
            return self.mark + text.encode(self.codec, errors)
        except UnicodeEncodeError as error:
            label = _LABELS.get(self.codec, self.codec.upper())
            character = text[error.start : error.start + 1]
            raise ToolError(
                f"{name} is kept as {label}, which cannot encode {character!r}",
                hint="Use other characters, or convert the file to UTF-8 first.",
            ) from None


class FileBefore(msgspec.Struct, frozen=True):
    """A file before it is changed: its bytes, and its real path."""

    path: Path
    data: bytes
    identity: tuple[int, int]
    """Device and inode of the file that was read."""

    @property
    def digest(self) -> str:
        return digest_of(self.data)


class OriginalFile(FileBefore, frozen=True):
    """A text file before it is changed."""

    text: str
    form: TextEncoding


def decode(data: bytes, name: str) -> tuple[str, TextEncoding]:
    """Return the exact text: encoding it again gives the same bytes."""
    codec = encoding_of(data) if data else "utf-8"
    if codec is None:
        raise ToolError(f"{name} is not a text file, and cannot be edited as one")
    mark = _MARKS.get(codec, b"")
    mark = mark if data.startswith(mark) else b""
    codec = "utf-8" if codec == "utf-8-sig" else codec
    try:
        text = data[len(mark) :].decode(codec, "surrogateescape" if codec == "utf-8" else "strict")
        again = text.encode(codec, "surrogateescape" if codec == "utf-8" else "strict")
    except UnicodeError:
        raise ToolError(f"{name} is damaged text ({codec.upper()}), and cannot be edited safely") from None
    if again != data[len(mark) :]:  # some encodings have two spellings of one character
        raise ToolError(f"{name} would not keep its bytes ({codec.upper()}), and cannot be edited safely")
    crlf = text.count("\r\n")
    newline = "\r\n" if crlf * 2 > text.count("\n") else "\r" if "\r" in text and "\n" not in text else "\n"
    return text, TextEncoding(codec, mark, newline)


def original(workspace: Path, asked: str) -> OriginalFile | None:
    """Return the text file at `asked`, or None if there is none. Raise ToolError if it must not be written."""
    found = original_bytes(workspace, asked)
    if found is None:
        return None
    text, form = decode(found.data, asked)
    return OriginalFile(found.path, found.data, found.identity, text, form)


def original_bytes(workspace: Path, asked: str) -> FileBefore | None:
    """Return the file at `asked`, or None if there is none. Raise ToolError if it must not be written."""
    try:
        with open_file(workspace, asked) as opened:
            if not opened.inside:
                raise ToolError(f"{asked} is outside the workspace, and only files inside are written")
            if opened.size_bytes > MAX_EDITED_BYTES:
                raise ToolError(f"{asked} has {size_label(opened.size_bytes)}: too large to edit")
            facts = os.fstat(opened.file.fileno())
            data = opened.file.read(MAX_EDITED_BYTES + 1)
    except Unreadable:
        if os.path.lexists(_resolve_path(workspace, asked)) or not workspace.is_dir():
            raise
        return None
    return FileBefore(opened.path, data, (facts.st_dev, facts.st_ino))


def write_bytes(workspace: Path, found: FileBefore, data: bytes) -> None:
    """Replace the file by `data`, if it still has the bytes that were read."""
    with open_folder(workspace, str(found.path.parent)) as folder:
        if not folder.inside:
            raise ToolError(f"{found.path.name} is no longer in the workspace")
        with _WRITING:  # writers in this process are serialized; changes by other programs are detected just before
            facts = _check_unchanged(folder.descriptor, found)
            if facts.st_nlink > 1:
                _overwrite(folder.descriptor, found, data)
            else:
                _write(folder.descriptor, found.path.name, data, facts)


def remove(workspace: Path, found: FileBefore) -> None:
    """Delete a file of the workspace, if it still has the bytes that were read."""
    with open_folder(workspace, str(found.path.parent)) as folder:
        if not folder.inside:
            raise ToolError(f"{found.path.name} is no longer in the workspace")
        with _WRITING:
            _check_unchanged(folder.descriptor, found)
            try:
                os.unlink(found.path.name, dir_fd=folder.descriptor)
            except OSError as error:
                raise ToolError(f"{found.path.name} cannot be removed: {error.strerror}") from None


def _check_unchanged(folder: int, found: FileBefore) -> os.stat_result:
    """Return the facts of the file if it still has the bytes that were read. Raise ToolError otherwise."""
    name = found.path.name
    facts = _facts(name, folder)
    is_same = facts is not None and (facts.st_dev, facts.st_ino) == found.identity and facts.st_size == len(found.data)
    if is_same:
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            raise ToolError(f"{name} cannot be written: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            is_same = file.read(MAX_EDITED_BYTES + 1) == found.data
    if facts is None or not is_same:
        raise ToolError(f"{name} was changed by another program meanwhile", hint="Read it again.")
    return facts


def _overwrite(folder: int, found: FileBefore, data: bytes) -> None:
    """Write into the file itself: it has other names (hard links), and all of them must have the same content."""
    name = found.path.name
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(descriptor, "r+b") as file:
            facts = os.fstat(descriptor)
            if (facts.st_dev, facts.st_ino) != found.identity:
                raise ToolError(f"{name} was changed by another program meanwhile", hint="Read it again.")
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise ToolError(f"{name} cannot be written: {error.strerror}") from None


def create(workspace: Path, asked: str, data: bytes) -> None:
    """Create a file and its missing folders, inside the workspace only."""
    wanted = _resolve_path(workspace, asked)
    with _folder(workspace, wanted.parent, asked) as descriptor:
        if _facts(wanted.name, descriptor) is not None:
            raise ToolError(f"{asked} was created by another program meanwhile", hint="Read it first.")
        _write(descriptor, wanted.name, data, None)


def real_path(workspace: Path, asked: str) -> Path:
    """Return the real path of a file, which need not exist."""
    return Path(os.path.realpath(_resolve_path(workspace, asked)))


def is_inside(workspace: Path, asked: str) -> bool:
    """Return whether a path, which need not exist, leads into the workspace."""
    return real_path(workspace, asked).is_relative_to(os.path.realpath(workspace))


def needs_approval(workspace: Path, asked: str) -> str:
    """Return the reason why writing there needs another approval; empty if it does not."""
    wanted = _resolve_path(workspace, asked)
    real = Path(os.path.realpath(wanted))
    if is_sensitive(wanted) or is_sensitive(real) or _is_linked_secret(real, workspace):
        return f"{wanted.name} may contain secrets"
    if ".git" in (*wanted.parts, *real.parts):
        return "git runs commands from it"
    if starts_programs(wanted) or starts_programs(real):
        return "Loom starts programs that it names"
    return ""


def _is_linked_secret(path: Path, workspace: Path) -> bool:
    try:
        facts = path.stat()
    except (OSError, ValueError):  # a new file
        return False
    return is_linked_secret(facts, Path(os.path.realpath(workspace)))


def _resolve_path(workspace: Path, asked: str) -> Path:
    try:
        wanted = workspace / Path(asked).expanduser()
        os.fsencode(wanted)
    except (ValueError, RuntimeError):
        raise ToolError(f"{asked[:200]!r} is not the path of a file") from None
    if "\0" in asked or not wanted.name or asked.endswith("/") or wanted.name == "..":
        raise ToolError(f"{asked[:200]!r} is not the path of a file")
    return wanted


def _facts(name: str, descriptor: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolError(f"{name[:200]} cannot be written: {error.strerror}") from None


@contextmanager
def _folder(workspace: Path, wanted: Path, asked: str) -> Generator[int]:
    """Yield the descriptor of a folder inside the workspace. Missing folders are created step by step."""
    missing: list[str] = []
    while not os.path.lexists(wanted) and wanted != wanted.parent:
        missing.append(wanted.name)
        wanted = wanted.parent
    if ".." in missing:
        raise ToolError(f"{asked} leads through a folder that does not exist")
    with open_folder(workspace, str(wanted)) as folder, contextlib.ExitStack() as stack:
        if not folder.inside:
            raise ToolError(f"{asked} is outside the workspace, and only files inside are written")
        descriptor = folder.descriptor
        for name in reversed(missing):
            descriptor = _make_folder(name, descriptor, asked)
            stack.callback(os.close, descriptor)
        yield descriptor


def _make_folder(name: str, above: int, asked: str) -> int:
    try:
        with contextlib.suppress(FileExistsError):  # another process was faster; if it is a folder, use it
            os.mkdir(name, dir_fd=above)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError as error:
        raise ToolError(f"the folders of {asked} cannot be created: {error.strerror}") from None


def _write(descriptor: int, name: str, data: bytes, facts: os.stat_result | None) -> None:
    """Write to a temporary name, sync, then rename: a reader sees the old file or the new one."""
    spare = f".{name[:100]}.{secrets.token_hex(6)}.loom"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(spare, flags, 0o666, dir_fd=descriptor)
        try:
            with os.fdopen(file, "wb") as opened:
                opened.write(data)
                opened.flush()
                _keep_facts(opened.fileno(), facts)
                os.fsync(opened.fileno())
            os.replace(spare, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(spare, dir_fd=descriptor)
            raise
    except OSError as error:
        raise ToolError(f"{name} cannot be written: {error.strerror}") from None


def _keep_facts(file: int, facts: os.stat_result | None) -> None:
    if facts is None:
        return
    own = os.fstat(file)
    if (own.st_uid, own.st_gid) != (facts.st_uid, facts.st_gid):
        with contextlib.suppress(PermissionError):  # only root may change the owner; the mode is still kept
            os.fchown(file, facts.st_uid, facts.st_gid)
    os.fchmod(file, stat.S_IMODE(facts.st_mode))
