"""What the next request of a session would carry, for any model, with whatever is being written at this moment.

The same preparation as the turn's own, run on a copy of what decides it: nothing is sent or kept by looking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from loom.agent.mend import Asking, Lessons
from loom.context.cost import Calibration
from loom.context.policy import Override, Placed, Request, Said, Watermark
from loom.daemon.core import Daemon
from loom.prompt import ToolSpec
from loom.runtime import Runtime
from loom.store.session_rows import StoredSession


async def path_of(runtime: Runtime, stored: StoredSession) -> tuple[str, tuple[Placed, ...]]:
    """The system prompt and the messages up to the head."""
    root, *nodes = await runtime.forest.path(stored.head_id)
    path = (Said(node.id, node.message, bool(node.meta.get("is_blind"))) for node in nodes if node.message is not None)
    return root.system or "", tuple(path)


async def asking_of(
    daemon: Daemon,
    stored: StoredSession,
    model: str = "",
    *,
    more: Sequence[Placed] = (),
    overrides: Mapping[str, Override] | None = None,
    max_tokens: int | None = None,
) -> Asking:
    """What decides the next request of a session; `more` are messages that are not said yet."""
    system, path = await path_of(daemon.runtime, stored)
    asking = await asking_for(daemon, (*path, *more), model or stored.model, system=system)
    settings, reference = stored.settings, asking.model.reference
    calibrations, lessons = settings.get("calibration", {}), settings.get("lessons", {})
    asking.overrides = dict(stored.overrides if overrides is None else overrides)
    asking.watermark = msgspec.convert(stored.watermark.get(reference, {}), Watermark)
    asking.calibration = msgspec.convert(calibrations.get(reference, {}), Calibration)
    asking.quarantine = frozenset(stored.quarantine.get(asking.model.provider, ()))
    asking.lessons = msgspec.convert(lessons.get(reference, {}), Lessons)
    if max_tokens is not None:
        asking.policy = msgspec.structs.replace(asking.policy, max_tokens=max_tokens)
    return asking


async def asking_for(daemon: Daemon, path: tuple[Placed, ...], model: str, *, system: str = "") -> Asking:
    """The same for messages outside any session."""
    runtime = daemon.runtime
    return Asking(
        path=path,
        model=await runtime.informed(model),
        policy=runtime.config.context_policy(),
        request=Request(system=system, tools=_tools(runtime)),
        overrides={},
        watermark=Watermark(),
        calibration=Calibration(),
        quarantine=frozenset(),
    )


def _tools(runtime: Runtime) -> tuple[ToolSpec, ...]:
    tools = {**runtime.mcp.tools, **runtime.tools} if runtime.offers_mcp else runtime.tools
    return tuple(tool.spec for tool in tools.values())
