"""`loom ask --dry-run`: the request that would leave, without sending or keeping anything."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from loom.agent.describe import Describer
from loom.agent.ingest import ingest
from loom.agent.renditions import Renditions
from loom.cli.asking import choose_tools, tell, warn
from loom.cli.attachments import Said, shortened
from loom.cli.choosing import stored_session
from loom.cli.compiling import Compiled, Scratch, compiled_session, specs
from loom.cli.context import print_table
from loom.cli.preparing import ingested
from loom.cli.wire import print_request
from loom.content.messages import Message
from loom.context.policy import Request
from loom.context.policy import Said as Placed
from loom.providers.http import WIRES
from loom.runtime import Runtime

if TYPE_CHECKING:
    from loom.cli.ask import Asked


async def show_request(runtime: Runtime, asked: Asked, said: Said) -> None:
    """The wire's JSON; for the built-in model, which has no wire, what it would be shown."""
    tools = await choose_tools(runtime, asked.tools, default="safe")
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        scratch = Scratch(Path(folder), runtime.media)
        limits = runtime.config.media_limits()
        take = partial(ingest, shelf=scratch, limits=limits, fetch=runtime.fetch)
        found = await ingested(said.content, lambda *content: take(list(content)), runtime)
        blocks, notices = shortened(found.blocks, runtime.config.documents.pages_per_read)
        warn(runtime)
        tell([*found.notices, *notices])
        before = await _before(runtime, asked, tools)
        renditions = Renditions(scratch, scratch.derived, limits=limits)
        describer = Describer(
            renditions, runtime.derived, resolve=runtime.model, model=runtime.informed, provider=runtime.provider
        )
        now = msgspec.structs.replace(
            before,
            path=(*before.path, Placed("new", Message("user", tuple(blocks)))),
            renditions=renditions,
            look=partial(describer.settle, by=runtime.describer, asks=False),
        )
        reference = asked.model or before.model or await runtime.default_model()
        model = runtime.model(reference)
        if model.wire in WIRES:
            await print_request(now, model, full=asked.full)
        else:
            await print_table(now, [model], as_json=asked.form == "json")


async def _before(runtime: Runtime, asked: Asked, tools: Sequence[str] | None) -> Compiled:
    """What was said so far; nothing in a new session."""
    if not asked.place.is_new:
        stored = await stored_session(runtime, asked.place)
        head = (await runtime.forest.node(asked.place.node)).id if asked.place.node else ""
        return await compiled_session(runtime, stored, head=head, tools=tools)
    return Compiled(
        title="",
        model="",
        path=(),
        request=Request(system=await runtime.system_for(asked.system, Path.cwd()), tools=specs(runtime, tools)),
        renditions=runtime.renditions,
        config=runtime.config,
    )
