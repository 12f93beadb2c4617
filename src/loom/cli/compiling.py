"""A conversation, compiled for models without asking any: what `wire`, `context` and `ask --dry-run` share."""

from __future__ import annotations

import io
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.agent.describe import Settle
from loom.agent.ports import MediaShelf
from loom.agent.renditions import Renditions
from loom.cli.asking import choose_tools
from loom.cli.choosing import find_session, last_session
from loom.cli.transcripts import read_transcripts
from loom.config import Config, load_config
from loom.content.messages import Message, user
from loom.context.cost import Calibration
from loom.context.policy import Placed, Request, Said, Watermark, wishes_of
from loom.context.prepare import Prepared, prepare
from loom.errors import ConfigError
from loom.models import Model
from loom.prompt import ToolSpec
from loom.runtime import Runtime, resolve_model
from loom.store.derived import Derived, DerivedCache
from loom.store.media import MediaStore, open_media
from loom.store.session_rows import StoredSession

_NOTHING: Final = "[an empty message]"
"""No platform takes a request without a message."""


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A path and everything that is needed to prepare it."""

    title: str
    model: str
    """The one that it was last asked of; empty where that is not known."""
    path: tuple[Placed, ...]
    request: Request
    renditions: Renditions[Derived]
    config: Config
    notices: tuple[str, ...] = ()
    session: StoredSession | None = None
    look: Settle | None = None
    """Gives descriptions that were written earlier too; a file has none."""

    def calibration(self, model: Model) -> Calibration:
        """What the answers of this model in this session have taught."""
        known: dict[str, Any] = self.session.settings.get("calibration", {}) if self.session else {}
        return msgspec.convert(known.get(model.reference, {}), Calibration)

    async def prepared(self, model: Model) -> Prepared:
        """With every rendition made and measured, so that sizes are exact."""
        policy = self.config.context_policy()
        stored = self.session
        overrides, alts = wishes_of(stored.overrides if stored else {})
        marks = stored.watermark if stored else {}
        quarantine = stored.quarantine.get(model.provider, ()) if stored else ()
        return await (self.look or self.renditions.settle)(
            lambda known: prepare(
                self.path,
                model,
                policy=policy,
                request=self.request,
                overrides=overrides,
                alts=alts,
                watermark=msgspec.convert(marks.get(model.reference, {}), Watermark),
                calibration=self.calibration(model),
                known=known,
                quarantine=frozenset(quarantine),
            )
        )


class Scratch:
    """Media of a message that is not sent: kept in a folder that vanishes, read from the store below otherwise."""

    def __init__(self, folder: Path, below: MediaShelf) -> None:
        self._own: MediaStore = open_media(folder)
        self._below = below
        self.derived = DerivedCache(self._own.place)

    async def put(self, data: bytes) -> str:
        return await self._own.put(data)

    async def refresh(self, digest: str) -> bool:
        return await (await self._shelf(digest)).refresh(digest)

    async def load(self, digest: str) -> bytes:
        return await (await self._shelf(digest)).load(digest)

    async def open_local(self, digest: str) -> io.RawIOBase | None:
        return await (await self._shelf(digest)).open_local(digest)

    async def read_blocks(self, digest: str, block_bytes: int) -> AsyncIterator[bytes]:
        async for block in (await self._shelf(digest)).read_blocks(digest, block_bytes):
            yield block

    async def _shelf(self, digest: str) -> MediaShelf:
        return self._own if await self._own.exists(digest) else self._below


def compiled(source: str) -> AbstractAsyncContextManager[Compiled]:
    """A file with a conversation in any shape that we know, or a session; nothing means the last one of this folder.

    A file leaves nothing behind."""
    file = Path(source)
    if source and file.is_file():
        return _from_file(file)
    if file.suffix or "/" in source:
        raise ConfigError(f"there is no file {source}.", hint="Give a conversation's file or a session's id.")
    return _from_session(source)


@asynccontextmanager
async def _from_file(file: Path) -> AsyncGenerator[Compiled]:
    config = load_config()
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        media = open_media(Path(folder))
        limits = config.media_limits()
        found, *others = await read_transcripts(file, media, limits=limits)
        said = (f"nothing is said in {file.name}: {_NOTHING} stands for it",) if not found.messages else ()
        more = (f"{file.name} holds {len(others) + 1} conversations; this is the first",) if others else ()
        yield Compiled(
            title=found.title or file.name,
            model=found.model,
            path=_said(found.messages or (user(_NOTHING),)),
            request=Request(system=found.system),
            renditions=Renditions(media, DerivedCache(media.place), limits=limits),
            config=config,
            notices=(*found.notices, *said, *more),
        )


@asynccontextmanager
async def _from_session(wanted: str) -> AsyncGenerator[Compiled]:
    async with Runtime.open() as runtime:
        tools = await choose_tools(runtime, (), default="safe")
        stored = await (find_session(runtime, wanted) if wanted else last_session(runtime, here=True))
        found = await compiled_session(runtime, stored, tools=tools)
        if not found.path:
            raise ConfigError(f"the session {stored.title or stored.id} holds no message yet.")
        yield found


async def compiled_session(
    runtime: Runtime, stored: StoredSession, *, head: str = "", tools: Sequence[str] | None = None
) -> Compiled:
    """A session as it would be sent from its head, or from another of its messages, with these tools (None: all)."""
    root, *nodes = await runtime.forest.path(head or stored.head_id)
    return Compiled(
        title=stored.title or stored.id,
        model=stored.model,
        path=tuple(
            Said(node.id, node.message, bool(node.meta.get("is_blind"))) for node in nodes if node.message is not None
        ),
        request=Request(system=root.system or "", tools=specs(runtime, tools)),
        renditions=runtime.renditions,
        config=runtime.config,
        session=stored,
        look=runtime.look,
    )


def specs(runtime: Runtime, tools: Sequence[str] | None) -> tuple[ToolSpec, ...]:
    """What a model is told of the tools that it may call."""
    return tuple(found.spec for found in runtime.offered(tools).values())


def _said(messages: Sequence[Message]) -> tuple[Placed, ...]:
    return tuple(Said(str(at), message) for at, message in enumerate(messages))


def models(references: str, config: Config) -> list[Model]:
    """`a,b,c` → models."""
    return [resolve_model(reference.strip(), config) for reference in references.split(",") if reference.strip()]
