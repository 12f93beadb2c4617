"""`loom attach`: a conversation on the line through a daemon, on this machine or elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click

from loom.cli.chat import is_quit, mentions, print_interrupted, read_line, unknown_command, use_line_editing
from loom.cli.shared.approval_prompt import EventLookahead, answer_in, is_interactive
from loom.cli.shared.exit_codes import TurnError
from loom.cli.shared.pending_approvals import approval_line
from loom.cli.shared.renderers import TerminalRenderer, TextRenderer, TurnOutcome, TurnRenderer
from loom.cli.shared.terminal import (
    Colors,
    ProgressLine,
    has_colour,
    is_plain,
    one_line,
    print_line,
    quiet_keys,
    sentence,
)
from loom.client import Client, RemoteSession, find
from loom.config import load_config
from loom.errors import ConfigError, LoomError, NotFound
from loom.events import ApprovalRequested, TextDelta, ThinkingDelta, TurnFailed
from loom.session import EventIterator

_PATIENCE_SECONDS = 5.0
_REFUSED = "auth.required"
_HOW_TO_GIVE_IT = "`loom token` prints it where the daemon runs. Give it with --token-file FILE or in LOOM_TOKEN."
_HELP = """\
@FILE              attach a file; a line that is only a path does the same
/model [NAME]      choose a model; without a name, show the current one
/help              this
/quit              exit (also Ctrl+D). The session stays on the daemon"""


@click.command("attach")
@click.argument("url", default="")
@click.option("-c", "--continue", "last", is_flag=True, help="Continue the daemon's newest session.")
@click.option("-r", "--resume", "session", default="", metavar="ID", help="Continue a session by its id.")
@click.option("-m", "--model", default="", help="The model of a new session.")
@click.option(
    "--token-file", default="", metavar="FILE", help="A file with the token of a remote daemon (also LOOM_TOKEN)."
)
@click.option("-R", "--hide-reasoning", is_flag=True, help="Do not show the model's reasoning on stderr.")
def attach_command(url: str, *, last: bool, session: str, model: str, token_file: str, hide_reasoning: bool) -> int:
    """Chat through a running daemon: the local one, or the one at URL.

    Other clients of the session see the same, and a turn continues when you leave.
    """
    if url and not url.startswith(("http://", "https://")):
        raise ConfigError(f"Not a URL: {url}", hint="Use a URL like http://127.0.0.1:5666")
    token = _token(token_file) if url else ""
    with asyncio.Runner() as runner:
        client = runner.run(_client(url, token))
        try:
            chosen = runner.run(_session(client, last=last, session_id=session, model=model))
            return _RemoteChat(runner, client, chosen, shows_reasoning=not hide_reasoning).run()
        except LoomError as error:
            if error.code == _REFUSED:  # the daemon speaks to programs, of the header that they send
                error.hint = _HOW_TO_GIVE_IT
            raise
        finally:
            runner.run(client.close())


async def _client(url: str, token: str) -> Client:
    config = load_config()
    if not url:
        found = await find(config)
        if found is None:
            raise NotFound("No daemon is running.", hint="Start one: loom serve")
        return found
    return Client(url, token, limits=config.media_limits(), patience_seconds=_PATIENCE_SECONDS)


def _token(file: str) -> str:
    """From a file, the environment or the terminal; never an argument, which other programs could read."""
    if file:
        try:
            return _sendable(Path(file).read_text(encoding="ascii"), file)
        except (OSError, UnicodeDecodeError):
            raise ConfigError(
                f"{file} cannot be read.", hint="Give the file that `loom token` was written to."
            ) from None
    token = os.environ.get("LOOM_TOKEN", "")
    if token.strip():
        return _sendable(token, "LOOM_TOKEN")
    if not sys.stdin.isatty():
        raise ConfigError("The daemon requires a token.", hint=_HOW_TO_GIVE_IT)
    return _sendable(str(click.prompt("token (hidden)", hide_input=True, err=True)), "what was typed")


def _sendable(written: str, where: str) -> str:
    """What cannot stand in a header would not reach the daemon, which then seems not to answer."""
    token = written.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"{where} contains no token (one line).", hint="`loom token` prints it.")
    return token


async def _session(client: Client, *, last: bool, session_id: str, model: str) -> RemoteSession:
    if last and not session_id:
        newest = await client.sessions(limit=1)
        if not newest:
            raise NotFound("The daemon has no sessions yet.", hint="Start one: loom attach")
        session_id = newest[0].id
    return await client.session(session_id.upper(), model=model, workspace="" if session_id else str(Path.cwd()))


class _RemoteChat:
    def __init__(
        self, runner: asyncio.Runner, client: Client, session: RemoteSession, *, shows_reasoning: bool
    ) -> None:
        self._runner = runner
        self._client = client
        self._session = session
        self._shows_reasoning = shows_reasoning

    def run(self) -> int:
        info = self._runner.run(self._session.info())
        title = f", {one_line(info.title, 50)}" if info.title else ""
        click.echo(Colors(sys.stdout).dim(f"loom · {self._client.url} · {info.model}{title} · /help, Ctrl+D to exit"))
        use_line_editing()
        self._print_errors(self._left_open())
        while (line := read_line("› ")) is not None:
            words = line.strip()
            if is_quit(words):
                break
            if not words:
                continue
            self._print_errors(self._command(words) if words.startswith("/") else self._say(words))
        return 0

    def _print_errors(self, doing: Coroutine[Any, Any, None]) -> None:
        """What goes wrong is said, and the conversation goes on."""
        try:
            with quiet_keys():
                self._runner.run(doing)
        except LoomError as error:
            print_line(sentence(error))
        except KeyboardInterrupt:
            print_interrupted()

    async def _left_open(self) -> None:
        """What the session waits for is asked first, by whomever it was left; without a terminal it goes on waiting."""
        waiting = await self._session.approvals()
        if waiting and is_interactive():
            await self._watch(self._session.resume(), "going on")
        elif waiting:
            print_line(f"Approval pending: {'; '.join(map(approval_line, waiting))}")

    async def _command(self, line: str) -> None:
        name, _, rest = line[1:].partition(" ")
        match name:
            case "model" if rest.strip():
                await self._session.use(rest.strip())
                click.echo(f"{(await self._session.info()).model} is now the model")
            case "model":
                click.echo((await self._session.info()).model)
            case "help":
                click.echo(_HELP)
            case _:
                raise unknown_command(name)

    async def _say(self, line: str) -> None:
        words, files = mentions(line)
        await self._watch(self._session.stream(*files, *([words] if words else [])), "asking")

    def _face(self) -> TurnRenderer:
        if has_colour(sys.stdout):
            return TerminalRenderer(self._client.media, shows_reasoning=self._shows_reasoning)
        return TextRenderer(shows_reasoning=self._shows_reasoning)

    async def _watch(self, turn: EventIterator, doing: str) -> None:
        face = self._face()
        failed: LoomError | None = None
        async with ProgressLine(plain=is_plain()) as progress:
            progress.show(doing)
            async with aclosing(turn), EventLookahead(turn) as events:
                async for event in events:
                    progress.step_aside()
                    if isinstance(event, TextDelta | ThinkingDelta | ApprovalRequested):
                        progress.clear()
                    await face.event(event)
                    if isinstance(event, ApprovalRequested):
                        await answer_in(events, self._session, event, "ask")
                    if isinstance(event, TurnFailed):
                        failed = TurnError(event.code, event.text, hint=event.hint)
        await face.finish(TurnOutcome(session=self._session.id, model=""))
        if failed is not None:
            print_line(sentence(failed))
