"""`loom ask --dry-run`: the request that would leave, without sending or keeping anything."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from loom.agent.ingest import ingest
from loom.cli.attachment_options import ingest_content
from loom.cli.attachments import MessageInput, limit_pages
from loom.cli.context import print_table
from loom.cli.plan import CompileSource, TemporaryMedia, compile_session
from loom.cli.session_lookup import stored_session
from loom.cli.session_options import choose_tools, print_notices, print_warnings
from loom.cli.wire import print_request
from loom.compile.policy import DetachedMessage as Placed
from loom.compile.renditions import Renditions
from loom.compile.request import NextRequest, Snapshot
from loom.content.messages import Message
from loom.formats.renderer import FormatRenderer
from loom.models import Model
from loom.providers.http import WIRES
from loom.runtime import Runtime

if TYPE_CHECKING:
    from loom.cli.ask import AskOptions


async def show_request(runtime: Runtime, asked: AskOptions, said: MessageInput) -> None:
    """The wire's JSON; for the built-in model, which has no wire, what it would be shown."""
    tools = await choose_tools(runtime, asked.tools, default="safe")
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        scratch = TemporaryMedia(Path(folder), runtime.media)
        limits = runtime.config.media_limits()
        take = partial(ingest, shelf=scratch, limits=limits, fetch=runtime.fetch)
        found = await ingest_content(said.content, lambda *content: take(list(content)), runtime)
        blocks, notices = limit_pages(found.blocks, runtime.config.documents.pages_per_read)
        print_warnings(runtime)
        print_notices([*found.notices, *notices])
        before = await _before(runtime, asked, tools)
        renditions = Renditions(scratch, scratch.derived, FormatRenderer(limits))
        message = Message("user", tuple(blocks))

        async def compile_for(model: Model) -> NextRequest:
            return await runtime.next_request(
                before.snapshot, model, tools=tools, draft=(message,), renditions=renditions
            )

        now = CompileSource(
            title=before.title,
            model=before.model,
            snapshot=msgspec.structs.replace(before.snapshot, path=(*before.snapshot.path, Placed("draft", message))),
            resolve=runtime.resolve_live,
            compile=compile_for,
            renditions=renditions,
            config=runtime.config,
        )
        reference = asked.model or before.model or await runtime.default_model()
        model = await runtime.resolve_live(reference)
        if model.wire in WIRES:
            await print_request(now, model, full=asked.full)
        else:
            await print_table(now, [model], as_json=asked.form == "json")


class _Before(msgspec.Struct, frozen=True):
    title: str
    model: str
    snapshot: Snapshot


async def _before(runtime: Runtime, asked: AskOptions, tools: Sequence[str] | None) -> _Before:
    """What was said so far; nothing in a new session."""
    if not asked.place.is_new:
        stored = await stored_session(runtime, asked.place)
        head = (await runtime.forest.node(asked.place.node)).id if asked.place.node else ""
        found = await compile_session(runtime, stored, head=head, tools=tools)
        return _Before(found.title, found.model, found.snapshot)
    system = await runtime.system_for(asked.system, Path.cwd())
    return _Before("", "", Snapshot(system=system))
