"""Transcripts of other programs: read them, and find problems that a provider would reject."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, cast

import msgspec

from loom.agent.foreign_conversations import read_foreign_conversation, read_foreign_tree
from loom.compile.ports import MediaWriter
from loom.content.archive import ArchivedMedium, SessionArchive, conversation_of, decode_archive, is_archive
from loom.content.blocks import ThinkingBlock
from loom.content.json_values import get_object
from loom.content.media import digest_of
from loom.content.messages import Message, broken_pairs
from loom.content.wire_forms import WireForm
from loom.errors import ContentError, LoomError, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.sniff import sniff
from loom.importers.cut_json import close_cut_json
from loom.importers.products import ForeignConversation, conversations_of
from loom.importers.products.jsonl import is_sample, sample_of
from loom.importers.request_body import RequestBody, read_request_body
from loom.runtime.export_files import MAX_JSON_BYTES, ExportFiles, folder_files, zip_files
from loom.runtime.foreign_archive import archive_of
from loom.runtime.llm_logs import read_logs
from loom.tools.number_text import count_text

SQLITE: Final = b"SQLite format 3\0"
_CODEX_LINES: Final = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_NAMED: Final = 8
_MAX_FILE_BYTES: Final = 1_000_000_000
_CONVERSATIONS: Final = re.compile(r"conversations?(-\d+)?\.json", re.IGNORECASE)
_OTHER_FILES: Final = frozenset(
    f"{name}.json"
    for name in (
        *("user", "users", "projects", "memories", "message_feedback", "shared_conversations", "model_comparisons"),
        *("group_chats", "shopping", "sora", "user_settings", "tool_messages", "manifest", "export_manifest"),
    )
)


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that was read and converted. `messages` is the path to its head; `archive` contains all of it if
    there are branches, times or settings. `notices` report repairs and omissions. `pairs` report calls and results that
    lack each other; the receipt of a model reports these, too."""

    kind: str
    title: str = ""
    model: str = ""
    workspace: str = ""
    system: str = ""
    messages: tuple[Message, ...] = ()
    archive: SessionArchive | None = None
    notices: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    forms: dict[int, WireForm] = {}
    """Messages in their original form, for their own provider."""
    head: tuple[Any, ...] = ()
    request: RequestBody | None = None
    """The fields of a request body besides the conversation; None if the file is not such a body."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to import. The head of a session may be above all messages."""
        return not self.messages and (self.archive is None or len(self.archive.nodes) < 2)

    @property
    def repairs(self) -> tuple[str, ...]:
        return (*self.notices, *self.pairs, *self._foreign_tools)

    @property
    def _foreign_tools(self) -> tuple[str, ...]:
        names = [tool.name for tool in self.request.tools] if self.request is not None else []
        if not names:
            return ()
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return (f"its tools are not run by Loom and not offered to models: {', '.join(names[:_NAMED])}{more}",)


class RawTranscript(msgspec.Struct, kw_only=True):
    """The messages of a file, in order, not yet converted."""

    kind: str
    messages: list[Any] = msgspec.field(default_factory=list[Any])
    title: str = ""
    model: str = ""
    workspace: str = ""
    system: str = ""
    notices: list[str] = msgspec.field(default_factory=list[str])


class TranscriptReader:
    """Reads files with conversations. `media` receives the bytes in them; old blocks may refer to files inside the
    folders `roots`."""

    def __init__(self, media: MediaWriter, limits: IntakeLimits, *, roots: Sequence[Path] = ()) -> None:
        self._media = media
        self._limits = limits
        self._roots = roots

    async def read(self, source: Path | bytes, name: str = "") -> list[Transcript]:
        """Return every conversation of a file, a folder or the bytes of a file. Raise `LoomError` if there is none."""
        name = name or (source.name if isinstance(source, Path) else "The file")
        if isinstance(source, Path):
            is_folder = await asyncio.to_thread(_check_file, source)
            if is_folder:
                return await self._from_files(await asyncio.to_thread(folder_files, source, self._limits), name)
        head = source[:16] if isinstance(source, bytes) else await asyncio.to_thread(_head, source)
        if head == SQLITE:
            if not isinstance(source, Path):
                raise Unreadable(f"{name} is a database.", name=name, hint="Import it with `loom import`.")
            logs = await asyncio.to_thread(read_logs, source)
            return [await self._upgrade(RawTranscript(**found)) for found in logs]
        if head[:2] == b"PK":
            return await self._from_files(await asyncio.to_thread(zip_files, source), name)
        data = source if isinstance(source, bytes) else await asyncio.to_thread(source.read_bytes)
        if not data.strip():
            raise Unreadable(f"{name} is empty.", name=name, hint="Use a conversation with at least one message.")
        beside = source.parent if isinstance(source, Path) and source.parent in self._roots else None
        return await self._from_text(data, name, _NeighborFiles(beside, self._limits))

    async def _from_files(self, files: ExportFiles, name: str) -> list[Transcript]:
        found: list[Transcript] = []
        problems: list[LoomError] = []
        for member in _conversation_files(files.names):
            data = files.read(member, MAX_JSON_BYTES)
            if data is None or not data.strip():
                continue
            try:
                found += await self._from_text(data, member, files)
            except LoomError as error:
                problems.append(error)
                files.notices.append(f"{member[:200]}: {error.message}")
        if not found:
            if problems:
                raise problems[0]
            raise Unreadable(
                f"{name} contains no conversations.", name=name, hint="Use the zip that a product's data export wrote."
            )
        first = found[0]
        return [msgspec.structs.replace(first, notices=(*files.notices, *first.notices)), *found[1:]]

    async def _from_text(self, data: bytes, name: str, files: FileFinder) -> list[Transcript]:
        value, notices = await asyncio.to_thread(_parse_json, data)
        if value is None:
            return await self._from_lines(data, name)
        if isinstance(value, dict) and is_archive(cast("dict[str, Any]", value)):
            # Pass the bytes on unchanged, unless they had to be repaired: parsing and writing would change the texts of
            # nodes.
            whole = data if not notices else msgspec.json.encode(value)
            return [await self._read_own(whole, files, notices)]
        conversations = conversations_of(value)
        if conversations:
            read = [await self._product(found, files) for found in conversations]
            return [msgspec.structs.replace(read[0], notices=(*notices, *read[0].notices)), *read[1:]]
        return [await self._upgrade(RawTranscript(kind="JSON", messages=[value], notices=notices))]

    async def _from_lines(self, data: bytes, name: str) -> list[Transcript]:
        lines, notices = _lines(data)
        if not lines:
            raise ContentError(
                f"{name} is neither JSON nor lines of JSON.",
                hint="Use a data export (zip or JSON), a .jsonl of Claude Code or Codex, or logs.db of llm.",
            )
        if any(line.get("type") in _CODEX_LINES and "payload" in line for line in lines):
            found = [_codex(lines)]
        elif any("sessionId" in line or "parentUuid" in line for line in lines):
            found = [_claude_code(lines)]
        elif samples := [line for line in lines if is_sample(line)]:
            skipped = len(lines) - len(samples)
            notices += [f"{count_text(skipped, 'line')} without messages skipped"] if skipped else []
            read = [await self._product(sample_of(line), _NeighborFiles(None, self._limits)) for line in samples]
            return [msgspec.structs.replace(read[0], notices=(*notices, *read[0].notices)), *read[1:]]
        else:
            found = [RawTranscript(kind="JSON lines", messages=[line for line in lines if line])]
        found[0].notices = [*notices, *found[0].notices]
        return [await self._upgrade(raw) for raw in found]

    async def _read_own(self, data: bytes, files: FileFinder, notices: Sequence[str]) -> Transcript:
        """Read an archive that `loom sessions export` wrote."""
        read = decode_archive(data)
        archive, problems = read.archive, [*notices, *read.notices]
        missing = 0
        for medium in archive.media:
            found = await asyncio.to_thread(_bytes_of, medium, files)
            if found is not None and await asyncio.to_thread(digest_of, found) == medium.digest:
                await self._media.put(found)
            elif not await self._media.refresh(medium.digest):
                missing += 1
        if missing:
            problems.append(f"{count_text(missing, 'medium', 'media')} not in the export; replaced with text")
        conversation = conversation_of(archive)
        return Transcript(
            kind="Loom",
            title=archive.session.title or _first_words(conversation.messages),
            model=archive.session.model,
            system=conversation.system,
            messages=conversation.messages,
            archive=archive,
            notices=tuple(problems),
        )

    async def _product(self, found: ForeignConversation, files: FileFinder) -> Transcript:
        try:
            tree = await read_foreign_tree(found.nodes, self._media, files.find, limits=self._limits)
        except ContentError as error:
            return Transcript(kind=found.kind, title=found.title, notices=(*found.notices, error.message))
        archive, notices = archive_of(found, tree)
        conversation = conversation_of(archive)
        title = found.title or _first_words(conversation.messages)
        session = msgspec.structs.replace(archive.session, title=title)
        return Transcript(
            kind=found.kind,
            title=title,
            model=found.model,
            system=conversation.system,
            messages=conversation.messages,
            archive=msgspec.structs.replace(archive, session=session),
            notices=(*found.notices, *tree.notices, *notices),
            pairs=tuple(_pairs(conversation.messages)),
        )

    async def _upgrade(self, strung: RawTranscript) -> Transcript:
        whole = strung.messages[0] if strung.kind == "JSON" else {"messages": strung.messages}
        if strung.model and isinstance(whole, dict):
            whole = {**cast("dict[str, Any]", whole), "model": strung.model}
        encoded = msgspec.json.encode(whole)
        found = await read_foreign_conversation(encoded, self._media, limits=self._limits, roots=self._roots)
        return Transcript(
            kind=strung.kind,
            title=strung.title or _first_words(found.messages),
            model=strung.model or _text(get_object(whole).get("model")),
            workspace=strung.workspace,
            system="\n\n".join(text for text in (strung.system, found.system) if text.strip()),
            messages=found.messages,
            notices=(*strung.notices, *find_problems(strung.messages), *found.notices, *_thoughts(found.messages)),
            pairs=tuple(_pairs(found.messages)),
            forms=found.forms,
            head=found.head,
            request=_request(whole) if strung.kind == "JSON" else None,
        )


class FileFinder(Protocol):
    """Returns a file of an export by the name that a conversation uses for it."""

    def find(self, pointer: str) -> bytes | None: ...


class _NeighborFiles:
    """The files in the folder of a single file; they are read only if a conversation refers to one."""

    def __init__(self, folder: Path | None, limits: IntakeLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._files: ExportFiles | None = None

    def find(self, pointer: str) -> bytes | None:
        if self._folder is None:
            return None
        if self._files is None:
            self._files = folder_files(self._folder, self._limits, depth=2)
        return self._files.find(pointer)


async def read_transcripts(file: Path, writer: MediaWriter, *, limits: IntakeLimits) -> list[Transcript]:
    """Return every conversation of a local file; the bytes in it are stored."""
    return await TranscriptReader(writer, limits, roots=(file.parent, Path.cwd())).read(file)


def _check_file(file: Path) -> bool:
    """Return whether the path is a folder. Raise `Unreadable` if it cannot be read."""
    try:
        size = file.stat().st_size
        if file.is_dir():
            return True
    except FileNotFoundError:
        raise Unreadable(f"File not found: {file.name}.", name=file.name, hint="Check the name.") from None
    except OSError as error:
        raise Unreadable(
            f"{file.name} cannot be read: {error.strerror}.", name=file.name, hint="Check its permissions."
        ) from None
    if size > _MAX_FILE_BYTES and _head(file)[:2] != b"PK":
        raise Unreadable(f"{file.name} is too large for a conversation.", name=file.name, hint="Split it.")
    return False


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(len(SQLITE))
    except OSError as error:
        raise Unreadable(
            f"{file.name} cannot be read: {error.strerror}.", name=file.name, hint="Check its permissions."
        ) from None


def _conversation_files(names: Sequence[str]) -> list[str]:
    """Return the files of an export that contain conversations: those with such a name, otherwise all JSON files that
    are not known to contain something else."""
    called = sorted(name for name in names if _CONVERSATIONS.fullmatch(name.rpartition("/")[2]))
    others = (name for name in names if name.endswith((".json", ".jsonl")) and "/" not in name.strip("/"))
    return called or [name for name in others if name not in _OTHER_FILES]


def _bytes_of(medium: ArchivedMedium, files: FileFinder) -> bytes | None:
    if medium.base64:
        try:
            return base64.b64decode(medium.base64, validate=True)
        except binascii.Error:
            return None
    return files.find(medium.file) if medium.file else None


def _parse_json(data: bytes) -> tuple[Any, list[str]]:
    """Return the value of a JSON text; None if it is not JSON. A truncated text is read as far as possible."""
    for decode in (msgspec.json.decode, _decode_leniently):
        with suppress(ValueError, RecursionError):
            return decode(data), []
    lines = data.lstrip().splitlines()
    with suppress(ValueError, RecursionError):
        if len(lines) > 1 and isinstance(msgspec.json.decode(lines[0]), dict):
            return None, []  # JSON lines
    with suppress(ValueError, RecursionError):
        closed = close_cut_json(data.decode("utf-8", "ignore"))
        if closed is not None:
            return _decode_leniently(closed.encode()), ["the file is incomplete; the readable part is imported"]
    return None, []


def _decode_leniently(data: bytes) -> Any:
    """Decode JSON with the deviations of other writers: lone surrogates, NaN, UTF-16."""
    value = json.loads(data, parse_constant=lambda _: None)
    return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _lines(data: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the objects of a JSONL file, and notices. An incomplete line is skipped with a notice, because programs
    may be killed while they write."""
    found: list[dict[str, Any]] = []
    notices: list[str] = []
    lines = data.splitlines()
    last = len(lines)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            what = "the last line was cut off" if number == last else f"line {number} is not JSON"
            notices.append(f"{what} and was skipped")
            continue
        if isinstance(value, dict):
            found.append(cast("dict[str, Any]", value))
    return found, notices


def _claude_code(lines: list[dict[str, Any]]) -> RawTranscript:
    """Return one path: from the last message up by `parentUuid`. Side conversations of other agents are not part of
    it."""
    found = RawTranscript(kind="Claude Code")
    entries = [line for line in lines if line.get("type") in ("user", "assistant") and not line.get("isSidechain")]
    for line in lines:
        found.title = _text(line.get("summary")) or found.title
        found.workspace = _text(line.get("cwd")) or found.workspace
        found.model = _text(get_object(line.get("message")).get("model")).removeprefix("<synthetic>") or found.model
    path = _path(entries)
    if len(path) < len(entries):
        found.notices.append(f"{count_text(len(entries) - len(path), 'message')} of abandoned branches skipped")
    found.messages = [line.get("message") for line in path if not line.get("isMeta")]
    return found


def _path(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the path from the root to the last entry; if the chain is broken, all entries in the order of the file."""
    by_id = {_text(entry.get("uuid")): entry for entry in entries if entry.get("uuid")}
    if not entries or len(by_id) < len(entries):
        return entries
    path: list[dict[str, Any]] = []
    at: dict[str, Any] | None = entries[-1]
    seen: set[str] = set()
    while at is not None and at["uuid"] not in seen:
        seen.add(at["uuid"])
        path.append(at)
        parent = _text(at.get("parentUuid")) or _text(at.get("logicalParentUuid"))
        if parent and parent not in by_id:
            return entries
        at = by_id.get(parent)
    return path[::-1]


def _codex(lines: list[dict[str, Any]]) -> RawTranscript:
    """Return the messages of `response_item` lines; `compacted` replaces earlier ones with a summary."""
    found = RawTranscript(kind="Codex")
    for line in lines:
        payload = line.get("payload")
        facts = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
        match line.get("type"):
            case "response_item" if facts.get("type") != "ghost_snapshot":
                found.messages.append(facts)
            case "session_meta":
                found.workspace = _text(facts.get("cwd"))
                instructions = facts.get("base_instructions") or facts.get("instructions")
                found.system = _text(instructions) or _text(get_object(instructions).get("text"))
            case "turn_context":
                found.model = _text(facts.get("model")) or found.model
            case "compacted":
                found.notices.append("earlier messages were summarized by Codex; the summary replaces them")
                replaced = facts.get("replacement_history")
                found.messages = (
                    list(cast("list[Any]", replaced))
                    if isinstance(replaced, list)
                    else [{"role": "user", "content": _text(facts.get("message"))}]
                )
            case _:
                pass
    return found


def _request(whole: Any) -> RequestBody | None:
    """Return the tools and options of a request body; None for Loom's own export, which has none."""
    body = get_object(whole)
    is_body = any(isinstance(body.get(key), list | str) for key in ("messages", "input", "contents"))
    return read_request_body(body) if is_body and "loom" not in body else None


def _pairs(messages: Sequence[Message]) -> Iterable[str]:
    """Yield problems with calls and results. They name the call, because the numbers in other notices are those of the
    file, whose messages may have been joined."""
    for broken in broken_pairs(messages):
        if broken.problem == "orphan":
            yield f"a result has no call ({broken.call_id[:40]}); sent to models as text"
        else:
            yield f"a call has no result ({broken.call_id[:40]}); sent to models as interrupted"


def _thoughts(messages: Sequence[Message]) -> Iterable[str]:
    count = sum(isinstance(block, ThinkingBlock) for message in messages for block in message.blocks)
    if count:
        yield f"{count_text(count, 'thought')} kept for reading; models get only their own reasoning"


def _first_words(messages: Sequence[Message]) -> str:
    said = next((message.text for message in messages if message.role == "user" and message.text.strip()), "")
    return " ".join(said.split())[:80]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_HEAD_CHARACTERS: Final = 8_192
_TYPES: Final = ("media_type", "mime_type", "mimeType")


def find_problems(messages: Any) -> list[str]:
    """Return notices about empty texts, and about bytes whose type differs from the declared one."""
    empty = 0
    mismatches: dict[tuple[str, str], int] = {}
    for block in _objects(messages):
        text = block.get("text")
        if block.get("type") in ("text", "input_text", "output_text") and isinstance(text, str) and not text.strip():
            empty += 1
        declared = next((block[name] for name in _TYPES if isinstance(block.get(name), str)), "")
        data = block.get("data")
        if declared and isinstance(data, str) and (found := _type_of(data)) not in ("", declared):
            mismatches[declared, found] = mismatches.get((declared, found), 0) + 1
    notices = [
        f"{count_text(count, 'block')} declared as {declared} but {'is' if count == 1 else 'are'} {found};"
        " the content decides"
        for (declared, found), count in mismatches.items()
    ]
    return [*notices, *([f"{count_text(empty, 'empty text')} left out"] if empty else [])]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object inside, at any depth."""
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if isinstance(at, dict):
            found = cast("dict[str, Any]", at)
            yield found
            waiting.extend(found.values())
        elif isinstance(at, list):
            waiting.extend(cast("list[Any]", at))


def _type_of(encoded: str) -> str:
    """Return the media type by the first bytes; empty if it is not base64."""
    head = encoded[:_HEAD_CHARACTERS]
    try:
        data = base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return ""
    return sniff(data).media_type if data else ""
