"""Routes for limits, models, keys and samples; health and metrics."""

from __future__ import annotations

import asyncio
from importlib import metadata
from typing import Final

import msgspec
from starlette.responses import Response

from loom.api_types import (
    AgentList,
    AgentQuery,
    CommandList,
    CommandQuery,
    ConfigView,
    FolderTrustView,
    KeyList,
    KeyView,
    ModelList,
    NewKey,
    SampleList,
    SampleView,
    Status,
    ToolList,
    TrustDecisionBody,
    TrustQuery,
    UsageQuery,
    UsageReport,
    Version,
)
from loom.config import Secret
from loom.config.key_file import keys_file, read_keys, services, write_keys
from loom.daemon import metrics
from loom.daemon.dispatch import Call
from loom.daemon.gateway.models import gateway_model
from loom.daemon.problems import RequestError
from loom.daemon.services import Daemon
from loom.errors import ConfigError, NotFound
from loom.providers.catalog import key_env
from loom.providers.samples import samples as shipped
from loom.runtime import Runtime, key_for

API: Final = 1
_TITLES: Final = {"login.png": "A screenshot", "receipt.jpg": "A receipt", "leaflet.pdf": "A leaflet"}


class NotReady(RequestError):
    code = "daemon.not_ready"
    status = 503


async def health(_: Call[None, None]) -> Status:
    """Return ok: the process responds."""
    return Status("ok")


async def get_readiness(call: Call[None, None]) -> Status:
    """Return ok if the daemon accepts work: it has started, is not stopping, and its stores can be written."""
    if not call.daemon.is_ready:
        raise NotReady("The daemon is starting or stopping.")
    if problem := await call.daemon.readiness.problem():
        raise NotReady(problem)
    return Status("ok", () if call.daemon.bus.is_up else ("bus",))


async def version(_: Call[None, None]) -> Version:
    return Version(metadata.version("loom-runtime"), API)


async def get_metrics(call: Call[None, None]) -> Response:
    daemon = call.daemon
    leases, turns = daemon.runtime.dispatch.leases.counters, daemon.runtime.turn_counters
    gauges = {
        "loom_turns_running": float(daemon.turns.active),
        "loom_watchers": float(daemon.feeds.watcher_count),
        "loom_lease_takeovers": float(leases.takeovers),
        "loom_leases_lost": float(leases.lost),
        "loom_turns_continued": float(turns.continued),
        "loom_tokens_paid_twice": float(turns.repeated_tokens),
    }
    return Response(daemon.metrics.text(gauges), 200, {"Cache-Control": "no-store"}, metrics.TYPE)


async def config(call: Call[None, None]) -> ConfigView:
    return await call.daemon.library.limits()


async def models(call: Call[None, None]) -> ModelList:
    """Return Loom's own list of models, and the same models in the formats of OpenAI and Anthropic."""
    found = await call.daemon.library.models()
    aliases = [name for name in call.daemon.runtime.config.gateway.aliases if not set(name) & set("*?[")]
    names = dict.fromkeys([*aliases, *(model.reference for model in found.models)])
    data = tuple(gateway_model(name) for name in names)
    return msgspec.structs.replace(found, data=data, first_id=data[0].id, last_id=data[-1].id)


async def tools(call: Call[None, None]) -> ToolList:
    return ToolList(await call.daemon.library.tools())


async def agents(call: Call[AgentQuery, None]) -> AgentList:
    return AgentList(await call.daemon.library.agents(call.query.workspace))


async def commands(call: Call[CommandQuery, None]) -> CommandList:
    return CommandList(await call.daemon.library.commands(call.query.workspace))


async def get_trust(call: Call[TrustQuery, None]) -> FolderTrustView:
    return await call.daemon.library.folder_trust(call.query.workspace)


async def decide_trust(call: Call[None, TrustDecisionBody]) -> FolderTrustView:
    body = call.body
    return await call.daemon.library.decide_trust(body.workspace, body.digest, is_trusted=body.trusted)


async def usage(call: Call[UsageQuery, None]) -> UsageReport:
    found = await call.daemon.library.usage(call.query.days, tools=call.query.tools)
    readable = call.daemon.access.only_readable
    rows = await readable(call.identity, found.rows, lambda row: row.session)
    tools = await readable(call.identity, found.tools, lambda row: row.session)
    return msgspec.structs.replace(found, rows=rows, tools=tools)


async def samples(call: Call[None, None]) -> SampleList:
    """Store the three sample files, if needed, and return them."""
    found: list[SampleView] = []
    for sample in shipped():
        media = await call.daemon.library.add_media(sample.data, sample.name)
        await call.daemon.access.note_media(call.identity, media.digest)
        found.append(SampleView(sample.name, _TITLES[sample.name], sample.question, media))
    return SampleList(tuple(found))


# Keys -----------------------------------------------------------------------------------------------------------------


async def keys(call: Call[None, None]) -> KeyList:
    return _keys(call.daemon.runtime)


def _keys(runtime: Runtime) -> KeyList:
    """Return the keys, each only by its last characters."""
    found: list[KeyView] = []
    for provider in services():
        key = key_for(provider, runtime.config) or ""
        last4 = key[-4:] if len(key) >= 12 else ""
        found.append(KeyView(provider=provider, set=bool(key), env=key_env(provider), last4=last4))
    return KeyList(tuple(found))


async def set_key(call: Call[None, NewKey]) -> KeyList:
    provider, key = _provider(call.path("provider")), call.body.key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("Not a key: a key is one word of ASCII characters.", hint="Nothing was stored.")
    return await _keep(call.daemon, {provider: key})


async def remove_key(call: Call[None, None]) -> KeyList:
    return await _keep(call.daemon, {_provider(call.path("provider")): ""})


def _provider(name: str) -> str:
    if name not in services():
        raise NotFound("Unknown service.", hint=f"Known: {', '.join(services())}.")
    return name


async def _keep(daemon: Daemon, changes: dict[str, str]) -> KeyList:
    """Write the keys to their file, and apply them at once."""
    runtime = daemon.runtime
    environ = runtime.config.provenance.environ

    def write() -> None:
        file = keys_file(environ)
        kept = read_keys(file)
        if any(not key and name not in kept for name, key in changes.items()):
            raise NotFound(
                "No key is stored for it.", hint="Remove a key from the environment or the configuration there."
            )
        write_keys(file, {name: key for name, key in {**kept, **changes}.items() if key})

    async with daemon.config_lock:
        await asyncio.to_thread(write)
        known = {**runtime.config.keys, **{name: Secret(key) for name, key in changes.items()}}
        runtime.reconfigure(
            msgspec.structs.replace(runtime.config, keys={name: secret for name, secret in known.items() if secret})
        )
        return _keys(runtime)
