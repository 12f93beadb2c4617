"""LocalSession: the `Session` protocol on the stores of this process. `SessionTurns` runs its turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.agent.ports import SessionRecord
from loom.agent.services import Services
from loom.agent.session import SessionTurns
from loom.api_types import MediaText, OverrideChoice, SessionUsage, SessionView, TreeView
from loom.compile.policy import Override, alt_key, overrides_of
from loom.compile.request import NextRequest, SettleMode, Snapshot
from loom.content.inputs import Content
from loom.content.media import is_digest
from loom.content.messages import Message
from loom.errors import ConfigError, Conflict, ContentError, LoomError, NotFound, ToolError
from loom.estimates import Estimate
from loom.events import Event, MessageQueued, NoticeRaised, decode_event
from loom.message_types import History, MessageQuery, MessageView, PlanModel, PlanRow, PlanView, WireView
from loom.models import Model
from loom.prompt import Receipt
from loom.runtime.agents import AGENT
from loom.runtime.estimator import estimate_requests, is_warm, with_estimate
from loom.runtime.history import read_history
from loom.runtime.plan_table import add_rows, failed_model, last_rows, no_request, plan_model
from loom.runtime.record import encode_for_log
from loom.runtime.request_previews import RequestPreviews
from loom.runtime.session_settings import settings_change, system_prompt_of
from loom.runtime.views import process_views, running_turn, siblings_of, tree_node, usage_of
from loom.runtime.workspace_files import find_files
from loom.sampling import Choices, Sampling, sampling_of
from loom.session import PARENT_SESSION, ExportFormat, MediaBytes, NumberedEvent, Queued
from loom.store.events import EncodedEvents
from loom.store.forest import NodeTree
from loom.store.nodes import Node
from loom.store.session_rows import StoredSession, stale_session
from loom.tools.background import BackgroundProcess
from loom.work_types import ProcessView

if TYPE_CHECKING:
    from loom.runtime.library import LocalLibrary

MAX_CAPTION_CHARACTERS: Final = 20_000
MAX_CAPTIONS: Final = 100
MAX_OVERRIDES: Final = 1_000
_MAX_KEY_CHARACTERS: Final = 300
_TRIES: Final = 5
_POLL_SECONDS: Final = 0.25
"""How often `watch` reads events that another process may have written."""


class _PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """How a planned request differs from the session as it is."""

    draft: tuple[Message, ...] = ()
    overrides: Mapping[str, Override] | None = None
    max_tokens: int | None = None
    sampling: Sampling | None = None
    mode: SettleMode = "preview"
    is_compact: bool = False
    at: str = ""
    system: str | None = None
    tools: tuple[str, ...] | None = None

    def keeps(self, snapshot: Snapshot) -> bool:
        """Return whether the planned request is the one that the session sends anyway."""
        is_same_path = not self.is_compact and not self.at and self.system is None and self.tools is None
        is_same_form = self.overrides is None or dict(self.overrides) == dict(snapshot.overrides)
        return is_same_path and is_same_form and self.max_tokens is None


class LocalSession(SessionTurns):
    """A session of this process."""

    def __init__(
        self,
        library: LocalLibrary,
        record: SessionRecord,
        services: Services,
        stored: StoredSession,
        *,
        notices: Sequence[str] = (),
        tools: Sequence[str] | None = None,
    ) -> None:
        chosen = library.session_services(services, stored.settings, stored.workspace)
        super().__init__(record, chosen, notices=notices, tools=tools)
        self.workspace = stored.workspace
        """The folder of the session when it was opened."""
        self._all_services = services
        self._library = library
        self._stores = library.stores

    @property
    def previews(self) -> RequestPreviews:
        """The requests that the session sends."""
        return RequestPreviews(self._record, self._services, self._tools)

    # State -----------------------------------------------------------------------------------------------------------

    async def info(self) -> SessionView:
        return await self._library.info(self.id)

    async def history(self, *, before: str = "", head: str = "", limit: int = 200) -> History:
        query = MessageQuery(before=before, head=await self._own_node(head) if head else "", limit=limit)
        return await read_history(self._stores, self._library.views, self.id, query)

    async def tree(self) -> TreeView:
        stored = await self._read_stored()
        found = await self._stores.forest.read_tree(self.id)
        if found.damaged:
            await self._stores.forest.path(stored.head_id)  # raises an error that names the damage if it is on the path
        return TreeView(stored.root_id, stored.head_id, tuple(tree_node(node) for node in found.nodes))

    async def children(self, node: str) -> tuple[MessageView, ...]:
        found = await self._stores.forest.children(await self._own_node(node), session_id=self.id)
        return await self._library.views.messages(found, siblings_of(found))

    async def usage(self) -> SessionUsage:
        stored = await self._read_stored()
        nodes = await self._stores.forest.tree(self.id)
        return usage_of(await self._library.views.messages(nodes, {}), stored.head_id)

    async def read_path(self) -> tuple[Node, ...]:
        """Return the nodes of the messages from the root to the head, with everything stored for each."""
        nodes = await self._stores.forest.path((await self._read_stored()).head_id)
        return tuple(node for node in nodes if node.message is not None)

    async def read_tree(self) -> NodeTree:
        """Return the nodes of all branches, and those that are damaged."""
        return await self._stores.forest.read_tree(self.id)

    async def is_running(self) -> bool:
        """Return whether a live process runs a turn of this session."""
        return bool(await self._stores.leases.holder(self.id))

    async def _read_stored(self) -> StoredSession:
        return await self._stores.sessions.get(self.id)

    async def _own_node(self, node: str) -> str:
        """Return the full id of a node of this session; raise `NotFound` if the session has no such node."""
        found = (await self._stores.forest.node(node)).id
        if not await self._stores.sessions.keeps(self.id, found):
            raise NotFound("That message is not part of this session.", hint="Show its tree: `loom tree`.")
        return found

    # Turns -----------------------------------------------------------------------------------------------------------

    async def watch(self, after: int | None = None) -> AsyncGenerator[NumberedEvent]:
        log = self._stores.events
        seq = await log.head(self.id) if after is None else after
        has_news = asyncio.Event()

        def on_events(session: str, _: int, __: Sequence[tuple[str, bytes]]) -> None:
            if session == self.id:
                has_news.set()

        log.subscribe(on_events)
        try:
            while True:
                has_news.clear()
                while events := await log.after(self.id, seq):
                    for stored in events:
                        seq = stored.seq
                        yield seq, _event(seq, stored.data)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await has_news.wait()
        finally:
            log.unsubscribe(on_events)

    async def cancel(self, turn: str = "") -> None:
        if not turn or turn == running_turn(await self._read_stored()).get("turn"):
            await super().cancel()

    async def remove_queued(self, queued: str) -> None:
        if not await self._stores.queue.remove(self.id, queued):
            raise NotFound("That message is no longer queued.", hint="Its turn has started, or it was removed.")

    async def pause_queue(self, *queued: str) -> None:
        await self._set_paused(queued, is_paused=True)

    async def resume_queue(self, *queued: str) -> None:
        await self._set_paused(queued, is_paused=False)

    async def _set_paused(self, queued: Sequence[str], *, is_paused: bool) -> None:
        shown: list[Event] = []

        def encode(changed: Sequence[Queued]) -> EncodedEvents:
            shown[:] = [
                MessageQueued(message=one.message, id=one.id, steers=one.options.steers, paused=is_paused)
                for one in changed
                if one.message is not None
            ]
            return encode_for_log(shown)

        seq = await self._stores.queue.set_paused(self.id, queued, is_paused=is_paused, events=encode)
        if shown:
            self._stores.events.publish(self.id, seq, shown)

    # Changes ---------------------------------------------------------------------------------------------------------

    async def change(
        self,
        *,
        title: str | None = None,
        model: str | None = None,
        workspace: str | None = None,
        archived: bool | None = None,
        folder: str | None = None,
        tags: Sequence[str] | None = None,
        pinned: bool | None = None,
        agent: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        plan_mode: bool | None = None,
        rev: int | None = None,
    ) -> SessionView:
        if model:
            self._library.check_model(model)
        if workspace is not None:
            workspace = await asyncio.to_thread(existing_folder, workspace)
        if agent:
            await self._library.check_agent(agent, self.workspace if workspace is None else str(workspace))
        settings = settings_change(system, tools, plan_mode) | ({} if agent is None else {AGENT: agent or None})
        changes: dict[str, Any] = {
            "title": title,
            "model": model or None,
            "workspace": workspace,
            "archived": archived,
            "folder": folder,
            "tags": tags,
            "pinned": pinned,
            "settings": settings or None,
        }
        self._check_rev(await self._read_stored(), rev)
        if any(value is not None for value in changes.values()):
            stored = await self._stores.sessions.update(self.id, rev=rev, **changes)
            self._services = self._library.session_services(self._all_services, stored.settings, stored.workspace)
        return await self.info()

    async def rename(self, title: str) -> None:
        await self.change(title=title)

    async def go(self, node: str, *, rev: int | None = None) -> None:
        self._check_rev(await self._read_stored(), rev)
        await super().go(await self._own_node(node))

    def _check_rev(self, stored: StoredSession, rev: int | None) -> None:
        if rev is not None and rev != stored.rev:
            raise stale_session()

    async def fork(self, node: str | None = None, *, title: str | None = None) -> LocalSession:
        at = await self._own_node(node) if node else None
        made = await self._stores.sessions.fork(self.id, at, title=title)
        if running_turn(made) or made.parent_session:  # they belong to the original session
            await self._stores.sessions.update(made.id, settings={"running": None, PARENT_SESSION: None})
        return await self._library.open(made.id, tools=self._tools)

    async def mark(self, node: str, *, bookmark: str | None = None, tags: Sequence[str] | None = None) -> None:
        own = await self._own_node(node)
        if bookmark is not None:
            await self._stores.forest.set_bookmark(own, bookmark)
        if tags is not None:
            await self._stores.forest.set_tags(own, tags)

    async def delete(self) -> int:
        return await self._library.delete(self.id)

    # The agent's work ------------------------------------------------------------------------------------------------

    def background_processes(self) -> tuple[BackgroundProcess, ...]:
        """Return the background processes that this session started in this process of Loom."""
        return self._services.background(self.id).list_processes()

    async def stop_process(self, name: str) -> None:
        """Stop a background process; raise `NotFound`, with the known names, for an unknown one."""
        try:
            await self._services.background(self.id).get(name).stop()
        except ToolError as error:
            raise NotFound(error.message) from None

    async def processes(self) -> tuple[ProcessView, ...]:
        return await process_views(self.id, self.background_processes())

    # The next request ------------------------------------------------------------------------------------------------

    async def plan(
        self,
        models: Sequence[str] = (),
        *,
        content: Sequence[Content] = (),
        overrides: Mapping[str, OverrideChoice] | None = None,
        cheaper: bool = False,
    ) -> tuple[Receipt, ...]:
        return tuple(request.receipt for request in await self.plan_requests(models, content, overrides, cheaper))

    async def plan_requests(
        self,
        models: Sequence[str] = (),
        content: Sequence[Content] = (),
        overrides: Mapping[str, OverrideChoice] | None = None,
        cheaper: bool = False,
    ) -> tuple[NextRequest, ...]:
        """Return the next requests to these models, with estimates; see `plan`."""
        change = _PlannedChange(draft=await self.previews.draft(content))
        if overrides is not None:
            chosen, _ = overrides_of(_without_auto({**(await self._read_stored()).overrides, **overrides}))
            change = msgspec.structs.replace(change, overrides=chosen)
        requests = {name: await self._compile(name, change) for name in dict.fromkeys(models or ("",))}
        found = await self._estimate(requests, change, cheaper=cheaper)
        return tuple(with_estimate(requests[name], found[name]) for name in models or ("",))

    async def plan_table(
        self,
        models: Sequence[str] = (),
        *,
        content: Sequence[Content] = (),
        overrides: Mapping[str, OverrideChoice] | None = None,
        max_tokens: int | None = None,
        last: bool = False,
        sent: bool = False,
        thinking: str = "",
        options: Choices = None,
        cheaper: bool = False,
        compact: bool = False,
        at: str = "",
        system: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> PlanView:
        stored = await self._read_stored()
        chosen, _ = overrides_of(_without_auto({**stored.overrides, **(overrides or {})}))
        change = _PlannedChange(
            draft=await self.previews.draft(content),
            overrides=chosen,
            max_tokens=max_tokens,
            sampling=sampling_of(options, thinking=thinking),
            mode="estimate",
            is_compact=compact,
            at=await self._own_node(at) if at else "",
            system=system,
            tools=None if tools is None else tuple(tools),
        )
        planned: dict[str, PlanModel] = {}
        rows: dict[tuple[int, int, int], PlanRow] = {}
        requests: dict[str, NextRequest] = {}
        last_requests: dict[str, NextRequest | None] = {}
        is_empty = not change.draft and stored.head_id == stored.root_id
        for name in dict.fromkeys(models or (stored.model,)):
            try:
                if is_empty:
                    planned[name] = no_request(await self._services.resolve_model(name))
                    continue
                before = await self.previews.last_request(name, mode="estimate") if sent or last else None
                request = before if sent else None
                requests[name] = await self._compile(name, change) if request is None else request
                last_requests[name] = before
            except LoomError as error:
                planned[name] = failed_model(error)
        estimates = await self._estimate(requests, change, cheaper=cheaper)
        for name, request in requests.items():
            planned[name] = plan_model(request, estimates[name])
            if last:
                planned[name] = msgspec.structs.replace(planned[name], last=last_rows(last_requests[name]))
            add_rows(rows, request, name)
        ordered = {name: planned[name] for name in dict.fromkeys(models or (stored.model,))}
        return PlanView(models=ordered, rows=tuple(rows[place] for place in sorted(rows)), rev=stored.rev)

    async def _compile(self, model: str, change: _PlannedChange) -> NextRequest:
        if change.is_compact:
            return await self.previews.summary_request(model, mode=change.mode)
        services, system = None, change.system
        if change.system is not None or change.tools is not None:
            settings = (await self._read_stored()).settings
            merged = {**settings, **settings_change(change.system, change.tools)}
            changed = {name: value for name, value in merged.items() if value is not None}
            services = self._library.session_services(self._all_services, changed, self.workspace)
            if change.system is not None:
                root = await self._stores.forest.node((await self._read_stored()).root_id)
                system = system_prompt_of(changed, root.system)
        return await self.previews.next_request(
            model,
            draft=change.draft,
            overrides=change.overrides,
            max_tokens=change.max_tokens,
            at=change.at,
            mode=change.mode,
            sampling=change.sampling,
            system=system,
            services=services,
        )

    async def _estimate(
        self, requests: Mapping[str, NextRequest], change: _PlannedChange, *, cheaper: bool
    ) -> dict[str, Estimate]:
        """Return what each request costs, and the cache that it discards. With `cheaper`, search a cheaper model for
        the first one."""

        async def compile_for(model: Model) -> NextRequest:
            return await self._compile(model.alias or model.reference, change)

        found = await estimate_requests(
            tuple(requests.values()),
            self._services.price,
            unchanged=await self._unchanged_request(requests, change),
            is_compact=change.is_compact,
            candidates=self._library.usable_models if cheaper else None,
            compile_for=compile_for,
        )
        return dict(zip(requests, found, strict=True))

    async def _unchanged_request(
        self, requests: Mapping[str, NextRequest], change: _PlannedChange
    ) -> NextRequest | None:
        """Return the next request to the session's own model without a change, if its provider has a part of it cached.
        It is compiled only if it is not one of `requests`."""
        snapshot = await self.snapshot()
        try:
            model = await self._services.resolve_model(snapshot.model)
        except LoomError:  # no longer configured: nothing is sent to it
            return None
        if not is_warm(snapshot, model):
            return None
        own = next((request for request in requests.values() if request.input.model.reference == model.reference), None)
        if own is not None and change.keeps(snapshot):
            return own
        same = _PlannedChange(draft=() if change.is_compact else change.draft, mode=change.mode)
        return await self._compile("", same)

    async def wire(self, model: str = "", *, thinking: str = "", options: Choices = None) -> WireView:
        from loom.providers.http import WIRES
        from loom.providers.media_body import elide_media

        if not await self.path():
            raise ContentError("The session has no messages yet: nothing to send.")
        request = await self.previews.next_request(model, sampling=sampling_of(options, thinking=thinking))
        found = request.prompt.model
        if found.wire not in WIRES:
            raise ConfigError(f"{found.reference} runs inside Loom: it sends no request.", hint="Choose another model.")
        body = elide_media(WIRES[found.wire].encode(request.prompt))
        return WireView(found.provider, found.name, body, request.receipt.notices)

    async def overrides(self) -> Mapping[str, OverrideChoice]:
        chosen, _ = overrides_of((await self._read_stored()).overrides)
        return dict(chosen)

    async def set_overrides(self, changes: Mapping[str, OverrideChoice], *, rev: int | None = None) -> SessionView:
        _, captions = overrides_of(changes)
        is_named = all(0 < len(key) <= _MAX_KEY_CHARACTERS for key in changes)
        if captions or len(changes) > MAX_OVERRIDES or not is_named:
            raise ContentError(f"Overrides use the keys of the plan's rows, {MAX_OVERRIDES:,} at most.")
        return await self._merge({key: None if value == "auto" else value for key, value in changes.items()}, rev)

    async def set_captions(self, changes: Mapping[str, str], *, rev: int | None = None) -> SessionView:
        if len(changes) > MAX_CAPTIONS:
            raise ContentError(f"At most {MAX_CAPTIONS} text alternatives can be set at once.")
        merged: dict[str, str | None] = {}
        for digest, text in changes.items():
            if len(text) > MAX_CAPTION_CHARACTERS:
                raise ContentError(f"A text alternative has at most {MAX_CAPTION_CHARACTERS:,} characters.")
            if text.strip():
                await self._library.forms.check_exists(digest)
            elif not is_digest(digest):
                raise NotFound("Media not found.", hint="A text alternative belongs to the digest of a stored medium.")
            merged[alt_key(digest)] = text.strip() or None
        return await self._merge(merged, rev)

    async def _merge(self, changes: Mapping[str, str | None], rev: int | None) -> SessionView:
        """Merge overrides into those of the session; None removes one."""
        for _ in range(_TRIES):
            stored = await self._read_stored()
            self._check_rev(stored, rev)
            kept = {key: value for key, value in {**stored.overrides, **changes}.items() if value is not None}
            with suppress(Conflict):  # another client changed it meanwhile: merge again with its changes
                await self._stores.sessions.update(self.id, rev=stored.rev, overrides=kept)
                return await self.info()
        raise Conflict("Other clients keep changing this session.", hint="Try again.")

    # Content ---------------------------------------------------------------------------------------------------------

    async def open_media(self, digest: str, form: str = "full") -> MediaBytes:
        await self._check_own_media(digest)
        return await self._library.forms.open(digest, form, self)

    async def media_text(self, digest: str, *, page: int = 0) -> MediaText:
        await self._check_own_media(digest)
        return await self._library.forms.text(digest, page)

    async def _check_own_media(self, digest: str) -> None:
        if digest not in await self._stores.sessions.digests(self.id):
            raise NotFound("Media not found in this session.", hint="Show its tree: `loom tree`.")

    async def files(self, query: str = "") -> tuple[str, ...]:
        workspace = (await self._read_stored()).workspace
        return await asyncio.to_thread(find_files, Path(workspace) if workspace else Path.cwd(), query)

    async def export(self, format: ExportFormat = "md") -> bytes:  # noqa: A002  the option has this name everywhere
        return await self._library.export(await self._read_stored(), format)


def existing_folder(written: str) -> str:
    """Return the absolute path of a folder; raise `ContentError` if it does not exist. An empty path stays empty."""
    if not written:
        return ""
    try:
        folder = Path(written).expanduser()
        if folder.is_absolute() and folder.is_dir():
            return str(folder)
    except (OSError, ValueError, RuntimeError):
        pass
    raise ContentError("The workspace must be the absolute path of an existing folder.")


def _without_auto(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in overrides.items() if value != "auto"}


def _event(seq: int, data: bytes) -> Event:
    try:
        return decode_event(data)
    except ContentError:
        return NoticeRaised(text=f"Event {seq} of this session is damaged.", code="event.damaged")
