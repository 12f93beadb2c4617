"""The daemon of this machine, if one runs, and whether a message may be sent through it.

A daemon with other settings is not used: without this folder's configuration or this shell's keys it would answer
differently from this process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from loom.cli.shared.options import MessageOptions
from loom.client import RemoteLibrary, RemoteSession, local_client
from loom.client.connection import DaemonConnection
from loom.config import Config
from loom.errors import ConfigError, LoomError, NotFound
from loom.models import Model
from loom.runtime import Runtime, key_for
from loom.runtime.session import LocalSession

_PATIENCE_SECONDS: Final = 5.0
_RESOLVED_HERE: Final = ("home", "model", "prompt")
"""Settings that are sent with every message, or by which the daemon was found."""


async def running_daemon(config: Config) -> DaemonConnection | None:
    """Return a connection to the daemon of this configuration's data folder, None if there is none. The caller closes
    it."""
    client = await local_client(config)
    return client.connection if client is not None else None


async def reach_daemon(config: Config, url: str = "", token: str = "") -> RemoteLibrary:
    """Return the library of the daemon at `url`, else of the local one; raise `NotFound` if none is running."""
    if url:
        return RemoteLibrary(url, token, limits=config.media_limits(), patience_seconds=_PATIENCE_SECONDS)
    found = await local_client(config)
    if found is None:
        raise no_daemon(config)
    return found


def no_daemon(config: Config) -> LoomError:
    """Return the error for a command that found no daemon: none is running (`NotFound`), or one does not respond."""
    from loom.daemon.serve import unresponsive_daemon

    if (pid := unresponsive_daemon(config)) is not None:
        return ConfigError(f"The daemon (pid {pid}) does not respond.", hint="Try again, or stop it: loom stop")
    return NotFound("No daemon is running.", hint="Start one: `loom serve`.")


@asynccontextmanager
async def open_session(
    runtime: Runtime, speaking: MessageOptions, session: LocalSession, tools: Sequence[str] | None = None
) -> AsyncGenerator[LocalSession | RemoteSession]:
    """Yield the session to use: through the daemon if one runs with the same settings, else the local one. `tools` are
    those that the local session was opened with."""
    model = runtime.models.resolve((await session.info()).model)
    client = await local_client(runtime.config) if may_use_daemon(runtime, speaking, model, tools) else None
    if client is None:
        yield session
        return
    async with client:
        yield await client.session(session.id, tools=tools)


def may_use_daemon(runtime: Runtime, options: MessageOptions, model: Model, tools: Sequence[str] | None = None) -> bool:
    """Return whether a daemon would answer like this process, with `tools` (None: all)."""
    may = options.uses_daemon and not options.key and has_same_settings(runtime.config, model)
    uses_servers = tools is None or not runtime.toolbox.tools.keys() >= set(tools)
    if not may or not uses_servers:
        return may
    # A daemon has only the servers of the user's configuration, not those of this folder.
    return all(server.name in runtime.config.mcp.servers for server in runtime.mcp.status())


def has_same_settings(config: Config, model: Model) -> bool:
    """Return whether all relevant settings are in the user's own files, which a daemon reads too."""
    own = all(
        entry.source.layer == "user" or path[0] in _RESOLVED_HERE for path, entry in config.provenance.entries.items()
    )
    return (
        own
        and not config.provenance.project_entries
        and key_for(model.provider, config, {}) == key_for(model.provider, config)
    )
