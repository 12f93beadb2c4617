"""SessionArchive: a whole session as one JSON document, with every branch. Exact both ways.

    {"loom":"conversation","v":2,"session":{…},"nodes":[…],"media":[…],"left_out":[…]}

Nodes contain the exact text that the store holds, so that fields of a newer version survive, and ids stay the same.
Media are files beside the document (in a zip) or base64 inside it. Absolute paths are removed: `without_paths`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from loom.content.codec import Conversation, decode_message
from loom.content.media import is_digest
from loom.errors import ContentError, Newer
from loom.struct_types import convert, decode_json

ARCHIVE_VERSION: Final = 2
NODE_ID: Final = re.compile(r"node:sha256:[0-9a-f]{64}")
_LOCAL_PATH: Final = re.compile(r"(?:[A-Za-z]:)?[\\/]|~|file:", re.IGNORECASE)
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeError)


class ArchivedNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message with its parent. `message` is the stored text; the first node is the root, which holds the system
    prompt."""

    id: str
    parent: str | None = None
    message: msgspec.Raw
    source: str = ""
    meta: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    bookmark: str = ""
    created_at: float = 0.0


class ArchivedSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session without its messages. `head` is the node from which it continues."""

    id: str = ""
    title: str = ""
    head: str = ""
    model: str = ""
    settings: dict[str, Any] = {}
    overrides: dict[str, Any] = {}
    watermark: dict[str, Any] = {}
    quarantine: dict[str, Any] = {}
    archived: bool = False
    pinned: bool = False
    folder: str = ""
    tags: tuple[str, ...] = ()
    created_at: float = 0.0
    updated_at: float = 0.0


class ArchivedMedium(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes that nodes refer to: in `file` of the same zip, or in `base64`. If both are empty, the store did not have
    them."""

    digest: str
    file: str = ""
    base64: str = ""


class SessionArchive(msgspec.Struct, frozen=True, kw_only=True):
    """A session with all its nodes. `nodes` list parents first, and siblings in the order in which they were written.
    `left_out` names what an export cannot contain."""

    loom: str = "conversation"
    v: int = ARCHIVE_VERSION
    session: ArchivedSession
    nodes: tuple[ArchivedNode, ...]
    media: tuple[ArchivedMedium, ...] = ()
    left_out: tuple[str, ...] = ()


class ReadArchive(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that was read; `notices` name the parts that could not be read."""

    archive: SessionArchive
    notices: tuple[str, ...] = ()


def encode_archive(archive: SessionArchive) -> bytes:
    """Write an archive with one line for each node and medium, so that a diff of two exports is readable."""
    session = msgspec.json.encode(archive.session)
    parts = [b'{"loom":"%s","v":%d,\n"session":%s' % (archive.loom.encode(), archive.v, session)]
    for name, rows in (("nodes", archive.nodes), ("media", archive.media), ("left_out", archive.left_out)):
        lines = b",\n".join(msgspec.json.encode(row) for row in rows)
        parts.append(b'"%s":[%s%s%s]' % (name.encode(), b"\n" if lines else b"", lines, b"\n" if lines else b""))
    return b",\n".join(parts) + b"}\n"


def is_archive(facts: Mapping[str, Any]) -> bool:
    """Return whether a parsed JSON object is an archive of any version that this Loom or a newer one writes."""
    version = facts.get("v")
    return facts.get("loom") == "conversation" and isinstance(version, int) and version >= ARCHIVE_VERSION


def decode_archive(data: bytes) -> ReadArchive:
    """Read an archive. Damaged parts are left out and named in the notices. Raise `ContentError` if no message is left,
    and `Newer` if a newer Loom wrote it."""
    try:
        parts = decode_json(data, dict[str, msgspec.Raw])
        version = decode_json(parts.get("v", msgspec.Raw(b"0")), int)
    except _UNREADABLE as error:
        raise ContentError(f"Not a conversation: {error}") from None
    if version > ARCHIVE_VERSION:
        raise Newer(
            f"This export has format {version}; this Loom reads up to {ARCHIVE_VERSION}.",
            hint="Upgrade Loom to read it.",
        )
    notices = [f"the field {name[:80]!r} is unknown and was left out" for name in parts if name not in _FIELDS]
    session = _session(parts.get("session"), notices)
    nodes = tuple(_rows(parts.get("nodes"), ArchivedNode, "message", notices))
    if not nodes:
        raise ContentError("The export has no messages that can be read.", hint="Export the session again.")
    media = tuple(
        medium for medium in _rows(parts.get("media"), ArchivedMedium, "medium", notices) if is_digest(medium.digest)
    )
    left_out = tuple(_rows(parts.get("left_out"), str, "remark", notices))
    archive = SessionArchive(session=session, nodes=nodes, media=media, left_out=left_out)
    return ReadArchive(archive=archive, notices=tuple(notices))


_FIELDS: Final = frozenset(SessionArchive.__struct_fields__)


def _session(raw: msgspec.Raw | None, notices: list[str]) -> ArchivedSession:
    """Read the fields one by one, so that one that is damaged, or of a newer version, does not affect the others."""
    try:
        facts = decode_json(raw or b"{}", dict[str, Any])
    except _UNREADABLE:
        notices.append("the session data of the export is damaged; only its messages are read")
        return ArchivedSession()
    kept: dict[str, Any] = {}
    for name, value in facts.items():
        if name not in ArchivedSession.__struct_fields__:
            notices.append(f"the field {name[:80]!r} of the session is unknown and was left out")
            continue
        try:
            kept[name] = getattr(convert({name: value}, ArchivedSession), name)
        except msgspec.ValidationError:
            notices.append(f"the field {name!r} of the session is damaged and was left out")
    return ArchivedSession(**kept)


def _rows(raw: msgspec.Raw | None, kind: Any, what: str, notices: list[str]) -> list[Any]:
    found: list[Any] = []
    try:
        rows = decode_json(raw or b"[]", list[msgspec.Raw])
    except _UNREADABLE:
        notices.append(f"the list of {what} entries is damaged and was left out")
        return found
    damaged = 0
    for row in rows:
        try:
            found.append(decode_json(row, kind))
        except _UNREADABLE:
            damaged += 1
    if damaged:
        notices.append(f"{damaged} of {len(rows)} {what} entries are damaged and were left out")
    return found


def system_of(node: ArchivedNode) -> str | None:
    """Return the system prompt of a root; None if the node is not a root."""
    try:
        facts = decode_json(node.message, dict[str, Any])
    except _UNREADABLE:
        return None
    system = facts.get("system")
    return system if "role" not in facts and isinstance(system, str) else None


def conversation_of(archive: SessionArchive) -> Conversation:
    """Return the path to the head, for readers of conversations without branches."""
    known = {node.id: node for node in archive.nodes}
    at = known.get(archive.session.head) or archive.nodes[-1]
    path = [at]
    while (parent := known.get(path[-1].parent or "")) is not None and parent not in path:
        path.append(parent)
    system = system_of(path[-1])
    nodes = path[:-1] if system is not None else path
    messages = tuple(decode_message(bytes(node.message)) for node in reversed(nodes))
    return Conversation(messages=messages, system=system or "")


def compact_json(raw: msgspec.Raw) -> str:
    """Return the text of a node without the white space that another program may have added between its parts."""
    return msgspec.json.format(bytes(raw), indent=-1).decode()


def without_paths(stored: str) -> str:
    """Return the text of a node with every absolute path in a medium's `source` reduced to the name of the file."""
    if '"source":"' not in stored:
        return stored
    value = msgspec.json.decode(stored)
    return msgspec.json.encode(value).decode() if _shorten_sources(value) else stored


def _shorten_sources(value: Any) -> bool:
    """Shorten the sources in place; return whether any was changed."""
    changed = False
    waiting: list[Any] = [value]
    while waiting:
        at = waiting.pop()
        if isinstance(at, list):
            waiting.extend(cast("list[Any]", at))
        elif isinstance(at, dict):
            facts = cast("dict[str, Any]", at)
            source = facts.get("source")
            if isinstance(source, str) and _LOCAL_PATH.match(source) and is_digest(str(facts.get("digest", ""))):
                facts["source"] = re.split(r"[\\/]", source.rstrip("\\/"))[-1].removeprefix("file:").lstrip("~")
                changed = True
            waiting.extend(facts.values())
    return changed


def rename_nodes(value: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return JSON that refers to nodes, with their new ids."""
    text = msgspec.json.encode(value).decode()
    if not names or "node:" not in text:
        return dict(value)
    return msgspec.json.decode(NODE_ID.sub(lambda found: names.get(found[0], found[0]), text))
