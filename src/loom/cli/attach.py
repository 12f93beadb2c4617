"""`loom attach`: a conversation on the line through a daemon, on this machine or elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click

from loom.cli.ahead import Ahead
from loom.cli.approving import answer_in, is_anyone_there
from loom.cli.chat import leaves, mentions, read_line, say_interrupted, unknown_command, use_line_editing
from loom.cli.exits import TurnEnded
from loom.cli.faces import Face, Outcome, TerminalFace, TextFace
from loom.cli.left_open import described
from loom.cli.progress import Progress
from loom.cli.terminal import Ink, has_colour, is_plain, one_line, quiet_keys, say, sentence
from loom.client import Client, RemoteSession, find
from loom.config import load_config
from loom.errors import ConfigError, LoomError, NotFound
from loom.events import ApprovalRequested, Event, TextDelta, ThinkingDelta, TurnFailed

_PATIENCE_SECONDS = 5.0
_REFUSED = "auth.required"
_HOW_TO_GIVE_IT = "`loom token` prints it where the daemon runs. Give it with --token-file FILE or in LOOM_TOKEN."
_HELP = """\
@FILE              send a file along; so does a line that is nothing but its path
/model [NAME]      whom to ask from now on; without a name, who it is
/help              this
/quit              leave; so does Ctrl+D. The session stays with the daemon"""


@click.command("attach")
@click.argument("url", default="")
@click.option("-c", "--continue", "last", is_flag=True, help="Go on with the daemon's newest session.")
@click.option("-r", "--resume", "session", default="", metavar="ID", help="Go on with a session by its id.")
@click.option("-m", "--model", default="", help="The model of a new session.")
@click.option("--token-file", default="", metavar="FILE", help="The token of a daemon elsewhere (also LOOM_TOKEN).")
@click.option("-R", "--hide-reasoning", is_flag=True, help="Do not show the model's reasoning on stderr.")
def command(url: str, *, last: bool, session: str, model: str, token_file: str, hide_reasoning: bool) -> int:
    """Talk through a daemon: the one of this machine, or the one at URL.

    Whoever else watches the session sees the same, and a turn goes on when you leave.
    """
    if url and not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url} is no address.", hint="It looks like http://127.0.0.1:5666")
    token = _token(token_file) if url else ""
    with asyncio.Runner() as runner:
        client = runner.run(_client(url, token))
        try:
            chosen = runner.run(_session(client, last=last, session_id=session, model=model))
            return _Talk(runner, client, chosen, shows_reasoning=not hide_reasoning).run()
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
            raise NotFound("no daemon runs here.", hint="Start it: loom serve")
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
        raise ConfigError("the token of the daemon is needed.", hint=_HOW_TO_GIVE_IT)
    return _sendable(str(click.prompt("token (hidden)", hide_input=True, err=True)), "what was typed")


def _sendable(written: str, where: str) -> str:
    """What cannot stand in a header would not reach the daemon, which then seems not to answer."""
    token = written.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"{where} holds no token, which is one line.", hint="`loom token` prints it.")
    return token


async def _session(client: Client, *, last: bool, session_id: str, model: str) -> RemoteSession:
    if last and not session_id:
        newest = await client.sessions(limit=1)
        if not newest:
            raise NotFound("the daemon has no conversation yet.", hint="Begin one: loom attach")
        session_id = newest[0].id
    return await client.session(session_id.upper(), model=model, workspace="" if session_id else str(Path.cwd()))


class _Talk:
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
        click.echo(Ink(sys.stdout).dim(f"loom · {self._client.url} · {info.model}{title} · /help, Ctrl+D leaves"))
        use_line_editing()
        self._guarded(self._left_open())
        while (line := read_line("› ")) is not None:
            words = line.strip()
            if leaves(words):
                break
            if not words:
                continue
            self._guarded(self._command(words) if words.startswith("/") else self._say(words))
        return 0

    def _guarded(self, doing: Coroutine[Any, Any, None]) -> None:
        """What goes wrong is said, and the conversation goes on."""
        try:
            with quiet_keys():
                self._runner.run(doing)
        except LoomError as error:
            say(sentence(error))
        except KeyboardInterrupt:
            say_interrupted()

    async def _left_open(self) -> None:
        """What the session waits for is asked first, by whomever it was left; without a terminal it goes on waiting."""
        waiting = await self._session.approvals()
        if waiting and is_anyone_there():
            await self._watch(self._session.resume(), "going on")
        elif waiting:
            say(f"this conversation waits for your word on {'; '.join(map(described, waiting))}")

    async def _command(self, line: str) -> None:
        name, _, rest = line[1:].partition(" ")
        match name:
            case "model" if rest.strip():
                await self._session.use(rest.strip())
                click.echo(f"{(await self._session.info()).model} answers from now on")
            case "model":
                click.echo((await self._session.info()).model)
            case "help":
                click.echo(_HELP)
            case _:
                raise unknown_command(name)

    async def _say(self, line: str) -> None:
        words, files = mentions(line)
        await self._watch(self._session.stream(*files, *([words] if words else [])), "asking")

    def _face(self) -> Face:
        if has_colour(sys.stdout):
            return TerminalFace(self._client.media, shows_reasoning=self._shows_reasoning)
        return TextFace(shows_reasoning=self._shows_reasoning)

    async def _watch(self, turn: AsyncGenerator[Event], doing: str) -> None:
        face = self._face()
        failed: LoomError | None = None
        async with Progress(plain=is_plain()) as progress:
            progress.show(doing)
            async with aclosing(turn), Ahead(turn) as events:
                async for event in events:
                    progress.step_aside()
                    if isinstance(event, TextDelta | ThinkingDelta | ApprovalRequested):
                        progress.clear()
                    await face.event(event)
                    if isinstance(event, ApprovalRequested):
                        await answer_in(events, self._session, event, "ask")
                    if isinstance(event, TurnFailed):
                        failed = TurnEnded(event.code, event.text, hint=event.hint)
        await face.finish(Outcome(session=self._session.id, model=""))
        if failed is not None:
            say(sentence(failed))
