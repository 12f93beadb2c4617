"""`loom chat` in a terminal: hands the options of the command line to the terminal UI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.cli.shared.options import MessageOptions
from loom.config import load_config
from loom.errors import LoomError
from loom.tui.app import LoomApp, OpenedLibrary, run_app

if TYPE_CHECKING:
    from loom.config import Config

HISTORY_FILE = "input-history.jsonl"


def run_screen_chat(options: MessageOptions) -> int:
    """Open the terminal UI; the store is opened after its first paint."""
    config = load_config(flags=options.flags)

    async def connect() -> OpenedLibrary:
        return await open_library(options, config)

    return run_app(LoomApp(connect, history_file=config.state_folder() / HISTORY_FILE))


async def open_library(options: MessageOptions, config: Config) -> OpenedLibrary:
    """Open the store, choose tools and model, and find the conversation that was asked for."""
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
    except LoomError:
        await backend.close()
        raise
    return OpenedLibrary(backend=backend, session=session, model=model, permission=options.permission)
