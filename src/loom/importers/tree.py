"""Convert trees that were stored as one JSON file per node to nodes, parents first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from loom.content.json_values import MAX_INPUT_DEPTH, get_list, get_object, get_text, ident, sanitize_json
from loom.content.messages import Message
from loom.errors import ContentError
from loom.importers.assembly import Assembly, MessageRun, OpenCall, runs
from loom.importers.conversation import demote_system
from loom.importers.messages import MessageDraft, as_text, is_message, read_message
from loom.importers.reader import FetchLegacyMedia, FoundResult, LegacyReader, StoreLegacyMedia

_DATE = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"([T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(:(?P<second>[0-9]{2}([.][0-9]+)?))?)?"
    r"(Z|(?P<sign>[+-])(?P<zone_hour>[0-9]{2}):?(?P<zone_minute>[0-9]{2}))?"
)
_TIMES: Final = ("updated_at", "modified_at", "created_at", "timestamp")


class LegacyNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node under its old id. `messages` may be empty (a system prompt, or an empty node with children) or more than
    one (results, and the text after them). `system` is the system prompt of the path to this node.
    """

    id: str
    parent_id: str | None = None
    messages: tuple[Message, ...] = ()
    system: str = ""
    created_at: float | None = None
    model: str = ""


class LegacyTree(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes` are in order, parents first. `head` is the leaf that was written last, or else the deepest."""

    nodes: tuple[LegacyNode, ...] = ()
    roots: tuple[str, ...] = ()
    head: str | None = None
    notices: tuple[str, ...] = ()


class _RawNode:
    """A node while its tree is being read."""

    def __init__(self, node_id: str, serial: int, data: dict[str, Any]) -> None:
        self.id = node_id
        self.serial = serial
        self.data = data
        self.parent: _RawNode | None = None
        self.children: list[_RawNode] = []
        self.draft = MessageDraft("user", ())
        self.system = ""
        self.is_prompt = False
        self.depth = 0
        self.open_calls: list[OpenCall] = []
        self.final_results: Message | None = None
        """The results up to this node, if later nodes cannot change them."""

    @cached_property
    def runs(self) -> tuple[MessageRun, ...]:
        """The blocks of the draft by role. Cached, because every branch below needs them; read it only once `draft` is
        set."""
        return tuple(runs(self.draft))

    @cached_property
    def leads_with_results(self) -> bool:
        return bool(self.runs) and self.runs[0][0] == "tool"

    @cached_property
    def is_results(self) -> bool:
        return self.leads_with_results and len(self.runs) == 1

    @cached_property
    def is_named(self) -> bool:
        """Whether every result in it has a call id."""
        return all(block.call_id for block in self.draft.blocks if isinstance(block, FoundResult))

    @property
    def is_continued(self) -> bool:
        """Whether each of its children continues the group of results, so that its own are part of theirs."""
        return self.is_results and bool(self.children) and all(child.leads_with_results for child in self.children)


def upgrade_tree(nodes: Iterable[Any], *, lift: StoreLegacyMedia, fetch: FetchLegacyMedia) -> LegacyTree:
    """Convert nodes (`id`, `parent_id`, `child_ids`, and a message inline or under `message`) to a tree.

    Results that were stored as a chain of nodes become one message below the node of their calls. Raise `ContentError`
    if none of the entries is a node, `Newer` if a newer Loom wrote one.
    """
    reading = LegacyReader(lift=lift, fetch=fetch)
    known = _index_nodes(nodes, reading)
    _link(known, reading)
    ordered = _in_order(known)
    for raw in ordered:
        _read(raw, reading)
    kept = [raw for raw in ordered if not raw.is_continued and not _is_nothing(raw, reading)]
    upgraded = tuple(_upgrade_node(raw, reading) for raw in kept)
    parents = {node.parent_id for node in upgraded}
    leaves = [raw for raw in kept if raw.id not in parents]
    head = max(leaves, key=lambda raw: (_time(raw.data), raw.depth, raw.serial)).id if leaves else None
    roots = tuple(node.id for node in upgraded if node.parent_id is None)
    return LegacyTree(nodes=upgraded, roots=roots, head=head, notices=reading.notices)


def _index_nodes(nodes: Iterable[Any], reading: LegacyReader) -> dict[str, _RawNode]:
    known: dict[str, _RawNode] = {}
    serial = 0
    for serial, node in enumerate(nodes, 1):
        data = get_object(sanitize_json(node, MAX_INPUT_DEPTH))
        if not ident(data.get("id")) and not is_message(data):
            reading.note(f"entry {serial} is not a node; ignored")
            continue
        node_id = ident(data.get("id")) or f"node_{serial}"
        if node_id in known:
            reading.note(f"node {node_id[:80]!r} exists twice; the first one was used")
            continue
        known[node_id] = _RawNode(node_id, serial, data)
    if serial and not known:
        raise ContentError(
            "Not a conversation tree: it contains no nodes.",
            hint="A node is an object with id, parent_id, child_ids and a message.",
        )
    return known


def _link(known: dict[str, _RawNode], reading: LegacyReader) -> None:
    """Link children to parents. A node's own `parent_id` takes precedence over the `child_ids` of others."""
    claimed: dict[str, str] = {}
    for raw in known.values():
        for child in get_list(raw.data.get("child_ids")):
            if ident(child) not in known:
                reading.note(f"node {raw.id[:80]!r} names a missing child {ident(child)[:80]!r}")
            claimed.setdefault(ident(child), raw.id)
    for raw in known.values():
        parent_id = ident(raw.data.get("parent_id")) or claimed.get(raw.id, "")
        raw.parent = known.get(parent_id)
        if parent_id and raw.parent is None:
            reading.note(f"the parent {parent_id[:80]!r} of node {raw.id[:80]!r} is missing; the node became a root")
    _break_cycles(known, reading)
    for raw in known.values():
        if raw.parent is not None:
            raw.parent.children.append(raw)


def _break_cycles(known: dict[str, _RawNode], reading: LegacyReader) -> None:
    walk_of: dict[str, int] = {}
    for walk, start in enumerate(known.values()):
        raw = start
        while raw.id not in walk_of:
            walk_of[raw.id] = walk
            if raw.parent is None:
                break
            if walk_of.get(raw.parent.id) == walk:
                reading.note(f"node {raw.id[:80]!r} is its own ancestor; it became a root")
                raw.parent = None
                break
            raw = raw.parent


def _in_order(known: dict[str, _RawNode]) -> list[_RawNode]:
    """Return the nodes, parents before children, otherwise in their original order, and set their depths."""
    ordered = [raw for raw in known.values() if raw.parent is None]
    for raw in ordered:
        for child in raw.children:
            child.depth = raw.depth + 1
            ordered.append(child)
    return ordered


def _read(raw: _RawNode, reading: LegacyReader) -> None:
    """Set the draft of a node and the system prompt of its path. System messages become part of the system prompt only
    before the first other message."""
    reading.begin(f"node {raw.id[:80]!r}", raw.serial)
    is_leading = raw.parent is None or raw.parent.is_prompt
    draft = read_message(_message_of(raw.data), reading)
    raw.system = raw.parent.system if raw.parent is not None else ""
    raw.is_prompt = is_leading and (draft.role == "system" or not draft.blocks)
    if not raw.is_prompt:
        raw.draft = demote_system(draft, reading)
    elif draft.blocks:
        raw.system = "\n\n".join(text for text in (raw.system, as_text(draft, reading)) if text)


def _message_of(data: dict[str, Any]) -> Any:
    """Return the message of a node, without the fields of the node itself."""
    message = data.get("message")
    if isinstance(message, dict):
        return {"role": data.get("role"), **get_object(message)} if not is_message(message) else get_object(message)
    inline = {key: value for key, value in data.items() if key not in ("id", "parent_id", "child_ids", "message")}
    return {**inline, "content": message} if get_text(message) and "content" not in data else inline


def _is_nothing(raw: _RawNode, reading: LegacyReader) -> bool:
    """Return whether a node is an empty leaf, and add a notice if so. An empty node with children is kept."""
    if raw.draft.blocks or raw.children or (raw.is_prompt and raw.system):
        return False
    reading.begin(f"node {raw.id[:80]!r}", raw.serial)
    reading.note("empty; left out")
    return True


def _upgrade_node(raw: _RawNode, reading: LegacyReader) -> LegacyNode:
    """Convert a node. Its messages include the results of the nodes above that belong to the same group."""
    chain = [raw]
    anchor = raw.parent
    while anchor is not None and anchor.is_results and chain[-1].leads_with_results:
        chain.append(anchor)
        anchor = anchor.parent
    reading.begin(f"node {raw.id[:80]!r}", raw.serial)
    messages = _continue_results(raw, chain, reading)
    if not messages:
        messages = _assemble_messages(raw, chain, anchor.open_calls if anchor is not None else (), reading)
    if raw.is_results and all(link.is_named for link in chain):
        raw.final_results = messages[0]
    written_at = _time(raw.data)
    return LegacyNode(
        id=raw.id,
        parent_id=anchor.id if anchor is not None else None,
        messages=messages,
        system=raw.system,
        created_at=written_at if written_at > float("-inf") else None,
        model=get_text(raw.data.get("model")),
    )


def _continue_results(raw: _RawNode, chain: list[_RawNode], reading: LegacyReader) -> tuple[Message, ...]:
    """Return the messages of a node from the final results of a node above and the new ones, so that each node of a
    long chain with many branches is read once. Return an empty tuple if the whole chain must be read."""
    at = next((at for at, link in enumerate(chain) if link.final_results is not None), 0)
    earlier = chain[at].final_results
    if earlier is None or not all(link.is_named for link in chain[:at]):
        return ()
    first, *others = _assemble_messages(raw, chain[:at], chain[at].open_calls, reading)
    results = (*earlier.results, *first.results)
    if len({result.call_id for result in results}) < len(results):
        return ()
    return Message("tool", (*earlier.blocks, *first.blocks)), *others


def _assemble_messages(
    raw: _RawNode, chain: list[_RawNode], open_calls: Sequence[OpenCall], reading: LegacyReader
) -> tuple[Message, ...]:
    assembly = Assembly(reading, open_calls)
    for link in reversed(chain):
        if link.draft.blocks:
            assembly.add(link.draft, link.runs)
    messages = assembly.finish()
    raw.open_calls = assembly.open_calls
    return messages


def _time(data: dict[str, Any]) -> float:
    """Return the newest date of a node in seconds since 1970; minus infinity if it has none."""
    holders = (data, get_object(data.get("message")), get_object(data.get("metadata")))
    return max((seconds_of(holder.get(key)) for holder in holders for key in _TIMES), default=float("-inf"))


def seconds_of(value: Any) -> float:
    """Return seconds since 1970 from a number of seconds or milliseconds, or from an ISO date (UTC without a zone);
    minus infinity for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000 if value > 1e11 else float(value)
    match = _DATE.fullmatch(get_text(value).strip())
    if match is None:
        return float("-inf")
    hours, minutes = int(match["hour"] or 0), int(match["minute"] or 0)
    ahead = int(match["zone_hour"] or 0) * 3600 + int(match["zone_minute"] or 0) * 60
    seconds = hours * 3600 + minutes * 60 + float(match["second"] or 0)
    days = _days(int(match["year"]), int(match["month"]), int(match["day"]))
    return days * 86_400 + seconds - (-ahead if match["sign"] == "-" else ahead)


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01. The year is counted from March, so that the leap day is its last."""
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    return year * 365 + year // 4 - year // 100 + year // 400 + (month * 153 + 2) // 5 + day - 719_469
