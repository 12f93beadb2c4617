"""Look inside containers far enough to detect their content: ZIP, OLE and ISO base media files."""

from __future__ import annotations

import re
import zlib
from struct import Struct, error
from typing import Final

from loom.formats.sniff.boxes import boxes, find_path
from loom.formats.sniff.kinds import KINDS, UNKNOWN, type_of_name

_OOXML: Final = "application/vnd.openxmlformats-officedocument."
_ODF: Final = "application/vnd.oasis.opendocument."

_U16: Final = Struct("<H").unpack_from
_U32: Final = Struct("<I").unpack_from

# A name is 46 bytes after the start of an entry in the central directory, 30 bytes in a local header.
_CENTRAL: Final = re.compile(rb"PK\x01\x02.{42}(word/|ppt/|xl/|visio/)", re.DOTALL)
_LOCAL: Final = re.compile(rb"PK\x03\x04.{26}(word/|ppt/|xl/|visio/)", re.DOTALL)
_TELLING: Final = re.compile(
    rb"\[Content_Types\]\.xml|word/document|ppt/presentation|xl/workbook|visio/document", re.IGNORECASE
)
"""Every Office file contains one of these names, even a minimal one; a folder `word/` may be in any archive."""
_MIMETYPE: Final = re.compile(rb"PK\x01\x02.{6}(..).{16}\x08\0.{12}(....)mimetype", re.DOTALL)
"""The entry of `mimetype`: its compression method, and its offset."""
_DEFLATED: Final = b"\x08\0"
_MIMETYPE_BYTES: Final = 80

_OFFICE: Final = {
    b"word/": (
        _OOXML + "wordprocessingml.document",
        "application/vnd.ms-word.document.macroenabled.12",
        {"dotx": _OOXML + "wordprocessingml.template"},
    ),
    b"ppt/": (
        _OOXML + "presentationml.presentation",
        "application/vnd.ms-powerpoint.presentation.macroenabled.12",
        {"ppsx": _OOXML + "presentationml.slideshow", "potx": _OOXML + "presentationml.template"},
    ),
    b"xl/": (
        _OOXML + "spreadsheetml.sheet",
        "application/vnd.ms-excel.sheet.macroenabled.12",
        {"xltx": _OOXML + "spreadsheetml.template"},
    ),
}
_XLSB: Final = "application/vnd.ms-excel.sheet.binary.macroenabled.12"


def zip_type(data: bytes, name: str) -> str:
    """Return the type by the names in the central directory, or by the local headers of the first 4 KB if it is
    truncated."""
    stored = _stored_mimetype(data)
    if stored is not None:
        return stored
    end = data.rfind(b"PK\x05\x06", max(0, len(data) - 65_557))
    directory = data[:4096]
    pattern = _LOCAL
    if 0 <= end <= len(data) - 22:
        size, start = _U32(data, end + 12)[0], _U32(data, end + 16)[0]
        if start + size > end:  # a 64-bit directory: its offset is stored elsewhere, but it ends here
            start, size = max(0, end - 1_048_576), 1_048_576
        directory = data[start : min(start + size, end)]
        pattern = _CENTRAL
    found = pattern.search(directory)
    if found is not None and (pattern is _LOCAL or _TELLING.search(directory)):
        return _office_type(found[1], directory, name)
    packed_again = _packed_mimetype(data, directory)
    if packed_again is not None:
        return packed_again
    if b"AndroidManifest.xml" in directory:
        return "application/vnd.android.package-archive"
    if b"Index/Document.iwa" in directory or (b"Index.zip" in directory and b"preview" in directory):
        return "application/vnd.apple.iwork"
    if b"QuickLook/Thumbnail.jpg" in directory and (b"index.xml" in directory or b"index.apxl" in directory):
        return "application/vnd.apple.iwork"  # files from before 2013
    if b"content.xml" in directory and (claimed := type_of_name(name) or "").startswith(_SUN):
        return claimed
    if b"META-INF/MANIFEST.MF" in directory:
        return "application/java-archive"
    return "application/zip"


def _stored_mimetype(data: bytes) -> str | None:
    """Return the type in an uncompressed first member `mimetype`, as in OpenDocument and EPUB."""
    if data[30:38] != b"mimetype" or len(data) < 60:
        return None
    start = 38 + _U16(data, 28)[0]
    return _said_type(data[start : start + _MIMETYPE_BYTES])


def _packed_mimetype(data: bytes, directory: bytes) -> str | None:
    """Return the type in a member `mimetype` at any position, compressed or not: another program packed the file
    again."""
    entry = _MIMETYPE.search(directory)
    if entry is None:
        return None
    at = _U32(entry[2])[0]
    if data[at : at + 4] != b"PK\x03\x04" or at + 30 > len(data):
        return None
    start = at + 30 + _U16(data, at + 26)[0] + _U16(data, at + 28)[0]
    said = data[start : start + 2 * _MIMETYPE_BYTES]
    if entry[1] == _DEFLATED:
        try:
            said = zlib.decompressobj(-zlib.MAX_WBITS).decompress(said, _MIMETYPE_BYTES)
        except zlib.error:
            return None
    return _said_type(said)


def _said_type(said: bytes) -> str | None:
    if said.startswith((b"application/epub+zip", b"application/x-ibooks+zip")):
        return "application/epub+zip"
    for kind in ("writer", "calc", "impress", "draw"):
        if said.startswith((_SUN + kind).encode()):
            return _SUN + kind
    if said.startswith(_ODF.encode()):
        for kind in ("text", "presentation", "spreadsheet", "graphics"):
            if said.startswith((_ODF + kind).encode()):
                return _ODF + kind
    return None


def _office_type(folder: bytes, directory: bytes, name: str) -> str:
    if folder == b"visio/":
        return "application/vnd.ms-visio.drawing"
    plain, with_macros, by_extension = _OFFICE[folder]
    if folder == b"xl/" and b"xl/workbook.bin" in directory:
        return _XLSB
    if b"vbaProject.bin" in directory:
        return with_macros
    return by_extension.get(name.rpartition(".")[2].lower(), plain)


_OLE_STREAMS: Final = (
    ("worddocument", "application/msword"),
    ("workbook", "application/vnd.ms-excel"),
    ("book", "application/vnd.ms-excel"),
    ("powerpoint document", "application/vnd.ms-powerpoint"),
    ("__properties_version1.0", "application/vnd.ms-outlook"),
    ("visiodocument", "application/vnd.visio"),
    ("quill", "application/vnd.ms-publisher"),
    ("\x05hwpsummaryinformation", "application/vnd.hancom.hwp"),
    ("matost", "application/vnd.ms-works"),
)
_SUN: Final = "application/vnd.sun.xml."
_ENCRYPTED_STREAM: Final = "encryptedpackage"
_MAX_OLE_SECTORS: Final = 2_048
_NONE: Final = 0xFFFFFFFA


def ole_type(data: bytes, name: str) -> tuple[str, bool]:
    """Return (media type, whether it is an encrypted Office file), by the streams directly under the root."""
    streams = _root_streams(data)
    if _ENCRYPTED_STREAM in streams:
        claimed = type_of_name(name)
        is_office = claimed is not None and KINDS[claimed].category == "office"
        return (claimed if is_office and claimed else _OOXML + "wordprocessingml.document"), True
    for stream, media_type in _OLE_STREAMS:
        if stream in streams:
            return media_type, False
    return "application/x-ole-storage", False


def _root_streams(data: bytes) -> set[str]:
    try:
        directory = _ole_directory(data)
        names: set[str] = set()
        seen: set[int] = set()
        waiting = [_U32(directory, 76)[0]]
        while waiting:
            entry = waiting.pop()
            at = entry * 128
            if entry >= _NONE or entry in seen or at + 128 > len(directory):
                continue
            seen.add(entry)
            length = max(0, min(64, _U16(directory, at + 64)[0]) - 2)
            names.add(directory[at : at + length].decode("utf-16-le", "replace").lower())
            waiting += [_U32(directory, at + 68)[0], _U32(directory, at + 72)[0]]
    except (error, IndexError):  # truncated or invalid: a container of unknown content
        return set()
    return names


def _ole_directory(data: bytes) -> bytes:
    shift = _U16(data, 30)[0]
    if not 7 <= shift <= 16:
        return b""
    size = 1 << shift
    per_table = size // 4
    sector = _U32(data, 48)[0]
    parts: list[bytes] = []
    for _ in range(_MAX_OLE_SECTORS):
        if sector >= _NONE:
            break
        parts.append(data[(sector + 1) * size : (sector + 2) * size])
        table = _U32(data, 76 + 4 * min(sector // per_table, 108))[0]
        sector = _U32(data, (table + 1) * size + (sector % per_table) * 4)[0]
    return b"".join(parts)


_HEIF_BRANDS: Final = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"}
_AVIF_BRANDS: Final = {b"avif", b"avis", b"avio", b"MA1A", b"MA1B"}
_IMAGE_BRANDS: Final = {b"mif1", b"mif2", b"mif3", b"msf1", b"miaf", b"pred", b"1pic", b"heif"}
"""Brands of still images in general: the other brands of the file determine the coding."""
_AUDIO_BRANDS: Final = {b"M4A ", b"M4B ", b"M4P ", b"F4A ", b"F4B "}


def iso_media_type(data: bytes) -> str:
    """Return the type by the brands; a file of a general brand with audio and no image is audio."""
    size = Struct(">I").unpack_from(data)[0]
    major = data[8:12]
    offered = data[16 : min(size, 256)]
    brands = {major, *(offered[at : at + 4] for at in range(0, len(offered) - 3, 4))}
    is_general = bool(brands & _IMAGE_BRANDS)
    if major in _AVIF_BRANDS or (is_general and major not in _HEIF_BRANDS and brands & _AVIF_BRANDS):
        return "image/avif"
    if major in _HEIF_BRANDS or major in _IMAGE_BRANDS or (is_general and brands & _HEIF_BRANDS):
        return "image/heic"
    if major == b"crx ":
        return "image/x-canon-cr3"
    if major in _AUDIO_BRANDS:
        return "audio/mp4"
    tracks = _handlers(data)
    if b"soun" in tracks and b"vide" not in tracks:
        return "audio/mp4"
    if major == b"qt  ":
        return "video/quicktime"
    if not major.isascii() or min(major, default=0) < 32:
        return UNKNOWN
    return "video/3gpp" if major[:2] == b"3g" else "video/mp4"


def _handlers(data: bytes) -> set[bytes]:
    """Return the kinds of track in a movie: b"vide", b"soun", …"""
    movie = find_path(data, b"moov")
    if movie is None:
        return set()
    kinds: set[bytes] = set()
    for kind, start, end in boxes(data, *movie):
        if kind != b"trak":
            continue
        for inner, media_start, media_end in boxes(data, start, end):
            if inner == b"mdia":
                kinds |= {
                    data[at + 8 : at + 12] for found, at, _ in boxes(data, media_start, media_end) if found == b"hdlr"
                }
    return kinds
