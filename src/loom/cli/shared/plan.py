"""Compile a stored session or a transcript without sending it, with renditions selected per block."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from loom.api_types import OverrideChoice, SessionView
from loom.cli.shared.session_options import choose_tools, find_or_last
from loom.cli.shared.terminal import print_line
from loom.compile.policy import DetachedMessage, Placed, override_key
from loom.compile.request import NextRequest, RequestOptions, Snapshot, next_request
from loom.compile.settle import Settler
from loom.config import Config, load_config
from loom.content.media_kinds import MEDIA_KIND_NAMES
from loom.content.messages import user
from loom.errors import ConfigError
from loom.estimates import billed_label, cheaper_label, discard_label
from loom.importers.request_body import server_tool_names
from loom.models import Model
from loom.prompt import Receipt, ReceiptRow
from loom.providers.media_body import MediaSource
from loom.runtime import Runtime, price, resolve_model
from loom.runtime.draft_media import draft_media
from loom.runtime.estimator import estimate_requests, is_warm, usable_models, with_estimate
from loom.runtime.model_resolution import sampling_for
from loom.runtime.transcripts import Transcript, read_transcripts

_NOTHING: Final = "[an empty message]"
"""Used for an empty transcript: no platform accepts a request without a message."""


class CompileSource(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session or a file that can be compiled for any model."""

    title: str
    model: str
    """The last model of the conversation; empty if it is not known."""
    snapshot: Snapshot
    resolve: Callable[[str], Awaitable[Model]]
    compile: Callable[[Model], Awaitable[NextRequest]]
    """Returns the next request. Nothing is sent."""
    media: MediaSource
    """The source of the media of its requests."""
    config: Config
    notices: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[Placed, ...]:
        return self.snapshot.path

    async def models(self, references: str) -> list[Model]:
        """Return the models of `a,b,c`, with their known facts."""
        return [await self.resolve(name.strip()) for name in references.split(",") if name.strip()]


def compile_source(source: str) -> AbstractAsyncContextManager[CompileSource]:
    """Open a file with a conversation in any supported format, or a session; an empty `source` means the last session
    of this folder. Nothing of a file is stored."""
    file = Path(source)
    if source and file.is_file():
        return _from_file(file)
    if file.suffix or "/" in source:
        raise ConfigError(f"File not found: {source}", hint="Use a conversation file or a session id.")
    return _from_session(source)


@asynccontextmanager
async def _from_file(file: Path) -> AsyncGenerator[CompileSource]:
    config = load_config()
    with draft_media(config.media_limits()) as media:
        found, *others = await read_transcripts(file, media, limits=config.media_limits())
        note = (f"{file.name} has no messages: {_NOTHING} is used instead",) if not found.messages else ()
        more = (f"{file.name} contains {len(others) + 1} conversations; this is the first",) if others else ()
        path = tuple(
            DetachedMessage(str(at), message, form=found.forms.get(at))
            for at, message in enumerate(found.messages or (user(_NOTHING),))
        )
        snapshot = Snapshot(system=found.system, path=path, model=found.model)
        settler = Settler(media.renditions)

        async def resolve(reference: str) -> Model:
            return resolve_model(reference, config)

        async def compile_for(model: Model) -> NextRequest:
            options = _file_options(found, model, config)
            return _name_left_out(await next_request(snapshot, model, options, settler.settle), found)

        yield CompileSource(
            title=found.title or file.name,
            model=found.model,
            snapshot=snapshot,
            resolve=resolve,
            compile=compile_for,
            media=media.renditions,
            config=config,
            notices=(*found.notices, *note, *more),
        )


@asynccontextmanager
async def _from_session(wanted: str) -> AsyncGenerator[CompileSource]:
    async with Runtime.open(tools="all") as runtime:
        tools = await choose_tools(runtime, (), default="safe")
        view = await find_or_last(runtime.library, wanted)
        found = await compile_session(runtime, view, tools=tools)
        if not found.path:
            raise ConfigError(f"The session {view.title or view.id} is empty.")
        yield found


async def compile_session(
    runtime: Runtime, view: SessionView, *, head: str = "", tools: Sequence[str] | None = None
) -> CompileSource:
    """Return a session as it would be sent from its head, or from the message `head`, with `tools` (None: all)."""
    session = await runtime.session(view.id, tools=tools)
    snapshot = await session.snapshot(head)

    async def compile_for(model: Model) -> NextRequest:
        return await session.previews.next_request(model.alias or model.reference, at=head)

    return CompileSource(
        title=view.title or view.id,
        model=view.model,
        snapshot=snapshot,
        resolve=runtime.models.resolve_live,
        compile=compile_for,
        media=runtime.library.request_media,
        config=runtime.config,
    )


def _name_left_out(made: NextRequest, found: Transcript) -> NextRequest:
    """Add notices to the receipt about another provider's server tools, which the request lacks."""
    if found.request is None or made.prompt.body is not None:
        return made
    notices = [f"{name}: run by another provider, left out" for name in server_tool_names(found.request.server_tools)]
    receipt = msgspec.structs.replace(made.receipt, notices=(*made.receipt.notices, *notices))
    return msgspec.structs.replace(made, prepared=msgspec.structs.replace(made.prepared, receipt=receipt))


def _file_options(found: Transcript, model: Model, config: Config) -> RequestOptions:
    """Return the configured options, merged with those of the file if it is a request body. Media in a body of the
    model's own protocol are not aged."""
    policy, sampling, request = config.context_policy(), sampling_for(model, config), found.request
    if request is None:
        return RequestOptions(policy=policy, sampling=sampling)
    body = request.form(found.head)
    if (body.provider, body.wire) == (model.opaque_owner, model.wire):
        policy = msgspec.structs.replace(policy, aging="off")
    return RequestOptions(policy=policy, tools=request.tools, sampling=sampling.override(request.sampling), body=body)


async def compile_with_estimates(found: CompileSource, chosen: Sequence[Model]) -> list[NextRequest]:
    """Compile the next request for each model, with an estimate of its cost. A cheaper model is searched if only one
    was chosen."""
    requests = [await found.compile(model) for model in chosen]
    estimates = await estimate_requests(
        requests,
        price,
        unchanged=await _unchanged_request(found, requests),
        candidates=None if len(chosen) > 1 else partial(usable_models, found.config),
        compile_for=found.compile,
    )
    return [with_estimate(request, estimate) for request, estimate in zip(requests, estimates, strict=True)]


async def _unchanged_request(found: CompileSource, requests: Sequence[NextRequest]) -> NextRequest | None:
    """Return the request to the session's own model, if its provider has a part of it cached."""
    if not found.model or not found.snapshot.watermarks:
        return None
    model = await found.resolve(found.model)
    if not is_warm(found.snapshot, model):
        return None
    own = next((request for request in requests if request.input.model.reference == model.reference), None)
    return await found.compile(model) if own is None else own


def estimate_lines(receipts: Sequence[Receipt]) -> list[str]:
    """Return the lines below a plan: a cheaper model, the cache that each request discards, and what was billed for the
    last one."""
    lines: list[str] = []
    for receipt in receipts:
        found = receipt.estimate
        if found is None:
            continue
        name = f"{receipt.model}: " if len(receipts) > 1 else ""
        lines += [cheaper_label(found.cheaper)] if found.cheaper else []
        lines += [f"{name}{discard_label(found.discards)}"] if found.discards else []
        lines += [f"{name}{billed_label(found.last)}"] if found.last else []
    return lines


_CHOOSABLE: Final = ("text", *MEDIA_KIND_NAMES)


async def choose_renditions(wanted: str, wishes: Mapping[str, OverrideChoice]) -> str:
    """Set the renditions of blocks, by their number or name; `auto` leaves one to the policy again. Return the id of
    the session, because its number in the list may have changed."""
    async with Runtime.open() as runtime:
        view = await find_or_last(runtime.library, wanted)
        found = await compile_session(runtime, view)
        if not found.path:
            raise ConfigError("The conversation is empty.")
        rows = (await found.compile(runtime.models.resolve(view.model))).receipt.rows
        changes: dict[str, OverrideChoice] = {
            override_name(found, _row(rows, name)): wish for name, wish in wishes.items()
        }
        session = await runtime.library.open(view.id)
        (receipt,) = await session.plan(overrides=changes)
        if receipt.estimate is not None and receipt.estimate.discards is not None:
            print_line(discard_label(receipt.estimate.discards))
        await session.set_overrides(changes, rev=view.rev)
    return view.id


def override_name(found: CompileSource, row: ReceiptRow) -> str:
    """Return the key of a block among the session's overrides; branches with the same message share it."""
    return override_key(found.path[row.message].id, row.block, row.inner)


def key_of(row: ReceiptRow) -> str:
    """Return the number of a block: 3 for the first of the third message, 3.2 for the next one."""
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
            f"{name} is {found[0].kind.replace('_', ' ')}: its rendition cannot be changed.",
            hint="Choose a text, an image, a document or audio.",
        )
    return found[0]
