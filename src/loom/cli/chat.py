"""`loom chat`, which is also `loom` alone, and `loom attach` for a session of a daemon: the terminal UI, or with
--plain the line interface.

Nothing heavy is imported here: the first screen is drawn before the runtime is loaded.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loom.cli.shared.options import MessageOptions, message_options, message_options_from
from loom.cli.shared.terminal import PLAIN, is_plain
from loom.errors import ConfigError, LoomError

if TYPE_CHECKING:
    from loom.config import Config
    from loom.tui.app import AskTrust, Connect, OpenedLibrary


@click.command("chat")
@message_options(tools="all")
def chat_command(**given: Any) -> int:
    """Start an interactive chat in the terminal. F1 lists keys and commands. With --plain, a line interface for screen
    readers and simple terminals."""
    options = MessageOptions(**message_options_from(given))
    if options.plain:
        from loom.cli.line_chat import run_line_chat
        from loom.cli.trust import ask_about_folder

        ask_about_folder()
        return run_line_chat(options)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "loom chat needs a terminal.",
            hint='In scripts, ask one question with loom "…", or read messages line by line with loom chat --plain.',
        )
    return _run_screen_chat(options)


_REFUSED = "auth.required"
_HOW_TO_GIVE_IT = "`loom token` prints it where the daemon runs. Pass it with --token-file FILE or in LOOM_TOKEN."


@click.command("attach")
@click.argument("url", default="")
@click.option("-c", "--continue", "last", is_flag=True, help="Continue the daemon's newest session.")
@click.option("-r", "--resume", "session", default="", metavar="ID", help="Continue a session by its id.")
@click.option("-m", "--model", default="", help="The model of a new session.")
@click.option(
    "--token-file", default="", metavar="FILE", help="A file with the token of a remote daemon (also LOOM_TOKEN)."
)
@click.option("-R", "--hide-reasoning", is_flag=True, help="Do not show the model's reasoning on stderr.")
@click.option("--plain", is_flag=True, help="The line interface, without colors or images (also LOOM_PLAIN=1).")
def attach_command(
    url: str, *, last: bool, session: str, model: str, token_file: str, hide_reasoning: bool, plain: bool
) -> int:
    """Chat through a running daemon: the local one, or the one at URL.

    Other clients of the session see the same, and a turn continues when you leave.
    """
    if url and not url.startswith(("http://", "https://")):
        raise ConfigError(f"Not a URL: {url}", hint="Use a URL like http://127.0.0.1:5666")
    token = _token(token_file) if url else ""
    if plain:
        os.environ[PLAIN] = "1"
    if sys.stdin.isatty() and sys.stdout.isatty() and not is_plain():
        return _explain_refusal(lambda: _run_screen_attach(url, token, last=last, session=session, model=model))
    from loom.cli.line_chat import run_line_attach

    return _explain_refusal(
        lambda: run_line_attach(url, token, last=last, session=session, model=model, hide_reasoning=hide_reasoning)
    )


def _explain_refusal(run: Callable[[], int]) -> int:
    try:
        return run()
    except LoomError as error:
        if error.code == _REFUSED:  # the daemon's hint is for programs: it is about the header
            error.hint = _HOW_TO_GIVE_IT
        raise


def _token(file: str) -> str:
    """Read the token from a file, the environment or the terminal; never from an argument, which other programs could
    read."""
    if file:
        try:
            return _check_token(Path(file).read_text(encoding="ascii"), file)
        except (OSError, UnicodeDecodeError):
            raise ConfigError(
                f"{file} cannot be read.", hint="Use the file that `loom token` was written to."
            ) from None
    token = os.environ.get("LOOM_TOKEN", "")
    if token.strip():
        return _check_token(token, "LOOM_TOKEN")
    if not sys.stdin.isatty():
        raise ConfigError("The daemon requires a token.", hint=_HOW_TO_GIVE_IT)
    return _check_token(str(click.prompt("token (hidden)", hide_input=True, err=True)), "what was typed")


def _check_token(written: str, where: str) -> str:
    """Return the token; raise `ConfigError` if it cannot be part of a header: such a request would fail as if the
    daemon did not respond."""
    token = written.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"{where} contains no token (one line).", hint="`loom token` prints it.")
    return token


# The terminal UI ------------------------------------------------------------------------------------------------------

HISTORY_FILE = "input-history.jsonl"


def _run_screen_chat(options: MessageOptions) -> int:
    """Run the terminal UI. After its first paint, ask about the folder, then open the store."""

    async def connect(ask: AskTrust) -> OpenedLibrary:  # in threads, so that keys are handled meanwhile
        config = await asyncio.to_thread(_load_config, options)
        folder = Path.cwd()
        found = await asyncio.to_thread(config.folder_trust, folder)
        is_trusted = await ask(found)
        if is_trusted is not None:
            config.trust_records(folder).decide_about(folder, found.digest, is_trusted=is_trusted)
            config = await asyncio.to_thread(_load_config, options)
        await asyncio.to_thread(importlib.import_module, "loom.runtime")
        gc.freeze()  # garbage collections skip what stays, and take no time from keys
        return await open_library(options, config)

    return _run_screen(connect)


def _load_config(options: MessageOptions) -> Config:
    from loom.config import load_config

    return load_config(flags=options.flags)


def _run_screen(connect: Connect) -> int:
    """Run the terminal UI. Collect no garbage before the first paint: what is loaded until then stays."""
    gc.disable()
    from loom.tui.app import LoomApp, run_app

    async def connect_after_paint(ask: AskTrust) -> OpenedLibrary:
        gc.enable()
        return await connect(ask)

    return run_app(LoomApp(connect_after_paint))


def _run_screen_attach(url: str, token: str, *, last: bool, session: str, model: str) -> int:
    """Run the terminal UI on a daemon, whose folders it asks about once it is connected."""

    async def connect(_: AskTrust) -> OpenedLibrary:
        from loom.cli.shared.daemon_lookup import reach_daemon
        from loom.cli.shared.session_options import attached_session
        from loom.config import load_config
        from loom.tui.app import OpenedLibrary
        from loom.tui.chat_library import ChatLibrary

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

    return _run_screen(connect)


def _apply_template(options: MessageOptions, words: str) -> tuple[str, str]:
    from loom.cli.shared.attachments import MessageInput
    from loom.cli.shared.session_options import apply_template

    message, system = apply_template(options, MessageInput(words, ()))
    return message.words, system


async def open_library(options: MessageOptions, config: Config) -> OpenedLibrary:
    """Open the store, select tools and model, and find the requested conversation. If a daemon uses the same store with
    the same settings, turns run there, so that its other clients see them."""
    from loom.cli.shared.daemon_lookup import may_use_daemon
    from loom.cli.shared.session_options import choose_tools, open_target, requested_model, stored_key, use_key
    from loom.client import local_client
    from loom.runtime import Runtime
    from loom.runtime.attachments import attachment
    from loom.tui.app import OpenedLibrary
    from loom.tui.chat_library import ChatLibrary

    template = options.template if options.place.is_new else None
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(Runtime.open(config, tools="all"))
        stack.push_async_callback(runtime.upkeep.run_if_due)
        tools = await choose_tools(runtime, options.tools, default="all")
        model = await requested_model(runtime, options)
        session = ""
        if options.place.is_new:
            model = reference = model or await runtime.models.default()
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
        daemon = (
            await local_client(config) if may_use_daemon(runtime, options, runtime.models.resolve(reference)) else None
        )
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
