"""`loom chat`, which is also `loom` alone: a conversation on the line.

The prompt is read between turns, in the ordinary way, so that editing, history and Ctrl+C work as in a shell; Ctrl+C
during an answer ends the answer, not the conversation.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import click

from loom.agent.session import LocalSession
from loom.cli.advice import advice
from loom.cli.asking import (
    choose_tools,
    face_for,
    model_asked,
    model_for,
    stored_key,
    taken_in,
    tell,
    templated,
    use_key,
    warn,
)
from loom.cli.attachments import Said, attachment
from loom.cli.choosing import open_place
from loom.cli.clipboard import pasted
from loom.cli.compiling import compiled_session
from loom.cli.compiling import models as models_of
from loom.cli.context import print_table
from loom.cli.daemons import voice
from loom.cli.faces import Outcome
from loom.cli.footer import footer
from loom.cli.left_open import settle
from loom.cli.options import Speaking, speaking_of, speaking_options
from loom.cli.progress import Progress
from loom.cli.terminal import Ink, one_line, quiet_keys, say, sentence
from loom.cli.turns import speak
from loom.config import load_config
from loom.content.blocks import ContentBlock
from loom.content.inputs import Attachment
from loom.content.messages import text_of
from loom.errors import ContentError, LoomError
from loom.events import Event
from loom.runtime import Runtime
from loom.session import Session

_MENTION: Final = re.compile(r'(?:^|(?<=\s))@(?:"([^"]+)"|(\S+))')
_PUNCTUATION: Final = ",.;:!?)"
_HELP: Final = """\
/model [NAME]      whom to ask from now on; without a name, who it is
/context [A,B]     what the next request would carry, for these models
/attach FILE       send a file with the next message; also @FILE inside a message
/paste             the same for the picture on the clipboard
/fork              go on in a new session; the old one stays as it is
/compact           let the model summarise, and go on from there; all stays in the tree
/tree              the conversation with its branches
/help              this
/quit              leave; so does Ctrl+D. `loom -c` comes back"""


@click.command("chat")
@speaking_options(tools="all")
def command(**given: Any) -> int:
    """Talk on the line. Files come along with @FILE or /attach; /help tells the rest."""
    speaking = Speaking(**speaking_of(given))
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        runtime = runner.run(stack.enter_async_context(Runtime.open(load_config(flags=speaking.flags))))
        try:
            return Chat(runner, runtime, speaking).run()
        finally:
            runner.run(stack.aclose())


class Chat:
    def __init__(self, runner: asyncio.Runner, runtime: Runtime, speaking: Speaking) -> None:
        self._runner = runner
        self._runtime = runtime
        self._speaking = speaking
        self._model = speaking.model
        self._key = stored_key(runtime, speaking)
        self._tools: Sequence[str] | None = None
        self._session: LocalSession | None = None
        self._waiting = [attachment(name) for name in speaking.template.attach]
        self._ink = Ink(sys.stdout)

    def run(self) -> int:
        self._runner.run(self._open())
        use_line_editing()
        while (line := read_line(self._prompt())) is not None:
            if leaves(line):
                break
            self._guarded(line.strip())
        if self._waiting:
            say(f"not sent: {', '.join(map(_name, self._waiting))}")
        return 0

    async def _open(self) -> None:
        """A new session is written with its first message, so that looking in leaves nothing behind."""
        speaking = self._speaking
        await settle(self._runtime, speaking, speaking.place)
        self._tools = await choose_tools(self._runtime, speaking.tools, default="all")
        await self._runtime.mcp.ready()
        warn(self._runtime)
        self._model = await model_asked(self._runtime, speaking)
        if speaking.place.is_new:
            self._model = await model_for(self._runtime, self._model)
            who = self._runtime.model(self._model).reference
        else:
            self._session = await open_place(
                self._runtime, speaking.place, model=self._model, system=speaking.system, title="", tools=self._tools
            )
            stored = await self._runtime.sessions.get(self._session.id)
            who = f"{self._runtime.model(stored.model).reference}, {one_line(stored.title or stored.id, 50)}"
        sys.stdout.write(self._ink.dim(f"loom · {who} · /help, Ctrl+D leaves") + "\n")
        sys.stdout.flush()

    def _prompt(self) -> str:
        chips = "".join(f"[{_name(item)}] " for item in self._waiting)
        return f"{chips}› "

    def _guarded(self, line: str) -> None:
        """What goes wrong is said, and the conversation goes on."""
        if not line:
            return
        try:
            with quiet_keys():
                self._runner.run(self._command(line) if line.startswith("/") else self._say(line))
        except LoomError as error:
            say(sentence(error))
        except KeyboardInterrupt:
            say_interrupted()

    def _command(self, line: str) -> Coroutine[Any, Any, None]:
        name, _, rest = line[1:].partition(" ")
        known: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
            "model": self._switch,
            "context": self._context,
            "attach": self._attach,
            "paste": self._paste,
            "fork": self._fork,
            "compact": self._compact,
            "tree": self._tree,
            "help": self._help,
        }
        if name not in known:
            raise unknown_command(name)
        return known[name](rest.strip())

    async def _say(self, line: str) -> None:
        words, mentioned = mentions(line)
        said = Said(words, (*self._waiting, *mentioned))
        self._waiting = []
        system = self._speaking.system
        if self._session is None:
            said, system = templated(self._speaking, said)
        async with Progress(plain=self._speaking.plain) as progress:
            blocks, notices = await taken_in(self._runtime, self._speaking, said.files, said.spoken, progress)
            tell(notices)
            await self._speak(await self._opened(said.title, system), blocks, progress)

    async def _opened(self, title: str, system: str) -> LocalSession:
        if self._session is None:
            self._session = await self._runtime.session(
                title=title, model=self._model, system=system, tools=self._tools
            )
        return self._session

    async def _speak(self, session: LocalSession, blocks: list[ContentBlock], progress: Progress) -> None:
        speaking = self._speaking
        use_key(self._runtime, speaking, self._key, (await self._runtime.sessions.get(session.id)).model)
        async with voice(self._runtime, speaking, session, self._tools) as speaker:
            await self._shown(speaker, speaker.stream(*blocks), blocks, progress)

    async def _shown(
        self, session: Session, turn: AsyncGenerator[Event], blocks: Sequence[ContentBlock], progress: Progress
    ) -> Outcome:
        speaking = self._speaking
        outcome = await speak(
            self._runtime,
            session,
            turn,
            face_for(self._runtime, "text", shows_reasoning=speaking.shows_reasoning, plain=speaking.plain),
            said="\n".join(text_of(block) for block in blocks),
            permission=speaking.permission,
            priced=sys.stdout.isatty(),
            shows_reasoning=speaking.shows_reasoning,
            progress=progress,
            advise=partial(advice, self._runtime, blocks),
        )
        if outcome.error is not None:
            say(sentence(outcome.error))
        elif sys.stdout.isatty():
            click.echo(self._ink.dim(footer(outcome)) + "\n")
        return outcome

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
        found = await compiled_session(self._runtime, stored, tools=self._tools)
        await print_table(found, models_of(names or stored.model, self._runtime.config))

    async def _attach(self, name: str) -> None:
        if not name:
            raise LoomError("name a file.", hint="Like this: /attach report.pdf#3-7")
        self._waiting.append(attachment(name.strip("\"'")))

    async def _paste(self, _: str) -> None:
        self._waiting += await asyncio.to_thread(pasted)

    async def _fork(self, _: str) -> None:
        if self._session is None:
            raise LoomError("nothing has been said yet, so there is nothing to fork.")
        self._session = await self._session.fork()
        click.echo(f"you are in {self._session.id} now; the old session stays as it is")

    async def _compact(self, _: str) -> None:
        if self._session is None:
            raise LoomError("nothing has been said yet, so there is nothing to summarise.")
        before, head = len(await self._session.path()), await self._session.head()
        async with Progress(plain=self._speaking.plain) as progress:
            outcome = await self._shown(self._session, self._session.compact(), (), progress)
        if outcome.error is None and await self._session.head() == head:
            raise LoomError("the model wrote no summary.", hint="Try again, or choose another model: /model NAME")
        if outcome.error is None:
            click.echo(f"{before} messages became one; all of them are still in /tree")

    async def _tree(self, _: str) -> None:
        from loom.cli.branches import drawn
        from loom.cli.terminal import width

        if self._session is None:
            raise LoomError("nothing has been said yet, so there is no tree.")
        stored = await self._runtime.sessions.get(self._session.id)
        click.echo(drawn(await self._runtime.forest.survey(stored.id), stored.head_id, width=width()))

    async def _help(self, _: str) -> None:
        click.echo(_HELP)


def _name(item: Attachment) -> str:
    return item.name or getattr(item.source, "name", "") or str(item.source)


def leaves(line: str) -> bool:
    return line.split()[:1] == ["/quit"]


def say_interrupted() -> None:
    """On a line of its own, wherever the answer was."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    say("interrupted; what was said is kept")


def unknown_command(name: str) -> LoomError:
    return LoomError(f"there is no command /{one_line(name, 40)}.", hint="/help shows those that there are.")


def mentions(line: str) -> tuple[str, list[Attachment]]:
    """`look at @login.png` → the words and the files; a line that is nothing but a path (a file was dropped) is one.
    What looks like a file and is none is sent as words, and that is said."""
    dropped = line.strip("\"'").replace("\\ ", " ").removeprefix("file://")
    try:
        return "", [attachment(dropped)]
    except LoomError:
        pass
    found: list[Attachment] = []

    def taken(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        wrong = ""
        for written in dict.fromkeys((name, name.rstrip(_PUNCTUATION))):
            try:
                found.append(attachment(written))
            except ContentError as error:  # the file is there, its pages are written wrongly
                wrong = error.message
            except LoomError:
                continue
            else:
                return name
        if wrong or "." in name.strip(_PUNCTUATION) or "/" in name:
            tell([f"{wrong or f'there is no file {name} here'}; it was sent as words"])
        return match[0]

    return _MENTION.sub(taken, line), found


def read_line(prompt: str) -> str | None:
    """None at the end of the input; Ctrl+C begins the line anew."""
    while True:
        try:
            return input(prompt if sys.stdin.isatty() else "")
        except EOFError:
            sys.stdout.write("\n")
            return None
        except KeyboardInterrupt:
            sys.stdout.write("\n")


def use_line_editing() -> None:
    """Arrow keys and history on a terminal, where Python was built with them."""
    if not sys.stdin.isatty():
        return
    try:
        import readline
    except ImportError:
        return
    readline.set_history_length(1_000)
