"""`loom chat`, which is also `loom` alone: a conversation on the line.

The prompt is read between turns, in the ordinary way, so that editing, history and Ctrl+C work as in a shell; Ctrl+C
during an answer ends the answer, not the conversation.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final

import click

from loom.agent.session import LocalSession
from loom.cli.approving import Permission
from loom.cli.asking import choose_tools, face_for, model_for, tell, warn
from loom.cli.attachments import attachment, shortened
from loom.cli.choosing import LATEST, Place, open_place
from loom.cli.compiling import compiled_session
from loom.cli.compiling import models as models_of
from loom.cli.completing import complete_models, complete_sessions
from loom.cli.context import print_table
from loom.cli.footer import footer
from loom.cli.terminal import Ink, is_plain, one_line, say, sentence
from loom.cli.turns import speak
from loom.content.blocks import ContentBlock
from loom.content.inputs import Attachment
from loom.errors import LoomError
from loom.runtime import Runtime

_MENTION: Final = re.compile(r'(?:^|(?<=\s))@(?:"([^"]+)"|(\S+))')
_HELP: Final = """\
/model [NAME]      whom to ask from now on; without a name, who it is
/context [A,B]     what the next request would carry, for these models
/attach FILE       send a file with the next message; also @FILE inside a message
/fork              go on in a new session; the old one stays as it is
/tree              the conversation with its branches
/help              this
/quit              leave; so does Ctrl+D. `loom -c` comes back"""


@click.command("chat")
@click.option("-m", "--model", default="", shell_complete=complete_models, help="platform/name, or a configured name.")
@click.option("-c", "--continue", "last_here", is_flag=True, help="Go on with the last session of this folder.")
@click.option(
    "-r",
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    default="",
    metavar="[ID|N|latest]",
    shell_complete=complete_sessions,
    help="Go on with a session: its id, its number in `loom sessions`, its title.",
)
@click.option("--from", "node", default="", metavar="NODE", help="Go on from this message; nothing is overwritten.")
@click.option("--fork", is_flag=True, help="Go on in a new session and leave the old one as it is.")
@click.option("-s", "--system", default="", help="The system prompt of a new session.")
@click.option(
    "-T",
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME",
    help="A tool that the model may call; all (the default), safe or none.",
)
@click.option(
    "--permission",
    type=click.Choice(["ask", "auto", "deny"]),
    default="ask",
    show_default=True,
    help="What happens when a tool needs your word.",
)
@click.option("--plain", is_flag=True, help="No colours, boxes or pictures (also LOOM_PLAIN=1).")
@click.option("-R", "--hide-reasoning", is_flag=True, help="Do not show the model's reasoning.")
def command(**given: Any) -> int:
    """Talk on the line. Files come along with @FILE or /attach; /help tells the rest."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        runtime = runner.run(stack.enter_async_context(Runtime.open()))
        try:
            return Chat(runner, runtime, given).run()
        finally:
            runner.run(stack.aclose())


class Chat:
    def __init__(self, runner: asyncio.Runner, runtime: Runtime, given: dict[str, Any]) -> None:
        self._runner = runner
        self._runtime = runtime
        self._given = given
        self._permission: Permission = given["permission"]
        self._model: str = given["model"]
        self._place = Place(
            last_here=given["last_here"], resume=given["resume"], node=given["node"], fork=given["fork"]
        )
        self._session: LocalSession | None = None
        self._waiting: list[Attachment] = []
        self._ink = Ink(sys.stdout)
        self._plain = given["plain"] or is_plain()

    def run(self) -> int:
        self._runner.run(self._open())
        if sys.stdin.isatty():
            _use_line_editing()
        while (line := self._read()) is not None:
            if line.strip() == "/quit":
                break
            self._guarded(line.strip())
        return 0

    async def _open(self) -> None:
        """A new session is written with its first message, so that looking in leaves nothing behind."""
        await choose_tools(self._runtime, self._given["tools"], default="all")
        await self._runtime.mcp.ready()
        warn(self._runtime)
        if self._place.is_new:
            self._model = await model_for(self._runtime, self._model)
            who = self._runtime.model(self._model).reference
        else:
            self._session = await open_place(
                self._runtime, self._place, model=self._model, system=self._given["system"], title=""
            )
            stored = await self._runtime.sessions.get(self._session.id)
            who = f"{self._runtime.model(stored.model).reference}, {one_line(stored.title or stored.id, 50)}"
        sys.stdout.write(self._ink.dim(f"loom · {who} · /help, Ctrl+D leaves") + "\n")
        sys.stdout.flush()

    def _read(self) -> str | None:
        while True:
            try:
                return input(self._prompt())
            except EOFError:
                sys.stdout.write("\n")
                return None
            except KeyboardInterrupt:
                sys.stdout.write("\n")

    def _prompt(self) -> str:
        chips = "".join(f"[{item.name or getattr(item.source, 'name', '')}] " for item in self._waiting)
        return f"{chips}› " if sys.stdin.isatty() else ""

    def _guarded(self, line: str) -> None:
        """What goes wrong is said, and the conversation goes on."""
        if not line:
            return
        try:
            self._runner.run(self._command(line) if line.startswith("/") else self._say(line))
        except LoomError as error:
            say(sentence(error))
        except KeyboardInterrupt:
            say("interrupted; what was said is kept")

    def _command(self, line: str) -> Coroutine[Any, Any, None]:
        name, _, rest = line[1:].partition(" ")
        known: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
            "model": self._switch,
            "context": self._context,
            "attach": self._attach,
            "fork": self._fork,
            "tree": self._tree,
            "help": self._help,
        }
        return known.get(name, self._unknown)(rest.strip())

    async def _say(self, line: str) -> None:
        words, mentioned = mentions(line)
        files, self._waiting = [*self._waiting, *mentioned], []
        ingested = await self._runtime.ingest(*files, *([words] if words else []))
        blocks, notices = shortened(ingested.blocks, self._runtime.config.documents.pages_per_read)
        tell([*ingested.notices, *notices])
        await self._speak(await self._opened(words or files[0].name), blocks)

    async def _opened(self, title: str) -> LocalSession:
        if self._session is None:
            self._session = await self._runtime.session(
                title=" ".join(title.split())[:80], model=self._model, system=self._given["system"]
            )
        return self._session

    async def _speak(self, session: LocalSession, blocks: list[ContentBlock]) -> None:
        face = face_for(self._runtime, "text", shows_reasoning=not self._given["hide_reasoning"], plain=self._plain)
        outcome = await speak(
            self._runtime, session, blocks, face, permission=self._permission, priced=sys.stdout.isatty()
        )
        if outcome.error is not None:
            say(sentence(outcome.error))
        elif sys.stdout.isatty():
            click.echo(self._ink.dim(footer(outcome)))

    async def _switch(self, name: str) -> None:
        if name:
            reference = self._runtime.model(name).reference
            self._model = name
            if self._session is not None:
                await self._session.use(name)
            click.echo(f"{reference} answers from now on")
            return
        current = (await self._runtime.sessions.get(self._session.id)).model if self._session else self._model
        click.echo(self._runtime.model(current).reference)

    async def _context(self, names: str) -> None:
        if self._session is None:
            raise LoomError("nothing has been said yet, so there is nothing to show.")
        stored = await self._runtime.sessions.get(self._session.id)
        found = await compiled_session(self._runtime, stored)
        await print_table(found, models_of(names or stored.model, self._runtime.config))

    async def _attach(self, name: str) -> None:
        if not name:
            raise LoomError("name a file.", hint="/attach report.pdf#3-7")
        self._waiting.append(attachment(name.strip("\"'")))

    async def _fork(self, _: str) -> None:
        if self._session is None:
            raise LoomError("nothing has been said yet, so there is nothing to fork.")
        self._session = await self._session.fork()
        click.echo(f"you are in {self._session.id} now; the old session stays as it is")

    async def _tree(self, _: str) -> None:
        from loom.cli.branches import drawn
        from loom.cli.terminal import width

        if self._session is None:
            raise LoomError("nothing has been said yet.")
        stored = await self._runtime.sessions.get(self._session.id)
        click.echo(drawn(await self._runtime.forest.tree(stored.id), stored.head_id, width=width()))

    async def _help(self, _: str) -> None:
        click.echo(_HELP)

    async def _unknown(self, _: str) -> None:
        raise LoomError("there is no such command.", hint="/help shows those that there are.")


def mentions(line: str) -> tuple[str, list[Attachment]]:
    """`look at @login.png` → the words and the files; a line that is nothing but a path (a file was dropped) is one."""
    dropped = line.strip("\"'").replace("\\ ", " ").removeprefix("file://")
    try:
        return "", [attachment(dropped)]
    except LoomError:
        pass
    found: list[Attachment] = []

    def taken(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        try:
            found.append(attachment(name))
        except LoomError:
            return match[0]
        return name

    return _MENTION.sub(taken, line), found


def _use_line_editing() -> None:
    """Arrow keys and history, where Python was built with them."""
    try:
        import readline
    except ImportError:
        return
    readline.set_history_length(1_000)
