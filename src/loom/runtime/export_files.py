"""The files of an export: a zip, also a truncated one, a folder, or a single file and the files beside it."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from loom.errors import MediaError, Unreadable
from loom.formats.facts import IntakeLimits
from loom.tools.workspace import open_file, read_whole

MAX_JSON_BYTES: Final = 1_000_000_000
MAX_MEMBER_BYTES: Final = 200_000_000
_MAX_MEMBERS: Final = 200_000
_LOCAL: Final = b"PK\x03\x04"
_HEADER: Final = struct.Struct("<4s5H3I2H")

ReadBytes = Callable[[int], bytes]


class ExportFiles:
    """Files by name. `notices` name the files that could not be read."""

    def __init__(self, files: dict[str, ReadBytes], notices: Sequence[str] = ()) -> None:
        self._files = files
        self._by_end = {name.rpartition("/")[2].lower(): name for name in reversed(files)}
        self.notices = list(notices)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._files)

    def read(self, name: str, max_bytes: int = MAX_MEMBER_BYTES) -> bytes | None:
        """Return the bytes of a file; None if there is no such file, or it cannot be read."""
        reader = self._files.get(name)
        if reader is None:
            return None
        try:
            data = reader(max_bytes + 1)
        except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, RuntimeError, EOFError):
            self.notices.append(f"{name[:200]} is damaged and was left out")
            return None
        if len(data) > max_bytes:
            self.notices.append(f"{name[:200]} is too large and was left out")
            return None
        return data

    def find(self, pointer: str) -> bytes | None:
        """Return the file that a conversation refers to: by its path, by its name, or by an id with which its name
        begins (`file-AbC` → `file-AbC-photo.png`)."""
        wanted = pointer.strip("/").rpartition("/")[2].lower()
        if not wanted:
            return None
        name = self._by_end.get(wanted)
        if name is None:
            prefixes = tuple(f"{wanted}{mark}" for mark in "-._") if len(wanted) >= 8 else ()
            name = next((full for end, full in self._by_end.items() if end.startswith(prefixes)), None)
        if name is None and "/" in pointer:
            folder = f"{wanted}/"
            name = next((full for full in self._files if folder in full.lower()), None)
        return None if name is None else self.read(name)


def zip_files(source: Path | bytes) -> ExportFiles:
    """Open a zip. If its end is missing, read it from the beginning, as far as possible."""
    opened = source.open("rb") if isinstance(source, Path) else io.BytesIO(source)
    try:
        packed = zipfile.ZipFile(opened)
    except zipfile.BadZipFile:
        return _cut_zip(opened)
    infos = [info for info in packed.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    return ExportFiles({info.filename: _member(packed, info) for info in infos[:_MAX_MEMBERS]})


def _member(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> ReadBytes:
    def read(limit: int) -> bytes:
        with packed.open(info) as member:
            return member.read(limit)

    return read


def _cut_zip(file: BinaryIO) -> ExportFiles:
    found = {name: _read_from(data) for name, data in _local_members(file)}
    if not found:
        raise Unreadable("The zip is damaged, and no file in it can be read.", hint="Download the export again.")
    return ExportFiles(found, ["the zip is damaged; the readable part is imported"])


def _read_from(data: bytes) -> ReadBytes:
    return lambda _: data


def _local_members(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield the members by their own headers. The last one may be incomplete."""
    file.seek(0)
    data = file.read(MAX_JSON_BYTES)
    at = data.find(_LOCAL)
    while at >= 0 and at + _HEADER.size <= len(data):
        _, _, _, method, _, _, _, packed_size, _, name_size, extra_size = _HEADER.unpack_from(data, at)
        start = at + _HEADER.size + name_size + extra_size
        name = data[at + _HEADER.size : at + _HEADER.size + name_size].decode("utf-8", "replace")
        if method == zipfile.ZIP_DEFLATED:
            reader = zlib.decompressobj(-zlib.MAX_WBITS)
            try:
                content = reader.decompress(data[start:], MAX_MEMBER_BYTES)
            except zlib.error:
                content = b""
            end = len(data) - len(reader.unused_data) if reader.eof else start
        else:
            content = data[start : start + packed_size]
            end = start + packed_size
        if content and not name.endswith("/"):
            yield name, content
        at = data.find(_LOCAL, max(end, at + 4))


def folder_files(folder: Path, limits: IntakeLimits, *, depth: int = 8) -> ExportFiles:
    """Return the files of a folder and its subfolders. Files whose names suggest keys are not read."""

    def reader(name: str) -> ReadBytes:
        def read(_: int) -> bytes:
            try:
                with open_file(folder, name) as opened:
                    if not opened.inside or opened.sensitive:
                        raise OSError("not a file of the export")
                    return opened.file.read() if name.endswith(".json") else read_whole(opened, limits)
            except MediaError as error:
                raise OSError(error.message) from None

        return read

    found: dict[str, ReadBytes] = {}
    waiting = [(folder, 1)]
    while waiting and len(found) < _MAX_MEMBERS:
        at, level = waiting.pop()
        for path in sorted(at.iterdir()):
            if path.is_symlink():
                continue
            if path.is_dir() and level < depth:
                waiting.append((path, level + 1))
            elif path.is_file():
                name = path.relative_to(folder).as_posix()
                found[name] = reader(name)
    return ExportFiles(found)
