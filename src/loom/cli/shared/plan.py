"""Compile a stored session or a transcript without sending it, with renditions chosen per block."""

from __future__ import annotations

import io
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.cli.shared.session_lookup import find_session, last_session
from loom.cli.shared.session_options import choose_tools
from loom.cli.shared.transcripts import read_transcripts
from loom.compile.policy import DetachedMessage, Override, Placed, override_key
from loom.compile.ports import MediaAccess
from loom.compile.renditions import Renditions
from loom.compile.request import NextRequest, RequestOptions, Snapshot, next_request
from loom.compile.settle import Settler
from loom.config import Config, load_config
from loom.content.messages import Message, user
from loom.errors import ConfigError
from loom.formats.renderer import FormatRenderer
from loom.models import Model
from loom.prompt import ReceiptRow
from loom.runtime import Runtime, resolve_model
from loom.runtime.model_resolution import sampling_for
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore, open_media
from loom.store.session_rows import StoredSession

_NOTHING: Final = "[an empty message]"
"""No platform takes a request without a message."""


class CompileSource(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session or a file, ready to be compiled for any model."""

    title: str
    model: str
    """The one that it was last asked of; empty where that is not known."""
    snapshot: Snapshot
    resolve: Callable[[str], Awaitable[Model]]
    compile: Callable[[Model], Awaitable[NextRequest]]
    """Returns the next request; a preview, so that nothing is sent."""
    renditions: Renditions[Any]
    config: Config
    notices: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[Placed, ...]:
        return self.snapshot.path

    async def models(self, references: str) -> list[Model]:
        """Return the models of `a,b,c`, with what is known of each."""
        return [await self.resolve(name.strip()) for name in references.split(",") if name.strip()]


class TemporaryMedia:
    """Media of a message that is not sent: kept in a folder that vanishes, read from the store below otherwise."""

    def __init__(self, folder: Path, below: MediaAccess) -> None:
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

    async def _shelf(self, digest: str) -> MediaAccess:
        return self._own if await self._own.exists(digest) else self._below


def compile_source(source: str) -> AbstractAsyncContextManager[CompileSource]:
    """A file with a conversation in any shape that we know, or a session; nothing means the last one of this folder.

    A file leaves nothing behind."""
    file = Path(source)
    if source and file.is_file():
        return _from_file(file)
    if file.suffix or "/" in source:
        raise ConfigError(f"File not found: {source}", hint="Give a conversation file or a session id.")
    return _from_session(source)


@asynccontextmanager
async def _from_file(file: Path) -> AsyncGenerator[CompileSource]:
    config = load_config()
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        media = open_media(Path(folder))
        limits = config.media_limits()
        found, *others = await read_transcripts(file, media, limits=limits)
        said = (f"{file.name} has no messages: {_NOTHING} is used instead",) if not found.messages else ()
        more = (f"{file.name} holds {len(others) + 1} conversations; this is the first",) if others else ()
        snapshot = Snapshot(system=found.system, path=_as_path(found.messages or (user(_NOTHING),)), model=found.model)
        renditions = Renditions(media, DerivedCache(media.place), FormatRenderer(limits))
        settler = Settler(renditions)

        async def resolve(reference: str) -> Model:
            return resolve_model(reference, config)

        async def compile_for(model: Model) -> NextRequest:
            options = RequestOptions(policy=config.context_policy(), sampling=sampling_for(model, config))
            return await next_request(snapshot, model, options, settler.settle)

        yield CompileSource(
            title=found.title or file.name,
            model=found.model,
            snapshot=snapshot,
            resolve=resolve,
            compile=compile_for,
            renditions=renditions,
            config=config,
            notices=(*found.notices, *said, *more),
        )


@asynccontextmanager
async def _from_session(wanted: str) -> AsyncGenerator[CompileSource]:
    async with Runtime.open(tools="all") as runtime:
        tools = await choose_tools(runtime, (), default="safe")
        stored = await (find_session(runtime, wanted) if wanted else last_session(runtime, here=True))
        found = await compile_session(runtime, stored, tools=tools)
        if not found.path:
            raise ConfigError(f"the session {stored.title or stored.id} is empty.")
        yield found


async def compile_session(
    runtime: Runtime, stored: StoredSession, *, head: str = "", tools: Sequence[str] | None = None
) -> CompileSource:
    """A session as it would be sent from its head, or from another of its messages, with these tools (None: all)."""
    session = await runtime.session(stored.id, tools=tools)
    snapshot = await session.snapshot(head)

    async def compile_for(model: Model) -> NextRequest:
        return await session.next_request(model.alias or model.reference, at=head)

    return CompileSource(
        title=stored.title or stored.id,
        model=stored.model,
        snapshot=snapshot,
        resolve=runtime.resolve_live,
        compile=compile_for,
        renditions=runtime.renditions,
        config=runtime.config,
    )


def _as_path(messages: Sequence[Message]) -> tuple[Placed, ...]:
    return tuple(DetachedMessage(str(at), message) for at, message in enumerate(messages))


_CHOOSABLE: Final = ("text", "image", "document", "audio")


async def choose_renditions(wanted: str, wishes: Mapping[str, Override | None]) -> str:
    """Keep these wishes, by the key or the name of a block, with a session; None leaves it to the policy again.

    Gives the session's id: its number among all changes by this."""
    async with Runtime.open() as runtime:
        stored = await (find_session(runtime, wanted) if wanted else last_session(runtime, here=True))
        found = await compile_session(runtime, stored)
        if not found.path:
            raise ConfigError("The conversation is empty.")
        rows = (await found.compile(runtime.model(stored.model))).receipt.rows
        changes = {override_name(found, _row(rows, name)): wish for name, wish in wishes.items()}
        kept = {key: wish for key, wish in {**stored.overrides, **changes}.items() if wish is not None}
        await runtime.sessions.update(stored.id, rev=stored.rev, overrides=kept)
    return stored.id


def override_name(found: CompileSource, row: ReceiptRow) -> str:
    """The name of a block among the session's overrides; any number of branches may share it."""
    return override_key(found.path[row.message].id, row.block, row.inner)


def key_of(row: ReceiptRow) -> str:
    """The place of a block as people count: 3 for the first of the third message, 3.2 for the one behind it."""
    if row.inner is not None:
        return f"{row.message + 1}.{row.block + 1}.{row.inner + 1}"
    return f"{row.message + 1}.{row.block + 1}" if row.block else str(row.message + 1)


def _row(rows: Sequence[ReceiptRow], name: str) -> ReceiptRow:
    files = [row for row in rows if row.digest and row.label.startswith(f"{name},")]
    found = [row for row in rows if key_of(row) == name] or files
    if not found:
        raise ConfigError(f"No block matches {name!r}.", hint="Use the number or the file name: loom context.")
    if len(found) > 1:
        keys = ", ".join(key_of(row) for row in found)
        raise ConfigError(f"{name!r} matches {keys}.", hint="Use the number.")
    if found[0].kind not in _CHOOSABLE:
        raise ConfigError(
            f"{name} is {found[0].kind.replace('_', ' ')}, which goes along with what it belongs to.",
            hint="Choose a text, an image, a document or audio.",
        )
    return found[0]
