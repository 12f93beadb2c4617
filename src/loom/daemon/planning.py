"""What the next request of a session would carry, for any model, with whatever is being written at this moment.

The same preparation as the turn's own, run on a copy of what decides it: nothing is sent or kept by looking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from loom.agent.mend import Asking, Lessons
from loom.context.cost import Calibration
from loom.context.policy import Override, Placed, Request, Said, Watermark, wishes_of
from loom.daemon.core import Daemon
from loom.errors import NotFound
from loom.prompt import ToolSpec
from loom.runtime import Runtime
from loom.store.session_rows import StoredSession


async def path_of(runtime: Runtime, node: str) -> tuple[str, tuple[Placed, ...]]:
    """The system prompt and the messages up to a node."""
    root, *nodes = await runtime.forest.path(node)
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
    system, path = await path_of(daemon.runtime, stored.head_id)
    asking = await asking_for(daemon, (*path, *more), model or stored.model, system=system)
    settings, reference = stored.settings, asking.model.reference
    calibrations, lessons = settings.get("calibration", {}), settings.get("lessons", {})
    kept, asking.alts = wishes_of(stored.overrides)
    asking.overrides = kept if overrides is None else dict(overrides)
    asking.watermark = msgspec.convert(stored.watermark.get(reference, {}), Watermark)
    asking.calibration = msgspec.convert(calibrations.get(reference, {}), Calibration)
    asking.quarantine = frozenset(stored.quarantine.get(asking.model.provider, ()))
    asking.lessons = msgspec.convert(lessons.get(reference, {}), Lessons)
    if max_tokens is not None:
        asking.policy = msgspec.structs.replace(asking.policy, max_tokens=max_tokens)
    return asking


async def last_asking(daemon: Daemon, asking: Asking) -> Asking | None:
    """What decided the last request that the model was really sent: what was prepared then is prepared so again. None
    where it was not asked yet, or where what it was asked is gone."""
    mark = asking.watermark
    if not mark.sent_node:
        return None
    try:
        _, path = await path_of(daemon.runtime, mark.sent_node)
    except NotFound:
        return None
    overrides, alts = wishes_of(msgspec.json.decode(mark.sent_wishes or "{}", type=dict[str, str]))
    policy = daemon.runtime.config.context_policy()
    return msgspec.structs.replace(asking, path=path, overrides=overrides, alts=alts, policy=policy)


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
    tools = runtime.offered()
    return tuple(tool.spec for tool in tools.values())
