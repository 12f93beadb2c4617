"""Detection of the type of a file: magic numbers first, then the name, then the content; an extension alone is not
enough."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from loom.content.media import Category
from loom.formats.audio.mp3 import frame_length
from loom.formats.sniff.camera_raw import raw_type
from loom.formats.sniff.containers import iso_media_type, ole_type, zip_type
from loom.formats.sniff.kinds import KINDS, SVG, UNKNOWN, category_of, type_of_name
from loom.formats.sniff.markup import looks_like_html, markup_type
from loom.formats.text import encoding_of
from loom.struct_types import decode_json

_HEAD_BYTES: Final = 4096


class SniffResult(msgspec.Struct, frozen=True):
    media_type: str
    category: Category
    is_encrypted: bool = False


def sniff(data: bytes, name: str = "") -> SniffResult:
    """Return the type of the bytes. If the built-in detection finds only a general type, installed formats are
    tried."""
    found = _sniff(data, name)
    if found.media_type not in _GENERAL:
        return found
    from loom.formats.registry import detect  # imported late: formats import this module

    media_type = detect(data, name)
    return found if media_type is None else SniffResult(media_type, category_of(media_type))


def _sniff(data: bytes, name: str) -> SniffResult:
    found = _MAGIC_4.get(data[:4]) or _MAGIC_2.get(data[:2])
    if found is None:
        media_type = _by_offset(data)
    elif isinstance(found, str):
        media_type = found
    else:
        media_type = found(data) or _by_offset(data)
    if media_type is None:
        return _sniff_text(data, name)
    if media_type == _ZIP:
        media_type = zip_type(data, name)
    elif media_type == _OLE:
        media_type, is_encrypted = ole_type(data, name)
        return SniffResult(media_type, KINDS[media_type].category, is_encrypted=is_encrypted)
    return SniffResult(media_type, KINDS[media_type].category)


_ZIP: Final = "application/zip"
_OLE: Final = "application/x-ole-storage"
_GENERAL: Final = frozenset((UNKNOWN, _ZIP, _OLE, "application/gzip", "application/json", "text/plain", "text/xml"))
"""Types that reveal little about the content."""
_PE: Final = "application/vnd.microsoft.portable-executable"


def _prefix_rule(prefix: bytes, media_type: str) -> Callable[[bytes], str | None]:
    return lambda data: media_type if data.startswith(prefix) else None


def _binary(media_type: str) -> Callable[[bytes], str | None]:
    """Return a detector for a signature of letters: a word at the beginning of a text is not followed by NUL."""
    return lambda data: media_type if b"\0" in data[:64] else None


def _font_or_access(data: bytes) -> str | None:
    """Distinguish fonts from Access files: the name of the first table of a font is four printable characters."""
    if data[4:19] in (b"Standard Jet DB", b"Standard ACE DB"):
        return "application/vnd.ms-access"
    table = data[12:16]
    return "font/ttf" if data[4:5] == b"\0" and len(table) == 4 and table.isascii() and min(table) > 31 else None


def _riff(data: bytes) -> str | None:
    kinds = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
    return kinds.get(data[8:12])


def _iff(data: bytes) -> str | None:
    return "audio/aiff" if data[8:12] in (b"AIFF", b"AIFC") else None


def _bmp(data: bytes) -> str | None:
    header = int.from_bytes(data[14:18], "little")
    return "image/bmp" if header in (12, 16, 40, 52, 56, 64, 108, 124) else None


_GAP: Final = rb"(?:\s|#[^\r\n]*[\r\n])+"


# Width, height and (except for P4) the largest value, separated by white space and comments.
def _pcx(data: bytes) -> str | None:
    """Detect PCX: packed, with 1, 2, 4 or 8 bits, up to four planes, and a reserved zero."""
    is_pcx = (
        len(data) >= 128 and data[2] == 1 and data[3] in (1, 2, 4, 8) and data[64] == 0 and data[65] in (1, 2, 3, 4)
    )
    return "image/x-pcx" if is_pcx else None


_NETPBM: Final = re.compile(rb"P(?:4|[56]" + _GAP + rb"\d{1,9})" + _GAP + rb"\d{1,9}" + _GAP + rb"\d{1,9}\s")


def _netpbm(data: bytes) -> str | None:
    """Detect Netpbm. A text may begin with such numbers too, for instance a table of seats; pixels are not text."""
    is_picture = _NETPBM.match(data, 0, _HEAD_BYTES) is not None and encoding_of(data) != "utf-8"
    return "image/x-portable-anymap" if is_picture else None


def _flash(data: bytes) -> str | None:
    """Detect Flash: the version, then the length of the file, which contains a zero byte."""
    is_flash = data[2:3] == b"S" and data[3:4] < b"\x40" and b"\0" in data[4:64]
    return "application/x-shockwave-flash" if is_flash else None


def _icon(data: bytes) -> str | None:
    """Detect an icon: the first image must be after the directory."""
    count, entry_size, offset = int.from_bytes(data[4:6], "little"), data[14:18], data[18:22]
    first = int.from_bytes(offset, "little")
    plausible = 0 < count <= 1024 and first >= 6 + 16 * count and int.from_bytes(entry_size, "little") > 0
    return "image/x-icon" if plausible and data[9:10] in (b"\0", b"\xff") else None


def _tiff(data: bytes) -> str | None:
    return raw_type(data) or "image/tiff"


def _matroska(data: bytes) -> str | None:
    return "video/webm" if b"webm" in data[:64] else "video/matroska"


def _ogg(data: bytes) -> str | None:
    return "video/ogg" if b"\x80theora" in data[:256] else "audio/ogg"


def _fat_mach_or_class(data: bytes) -> str | None:
    return "application/x-mach-binary" if int.from_bytes(data[4:8], "big") < 40 else "application/java-vm"


def _id3(data: bytes) -> str | None:
    if len(data) < 10 or data[3] > 4 or max(data[6:10]) > 127:
        return None
    size = data[6] << 21 | data[7] << 14 | data[8] << 7 | data[9]
    behind = data[10 + size : 14 + size]
    if behind[:1] == b"\xff" and behind[1:2] and behind[1] & 0xF6 == 0xF0:
        return "audio/aac"
    return "audio/flac" if behind == b"fLaC" else "audio/mpeg"


def _mpeg_frames(data: bytes) -> str | None:
    """Detect MPEG audio by two frame headers, the second at the offset that the first gives. Layer 0 is AAC in ADTS
    frames."""
    if data[1] & 0xF6 == 0xF0:
        length = (data[3] & 3) << 11 | data[4] << 3 | data[5] >> 5 if len(data) > 6 else 0
        follows = data[length : length + 2]
        return (
            "audio/aac"
            if length > 7 and len(follows) == 2 and follows[0] == 0xFF and follows[1] & 0xF6 == 0xF0
            else None
        )
    length = frame_length(data, 0)
    if length and (len(data) == length or frame_length(data, length)):
        return "audio/mpeg"
    return None


def _program(data: bytes) -> str | None:
    """Detect a program. `MZ` alone could begin a text; the header contains the offset of the PE signature."""
    at = int.from_bytes(data[60:64], "little")
    return _PE if data[at : at + 2] in (b"PE", b"NE", b"LE", b"LX") or b"\0" in data[:64] else None


_MAGIC_4: Final[dict[bytes, str | Callable[[bytes], str | None]]] = {
    b"\x89PNG": _prefix_rule(b"\x89PNG\r\n\x1a\n", "image/png"),
    b"GIF8": lambda data: "image/gif" if data[4:6] in (b"7a", b"9a") and b"\0" in data[6:64] else None,
    b"RIFF": _riff,
    b"RF64": _riff,
    b"FORM": _iff,
    b"II*\0": _tiff,
    b"MM\0*": _tiff,
    b"IIU\0": "image/x-panasonic-rw2",
    b"IIRO": _binary("image/x-olympus-orf"),
    b"IIRS": _binary("image/x-olympus-orf"),
    b"MMOR": _binary("image/x-olympus-orf"),
    b"FUJI": _prefix_rule(b"FUJIFILMCCD-RAW", "image/x-fuji-raf"),
    b"II+\0": "image/tiff",
    b"MM\0+": "image/tiff",
    b"\0\0\1\0": _icon,
    b"\0\0\2\0": lambda data: _SHEETS.get(data[4:6]) or _icon(data),
    b"\0\0\x1a\0": lambda data: "application/vnd.lotus-1-2-3" if data[5:6] == b"\x10" else None,
    b"\xffWPC": "application/vnd.wordperfect",
    b"1\xbe\0\0": "application/x-mswrite",
    b"2\xbe\0\0": "application/x-mswrite",
    b"\xe4\x52\x5c\x7b": "application/onenote",
    b"!BDN": _binary("application/vnd.ms-outlook-pst"),
    b"HWP ": _prefix_rule(b"HWP Document File", "application/x-hwp"),
    b"ITSF": _binary("application/vnd.ms-htmlhelp"),
    b"\x78\x9f\x3e\x22": "application/vnd.ms-tnef",
    b"AC10": _binary("image/vnd.dwg"),
    b"CDF\1": "application/x-netcdf",
    b"CDF\2": "application/x-netcdf",
    b"\x0e\3\x13\1": "application/x-hdf",
    b"GRIB": _binary("application/x-grib"),
    b"SIMP": lambda data: "application/fits" if data.startswith(b"SIMPLE  =") and data[80:86] == b"BITPIX" else None,
    b"MATL": _prefix_rule(b"MATLAB 5.0 MAT-file", "application/x-matlab-data"),
    b"\0\0\0\0": _prefix_rule(bytes(12) + b"\xc2\xea\x81\x60", "application/x-sas-data"),
    b"0707": lambda data: "application/x-cpio" if data[4:6] in (b"01", b"02", b"07") and data[6:14].isalnum() else None,
    b"\1\0\x09\0": lambda data: "image/wmf" if data[4:6] in (b"\0\1", b"\0\3") else None,
    b"8BPS": _binary("image/vnd.adobe.photoshop"),
    b"AT&T": _prefix_rule(b"AT&TFORM", "image/vnd.djvu"),
    b"gimp": _prefix_rule(b"gimp xcf ", "image/x-xcf"),
    b"qoif": _binary("image/qoi"),
    b"DDS ": _prefix_rule(b"DDS \x7c\0\0\0", "image/x-dds"),
    b"\x76\x2f\x31\x01": "image/x-exr",
    b"icns": lambda data: "image/x-icns" if b"\0" in data[4:8] else None,
    b"{\\rt": _prefix_rule(b"{\\rtf", "text/rtf"),
    b"%PDF": _prefix_rule(b"%PDF-", "application/pdf"),
    b"PK\3\4": _ZIP,
    b"PK\5\6": _ZIP,
    b"\xd0\xcf\x11\xe0": _prefix_rule(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OLE),
    b"fLaC": "audio/flac",
    b"OggS": _ogg,
    b"MThd": _binary("audio/midi"),
    b"#!AM": _prefix_rule(b"#!AMR", "audio/amr"),
    b".snd": _binary("audio/basic"),
    b"\x1aE\xdf\xa3": _matroska,
    b"FLV\1": "video/x-flv",
    b"\0\0\1\xba": "video/mpeg",
    b"\0\0\1\xb3": "video/mpeg",
    b"\x30\x26\xb2\x75": "video/x-ms-asf",
    b"\xfd7zX": _prefix_rule(b"\xfd7zXZ\0", "application/x-xz"),
    b"\x28\xb5\x2f\xfd": "application/zstd",
    b"\x04\x22\x4d\x18": "application/x-lz4",
    b"7z\xbc\xaf": _prefix_rule(b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    b"Rar!": _prefix_rule(b"Rar!\x1a\x07", "application/vnd.rar"),
    b"MSCF": _prefix_rule(b"MSCF\0\0\0\0", "application/vnd.ms-cab-compressed"),
    b"!<ar": _prefix_rule(b"!<arch>\n", "application/x-archive"),
    b"\xed\xab\xee\xdb": "application/x-rpm",
    b"\x7fELF": "application/x-elf",
    b"\xfe\xed\xfa\xce": "application/x-mach-binary",
    b"\xfe\xed\xfa\xcf": "application/x-mach-binary",
    b"\xce\xfa\xed\xfe": "application/x-mach-binary",
    b"\xcf\xfa\xed\xfe": "application/x-mach-binary",
    b"\xca\xfe\xba\xbe": _fat_mach_or_class,
    b"\0asm": "application/wasm",
    b"SQLi": _prefix_rule(b"SQLite format 3\0", "application/vnd.sqlite3"),
    b"PAR1": _binary("application/vnd.apache.parquet"),
    b"\x89HDF": "application/x-hdf5",
    b"\x93NUM": _prefix_rule(b"\x93NUMPY", "application/x-npy"),
    b"\xd4\xc3\xb2\xa1": "application/vnd.tcpdump.pcap",
    b"\xa1\xb2\xc3\xd4": "application/vnd.tcpdump.pcap",
    b"\n\r\r\n": "application/vnd.tcpdump.pcap",
    b"L\0\0\0": _prefix_rule(b"L\0\0\0\1\x14\2\0", "application/x-ms-shortcut"),
    b"bpli": _prefix_rule(b"bplist00", "application/x-bplist"),
    b"\0\1\0\0": _font_or_access,
    b"\1\0\0\0": lambda data: "image/emf" if data[40:44] == b" EMF" else None,
    b"\xd7\xcd\xc6\x9a": "image/wmf",
    b"true": _prefix_rule(b"true\0", "font/ttf"),
    b"ttcf": _binary("font/ttf"),
    b"OTTO": _binary("font/otf"),
    b"wOFF": _binary("font/woff"),
    b"wOF2": _binary("font/woff2"),
}

_SHEETS: Final = {
    b"\4\4": "application/vnd.lotus-1-2-3",
    b"\6\4": "application/vnd.lotus-1-2-3",
    b"\1\x10": "application/x-quattro-pro",
    b"\2\x10": "application/x-quattro-pro",
    b"\x20\x51": "application/x-quattro-pro",
}
"""By the version after the first record."""
_MAGIC_2: Final[dict[bytes, str | Callable[[bytes], str | None]]] = {
    b"\xff\xd8": _prefix_rule(b"\xff\xd8\xff", "image/jpeg"),
    b"\xff\x0a": "image/jxl",
    b"BM": _bmp,
    b"P4": _netpbm,
    b"P5": _netpbm,
    b"P6": _netpbm,
    b"\x01\xda": lambda data: "image/x-sgi" if data[2] < 2 and data[3] in (1, 2) and data[4] == 0 else None,
    **{bytes((10, version)): _pcx for version in (0, 2, 3, 4, 5)},
    b"MZ": _program,
    b"\x1f\x8b": "application/gzip",
    b"\x1f\x9d": "application/x-compress",
    b"BZ": lambda data: "application/x-bzip2" if data[2:3] == b"h" and data[4:10] == b"1AY&SY" else None,
    b"ID": lambda data: _id3(data) if data[2:3] == b"3" else None,
    b"CW": _flash,
    b"FW": _flash,
    **{bytes((0xFF, second)): _mpeg_frames for second in range(0xE0, 0x100)},
}

_JUNK_PDF: Final = re.compile(rb"%PDF-\d\.\d")
_PDF_END: Final = re.compile(rb"startxref\s+\d+\s+%%EOF\s*\Z")
_TAR_SUM: Final = re.compile(rb" *[0-7]+[ \0]+")
_PYC: Final = re.compile(rb"..\r\n[\0-\3]\0\0\0", re.DOTALL)


def _by_offset(data: bytes) -> str | None:
    """Detect signatures that are not at the very beginning: a box begins with its length."""
    if data[:1] == b"\0":
        mark = data[4:8]
        if mark == b"ftyp":
            return iso_media_type(data)
        if mark in (b"moov", b"mdat", b"wide", b"free", b"skip"):
            return "video/quicktime"
        if mark == b"jP  ":
            return "image/jp2"
        if mark == b"JXL ":
            return "image/jxl"
    if data[257:262] == b"ustar" or (data[:1] > b"\0" and _is_old_tar(data)):
        return "application/x-tar"
    if _PYC.match(data):
        return "application/x-python-code"
    if (picture := _picture_without_mark(data)) is not None:
        return picture
    late = _JUNK_PDF.search(data, 0, 1024)
    return "application/pdf" if late is not None and _is_late_pdf(data, late.end()) else None


def _picture_without_mark(data: bytes) -> str | None:
    """Detect images without a magic number: a JPEG 2000 codestream, a bitmap without its file header, and Targa."""
    if data.startswith(b"\xff\x4f\xff\x51"):
        return "image/jp2"
    if data.startswith(b"\x28\0\0\0") and data[12:14] == b"\1\0" and data[14:16] in _DIB_DEPTHS:
        return "image/bmp"
    return "image/x-tga" if _is_targa(data) else None


_DIB_DEPTHS: Final = tuple(bytes((depth, 0)) for depth in (1, 4, 8, 16, 24, 32))
_TARGA_FOOTER: Final = b"TRUEVISION-XFILE.\0"
_TARGA_DEPTHS: Final = {1: (8,), 2: (15, 16, 24, 32), 3: (8, 16), 9: (8,), 10: (15, 16, 24, 32), 11: (8, 16)}


def _is_targa(data: bytes) -> bool:
    """Detect Targa by its footer. Without one, every field of the header must be valid and, if the pixels are not
    compressed, the length of the file must match it."""
    if len(data) < 18 or data[1] > 1 or data[16] not in _TARGA_DEPTHS.get(data[2], ()):
        return False
    width, height = int.from_bytes(data[12:14], "little"), int.from_bytes(data[14:16], "little")
    if not width or not height or data[17] & 0xC0:
        return False
    if data[-18:] == _TARGA_FOOTER:
        return True
    if data[2] >= 9:
        return data[:2] == b"\0\0" and data[3:12] == bytes(9)
    colors = int.from_bytes(data[5:7], "little") * ((data[7] + 7) // 8) if data[1] else 0
    return len(data) == 18 + data[0] + colors + width * height * ((data[16] + 7) // 8)


def _is_late_pdf(data: bytes, after: int) -> bool:
    """Return whether a PDF begins after other bytes. A program may contain a PDF as a string: a file that is text
    throughout counts only if it ends like a PDF."""
    if encoding_of(data) is not None:
        return _PDF_END.search(data[-1024:]) is not None
    return b" obj" in data[after : after + _HEAD_BYTES] or b"startxref" in data[-2048:]


def _is_old_tar(data: bytes) -> bool:
    """Detect tar from before POSIX: there is no signature, but the header has a checksum of itself."""
    if _TAR_SUM.fullmatch(data, 148, 156) is None or len(data) < 512:
        return False
    return sum(data[:148]) + 8 * 32 + sum(data[156:512]) == int(data[148:156].strip(b" \0"), 8)


_DER: Final = ("application/pkcs7-mime", "application/x-pkcs12", "application/pkix-cert")
_DBASE: Final = frozenset(b"\x03\x83\x8b\x30\xf5")


def _by_name(data: bytes, name: str) -> str:
    """Detect types whose first bytes are weak evidence: the extension must match, and the header must be valid."""
    claimed = type_of_name(name)
    if claimed in _DER and data[:1] == b"\x30":
        return claimed
    if claimed == "application/x-apple-diskimage" and data[-512:-508] == b"koly":
        return claimed
    if claimed == "application/x-dbf" and data[0] in _DBASE and len(data) > 32:
        rows, head = int.from_bytes(data[4:8], "little"), int.from_bytes(data[8:10], "little")
        width = int.from_bytes(data[10:12], "little")
        if head > 32 and width and head + rows * width <= len(data) + 1:
            return claimed
    return UNKNOWN


_APPLE_LENGTH: Final = re.compile(rb"\d{1,10}[ \t]*\r?\n")


def apple_mail_offset(data: bytes) -> int:
    """Return the offset of the mail in an Apple Mail file (.emlx), 0 in any other file."""
    found = _APPLE_LENGTH.match(data, 0, 32)
    return found.end() if found else 0


_MAIL_HEADER: Final = re.compile(rb"([!-9;-~]{1,60}):[ \t]?[^\r\n]*(?:\r?\n[ \t]+[^\r\n]*)*(?:\r?\n|\Z)")
_MAIL_NAMES: Final = frozenset(
    (b"from", b"to", b"date", b"subject", b"received", b"message-id", b"mime-version", b"return-path", b"delivered-to")
)
_SENDERS: Final = frozenset((b"from", b"received", b"return-path"))
_LEAST_MAIL_HEADERS: Final = 3


def _is_mail(data: bytes) -> bool:
    """Detect mail: headers up to an empty line, three of them such as every mail has. Apple Mail writes the length
    first."""
    at, names = apple_mail_offset(data), set[bytes]()
    head = data[:_HEAD_BYTES]
    while (found := _MAIL_HEADER.match(head, at)) is not None:
        names.add(found[1].lower())
        at = found.end()
    is_end = at >= len(head) or head[at : at + 1] in (b"\r", b"\n")
    return is_end and bool(names & _SENDERS) and len(names & _MAIL_NAMES) >= _LEAST_MAIL_HEADERS


def _sniff_text(data: bytes, name: str) -> SniffResult:
    if b":" in data[:64] and _is_mail(data):
        return SniffResult("message/rfc822", "office")
    codec = encoding_of(data)
    if codec is None:
        media_type = _by_name(data, name)
        return SniffResult(media_type, KINDS[media_type].category)
    if codec == "utf-8-sig":
        data = data[3:]
    elif codec.startswith("utf-") and codec != "utf-8":
        data = data[:_MAX_VALIDATED_BYTES].decode(codec, "ignore").lstrip("\ufeff").encode()
    marked = _by_mark(data)
    if marked is not None:
        return SniffResult(marked, KINDS[marked].category)
    claimed = type_of_name(name)
    if claimed == "application/json" and _json(data) == "application/x-ipynb+json":
        claimed = None
    if claimed is not None and KINDS[claimed].category == "text" and claimed not in _PROVEN_BY_MARK:
        return SniffResult(claimed, "text")
    found = _by_content(data) or "text/plain"
    return SniffResult(found, KINDS[found].category)


_PROVEN_BY_MARK: Final = (SVG, "text/rtf", "application/postscript")
_SHEBANG: Final = re.compile(rb"#!\s*\S*?(?:/env\s+(?:-\S+\s+)?)?(python|(?:ba|z|k|da)?sh|node|perl|ruby)[\d.]*\b")
_INTERPRETED: Final = {b"python": "text/x-python", b"node": "text/javascript"}
_LEADING: Final = re.compile(rb"\s*")


def _by_mark(data: bytes) -> str | None:
    """Return the type that the first characters of a text declare."""
    leading = _LEADING.match(data, 0, _HEAD_BYTES)
    at = leading.end() if leading else 0
    first = data[at : at + 1]
    if first == b"<":
        return markup_type(data)
    if first == b"{":
        return "text/rtf" if data.startswith(b"{\\rtf", at) else None
    if at:
        return None
    if first == b"%":
        return "application/postscript" if data.startswith(b"%!PS") else None
    if first == b"#":
        shebang = _SHEBANG.match(data, 0, 256)
        if shebang is not None:
            return _INTERPRETED.get(shebang[1], "text/x-shellscript" if shebang[1].endswith(b"sh") else "text/plain")
    if first == b"B" and data.startswith((b"BEGIN:VCALENDAR", b"BEGIN:VCARD")):
        return "text/calendar" if data[6:10] == b"VCAL" else "text/vcard"
    return None


_JSON_START: Final = re.compile(rb'\s*(?:\{\s*(?:"|\})|\[\s*(?:[\[\{"\d\]-]|true|false|null))')
_MAX_VALIDATED_BYTES: Final = 262_144
_TABLE_ROWS: Final = 12


def _by_content(data: bytes) -> str | None:
    if _JSON_START.match(data, 0, _HEAD_BYTES) is not None:
        return _json(data)
    if looks_like_html(data):
        return "text/html"
    lines = data[:_HEAD_BYTES].split(b"\n")
    if len(data) > _HEAD_BYTES:
        lines.pop()  # truncated in the middle
    rows = [line for line in lines if line.strip()][:_TABLE_ROWS]
    for separator, media_type in ((b"\t", "text/tab-separated-values"), (b",", "text/csv")):
        if _is_table(rows, separator):
            return media_type
    return None


def _json(data: bytes) -> str | None:
    if (b'"nbformat"' in data[:65_536] or b'"nbformat"' in data[-65_536:]) and b'"cells"' in data:
        return "application/x-ipynb+json"
    if len(data) > _MAX_VALIDATED_BYTES:
        return "application/json"
    try:
        decode_json(data, msgspec.Raw)
    except msgspec.DecodeError:
        pass
    else:
        return "application/json"
    lines = [line for line in data.splitlines() if line.strip()]
    try:
        for line in lines[:20]:
            decode_json(line, msgspec.Raw)
    except msgspec.DecodeError:
        return None
    return "application/x-ndjson" if len(lines) > 1 else None


def _is_table(rows: list[bytes], separator: bytes) -> bool:
    """Return whether there are at least three rows, all with the same number of fields outside quotes."""
    if len(rows) < 3 or separator not in rows[0]:
        return False
    counts = {_QUOTED.sub(b"", row).count(separator) for row in rows}
    return len(counts) == 1 and 0 not in counts


_QUOTED: Final = re.compile(rb'"(?:[^"]|"")*"')
