"""Conversations of clients that send their whole history with each request: stored as sessions, and matched with what
is already stored.

Such a client sends everything again, without data that it never received (opaque data) and sometimes without data that
it does not keep (thinking). Messages that are already stored are used in their stored form, so that each model gets
back what it produced; the others are appended. Nothing is duplicated: a message and its parent determine its node.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

import msgspec

from loom.agent.foreign_conversations import KnownMedium, read_request
from loom.compile.request import Snapshot
from loom.content.blocks import TextBlock, ThinkingBlock, ToolCall, UnknownBlock
from loom.content.messages import Message
from loom.errors import Conflict, MediaError, NotFound
from loom.importers.forms import BodyProtocol, OriginalForms
from loom.importers.prefix_readings import PrefixReadings
from loom.importers.request_body import without_billing_line
from loom.runtime.inline_media import InlineMedia, InlinePart, StoredPart, token_of
from loom.runtime.media_intake import MediaIntake, StoredUpload
from loom.runtime.record import placed_node, snapshot_of
from loom.runtime.session_settings import SYSTEM
from loom.runtime.stores import Stores
from loom.session import SessionChange
from loom.store.gateway import GatewayAnswer, GatewayRecords
from loom.store.nodes import Node, drafts_of, nodes_of_drafts, root_node
from loom.store.session_rows import StoredSession

INLINE_NOTICE: Final = "[Loom: {}]\n\n"
"""The line before an answer that tells the user, once per session, that content was reduced for the model."""
_INLINE: Final = re.compile(r"\A\[Loom: [^\]\n]*\]\n\n")
_TITLE_CHARS: Final = 60
_MAX_KEPT: Final = 1_000
_MAX_PATHS: Final = 64


class ReadConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A client's conversation as messages. `originals` are its items, `head` the system prompts among them."""

    system: str
    messages: tuple[Message, ...]
    notices: tuple[str, ...]
    originals: OriginalForms
    head: tuple[Any, ...]


class PlacedHistory(msgspec.Struct, frozen=True):
    """A client's history in its session. `path` is that of its last message, the root first."""

    snapshot: Snapshot
    path: tuple[Node, ...]
    stored: asyncio.Task[str]
    """Returns the session when everything on the path is on disk. Await it before anything is acknowledged."""

    @property
    def session(self) -> str:
        """The session, once it is stored."""
        return self.stored.result()


class _AppendPlan(msgspec.Struct, frozen=True):
    """Messages to append: below `path[stored - 1]`, which is in the store."""

    session: str
    head: str
    path: tuple[Node, ...]
    stored: int
    new: Sequence[Message]
    meta: Mapping[str, Any] | None


def _plan(
    session: str, head: str, path: Sequence[Node], new: Sequence[Message], meta: Mapping[str, Any] | None
) -> _AppendPlan:
    nodes = nodes_of_drafts(path[-1], drafts_of(new, meta=meta), time.time())
    return _AppendPlan(session, head, (*path, *nodes), len(path), new, meta)


class ClientConversations:
    """The sessions of such clients."""

    def __init__(self, stores: Stores, records: GatewayRecords, intake: MediaIntake) -> None:
        self._forest = stores.forest
        self._sessions = stores.sessions
        self._calibrations = stores.calibrations
        self._media = stores.media
        self._intake = intake
        self._session_ids: OrderedDict[str, str] = OrderedDict()
        """By the key of the conversation: those that go on now."""
        self._kept: OrderedDict[str, str] = OrderedDict()
        """Maps a received digest to the stored one, if intake made a smaller copy."""
        self._readings = PrefixReadings()
        self._paths: OrderedDict[str, tuple[Node, ...]] = OrderedDict()
        """The paths of recent conversations, by their last node."""
        self.records = records

    # Read ------------------------------------------------------------------------------------------------------------

    async def read(self, body: dict[str, Any], protocol: BodyProtocol, inline: InlineMedia) -> ReadConversation:
        """Read the conversation of a request and store its media; raise `ContentError` if there is none."""
        known: dict[bytes, KnownMedium] = {}
        for mark, part in inline.parts.items():
            try:
                outcome = (await self._accept(part)).block
            except MediaError as error:
                outcome = error
            known[token_of(mark)] = KnownMedium(part.digest, outcome)
        plain = {**body, "system": without_billing_line(body["system"])} if "system" in body else body
        found = await read_request(
            plain,
            protocol,
            self._media,
            self._readings,
            limits=self._intake.limits,
            known=known,
            holds_bytes=not inline.is_sound,
        )
        return ReadConversation(
            system=found.system,
            messages=found.messages,
            notices=found.notices,
            originals=found.originals,
            head=found.head,
        )

    async def _accept(self, part: InlinePart) -> StoredUpload:
        """Store a medium, or find it in the store: clients send all media again with each request."""
        try:
            return await self._intake.reuse(self._kept.get(part.digest, part.digest), part.name)
        except NotFound:
            taken = await self._intake.accept(part, part.name)
        if taken.media.digest != part.digest:
            self._kept[part.digest] = taken.media.digest
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return taken

    # Store -----------------------------------------------------------------------------------------------------------

    async def place(self, key: str, system: str, messages: Sequence[Message], *, model: str) -> PlacedHistory:
        """Find the conversation `key` in the store, and begin to store what is new of it: the request can be compiled
        meanwhile. The session continues with the system prompt of the newest request."""
        stored = await self._session(key)
        if stored is None:
            return await self._begin(key, system, messages, model)
        is_new_system = stored.settings.get(SYSTEM) != system
        if is_new_system:
            stored = msgspec.structs.replace(stored, settings={**stored.settings, SYSTEM: system})
        plan = await self._locate(stored, messages)

        async def write() -> str:
            # Both are queued at once: they share a commit.
            jobs = [self._write(plan)]
            if is_new_system:
                jobs.append(self.learn(stored.id, SessionChange(settings={SYSTEM: system})))
            await asyncio.gather(*jobs)
            return stored.id

        return await self._place(stored, self._remember(plan.path), write())

    async def _begin(self, key: str, system: str, messages: Sequence[Message], model: str) -> PlacedHistory:
        """Begin a conversation: its session, its name and its messages are one commit."""
        now = time.time()
        root = root_node(system, now)
        title, settings = _title(messages), {"origin": "gateway", SYSTEM: system}
        drafts = drafts_of(messages)
        path = (root, *nodes_of_drafts(root, drafts, now))
        create = self._sessions.creation(system=system, title=title, model=model, settings=settings, drafts=drafts)

        async def write() -> str:
            try:
                session = await self.records.begin_session(key, create)
            except Conflict:
                session = await self.records.session_of(key)
                await self.append(session, messages)
            self._remember_session(key, session)
            return session

        begun = StoredSession(
            id="",
            title=title,
            root_id=root.id,
            head_id=path[-1].id,
            model=model,
            workspace="",
            overrides={},
            watermark={},
            quarantine={},
            settings=settings,
            archived=False,
            last_seq=0,
            rev=0,
            created_at=now,
            updated_at=now,
        )
        return await self._place(begun, self._remember(path), write())

    async def _place(
        self, stored: StoredSession, path: tuple[Node, ...], write: Coroutine[Any, Any, str]
    ) -> PlacedHistory:
        root, *nodes = path
        calibrations = await self._calibrations.load()
        snapshot = snapshot_of(stored, root.system or "", tuple(map(placed_node, nodes)), calibrations)
        return PlacedHistory(snapshot, path, asyncio.create_task(write))

    async def _session(self, key: str) -> StoredSession | None:
        """Return the session of a conversation; None if there is none, or it was deleted."""
        if known := self._session_ids.get(key):
            self._session_ids.move_to_end(key)
            with contextlib.suppress(NotFound):
                return await self._sessions.get(known)
        session = await self.records.session_of(key)
        if not session:
            return None
        self._remember_session(key, session)
        return await self._sessions.get(session)

    def _remember_session(self, key: str, session: str) -> None:
        self._session_ids[key] = session
        if len(self._session_ids) > _MAX_KEPT:
            self._session_ids.popitem(last=False)

    async def learn(self, session: str, change: SessionChange) -> None:
        """Store what an answer or a refusal revealed about the model."""
        await self._sessions.update(
            session, settings=change.settings, quarantine=change.quarantine, watermark=change.watermark
        )

    async def append(self, session: str, messages: Sequence[Message], meta: Mapping[str, Any] | None = None) -> str:
        """Append what is new of a history and return the node of its last message."""
        plan = await self._locate(await self._sessions.get(session), messages, meta)
        await self._write(plan)
        return self._remember(plan.path)[-1].id

    def answer_write(
        self, history: PlacedHistory, message: Message, meta: Mapping[str, Any]
    ) -> tuple[str, Coroutine[Any, Any, None]]:
        """Return the node of the answer to a history, and what stores it there. Where a parallel request has moved the
        head, the answer is a branch."""
        last = history.path[-1]
        plan = _plan(history.session, last.id, history.path, [message], meta)
        return self._remember(plan.path)[-1].id, self._write(plan)

    async def _locate(
        self, stored: StoredSession, messages: Sequence[Message], meta: Mapping[str, Any] | None = None
    ) -> _AppendPlan:
        """Find what is stored of a history, and where the rest of it belongs."""
        session, head = stored.id, stored.head_id
        found = self._paths.get(head)
        root, *nodes = self._remember(await self._forest.path(head) if found is None else found)
        common = count_common(messages, nodes)
        path, rest = [root, *nodes[:common]], list(messages[common:])
        while rest and common < len(nodes):
            below = await self._forest.children(path[-1].id, session_id=session)
            same = next((node for node in below if node.message and is_same(rest[0], node.message)), None)
            if same is None:
                break
            path, rest = [*path, same], rest[1:]
        return _plan(session, head, path, rest, meta)

    async def _write(self, plan: _AppendPlan) -> None:
        """Append the new messages. The head moves to the last one, unless a parallel request has moved it: then both
        are branches."""
        session, head, parent = plan.session, plan.head, plan.path[plan.stored - 1].id
        if plan.new and parent == head:
            with contextlib.suppress(Conflict):
                await self._sessions.append_to_head(session, plan.new, expected_head=head, meta=plan.meta)
                return
        if plan.new:
            await self._sessions.append_branch(session, parent, plan.new, meta=plan.meta)
        if plan.path[-1].id != head:
            with contextlib.suppress(Conflict):
                await self._sessions.move_head(session, head, plan.path[-1].id)

    def _remember(self, path: tuple[Node, ...]) -> tuple[Node, ...]:
        last = path[-1]
        self._paths.pop(last.parent_id or "", None)
        self._paths[last.id] = path
        self._paths.move_to_end(last.id)
        if len(self._paths) > _MAX_PATHS:
            self._paths.popitem(last=False)
        return path

    async def path(self, node: str) -> tuple[Message, ...]:
        """Return the messages down to a node."""
        _, *nodes = await self._forest.path(node)
        return tuple(node.message for node in nodes if node.message is not None)

    async def message(self, node: str) -> Message | None:
        return (await self._forest.node(node)).message

    async def file_part(self, client: str, file_id: str) -> StoredPart | None:
        """Return a file that the client uploaded, for use in a request; None if the client has no such file."""
        found = await self.records.file(client, file_id)
        if found is None:
            return None
        return StoredPart(
            digest=found.digest,
            name=found.name,
            media_type=found.media_type,
            load=self._media.load,
        )

    async def answer(self, answer_id: str) -> GatewayAnswer | None:
        return await self.records.answer(answer_id)


def count_common(messages: Sequence[Message], path: Sequence[Node]) -> int:
    """Return how many messages, from the first one, are the same as on a stored path."""
    common = 0
    for message, node in zip(messages, path, strict=False):
        if node.message is None or not is_same(message, node.message):
            break
        common += 1
    return common


def has_notice(message: Message) -> bool:
    """Return whether a message contains the line about a reduction, which the model did not write."""
    if message.role != "assistant":
        return False
    return any(isinstance(block, TextBlock) and _INLINE.match(block.text) for block in message.blocks)


def is_same(sent: Message, stored: Message) -> bool:
    """Return whether a client's message is the stored one, apart from parts that clients do not keep."""
    if sent.role != stored.role:
        return False
    return sent == stored or (sent.role == "assistant" and _visible_parts(sent) == _visible_parts(stored))


def _visible_parts(message: Message) -> tuple[object, ...]:
    """Return the text and the calls of a message, in order. Neighbouring texts are joined, because protocols join and
    split them. The line about a reduction is removed."""
    found: list[object] = []
    words: list[str] = []
    for block in message.blocks:
        match block:
            case TextBlock(text=text):
                words.append(_INLINE.sub("", text, count=1))
            case ThinkingBlock() | UnknownBlock():
                continue  # clients of other protocols do not receive provider-specific blocks
            case ToolCall():
                found += _join_words(words)
                words = []
                found.append((block.id, block.name, msgspec.json.encode(block.arguments, order="sorted")))
            case _:
                found.append(block)
    return (*found, *_join_words(words))


def _join_words(words: Sequence[str]) -> list[str]:
    text = "".join(words).strip()
    return [text] if text else []


def _title(messages: Sequence[Message]) -> str:
    for message in messages:
        for block in message.blocks:
            if message.role == "user" and isinstance(block, TextBlock) and not block.text.lstrip().startswith("<"):
                return " ".join(block.text.split())[:_TITLE_CHARS]
    return ""
