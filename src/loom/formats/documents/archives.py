"""Archives (.zip, .tar, .gz …): a bounded listing, and access to each file by path. Nothing is unpacked to disk."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from typing import IO, Final

import msgspec

from loom.content.media import size_label
from loom.errors import Encrypted, TooLarge, Unreadable
from loom.formats.documents.long_text import read_long_text
from loom.formats.documents.messages import ReadContext, ReadDocument
from loom.formats.encodings import find_encoding
from loom.formats.sniff import sniff

MAX_LISTED: Final = 1_000
MAX_MEMBERS: Final = 100_000
_MAX_MEMBER_BYTES: Final = 50_000_000
_ENCRYPTED_FLAG: Final = 1
_UTF8_FLAG: Final = 0x800
_EASTERN: Final = ("gb", "big5", "shift", "cp932", "euc", "cp949", "cp866", "cp1251", "koi8", "johab")
"""Encodings so different from that of DOS that a few names are enough to detect them."""
_LINE: Final = '[read_file(path, member="…") shows a file of it]'


def read_zip(data: bytes, _context: ReadContext) -> ReadDocument:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        entries = [entry for entry in archive.infolist()[:MAX_MEMBERS] if not entry.is_dir()]
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError) as error:
        raise Unreadable(f"is a damaged archive ({error})") from None
    names = _zip_names(entries)
    members = {name: partial(_zip_member, archive, entry) for name, entry in zip(names, entries, strict=True)}
    is_locked = any(entry.flag_bits & _ENCRYPTED_FLAG for entry in entries)
    notices = ("Some of its files need a password and cannot be read.",) if is_locked else ()
    sizes = [(name, entry.file_size) for name, entry in zip(names, entries, strict=True)]
    return _listing("ZIP archive", sizes, members, notices)


def _zip_names(entries: list[zipfile.ZipInfo]) -> list[str]:
    """Return the names of the members. Names without the UTF-8 flag are in the encoding of the machine that packed
    them, which the archive does not record: it is detected from all of them together."""
    unmarked = [entry.filename for entry in entries if not entry.flag_bits & _UTF8_FLAG]
    raw = "\n".join(unmarked).encode("cp437", "replace")
    if raw.isascii():
        return [entry.filename for entry in entries]
    try:
        raw.decode()
        codec = "utf-8"
    except UnicodeDecodeError:
        found = find_encoding(raw)
        codec = "cp437" if found is None or not found.startswith(_EASTERN) else found
    return [
        entry.filename
        if entry.flag_bits & _UTF8_FLAG
        else entry.filename.encode("cp437", "replace").decode(codec, "replace")
        for entry in entries
    ]


def _zip_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    if entry.flag_bits & _ENCRYPTED_FLAG:
        raise Encrypted(f"contains {entry.filename}, which needs a password", hint="Unpack it and attach the file.")
    try:
        with archive.open(entry) as opened:
            return _read_member(opened, entry.filename)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, EOFError, OSError) as error:
        raise Unreadable(f"contains {entry.filename}, which is damaged ({error})") from None


def read_tar(data: bytes, _context: ReadContext) -> ReadDocument:
    return _tar(io.BytesIO(data), "tar archive")


def read_compressed(data: bytes, context: ReadContext) -> ReadDocument:
    """Read a compressed tar or a single compressed file. A single file has its text if it is a text file."""
    expanded = _decompress(data, context)
    if sniff(expanded[:4096]).media_type == "application/x-tar":
        return _tar(io.BytesIO(expanded), "compressed tar archive")
    name = _inner_name(context.name)
    listed = _listing("compressed file", [(name, len(expanded))], {name: lambda: expanded}, ())
    if sniff(expanded, name).category != "text":
        return listed
    text = read_long_text(expanded, ReadContext(name, context.limits))
    head = f"[compressed file: {_printable_name(name)}, {size_label(len(expanded))} unpacked]"
    sections = [f"{head}\n{text.sections[0]}", *text.sections[1:]]
    return msgspec.structs.replace(text, sections=sections, is_paged=len(sections) > 1, members=listed.members)


def _tar(source: IO[bytes], label: str) -> ReadDocument:
    sizes: list[tuple[str, int]] = []
    members: dict[str, Callable[[], bytes]] = {}
    try:
        archive = tarfile.open(fileobj=source)  # noqa: SIM115 - stays open as long as its members are read
        for count, entry in enumerate(archive):
            if count >= MAX_MEMBERS:
                break
            if entry.isfile():
                sizes.append((entry.name, entry.size))
                members[entry.name] = partial(_tar_member, archive, entry)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if not sizes:
            raise Unreadable(f"is a damaged archive ({error})") from None
        return _listing(label, sizes, members, ("The archive is damaged: only its beginning is listed.",))
    return _listing(label, sizes, members, ())


def _tar_member(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    opened = archive.extractfile(entry)
    if opened is None:
        raise Unreadable(f"contains {entry.name}, which is not a file")
    with opened:
        return _read_member(opened, entry.name)


def _read_member(source: IO[bytes], name: str) -> bytes:
    found = source.read(_MAX_MEMBER_BYTES + 1)
    if len(found) > _MAX_MEMBER_BYTES:
        raise TooLarge(f"contains {name}, which is over {size_label(_MAX_MEMBER_BYTES)}: too large to extract")
    return found


def _decompress(data: bytes, context: ReadContext) -> bytes:
    most = context.limits.max_expanded_bytes
    source = io.BytesIO(data)
    try:
        with _open_compressed(source, data[:6]) as opened:
            found = opened.read(most + 1)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
        raise Unreadable(f"is a damaged archive ({error})") from None
    if len(found) > most:
        raise TooLarge(f"expands to more than {size_label(most)}")
    return found


def _open_compressed(source: IO[bytes], magic: bytes) -> bz2.BZ2File | lzma.LZMAFile | gzip.GzipFile:
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(source)
    return lzma.LZMAFile(source) if magic.startswith(b"\xfd7zXZ") else gzip.GzipFile(fileobj=source)


def _inner_name(name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    return stem if dot and stem and extension.lower() in ("gz", "bz2", "xz") else name or "content"


def _listing(
    label: str, sizes: list[tuple[str, int]], members: dict[str, Callable[[], bytes]], notices: tuple[str, ...]
) -> ReadDocument:
    total = sum(size for _, size in sizes)
    count = "1 file" if len(sizes) == 1 else f"{len(sizes):,} files"
    lines = [f"[{label}: {count}, {size_label(total)} unpacked]"]
    lines += [f"{_printable_name(name)}  ({size_label(size)})" for name, size in sizes[:MAX_LISTED]]
    if len(sizes) > MAX_LISTED:
        lines.append(f"[and {len(sizes) - MAX_LISTED:,} more files]")
    if sizes:
        lines.append(_LINE)
    return ReadDocument(sections=["\n".join(lines)], members=members, notices=notices)


def _printable_name(name: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in name)[:500]
