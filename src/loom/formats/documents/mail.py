"""E-mail (.eml, .msg): headers, the body as text, and attachments: images as images, other files by name."""

from __future__ import annotations

import datetime as dt
import email
import email.policy
import struct
from collections.abc import Callable
from email.message import EmailMessage
from typing import Final

from loom.content.media import size_label
from loom.errors import Unreadable
from loom.formats.documents.html import PictureList, html_text
from loom.formats.documents.messages import ReadContext, ReadDocument
from loom.formats.documents.rtf import rtf_text
from loom.formats.encodings import known_codec
from loom.formats.ole import OleError, OleFile
from loom.formats.sniff import apple_mail_offset, sniff
from loom.formats.sniff.kinds import label_of
from loom.formats.text import decode_text

_HEADERS: Final = ("From", "To", "Cc", "Bcc", "Reply-To", "Date", "Subject")
_MAX_HEADER_CHARS: Final = 4_000
_MAX_PARTS: Final = 2_000


class _Attachments:
    """The attachments of a mail, under unique names."""

    def __init__(self) -> None:
        self.members: dict[str, Callable[[], bytes]] = {}
        self._lines: list[str] = []
        self._pictures = PictureList()

    @property
    def pictures(self) -> PictureList:
        return self._pictures

    def add(self, name: str, data: bytes, *, is_shown: bool) -> None:
        """Add an attachment. `is_shown` means that the body already contains the image."""
        name = self._unique_name(name.replace("/", "_").strip() or "attachment")
        self.members[name] = lambda: data
        found = sniff(data, name)
        label = label_of(found.media_type)
        mark = ""
        if found.category == "image" and not is_shown:
            mark = f" {self._pictures.mark(data, '', name=name)}"
        self._lines.append(f"[attachment: {name}, {label}, {size_label(len(data))}]{mark}")

    def text(self) -> str:
        return "\n".join(self._lines)

    def _unique_name(self, name: str) -> str:
        stem, dot, extension = name.rpartition(".")
        number, found = 1, name
        while found in self.members:
            number += 1
            found = f"{stem} ({number}){dot}{extension}" if stem else f"{name} ({number})"
        return found


def read_eml(data: bytes, _context: ReadContext) -> ReadDocument:
    if offset := apple_mail_offset(data):
        data = data[offset : offset + int(data[:offset])]
    message = email.message_from_bytes(data, _class=EmailMessage, policy=email.policy.default)
    heads = [
        f"{name}: {' '.join(str(value).split())[:_MAX_HEADER_CHARS]}"
        for name in _HEADERS
        for value in _header(message, name)
    ]
    attachments = _Attachments()
    parts = list(_leaves(message))[:_MAX_PARTS]
    inline = {_content_id(part): part for part in parts if _content_id(part)}
    body = _body(parts, inline, attachments.pictures)
    shown = list(attachments.pictures.found)
    for part in parts:
        name = _file_name(part)
        if not name and part.get_content_maintype() == "text" and part.get_content_disposition() != "attachment":
            continue
        content = _bytes(part)
        is_shown = any(picture.data == content for picture in shown)
        attachments.add(name or _default_name(part), content, is_shown=is_shown)
    sections = ["\n".join(heads), body, attachments.text()]
    return ReadDocument(
        sections=["\n\n".join(filter(None, sections))],
        pictures=attachments.pictures.found,
        members=attachments.members,
    )


def _header(message: EmailMessage, name: str) -> list[str]:
    try:
        return [str(value) for value in message.get_all(name, [])]
    except (ValueError, LookupError, IndexError, AttributeError):  # raised by the address parser for invalid addresses
        raw = [value for key, value in message.raw_items() if key.lower() == name.lower()]
        return [str(value) for value in raw]


def _leaves(message: EmailMessage) -> list[EmailMessage]:
    """Return all parts that have content; a mail inside the mail is one part."""
    found: list[EmailMessage] = []
    waiting: list[EmailMessage] = [message]
    while waiting and len(found) < _MAX_PARTS:
        part = waiting.pop(0)
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            waiting[:0] = [inner for inner in part.iter_parts() if isinstance(inner, EmailMessage)]
        else:
            found.append(part)
    return found


def _body(parts: list[EmailMessage], inline: dict[str, EmailMessage], pictures: PictureList) -> str:
    """Return the HTML body if there is one, since it has links, tables and images; otherwise the plain text body."""
    bodies = [
        part
        for part in parts
        if part.get_content_maintype() == "text"
        and part.get_content_disposition() != "attachment"
        and not _file_name(part)
    ]

    def find(source: str) -> bytes | None:
        part = inline.get(source.removeprefix("cid:")) if source.startswith("cid:") else None
        return _bytes(part) if part is not None else None

    html = [part for part in bodies if part.get_content_subtype() == "html"]
    plain = [part for part in bodies if part.get_content_subtype() != "html"]
    if html:
        text = "\n\n".join(html_text(_text(part), pictures, find, title=False) for part in html)
        if text.strip():
            return text
    return "\n\n".join(_text(part).strip() for part in plain)


def _text(part: EmailMessage) -> str:
    data = _bytes(part)
    codec = known_codec(str(part.get_content_charset() or "")) if part.get_content_charset() else None
    if codec is not None:
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            pass  # the declared encoding is wrong: detect it from the bytes
    try:
        return decode_text(data)[0] if data else ""
    except Unreadable:
        return data.decode("latin-1")


def _bytes(part: EmailMessage) -> bytes:
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload(0) if part.is_multipart() else None
        return inner.as_bytes() if isinstance(inner, EmailMessage) else b""
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _file_name(part: EmailMessage) -> str:
    try:
        return part.get_filename() or ""
    except (ValueError, LookupError, AttributeError, TypeError):  # a name that the parser cannot decode
        return "attachment"


def _default_name(part: EmailMessage) -> str:
    return "message.eml" if part.get_content_type() == "message/rfc822" else f"attachment.{part.get_content_subtype()}"


def _content_id(part: EmailMessage) -> str:
    return str(part.get("Content-ID", "")).strip().strip("<>")


# Outlook ------------------------------------------------------------------------------------------------------------

_SUBJECT, _BODY, _HTML, _RTF = 0x0037, 0x1000, 0x1013, 0x1009
_SENDER, _SENDER_MAIL, _SENDER_SMTP, _TO, _CC = 0x0C1A, 0x0C1F, 0x5D01, 0x0E04, 0x0E03
_SENT, _RECEIVED, _CODE_PAGE = 0x0039, 0x0E06, 0x3FFD
_LONG_NAME, _SHORT_NAME, _DATA, _CID = 0x3707, 0x3704, 0x3701, 0x3712
_FILETIME_EPOCH: Final = dt.datetime(1601, 1, 1, tzinfo=dt.UTC)
_LZFU: Final = 0x75465A4C
_MELA: Final = 0x414C454D
_LZFU_PREFIX: Final = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript "
    b"\\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par "
    b"\\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
_MAX_RTF_BYTES: Final = 50_000_000


class _MessageStorage:
    """The properties of a message, an attachment or a recipient."""

    def __init__(self, container: OleFile, path: tuple[str, ...]) -> None:
        self._container = container
        self._path = path
        self.streams = {entry.path[-1]: entry for entry in container.children(*path)}
        self._code_page = ""
        number = self._property(_CODE_PAGE, 0x03, 32) if not path else b""
        if number:
            self._code_page = known_codec(f"cp{struct.unpack('<I', number[:4])[0]}") or ""

    def text(self, tag: int) -> str:
        for kind, codec in (("001f", "utf-16-le"), ("001e", "")):
            name = f"__substg1.0_{tag:04x}{kind}"
            if name in self.streams:
                data = self._container.read(*self._path, name)
                if codec:
                    return data.decode(codec, "replace").rstrip("\0")
                if self._code_page:
                    return data.decode(self._code_page, "replace").rstrip("\0")
                try:
                    return decode_text(data.rstrip(b"\0"))[0] if data.rstrip(b"\0") else ""
                except Unreadable:
                    return data.decode("cp1252", "replace")
        return ""

    def binary(self, tag: int) -> bytes:
        name = f"__substg1.0_{tag:04x}0102"
        return self._container.read(*self._path, name) if name in self.streams else b""

    def time(self, tag: int, header: int) -> str:
        found = self._property(tag, 0x40, header)
        try:
            ticks = struct.unpack("<Q", found)[0] if found else 0
            moment = _FILETIME_EPOCH + dt.timedelta(microseconds=ticks // 10)
        except OverflowError:
            return ""
        return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if ticks else ""

    def _property(self, tag: int, kind: int, header: int) -> bytes:
        """Return the eight bytes of a property of fixed size, or empty bytes if it does not exist."""
        if "__properties_version1.0" not in self.streams:
            return b""
        data = self._container.read(*self._path, "__properties_version1.0")
        for at in range(header, len(data) - 15, 16):
            if struct.unpack_from("<HH", data, at) == (kind, tag):
                return data[at + 8 : at + 16]
        return b""


def read_msg(data: bytes, _context: ReadContext) -> ReadDocument:
    try:
        container = OleFile(data)
        return _read_outlook(container)
    except OleError as error:
        raise Unreadable(f"is damaged: {error}") from None


def _read_outlook(container: OleFile) -> ReadDocument:
    message = _MessageStorage(container, ())
    sender = message.text(_SENDER)
    address = message.text(_SENDER_SMTP) or message.text(_SENDER_MAIL)
    heads = {
        "From": f"{sender} <{address}>" if address and address not in sender and "@" in address else sender or address,
        "To": message.text(_TO),
        "Cc": message.text(_CC),
        "Date": message.time(_SENT, 32) or message.time(_RECEIVED, 32),
        "Subject": message.text(_SUBJECT),
    }
    attachments = _Attachments()
    found: list[tuple[str, bytes, str]] = []
    for entry in sorted(container.children(), key=lambda entry: entry.path):
        if entry.is_stream or not entry.path[-1].startswith("__attach_version1.0_"):
            continue
        part = _MessageStorage(container, entry.path)
        name = part.text(_LONG_NAME) or part.text(_SHORT_NAME)
        content = part.binary(_DATA)
        if content:
            found.append((name, content, part.text(_CID)))
        else:
            found.append((name or "embedded message", b"", ""))
    by_id = {content_id: content for _, content, content_id in found if content_id}
    body = _outlook_body(message, by_id, attachments.pictures)
    shown = [picture.data for picture in attachments.pictures.found]
    for name, content, _ in found:
        attachments.add(name, content, is_shown=content in shown)
    lines = [f"{name}: {' '.join(value.split())}" for name, value in heads.items() if value.strip()]
    return ReadDocument(
        sections=["\n\n".join(filter(None, ("\n".join(lines), body, attachments.text())))],
        pictures=attachments.pictures.found,
        members=attachments.members,
    )


def _outlook_body(message: _MessageStorage, by_id: dict[str, bytes], pictures: PictureList) -> str:
    html = message.binary(_HTML)
    if html:
        try:
            source = decode_text(html)[0]
        except Unreadable:
            source = html.decode("cp1252", "replace")
        text = html_text(source, pictures, lambda source: by_id.get(source.removeprefix("cid:")), title=False)
        if text.strip():
            return text
    plain = message.text(_BODY).replace("\r\n", "\n").strip()
    if plain:
        return plain
    packed = message.binary(_RTF)
    return rtf_text(unpack_rtf(packed), pictures).strip() if packed else ""


def unpack_rtf(data: bytes) -> bytes:
    """Decompress Outlook's compressed RTF (LZFu)."""
    if len(data) < 16:
        return b""
    size, raw_size, kind, _ = struct.unpack_from("<IIII", data)
    if kind == _MELA:
        return data[16 : 16 + raw_size]
    if kind != _LZFU:
        return b""
    out = bytearray()
    window = bytearray(_LZFU_PREFIX.ljust(4096, b"\0"))
    write, at, end = len(_LZFU_PREFIX), 16, min(len(data), size + 4)
    limit = min(raw_size, _MAX_RTF_BYTES)
    while at < end and len(out) < limit:
        control = data[at]
        at += 1
        for bit in range(8):
            if at >= end or len(out) >= limit:
                break
            if control >> bit & 1:
                if at + 1 >= end:
                    return bytes(out)
                pair = data[at] << 8 | data[at + 1]
                at += 2
                place, length = pair >> 4, (pair & 15) + 2
                if place == write % 4096:
                    return bytes(out)
                copied = bytearray()
                for step in range(length):
                    byte = window[(place + step) % 4096]
                    copied.append(byte)
                    window[write % 4096] = byte
                    write += 1
                out += copied
            else:
                out.append(data[at])
                window[write % 4096] = data[at]
                write += 1
                at += 1
    return bytes(out)
