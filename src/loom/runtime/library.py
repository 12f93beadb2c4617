"""LocalLibrary: the `Library` protocol on the stores of this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from loom.api_types import (
    AudioLimits,
    CapabilityView,
    ConfigView,
    DescriptionView,
    DocumentLimits,
    ImageLimits,
    MediaText,
    MediaView,
    ModelList,
    ModelView,
    SearchResult,
    SessionPage,
    SessionView,
    ToolView,
    UploadLimits,
)
from loom.config import redact
from loom.content.blocks import ContentBlock
from loom.content.inputs import Content
from loom.content.media import Media
from loom.content.messages import Message
from loom.errors import ConfigError, ContentError, Corrupt, NotFound, Unsupported
from loom.library import find_session
from loom.message_types import ImportView, SessionApprovals
from loom.models import Model, Usage
from loom.runtime.agents import find_agent
from loom.runtime.media_forms import MediaForms
from loom.runtime.media_intake import MediaIntake, StoredUpload
from loom.runtime.model_resolution import FIRST_CHOICES, key_for, price
from loom.runtime.record import SessionStores
from loom.runtime.session import LocalSession, existing_folder
from loom.runtime.views import Views, running_turn
from loom.session import ExportFormat, MediaBytes
from loom.store.session_rows import StoredSession

if TYPE_CHECKING:
    from loom.runtime import Runtime

_HITS_PER_SESSION = 4


class LocalLibrary:
    """`intake`, `forms` and `views` are shared with the sessions, and with the daemon."""

    def __init__(self, runtime: Runtime, stores: SessionStores) -> None:
        self.stores = stores
        self.views = Views(stores.forest, stores.queue, self.usd)
        self.intake = MediaIntake(runtime.media, runtime.config.media_limits())
        self.forms = MediaForms(runtime, self.intake)
        self._runtime = runtime

    # Sessions --------------------------------------------------------------------------------------------------------

    async def sessions(
        self, *, query: str = "", archived: bool = False, limit: int = 50, before: str = ""
    ) -> SessionPage:
        queued = await self.views.queued_sessions()
        last: StoredSession | None = None
        if query:
            found = [stored for stored in await self._matches(query, limit) if stored.archived == archived]
        else:
            place = _cursor(before) if before else None
            found = list(await self.stores.sessions.list(archived=archived, limit=limit, before=place))
            last = found[-1] if len(found) == limit else None
        views = [await self.views.session(stored, queued) for stored in found]
        return SessionPage(tuple(views), f"{last.updated_at!r}.{last.id}" if last else None)

    async def _matches(self, query: str, limit: int) -> list[StoredSession]:
        hits = await self.search(query, limit=limit * _HITS_PER_SESSION)
        found: list[StoredSession] = []
        for session_id in list(dict.fromkeys(hit.session for hit in hits))[:limit]:
            with suppress(NotFound, Corrupt):  # deleted since, or damaged, which the whole list shows
                found.append(await self.stores.sessions.get(session_id))
        return found

    async def info(self, session_id: str) -> SessionView:
        """Return a session as it is now, without opening it."""
        queued = await self.views.queued_sessions()
        return await self.views.session(await self.stores.sessions.get(session_id), queued)

    async def open(self, session_id: str, *, tools: Sequence[str] | None = None) -> LocalSession:
        return await self._runtime.session(session_id, tools=tools)

    async def find(self, text: str) -> SessionView:
        return await find_session(self, text)

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
            model=model or ("" if agent else await self._runtime.default_model()),
            system=system,
            workspace=await asyncio.to_thread(existing_folder, workspace),
            tools=tools,
        )

    async def import_messages(
        self, messages: Sequence[Message], *, title: str = "", model: str = "", system: str = "", workspace: str = ""
    ) -> ImportView:
        if not messages:
            raise ContentError("The conversation has no messages.")
        folder = await asyncio.to_thread(existing_folder, workspace) or str(Path.cwd())
        root = await self.stores.forest.root(system)
        shared = await self._count_shared(root.id, messages)
        nodes = await self.stores.forest.append(root.id, messages)
        existing = await self._with_head(nodes[-1].id)
        if existing is not None:
            return ImportView(session=existing, is_new=False, shared=shared)
        chosen = model or await self._runtime.default_model()
        made = await self.stores.sessions.create(system=system, title=title, model=chosen, workspace=folder)
        await self.stores.sessions.append_to_head(made.id, messages)
        return ImportView(session=await self.info(made.id), is_new=True, shared=shared)

    async def _count_shared(self, root_id: str, messages: Sequence[Message]) -> int:
        """Return how many messages, from the first on, are stored already."""
        at = root_id
        for count, message in enumerate(messages):
            known = next((node for node in await self.stores.forest.children(at) if node.message == message), None)
            if known is None:
                return count
            at = known.id
        return len(messages)

    async def _with_head(self, head: str) -> SessionView | None:
        from loom.library import all_sessions

        async for found in all_sessions(self):
            if found.head == head:
                return found
        return None

    async def delete(self, session_id: str) -> int:
        return await self._runtime.delete_session(session_id)

    async def search(self, text: str, *, limit: int = 20) -> tuple[SearchResult, ...]:
        from loom.store.search import MessageSearch

        found = await MessageSearch(self._runtime.database).find(text, limit=limit)
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

    async def approvals(self) -> tuple[SessionApprovals, ...]:
        found: list[SessionApprovals] = []
        for stored in await self._waiting_sessions():
            with suppress(NotFound):
                pending = await (await self.open(stored.id)).approvals()
                if pending:
                    found.append(SessionApprovals(session=await self.info(stored.id), approvals=pending))
        return tuple(found)

    async def _waiting_sessions(self) -> list[StoredSession]:
        waiting: list[StoredSession] = []
        place: tuple[float, str] | None = None
        while page := await self.stores.sessions.list(limit=100, before=place):
            waiting += [stored for stored in page if running_turn(stored).get("approvals")]
            place = (page[-1].updated_at, page[-1].id)
        return waiting

    async def export(self, stored: StoredSession, form: ExportFormat) -> bytes:
        """Return the path of a session as a file."""
        from loom.runtime.export import export_session

        return await export_session(self._runtime, stored, form)

    # Media -----------------------------------------------------------------------------------------------------------

    async def upload(self, *content: Content) -> tuple[ContentBlock, ...]:
        return (await self._runtime.ingest(*content)).blocks

    async def add_media(self, data: bytes, name: str = "") -> MediaView:
        return media_view(await self.intake.accept(data, name))

    async def open_media(self, digest: str, form: str = "full") -> MediaBytes:
        return await self.forms.open(digest, form)

    async def media_text(self, digest: str, *, page: int = 0) -> MediaText:
        return await self.forms.text(digest, page)

    async def describe(self, digest: str, model: str = "") -> DescriptionView:
        by = model or self._runtime.describer
        if not by:
            raise ConfigError("No model describes images here.", hint="Name one, or set `context.describer`.")
        await self.forms.check_exists(digest)
        media_type = await self.intake.media_type(digest)
        if not media_type.startswith("image/"):
            raise Unsupported(f"Only images are described, not {media_type}.")
        found = await self._runtime.describe(Media(digest=digest, media_type=media_type, size_bytes=0), by)
        return DescriptionView(found.text, found.by)

    # What sessions can use -------------------------------------------------------------------------------------------

    def check_agent(self, name: str) -> None:
        """Raise `ConfigError` if no agent of that name is configured."""
        find_agent(self._runtime.config, name)

    def check_model(self, reference: str) -> None:
        """Raise `ConfigError` if there is no model of that name."""
        self._runtime.model(reference)

    async def models(self) -> ModelList:
        runtime = self._runtime
        default = await runtime.default_model()
        local = [name for server in await runtime.local_servers() for name in server.models]
        chosen = [f"{platform}/{name}" for platform, name in FIRST_CHOICES.items()]
        names = dict.fromkeys([default, *runtime.config.models, *local, *chosen, runtime.BUILT_IN])
        # In a thread: prices are read from a file the first time.
        return ModelList(await asyncio.to_thread(lambda: tuple(self._model(name) for name in names)), default)

    def _model(self, name: str) -> ModelView:
        from loom.providers.catalog import key_env

        config = self._runtime.config
        model = self._runtime.model(name)
        found = model.capabilities
        has_own_key = bool(model.alias) and bool(config.models[model.alias].api_key)
        lacks_key = bool(key_env(model.provider)) and not key_for(model.provider, config) and not has_own_key
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
                citations=found.citations,
            ),
            origins=found.origins,
            input_usd_per_million=_per_million(model, Usage(input_tokens=1_000)),
            output_usd_per_million=_per_million(model, Usage(output_tokens=1_000)),
            ready=not lacks_key,
            needs=f"loom keys set {name.partition('/')[0]}" if lacks_key else "",
        )

    async def tools(self) -> tuple[ToolView, ...]:
        specs = [tool.spec for tool in (await self._runtime.known_tools()).values()]
        return tuple(
            ToolView(name=spec.name, description=spec.description, parameters=spec.parameters) for spec in specs
        )

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
            model=await self._runtime.default_model(),
            workspace=str(Path.cwd()),
            offline=os.environ.get("LOOM_OFFLINE", "0") not in ("", "0"),
        )

    def usd(self, model: str, usage: Usage) -> float | None:
        """Return the price of an answer in US dollars; None if it is not known."""
        return self._runtime.cost(self._runtime.model(model), usage)


def media_view(stored: StoredUpload) -> MediaView:
    media = stored.media
    return MediaView(
        id=media.digest,
        digest=media.digest,
        kind=stored.kind,
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


def _cursor(text: str) -> tuple[float, str]:
    moment, _, session_id = text.rpartition(".")
    try:
        return float(moment), session_id
    except ValueError:
        raise ContentError("Invalid cursor.", hint="Give `next` of the page before.") from None


def _per_million(model: Model, usage: Usage) -> float | None:
    """Return the price of a short request, for a million tokens."""
    usd = price(model, usage)
    return None if usd is None else usd * 1_000
