"""Zip containers (office files) that are checked before anything is inflated, and inflated under a hard limit.

Nothing is ever written to disk, so member names cannot escape a folder; a zip inside the zip is bytes and never opened.
Every kind of damage ends in a typed error (`damage_reported`, for all readers).
"""

from __future__ import annotations

import io
import struct
import time
import zipfile
from typing import Final
from xml.parsers.expat import ExpatError

from loom.content.media import size_label
from loom.errors import Encrypted, LoomError, TooLarge, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.zlib_stream import MAX_WBITS, InflateError, crc32, decompressobj

MAX_MEMBERS: Final = 10_000
MAX_SIGNATURES: Final = 100_000
"""Directory entries of the container and of the zips stored inside it, counted before the directory is parsed."""
SAVE_AGAIN: Final = "Open it in an office program, save it again and attach the new file."

_RATIO_FLOOR_BYTES: Final = 8_388_608
_TEXT_SUFFIXES: Final = (".xml", ".rels", ".vml")
_MAX_TEXT_RATIO: Final = 250
"""The limit for one part; images may compress better and count in the total only."""
_MAX_TOTAL_RATIO: Final = 150
_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
_LOCAL_SIGNATURE: Final = b"PK\x03\x04"
_DIRECTORY_ENTRY: Final = b"PK\x01\x02"
_READABLE_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

_DAMAGE: Final = (
    zipfile.BadZipFile,
    InflateError,
    ExpatError,
    struct.error,
    EOFError,
    LookupError,  # a missing part that the document refers to, an unknown encoding
    ValueError,  # invalid numbers and text (UnicodeDecodeError is a ValueError)
    OverflowError,
    RecursionError,
    NotImplementedError,  # raised by zipfile for unsupported features
)


class damage_reported:  # noqa: N801 - reads as a verb where it is used: `with damage_reported(name)`
    """Converts every exception of a reader on a damaged document to `Unreadable`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, _DAMAGE) and not isinstance(error, LoomError):
            raise Unreadable(
                f"{self._name or 'The document'} is damaged: {_describe_error(error)}.",
                name=self._name,
                hint=SAVE_AGAIN,
            ) from error


def _describe_error(error: Exception) -> str:
    match error:
        case ExpatError():
            return f"its XML ends unexpectedly in line {error.lineno}"
        case zipfile.BadZipFile() | InflateError() | EOFError():
            return "the zip container is incomplete or altered"
        case _:
            return "its parts are inconsistent"


class Archive:
    """The members of one container. Names are matched as in office programs: any case, either slash."""

    def __init__(self, data: bytes, *, name: str, limits: IntakeLimits) -> None:
        self._name = name
        self.restart_clock(limits.deadline_seconds)
        if data.count(_DIRECTORY_ENTRY) > MAX_SIGNATURES:
            raise self._too_large("contains too many files")
        with damage_reported(name), zipfile.ZipFile(io.BytesIO(data)) as directory:
            members = directory.infolist()
        self._data = memoryview(data)
        self._check(members, len(data), limits)
        self._members = {_member_key(member.filename): member for member in members}
        if len(self._members) != len(members):
            raise self._unreadable_error("contains two files with the same name")

    @property
    def names(self) -> tuple[str, ...]:
        """Every member, as spelled in the container's directory."""
        return tuple(member.filename for member in self._members.values())

    def __contains__(self, member: str) -> bool:
        return _member_key(member) in self._members

    def size_bytes(self, member: str) -> int:
        return self._members[_member_key(member)].file_size

    def read(self, member: str) -> bytes:
        """Return the whole member. At most the size that its header declares is inflated."""
        entry = self._entry(member)
        data, is_whole = self._inflate(entry, entry.file_size)
        if not is_whole or len(data) != entry.file_size or crc32(data) != entry.CRC:
            raise self._unreadable_error("is incomplete or altered")
        self.check_time()
        return data

    def beginning(self, member: str, most_bytes: int) -> bytes:
        """Return the first bytes of a member."""
        return self._inflate(self._entry(member), most_bytes)[0][:most_bytes]

    def restart_clock(self, seconds: float) -> None:
        """Restart the deadline, for another request about the same document."""
        self._deadline = time.monotonic() + seconds

    def check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise self._too_large("takes too long to read")

    def _entry(self, member: str) -> zipfile.ZipInfo:
        if (entry := self._members.get(_member_key(member))) is None:
            raise self._unreadable_error(f"lacks a part that it needs ({member[:80]})")
        return entry

    def _inflate(self, entry: zipfile.ZipInfo, most_bytes: int) -> tuple[bytes, bool]:
        """Inflate at most `most_bytes` and one more, and return whether that is all."""
        packed = self._stored_bytes(entry)
        if entry.compress_type == zipfile.ZIP_STORED:
            return bytes(packed[: most_bytes + 1]), len(packed) <= most_bytes
        inflater = decompressobj(-MAX_WBITS)
        with damage_reported(self._name):
            return inflater.decompress(packed, most_bytes + 1), inflater.eof

    def _stored_bytes(self, entry: zipfile.ZipInfo) -> memoryview:
        """Return the member's bytes as stored, after its local header."""
        with damage_reported(self._name):
            signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack_from(self._data, entry.header_offset)
        start = entry.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
        if signature != _LOCAL_SIGNATURE or start + entry.compress_size > len(self._data):
            raise self._unreadable_error("is incomplete or altered")
        return self._data[start : start + entry.compress_size]

    def _check(self, members: list[zipfile.ZipInfo], packed_bytes: int, limits: IntakeLimits) -> None:
        if len(members) > MAX_MEMBERS:
            raise self._too_large(f"contains {len(members):,} files")
        expanded = sum(member.file_size for member in members)
        if expanded > limits.max_expanded_bytes:
            raise self._too_large(
                f"expands to {size_label(expanded)}, over the limit of {size_label(limits.max_expanded_bytes)}"
            )
        if expanded > max(_RATIO_FLOOR_BYTES, packed_bytes * _MAX_TOTAL_RATIO):
            raise self._too_large(f"expands from {size_label(packed_bytes)} to {size_label(expanded)}")
        for member in members:
            if member.flag_bits & 0x1:
                raise encrypted_error(self._name)
            is_text = member.filename.lower().endswith(_TEXT_SUFFIXES)
            if is_text and member.file_size > max(_RATIO_FLOOR_BYTES, member.compress_size * _MAX_TEXT_RATIO):
                raise self._too_large("contains a part that expands too far")
            if member.compress_type not in _READABLE_METHODS:
                raise self._unreadable_error("uses an unsupported compression method")
        self._check_overlap(members)

    def _check_overlap(self, members: list[zipfile.ZipInfo]) -> None:
        end = 0
        for member in sorted(members, key=lambda entry: entry.header_offset):
            if member.header_offset < end:
                raise self._unreadable_error("contains overlapping files")
            end = member.header_offset + _LOCAL_HEADER.size + member.compress_size

    @property
    def _display_name(self) -> str:
        return self._name or "The document"

    def _too_large(self, how: str) -> TooLarge:
        return TooLarge(
            f"{self._display_name} {how}.", name=self._name, hint="Split it, or attach the part that matters."
        )

    def _unreadable_error(self, how: str) -> Unreadable:
        return Unreadable(f"{self._display_name} {how}.", name=self._name, hint=SAVE_AGAIN)


def encrypted_error(name: str) -> Encrypted:
    return Encrypted(
        f"{name or 'The document'} needs a password.", name=name, hint="Save a copy without one and attach that."
    )


def _member_key(member: str) -> str:
    return member.replace("\\", "/").lstrip("/").lower()
