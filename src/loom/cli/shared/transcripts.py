"""Read transcripts of other programs, and find what a provider would reject in them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from loom.agent.foreign import read_conversation
from loom.cli.shared.llm_logs import read_logs
from loom.compile.ports import MediaWriter
from loom.content.blocks import ThinkingBlock
from loom.content.messages import Message, broken_pairs
from loom.errors import ContentError, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.sniff import sniff
from loom.tools.number_text import count_text

SQLITE: Final = b"SQLite format 3\0"
_CODEX_LINES: Final = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_MAX_FILE_BYTES: Final = 1_000_000_000


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as it was found, upgraded. `notices` tell what was repaired or left out; `pairs`, which calls and
    results lack each other: a receipt says so, too, in the words of its model."""

    kind: str
    title: str = ""
    model: str = ""
    workspace: str = ""
    system: str = ""
    messages: tuple[Message, ...] = ()
    notices: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()

    @property
    def repairs(self) -> tuple[str, ...]:
        return (*self.notices, *self.pairs)


class RawTranscript(msgspec.Struct, kw_only=True):
    """The messages of a file, in order, in whatever shape they have."""

    kind: str
    messages: list[Any] = msgspec.field(default_factory=list[Any])
    title: str = ""
    model: str = ""
    workspace: str = ""
    system: str = ""
    notices: list[str] = msgspec.field(default_factory=list[str])


async def read_transcripts(file: Path, shelf: MediaWriter, *, limits: IntakeLimits) -> list[Transcript]:
    """Every conversation of a file; bytes that were inside are on the shelf."""
    strung = await asyncio.to_thread(_strung, file)
    return [await _upgrade(found, shelf, limits, roots=(file.parent, Path.cwd())) for found in strung]


def _strung(file: Path) -> list[RawTranscript]:
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            head = opened.read(len(SQLITE))
    except FileNotFoundError:
        raise Unreadable("File not found.", name=file.name, hint="Check the name.") from None
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}.", name=file.name, hint="Give a file.") from None
    if head == SQLITE:
        return [RawTranscript(**found) for found in read_logs(file)]
    if size > _MAX_FILE_BYTES:
        raise Unreadable(f"{file.name} is too large for a conversation.", name=file.name, hint="Split it.")
    data = file.read_bytes()
    if not data.strip():
        raise Unreadable(
            f"{file.name} is empty.", name=file.name, hint="Give a conversation with at least one message."
        )
    return [_from_text(data, file.name)]


def _from_text(data: bytes, name: str) -> RawTranscript:
    for decode in (msgspec.json.decode, _lenient):
        with suppress(ValueError, RecursionError):
            return RawTranscript(kind="JSON", messages=[decode(data)])
    lines, notices = _lines(data)
    if not lines:
        raise ContentError(
            f"{name} is neither JSON nor lines of JSON.",
            hint="Give a conversation's JSON, a .jsonl transcript of Claude Code or Codex, or logs.db of llm.",
        )
    if any(line.get("type") in _CODEX_LINES and "payload" in line for line in lines):
        found = _codex(lines)
    elif any("sessionId" in line or "parentUuid" in line for line in lines):
        found = _claude_code(lines)
    else:
        found = RawTranscript(kind="JSON lines", messages=[line for line in lines if line])
    found.notices = [*notices, *found.notices]
    return found


def _lenient(data: bytes) -> Any:
    """What other writers let through: halves of characters, NaN, UTF-16."""
    value = json.loads(data, parse_constant=lambda _: None)
    return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _lines(data: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """The objects of a JSONL file. A line that is not whole is said and left out: programs die while they write."""
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
    """One path: up from the last message by `parentUuid`. Side conversations of other agents are not part of it."""
    found = RawTranscript(kind="Claude Code")
    entries = [line for line in lines if line.get("type") in ("user", "assistant") and not line.get("isSidechain")]
    for line in lines:
        found.title = _text(line.get("summary")) or found.title
        found.workspace = _text(line.get("cwd")) or found.workspace
        found.model = _model_of(line.get("message")) or found.model
    path = _path(entries)
    if len(path) < len(entries):
        found.notices.append(f"{count_text(len(entries) - len(path), 'message')} of abandoned branches skipped")
    found.messages = [line.get("message") for line in path if not line.get("isMeta")]
    return found


def _path(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """From the last entry upwards; where the chain is broken, everything as it stands in the file."""
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
    """`response_item` lines hold what was said; `compacted` begins anew with a summary of what was before."""
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
                found.system = _text(instructions) or _text(_fields(instructions).get("text"))
            case "turn_context":
                found.model = _text(facts.get("model")) or found.model
            case "compacted":
                found.notices.append("earlier messages were summarised by Codex; the summary replaces them")
                replaced = facts.get("replacement_history")
                found.messages = (
                    list(cast("list[Any]", replaced))
                    if isinstance(replaced, list)
                    else [{"role": "user", "content": _text(facts.get("message"))}]
                )
            case _:
                pass
    return found


async def _upgrade(
    strung: RawTranscript, shelf: MediaWriter, limits: IntakeLimits, roots: Sequence[Path]
) -> Transcript:
    whole = strung.messages[0] if strung.kind == "JSON" else {"messages": strung.messages}
    if strung.model and isinstance(whole, dict):
        whole = {**cast("dict[str, Any]", whole), "model": strung.model}
    found = await read_conversation(msgspec.json.encode(whole), shelf, limits=limits, roots=roots)
    return Transcript(
        kind=strung.kind,
        title=strung.title or _first_words(found.messages),
        model=strung.model or _text(_fields(whole).get("model")),
        workspace=strung.workspace,
        system="\n\n".join(text for text in (strung.system, found.system) if text.strip()),
        messages=found.messages,
        notices=(*strung.notices, *find_problems(strung.messages), *found.notices, *_thoughts(found.messages)),
        pairs=tuple(_pairs(found.messages)),
    )


def _pairs(messages: Sequence[Message]) -> Iterable[str]:
    """Named by their call: the numbers in other notices are those of the file, whose messages may have been joined."""
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


def _model_of(message: Any) -> str:
    return _text(_fields(message).get("model")).removeprefix("<synthetic>")


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_HEAD_CHARACTERS: Final = 8_192
_TYPES: Final = ("media_type", "mime_type", "mimeType")


def find_problems(messages: Any) -> list[str]:
    """Sentences for people: empty texts, and bytes that are not what their declaration says."""
    empty = 0
    lies: dict[tuple[str, str], int] = {}
    for block in _objects(messages):
        text = block.get("text")
        if block.get("type") in ("text", "input_text", "output_text") and isinstance(text, str) and not text.strip():
            empty += 1
        declared = next((block[name] for name in _TYPES if isinstance(block.get(name), str)), "")
        data = block.get("data")
        if declared and isinstance(data, str) and (found := _type_of(data)) not in ("", declared):
            lies[declared, found] = lies.get((declared, found), 0) + 1
    told = [
        f"{count_text(count, 'block')} declared as {said} but {'is' if count == 1 else 'are'} {found};"
        " the content decides"
        for (said, found), count in lies.items()
    ]
    return [*told, *([f"{count_text(empty, 'empty text')} left out"] if empty else [])]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object inside, whatever its depth."""
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
    """By the first bytes; empty where it is no base64."""
    head = encoded[:_HEAD_CHARACTERS]
    try:
        data = base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return ""
    return sniff(data).media_type if data else ""
