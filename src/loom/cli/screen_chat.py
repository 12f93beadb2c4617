"""`loom chat` in a terminal: hands the options of the command line to the terminal UI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loom.cli.shared.options import MessageOptions
from loom.config import load_config
from loom.errors import LoomError, NotFound
from loom.tui.app import LoomApp, OpenedLibrary, run_app

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.config import Config
    from loom.tui.remote_backend import RemoteBackend

HISTORY_FILE = "input-history.jsonl"


def run_screen_chat(options: MessageOptions) -> int:
    """Open the terminal UI; the store is opened after its first paint."""
    config = load_config(flags=options.flags)

    async def connect() -> OpenedLibrary:
        return await open_library(options, config)

    return run_app(LoomApp(connect, history_file=config.state_folder() / HISTORY_FILE))


def run_screen_attach(url: str, token: str, *, last: bool, session: str, model: str) -> int:
    """Open the terminal UI on a daemon."""
    config = load_config()

    async def connect() -> OpenedLibrary:
        from loom.tui.remote_backend import RemoteBackend

        found = RemoteBackend(url, token, config, workspace=str(Path.cwd())) if url else await find_daemon(config)
        if found is None:
            raise NotFound("No daemon is running.", hint="Start one: loom serve")
        try:
            chosen = await find_conversation(found, session, last=last)
            name = model or ("" if chosen else await found.default_model())
        except LoomError:
            await found.close()
            raise
        return OpenedLibrary(backend=found, session=chosen, model=name)

    return run_app(LoomApp(connect, history_file=config.state_folder() / HISTORY_FILE))


async def find_conversation(backend: RemoteBackend, session: str, *, last: bool) -> str:
    """Return the id of the session to open; empty for a new one."""
    if session or not last:
        return session.upper()
    newest = await backend.sessions(limit=1)
    if not newest:
        raise NotFound("The daemon has no sessions yet.", hint="Start one: loom attach")
    return newest[0].id


async def find_daemon(config: Config, *, tools: Sequence[str] | None = None) -> RemoteBackend | None:
    """Return the daemon of this configuration's store, if one runs."""
    from loom.client import find
    from loom.tui.remote_backend import RemoteBackend

    client = await find(config)
    if client is None:
        return None
    await client.close()
    token = config.token_file().read_text(encoding="ascii").strip()
    return RemoteBackend(client.url, token, config, workspace=str(Path.cwd()), tools=tools)


async def open_library(options: MessageOptions, config: Config) -> OpenedLibrary:
    """Open the store, choose tools and model, and find the conversation that was asked for."""
    from loom.cli.shared.daemon_lookup import may_use_daemon
    from loom.cli.shared.session_lookup import open_place
    from loom.cli.shared.session_options import choose_tools, requested_model, stored_key, use_key
    from loom.tui.local_backend import LocalBackend

    backend = await LocalBackend.start(config, system=options.system, agent=options.agent)
    try:
        runtime = backend.runtime
        backend.tools = await choose_tools(runtime, options.tools, default="all")
        model = await requested_model(runtime, options)
        session = ""
        if options.place.is_new:
            reference = runtime.model(model or await runtime.default_model()).reference
            model = model or reference
        else:
            opened = await open_place(
                runtime,
                options.place,
                model=model,
                system=options.system,
                title="",
                tools=backend.tools,
                agent=options.agent,
            )
            session = opened.id
            reference = (await runtime.sessions.get(session)).model
        use_key(runtime, options, stored_key(runtime, options), reference)
        if may_use_daemon(runtime, options, runtime.model(reference)):
            backend.daemon = await find_daemon(config, tools=backend.tools)
    except LoomError:
        await backend.close()
        raise
    return OpenedLibrary(backend=backend, session=session, model=model, permission=options.permission)
