"""A conversation, compiled for models without asking any: what `loom wire` and `loom context` share."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec

from loom.agent.foreign import read_conversation
from loom.agent.renditions import Renditions
from loom.config import Config, load_config
from loom.context.policy import Placed, Request, Said, Watermark
from loom.context.prepare import Prepared, prepare
from loom.errors import ConfigError
from loom.models import Model
from loom.runtime import Runtime, resolve_model
from loom.store.derived import Derived, DerivedCache
from loom.store.media import open_media


class Compiled(msgspec.Struct, frozen=True):
    """A path and everything that is needed to prepare it."""

    path: tuple[Placed, ...]
    system: str
    notices: tuple[str, ...]
    renditions: Renditions[Derived]
    config: Config
    watermarks: dict[str, Watermark]
    quarantine: dict[str, frozenset[str]]

    async def prepared(self, model: Model) -> Prepared:
        """With every rendition made and measured, so that sizes are exact."""
        policy = self.config.context_policy()
        return await self.renditions.settle(
            lambda known: prepare(
                self.path,
                model,
                policy=policy,
                request=Request(system=self.system),
                watermark=self.watermarks.get(model.reference),
                known=known,
                quarantine=self.quarantine.get(model.provider, frozenset()),
            )
        )


def compiled(source: str) -> AbstractAsyncContextManager[Compiled]:
    """A file with a conversation in any shape that we know, or the id of a session. A file leaves nothing behind."""
    file = Path(source)
    if file.is_file():
        return _from_file(file, file.read_bytes())
    if file.suffix or "/" in source:
        raise ConfigError(f"there is no file {source}.", hint="Give a conversation's JSON file or a session's id.")
    return _from_session(source)


@asynccontextmanager
async def _from_file(file: Path, data: bytes) -> AsyncGenerator[Compiled]:
    config = load_config()
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        media = open_media(Path(folder))
        limits = config.media_limits()
        found = await read_conversation(data, media, limits=limits, roots=(file.parent, Path.cwd()))
        if not found.messages:
            raise ConfigError(f"{file.name} holds no message.", hint="Give a conversation with something in it.")
        yield Compiled(
            tuple(Said(str(at), message) for at, message in enumerate(found.messages)),
            found.system,
            found.notices,
            Renditions(media, DerivedCache(media.place), limits=limits),
            config,
            {},
            {},
        )


@asynccontextmanager
async def _from_session(session_id: str) -> AsyncGenerator[Compiled]:
    async with Runtime.open() as runtime:
        session = await runtime.sessions.get(session_id)
        path = await runtime.forest.path(session.head_id)
        said = tuple(Said(node.id, node.message) for node in path if node.message is not None)
        if not said:
            raise ConfigError(f"the session {session.title or session.id} holds no message yet.")
        yield Compiled(
            said,
            path[0].system or "",
            (),
            runtime.renditions,
            runtime.config,
            {name: msgspec.convert(mark, Watermark) for name, mark in session.watermark.items()},
            {provider: frozenset(digests) for provider, digests in session.quarantine.items()},
        )


def models(references: str, config: Config) -> list[Model]:
    """`a,b,c` → models."""
    return [resolve_model(reference.strip(), config) for reference in references.split(",") if reference.strip()]
