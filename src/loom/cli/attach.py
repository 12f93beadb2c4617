"""`loom attach`: `loom chat` in a session of a daemon, on this machine or elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from loom.cli.line_chat import Chat
from loom.cli.shared.approval_prompt import is_interactive
from loom.cli.shared.attachments import MessageInput
from loom.cli.shared.daemon_lookup import reach_daemon
from loom.cli.shared.options import MessageOptions
from loom.cli.shared.pending_approvals import approval_line
from loom.cli.shared.renderers import TerminalRenderer, TextRenderer, TurnRenderer
from loom.cli.shared.session_lookup import attached_session
from loom.cli.shared.terminal import PLAIN, ProgressLine, has_colour, is_plain, one_line, print_line
from loom.client import RemoteLibrary, RemoteSession
from loom.config import load_config
from loom.errors import ConfigError, LoomError
from loom.library import read_media
from loom.models import Usage
from loom.session import Session

_REFUSED = "auth.required"
_HOW_TO_GIVE_IT = "`loom token` prints it where the daemon runs. Give it with --token-file FILE or in LOOM_TOKEN."


@click.command("attach")
@click.argument("url", default="")
@click.option("-c", "--continue", "last", is_flag=True, help="Continue the daemon's newest session.")
@click.option("-r", "--resume", "session", default="", metavar="ID", help="Continue a session by its id.")
@click.option("-m", "--model", default="", help="The model of a new session.")
@click.option(
    "--token-file", default="", metavar="FILE", help="A file with the token of a remote daemon (also LOOM_TOKEN)."
)
@click.option("-R", "--hide-reasoning", is_flag=True, help="Do not show the model's reasoning on stderr.")
@click.option("--plain", is_flag=True, help="The line interface, without colours or images (also LOOM_PLAIN=1).")
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
        from loom.cli.screen_chat import run_screen_attach

        return _explain_refusal(lambda: run_screen_attach(url, token, last=last, session=session, model=model))
    return _explain_refusal(
        lambda: _run_line_attach(url, token, last=last, session=session, model=model, hide_reasoning=hide_reasoning)
    )


def _explain_refusal(run: Callable[[], int]) -> int:
    try:
        return run()
    except LoomError as error:
        if error.code == _REFUSED:  # the daemon speaks to programs, of the header that they send
            error.hint = _HOW_TO_GIVE_IT
        raise


def _run_line_attach(url: str, token: str, *, last: bool, session: str, model: str, hide_reasoning: bool) -> int:
    with asyncio.Runner() as runner:
        client = runner.run(reach_daemon(load_config(), url, token))
        try:
            chosen = runner.run(_session(client, last=last, session_id=session, model=model))
            options = MessageOptions(shows_reasoning=not hide_reasoning, plain=is_plain())
            return RemoteChat(runner, client, chosen, options).run()
        finally:
            runner.run(client.close())


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


async def _session(client: RemoteLibrary, *, last: bool, session_id: str, model: str) -> RemoteSession:
    chosen = await attached_session(client, session_id, last=last)
    return await client.session(chosen, model=model, workspace="" if chosen else str(Path.cwd()))


class RemoteChat(Chat):
    """A chat in a session of a daemon."""

    def __init__(
        self, runner: asyncio.Runner, client: RemoteLibrary, session: RemoteSession, options: MessageOptions
    ) -> None:
        super().__init__(runner, DaemonHost(), options)
        self._client = client
        self._session = session

    @property
    def _remote(self) -> RemoteSession:
        assert isinstance(self._session, RemoteSession)
        return self._session

    async def _open(self) -> str:
        """Prompt for pending approvals first; without a terminal they stay pending."""
        info = await self._remote.info()
        waiting = await self._remote.approvals()
        if waiting and is_interactive():
            async with ProgressLine(plain=self._options.plain) as progress:
                await self._render_turn(self._remote, self._remote.resume(), progress)
        elif waiting:
            print_line(f"Approval pending: {'; '.join(map(approval_line, waiting))}")
        title = f", {one_line(info.title, 50)}" if info.title else ""
        return f"{self._client.url} · {info.model}{title}"

    async def _send(self, message: MessageInput) -> None:
        async with ProgressLine(plain=self._options.plain) as progress:
            turn = self._remote.stream(*message.content, options=self._sampling)
            await self._render_turn(self._remote, turn, progress, said=message.words)

    def _renderer(self) -> TurnRenderer:
        if has_colour(sys.stdout):
            return TerminalRenderer(partial(read_media, self._client), shows_reasoning=self._options.shows_reasoning)
        return TextRenderer(shows_reasoning=self._options.shows_reasoning)

    async def _use_model(self, name: str) -> str:
        if name:
            await self._remote.use(name)
        return (await self._remote.info()).model


class DaemonHost:
    """The host of sessions in a daemon. Prices and renditions are the daemon's, which does not report them."""

    async def model_of(self, session: Session) -> str:
        assert isinstance(session, RemoteSession)
        return (await session.info()).model

    async def cost(self, session: Session, usage: Usage) -> float | None:
        return None

    def follow_renditions(self, show: Callable[[str], None] | None) -> None:
        return
