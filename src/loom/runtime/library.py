"""LocalLibrary: the `Library` protocol on the stores of this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from loom.agent.ingest import ingest
from loom.agent.plan_mode import is_planning, plan_tools
from loom.agent.services import Services
from loom.api_types import (
    AgentView,
    AudioLimits,
    CapabilityView,
    CommandView,
    ConfigView,
    DescriptionView,
    DocumentLimits,
    FolderList,
    FolderTrustView,
    ImageLimits,
    MediaText,
    MediaView,
    MessagePlace,
    ModelList,
    ModelView,
    SearchResult,
    SessionPage,
    SessionView,
    ShareView,
    ToolView,
    UploadLimits,
    UsageReport,
)
from loom.compile.renditions import Renditions
from loom.compile.request import NextRequest, Snapshot, next_request
from loom.config import redact
from loom.content.blocks import ContentBlock, DocumentBlock
from loom.content.inputs import Content, Ingested
from loom.content.media import Media
from loom.content.messages import Message
from loom.content.recipes import Text
from loom.content.wire_forms import FORM_KEY, WireForm
from loom.errors import ConfigError, ContentError, Corrupt, NotFound, Unsupported
from loom.library import LATEST, find_session
from loom.message_types import ImportReport, ImportView, SessionApprovals
from loom.models import Model, Usage
from loom.runtime.agents import agent_model, agent_tools, find_agent, list_agents, session_services
from loom.runtime.draft_media import DraftMedia, draft_media
from loom.runtime.estimator import usable_models
from loom.runtime.fetched_file import fetch_file
from loom.runtime.media_forms import MediaForms
from loom.runtime.media_intake import MediaIntake, StoredUpload
from loom.runtime.model_resolution import BUILT_IN_MODEL, FIRST_CHOICES, lacks_key, price
from loom.runtime.record import SessionStores
from loom.runtime.session import LocalSession, existing_folder
from loom.runtime.usage import usage_report
from loom.runtime.views import Views, running_turn
from loom.sampling import Sampling
from loom.session import ExportFormat, MediaBytes
from loom.store.media_text import MediaTexts
from loom.store.session_rows import StoredSession
from loom.store.shares import Share, Shares
from loom.store.sweep import delete_unused

if TYPE_CHECKING:
    from loom.providers.media_body import MediaSource
    from loom.runtime import Runtime
    from loom.store.text_index import IndexReport

_HITS_PER_SESSION = 4


class LocalLibrary:
    """The library of this process. It shares `intake`, `forms` and `views` with the sessions and the daemon."""

    def __init__(self, runtime: Runtime, stores: SessionStores) -> None:
        self.stores = stores
        self.views = Views(stores.forest, stores.queue, self.usd)
        self.intake = MediaIntake(runtime.stores.media, runtime.config.media_limits())
        self.forms = MediaForms(runtime, self.intake)
        self._runtime = runtime

    # Sessions --------------------------------------------------------------------------------------------------------

    async def sessions(
        self,
        *,
        query: str = "",
        archived: bool = False,
        folder: str | None = None,
        tag: str = "",
        pinned: bool | None = None,
        limit: int = 50,
        before: str = "",
    ) -> SessionPage:
        queued = await self.views.queued_sessions()
        last: StoredSession | None = None
        if query:
            found = [
                stored
                for stored in await self._matches(query, limit)
                if stored.archived == archived
                and folder in (None, stored.folder)
                and (not tag or tag in stored.tags)
                and pinned in (None, stored.pinned)
            ]
        else:
            place = _cursor(before) if before else None
            kept = self.stores.sessions.list(
                archived=archived, folder=folder, tag=tag, pinned=pinned, limit=limit, before=place
            )
            found = list(await kept)
            last = found[-1] if len(found) == limit else None
        return SessionPage(await self.views.sessions(found, queued), session_cursor(last) if last else None)

    async def _matches(self, query: str, limit: int) -> list[StoredSession]:
        hits = await self.search(query, limit=limit * _HITS_PER_SESSION)
        found: list[StoredSession] = []
        for session_id in list(dict.fromkeys(hit.session for hit in hits))[:limit]:
            with suppress(NotFound, Corrupt):  # deleted since, or damaged, which the full list shows
                found.append(await self.stores.sessions.get(session_id))
        return found

    async def info(self, session_id: str) -> SessionView:
        """Return the current view of a session, without opening it."""
        queued = await self.views.queued_sessions()
        return await self.views.session(await self.stores.sessions.get(session_id), queued)

    async def open(self, session_id: str, *, tools: Sequence[str] | None = None) -> LocalSession:
        return await self._runtime.sessions.open(session_id, tools=tools)

    async def find(self, text: str = LATEST, *, workspace: str = "") -> SessionView:
        queued = await self.views.queued_sessions()
        found = await find_session(self.stores.sessions.list_all(), text, workspace=workspace)
        return await self.views.session(found, queued)

    async def find_message(self, node: str) -> MessagePlace:
        found = (await self.stores.forest.node(node)).id
        async for stored in self.stores.sessions.list_all():
            if await self.stores.sessions.keeps(stored.id, found):
                return MessagePlace(found, await self.info(stored.id))
        raise NotFound("No session contains this message.", hint="List messages: `loom tree`.")

    async def create(
        self,
        *,
        title: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        agent: str = "",
        tools: Sequence[str] | None = None,
    ) -> LocalSession:
        if model:
            self.check_model(model)
        return await self._runtime.session(
            title=title,
            agent=agent,
            model=model or ("" if agent else await self._runtime.models.default()),
            system=system,
            workspace=await asyncio.to_thread(existing_folder, workspace),
            tools=tools,
        )

    async def import_messages(
        self,
        messages: Sequence[Message],
        *,
        title: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        forms: Mapping[int, WireForm] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> ImportView:
        """Store messages as a session. `forms` are messages in their original form, by position; `options` apply to the
        whole session. Raise `ContentError` if there are no messages."""
        if not messages:
            raise ContentError("The conversation has no messages.")
        folder = await asyncio.to_thread(existing_folder, workspace) or str(Path.cwd())
        root = await self.stores.forest.root(system)
        shared = await self._count_shared(root.id, messages)
        metas = (
            [{FORM_KEY: msgspec.to_builtins(forms[at])} if at in forms else {} for at in range(len(messages))]
            if forms
            else ()
        )
        nodes = await self.stores.forest.append(root.id, messages, metas=metas)
        existing = await self.stores.sessions.with_head(nodes[-1].id)
        if existing is not None:
            return ImportView(session=await self.info(existing.id), is_new=False, shared=shared)
        chosen = model or await self._runtime.models.default()
        settings = {"options": dict(options)} if options else {}
        made = await self.stores.sessions.create(
            system=system, title=title, model=chosen, workspace=folder, settings=settings
        )
        await self.stores.sessions.append_to_head(made.id, messages)
        return ImportView(session=await self.info(made.id), is_new=True, shared=shared)

    async def import_file(self, source: Path | bytes, name: str = "") -> ImportReport:
        from loom.runtime.imports import import_file

        roots = (source.parent, Path.cwd()) if isinstance(source, Path) else ()
        return await import_file(self._runtime, source, name, roots=roots)

    async def _count_shared(self, root_id: str, messages: Sequence[Message]) -> int:
        """Return how many messages, from the first one, are already stored."""
        at = root_id
        for count, message in enumerate(messages):
            known = next((node for node in await self.stores.forest.children(at) if node.message == message), None)
            if known is None:
                return count
            at = known.id
        return len(messages)

    async def refers_to(self, session_id: str, digest: str) -> bool:
        """Return whether a message of a session, on any branch or queued, refers to these bytes."""
        return digest in await self.stores.sessions.digests(session_id)

    async def delete(self, session_id: str) -> int:
        """Delete a session and the media that only it used, here and at providers; return the bytes freed here."""
        since = datetime.now(UTC)
        stores = self._runtime.stores
        digests = await stores.sessions.delete(session_id)
        await self._runtime.processes.end(session_id)
        freed = await delete_unused(
            stores.media, stores.derived, digests, stores.sessions.media_in_use, unless_since=since
        )
        self.views.drop(session_id)
        self.intake.drop(digests)
        self._runtime.settler.drop(digests)
        await self._runtime.upkeep.delete_uploads_of(digests)
        return freed

    async def folders(self) -> FolderList:
        sessions = self.stores.sessions
        return FolderList(folders=await sessions.folders(), tags=await sessions.tags())

    async def share(self, session_id: str, *, days: float = 0) -> ShareView:
        stored = await self.stores.sessions.get(session_id)
        made, secret = await Shares(self._runtime.stores.database).create(stored.id, stored.head_id, days=days)
        return _share_view(made, f"/share/{secret}")

    async def shares(self, session_id: str) -> tuple[ShareView, ...]:
        stored = await self.stores.sessions.get(session_id)
        return tuple(_share_view(made) for made in await Shares(self._runtime.stores.database).list(stored.id))

    async def unshare(self, session_id: str, share_id: str) -> None:
        await Shares(self._runtime.stores.database).delete(session_id, share_id)

    async def shared_page(self, secret: str) -> bytes:
        """Return the HTML page of a shared conversation, without its system prompt. Raise `NotFound` if the link does
        not exist."""
        from loom.runtime.export import export_page

        found = await Shares(self._runtime.stores.database).find(secret)
        session = await self.stores.sessions.get(found.session_id)
        return await export_page(self._runtime, session, found.node, "html", with_system=False)

    async def search(self, text: str, *, limit: int = 20, per_session: int = 3) -> tuple[SearchResult, ...]:
        """Search all messages; return at most `per_session` results for one session."""
        from loom.store.search import search_messages

        found = await search_messages(self._runtime.stores.database, text, limit=limit, per_session=per_session)
        return tuple(
            SearchResult(
                session=hit.session,
                title=hit.title,
                node=hit.node,
                role=hit.role,
                snippet=redact(hit.snippet),
                media=hit.media or None,
                where=hit.where,
            )
            for hit in found
        )

    async def index_media(
        self,
        *,
        pictures: bool = False,
        seconds: float | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> IndexReport:
        """Extract the text of media that are not indexed yet, newest first, for at most `seconds`. With `pictures`,
        images are read by OCR; `on_progress` receives how many are done, and the total."""
        from loom.store.text_index import index_media

        return await index_media(
            MediaTexts(self._runtime.stores.database),
            self._runtime.stores.media,
            self._runtime.stores.derived,
            limits=self._runtime.config.media_limits(),
            pictures=pictures,
            seconds=seconds,
            on_progress=on_progress,
        )

    async def approvals(self) -> tuple[SessionApprovals, ...]:
        found: list[SessionApprovals] = []
        async for stored in self.stores.sessions.list_all():
            if running_turn(stored).get("approvals"):
                with suppress(NotFound):
                    pending = await (await self.open(stored.id)).approvals()
                    if pending:
                        found.append(SessionApprovals(session=await self.info(stored.id), approvals=pending))
        return tuple(found)

    async def export(self, stored: StoredSession, form: ExportFormat) -> bytes:
        """Return the path of a session as a file."""
        from loom.runtime.export import export_session

        return await export_session(self._runtime, stored, form)

    # Media -----------------------------------------------------------------------------------------------------------

    async def ingest(self, *content: Content) -> Ingested:
        """Store content and return its blocks."""
        limits = self._runtime.config.media_limits()
        return await ingest(list(content), self._runtime.stores.media, limits=limits, fetch=fetch_file)

    async def upload(self, *content: Content) -> tuple[ContentBlock, ...]:
        return (await self.ingest(*content)).blocks

    async def add_media(self, data: bytes, name: str = "") -> MediaView:
        return media_view(await self.intake.accept(data, name))

    async def open_media(self, digest: str, form: str = "full") -> MediaBytes:
        return await self.forms.open(digest, form)

    async def media_text(self, digest: str, *, page: int = 0) -> MediaText:
        return await self.forms.text(digest, page)

    async def describe(self, digest: str, model: str = "") -> DescriptionView:
        by = model or self._runtime.describers.default
        if not by:
            raise ConfigError("No describing model is configured.", hint="Name one, or set `context.describer`.")
        await self.forms.check_exists(digest)
        media_type = await self.intake.media_type(digest)
        if not media_type.startswith("image/"):
            raise Unsupported(f"Only images are described, not {media_type}.")
        found = await self._runtime.describers.by(by).describe(
            Media(digest=digest, media_type=media_type, size_bytes=0)
        )
        return DescriptionView(found.text, found.by)

    @property
    def request_media(self) -> MediaSource:
        """The source from which the media of a request are read while it is written."""
        return self._runtime.stores.renditions

    def draft_media(self) -> AbstractContextManager[DraftMedia]:
        """Open a store for the media of a message that is not sent, on top of this one."""
        return draft_media(self._runtime.config.media_limits(), self._runtime.stores.media)

    def follow_renditions(self, show: Callable[[str], None] | None) -> None:
        """Report the rendition in progress to `show`; None stops the reports."""
        self._runtime.stores.renditions.on_progress = show

    async def is_scan(self, block: DocumentBlock) -> bool:
        """Return whether the text of a document was extracted, and no page has any."""
        text = await self._runtime.stores.derived.get(block.media.digest, Text(pages=block.pages))
        return text is not None and bool(text.pages) and len(text.pages_without_text) == text.pages

    async def next_request(
        self,
        snapshot: Snapshot,
        model: Model,
        *,
        tools: Sequence[str] | None = None,
        draft: Sequence[Message] = (),
        renditions: Renditions[Any] | None = None,
        sampling: Sampling | None = None,
    ) -> NextRequest:
        """Compile the next request of a conversation that is not stored, with `renditions` of another store. Nothing is
        sent."""
        runtime = self._runtime
        services = runtime.services()
        workspace = Path(snapshot.workspace) if snapshot.workspace else Path.cwd()
        offered = services.select_tools(tools, await asyncio.to_thread(runtime.toolbox.unused_tools, workspace))
        options = services.request_options(model, plan_tools(offered) if is_planning(snapshot.settings) else offered)
        settle = runtime.settler.settle if renditions is None else runtime.settler.with_renditions(renditions).settle
        return await next_request(snapshot, model, options, settle, draft=draft, sampling=sampling)

    # What sessions can use -------------------------------------------------------------------------------------------

    def session_services(self, services: Services, settings: Mapping[str, Any], workspace: str) -> Services:
        """Return the services of a session with these settings in a workspace."""
        return session_services(services, settings, self._runtime.config, Path(workspace or "."))

    async def check_agent(self, name: str, workspace: str) -> None:
        """Raise `ConfigError` if a workspace has no agent of that name."""
        await asyncio.to_thread(find_agent, self._runtime.config, name, Path(workspace or "."))

    def check_model(self, reference: str) -> None:
        """Raise `ConfigError` if there is no model of that name."""
        self._runtime.models.resolve(reference)

    async def models(self) -> ModelList:
        runtime = self._runtime
        default = await runtime.models.default()
        local = [name for server in await runtime.models.local_servers() for name in server.models]
        chosen = [f"{platform}/{name}" for platform, name in FIRST_CHOICES.items()]
        names = dict.fromkeys([default, *runtime.config.models, *local, *chosen, BUILT_IN_MODEL])
        # In a thread: prices are read from a file the first time.
        return ModelList(await asyncio.to_thread(lambda: tuple(self._model(name) for name in names)), default)

    def _model(self, name: str) -> ModelView:
        model = self._runtime.models.resolve(name)
        found, is_unready = model.capabilities, lacks_key(model, self._runtime.config)
        return ModelView(
            reference=name,
            name=model.name,
            provider=model.provider,
            context_tokens=model.limits.context_tokens,
            capabilities=CapabilityView(
                vision=found.vision,
                native_pdf=found.native_pdf,
                thinking=found.thinking,
                tools=found.tools,
                audio=found.audio,
                video=found.video,
                citations=found.citations,
            ),
            origins=found.origins,
            input_usd_per_million=_per_million(model, Usage(input_tokens=1_000)),
            output_usd_per_million=_per_million(model, Usage(output_tokens=1_000)),
            ready=not is_unready,
            needs=f"loom keys set {name.partition('/')[0]}" if is_unready else "",
        )

    def usable_models(self) -> Iterator[Model]:
        """Yield the configured models and the default models of services, if they have a key."""
        return usable_models(self._runtime.config, self._runtime.models.resolve)

    async def tools(self) -> tuple[ToolView, ...]:
        specs = [tool.spec for tool in (await self._runtime.toolbox.wait_and_list()).values()]
        return tuple(
            ToolView(name=spec.name, description=spec.description, parameters=spec.parameters) for spec in specs
        )

    async def agents(self, workspace: str = "") -> tuple[AgentView, ...]:
        runtime, place = self._runtime, await _place(workspace)
        found = await asyncio.to_thread(list_agents, runtime.config, place)
        tools = await runtime.toolbox.wait_and_list()
        views: list[AgentView] = []
        for name, agent in found.items():
            model, notice = agent_model(agent, runtime.models)
            views.append(
                AgentView(
                    name=name,
                    description=agent.entry.description,
                    model=model,
                    tools=tuple(agent_tools(agent, tools)) if agent.is_file else agent.entry.tools,
                    origin=agent.origin,
                    notices=(*agent.notices, *([notice] if notice else [])),
                )
            )
        return tuple(views)

    async def commands(self, workspace: str = "") -> tuple[CommandView, ...]:
        from loom.runtime.expansion import list_commands

        place = await _place(workspace)
        await self._runtime.toolbox.wait_ready()
        return await asyncio.to_thread(list_commands, self._runtime, place)

    async def folder_trust(self, workspace: str = "") -> FolderTrustView:
        return await asyncio.to_thread(self._runtime.config.folder_trust, await _place(workspace))

    async def decide_trust(self, workspace: str, digest: str, *, is_trusted: bool) -> FolderTrustView:
        config, place = self._runtime.config, await _place(workspace)
        records = config.trust_records(place)
        await asyncio.to_thread(records.decide_about, place, digest, is_trusted=is_trusted)
        return await asyncio.to_thread(config.folder_trust, place)

    async def usage(self, days: int = 30, *, tools: bool = False) -> UsageReport:
        return await usage_report(self._runtime.stores.database, self.usd, days, tools=tools)

    async def limits(self) -> ConfigView:
        config = self._runtime.config
        documents = config.documents
        return ConfigView(
            images=ImageLimits(
                config.images.max_per_message, config.images.max_size_bytes, config.images.max_per_session
            ),
            documents=DocumentLimits(documents.max_pdf_bytes, documents.max_office_bytes, documents.pages_per_read),
            audio=AudioLimits(config.audio.max_size_bytes),
            upload=UploadLimits(config.server.max_upload_bytes),
            model=await self._runtime.models.default(),
            workspace=str(Path.cwd()),
            offline=os.environ.get("LOOM_OFFLINE", "0") not in ("", "0"),
        )

    def usd(self, model: str, usage: Usage) -> float | None:
        """Return the price of an answer in US dollars; None if it is not known."""
        return self._runtime.models.cost_by_name(model, usage)


async def _place(workspace: str) -> Path:
    """Return the folder that `workspace` names; empty: the working directory."""
    return Path(await asyncio.to_thread(existing_folder, workspace) or Path.cwd())


def media_view(stored: StoredUpload) -> MediaView:
    media = stored.media
    return MediaView(
        id=media.digest,
        digest=media.digest,
        kind=stored.kind,
        media_type=media.media_type,
        size_bytes=media.size_bytes,
        mime=media.media_type,
        bytes=media.size_bytes,
        width=media.width,
        height=media.height,
        pages=media.pages,
        duration=media.duration_seconds,
        name=media.name,
        new=stored.is_new,
        block=stored.block,
        notices=stored.notices,
    )


def session_cursor(session: StoredSession | SessionView) -> str:
    """Return the cursor of the page that follows `session`."""
    return f"{session.updated_at!r}.{session.id}"


def _cursor(text: str) -> tuple[float, str]:
    moment, _, session_id = text.rpartition(".")
    try:
        return float(moment), session_id
    except ValueError:
        raise ContentError("Invalid cursor.", hint="Use `next` of the previous page.") from None


def _per_million(model: Model, usage: Usage) -> float | None:
    """Return the price of a short request, for a million tokens."""
    usd = price(model, usage)
    return None if usd is None else usd * 1_000


def _share_view(share: Share, path: str = "") -> ShareView:
    return ShareView(
        id=share.id, node=share.node, path=path, created_at=share.created_at, expires_at=share.expires_at or None
    )
