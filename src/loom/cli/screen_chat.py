"""`loom chat` in a terminal: hands the options of the command line to the terminal UI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loom.cli.shared.options import MessageOptions
from loom.errors import LoomError
from loom.tui.app import LoomApp, OpenedLibrary, run_app
from loom.tui.chat_library import ChatLibrary

if TYPE_CHECKING:
    from loom.config import Config

HISTORY_FILE = "input-history.jsonl"


def run_screen_chat(options: MessageOptions) -> int:
    """Open the terminal UI; the store is opened after its first paint."""

    async def connect() -> OpenedLibrary:
        load_config = await asyncio.to_thread(_import_runtime)  # keys are read meanwhile
        return await open_library(options, load_config(flags=options.flags))

    return run_app(LoomApp(connect))


def _import_runtime() -> Callable[..., Config]:
    import loom.runtime
    from loom.config import load_config

    assert loom.runtime.Runtime
    return load_config


def run_screen_attach(url: str, token: str, *, last: bool, session: str, model: str) -> int:
    """Open the terminal UI on a daemon."""

    async def connect() -> OpenedLibrary:
        from loom.cli.shared.daemon_lookup import reach_daemon
        from loom.cli.shared.session_lookup import attached_session
        from loom.config import load_config

        config = load_config()
        library = await reach_daemon(config, url, token)
        found = ChatLibrary(library, config, place=library.url, workspace=str(Path.cwd()), close=library.close)
        try:
            chosen = await attached_session(library, session, last=last)
            name = model or ("" if chosen else await found.default_model())
        except LoomError:
            await found.close()
            raise
        history_file = config.state_folder() / HISTORY_FILE
        return OpenedLibrary(library=found, session=chosen, model=name, history_file=history_file)

    return run_app(LoomApp(connect))


def _apply_template(options: MessageOptions, words: str) -> tuple[str, str]:
    from loom.cli.shared.attachments import MessageInput
    from loom.cli.shared.session_options import apply_template

    message, system = apply_template(options, MessageInput(words, ()))
    return message.words, system


async def open_library(options: MessageOptions, config: Config) -> OpenedLibrary:
    """Open the store, choose tools and model, and find the conversation that was asked for. Where a daemon runs on the
    same store with the same settings, turns run there, so that its other clients see them."""
    from loom.cli.shared.daemon_lookup import may_use_daemon
    from loom.cli.shared.session_lookup import open_target
    from loom.cli.shared.session_options import choose_tools, requested_model, stored_key, use_key
    from loom.client import find
    from loom.runtime import Runtime
    from loom.runtime.attachments import attachment

    template = options.template if options.place.is_new else None
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(Runtime.open(config, tools="all"))
        stack.push_async_callback(runtime.upkeep.run_if_due)
        tools = await choose_tools(runtime, options.tools, default="all")
        model = await requested_model(runtime, options)
        session = ""
        if options.place.is_new:
            reference = runtime.models.resolve(model or await runtime.models.default()).reference
            model = model or reference
        else:
            opened = await open_target(
                runtime,
                options.place,
                model=model,
                system=options.system,
                title="",
                tools=tools,
                agent=options.agent,
            )
            session = opened.id
            reference = (await opened.info()).model
        use_key(runtime, options, stored_key(runtime, options), reference)
        daemon = await find(config) if may_use_daemon(runtime, options, runtime.models.resolve(reference)) else None
        if daemon is not None:
            stack.push_async_callback(daemon.close)
        library = ChatLibrary(
            runtime.library if daemon is None else daemon,
            runtime.config,
            place="" if daemon is None else daemon.url,
            system=options.system,
            agent=options.agent,
            workspace=str(Path.cwd()),
            tools=tools,
            close=stack.pop_all().aclose,
        )
        return OpenedLibrary(
            library=library,
            session=session,
            model=model,
            permission=options.permission,
            sampling=options.sampling,
            attachments=tuple(attachment(name) for name in template.attach) if template is not None else (),
            apply_template=partial(_apply_template, options) if template is not None else None,
            notices=(*runtime.config.warnings, *runtime.notices),
            history_file=config.state_folder() / HISTORY_FILE,
        )
