"""`loom chat`, which is also `loom` alone: a conversation on the line.

The prompt is read between turns, in the ordinary way, so that editing, history and Ctrl+C work as in a shell; Ctrl+C
during an answer ends the answer, not the conversation.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import click

from loom.agent.session import LocalSession
from loom.cli.context import print_table
from loom.cli.shared.attachments import MessageInput, attachment, read_clipboard
from loom.cli.shared.daemon_lookup import open_session
from loom.cli.shared.footer import footer, media_hints
from loom.cli.shared.options import MessageOptions, message_options, message_options_from
from loom.cli.shared.pending_approvals import answer_pending
from loom.cli.shared.plan import compile_session
from loom.cli.shared.renderers import TurnOutcome
from loom.cli.shared.session_lookup import open_place
from loom.cli.shared.session_options import (
    apply_template,
    choose_tools,
    ingest_input,
    model_for,
    print_notices,
    print_warnings,
    renderer_for,
    requested_model,
    stored_key,
    use_key,
)
from loom.cli.shared.terminal import Colors, ProgressLine, one_line, print_line, quiet_keys, sentence
from loom.cli.shared.turns import run_turn
from loom.client import RemoteSession
from loom.config import load_config
from loom.content.blocks import ContentBlock
from loom.content.inputs import Attachment
from loom.content.messages import text_of
from loom.errors import ContentError, LoomError
from loom.runtime import Runtime
from loom.session import EventIterator

_MENTION: Final = re.compile(r'(?:^|(?<=\s))@(?:"([^"]+)"|(\S+))')
_PUNCTUATION: Final = ",.;:!?)"
_HELP: Final = """\
/model [NAME]      choose a model; without a name, show the current one
/context [A,B]     what the next request would contain, for these models
/attach FILE       send a file with the next message; also @FILE inside a message
/paste             attach the image on the clipboard
/fork              continue in a new session; the old one is unchanged
/compact           summarise the conversation and continue; everything stays in the tree
/tree              the conversation with its branches
/help              this
/quit              exit (also Ctrl+D). Continue later with `loom -c`"""


@click.command("chat")
@message_options(tools="all")
def chat_command(**given: Any) -> int:
    """Start an interactive chat. Attach files with @FILE or /attach; /help lists the commands."""
    speaking = MessageOptions(**message_options_from(given))
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        opening = Runtime.open(load_config(flags=speaking.flags), tools="all")
        runtime = runner.run(stack.enter_async_context(opening))
        try:
            return Chat(runner, runtime, speaking).run()
        finally:
            runner.run(stack.aclose())


class Chat:
    def __init__(self, runner: asyncio.Runner, runtime: Runtime, speaking: MessageOptions) -> None:
        self._runner = runner
        self._runtime = runtime
        self._speaking = speaking
        self._model = speaking.model
        self._key = stored_key(runtime, speaking)
        self._tools: Sequence[str] | None = None
        self._session: LocalSession | None = None
        self._waiting = [attachment(name) for name in speaking.template.attach]
        self._ink = Colors(sys.stdout)

    def run(self) -> int:
        self._runner.run(self._open())
        use_line_editing()
        while (line := read_line(self._prompt())) is not None:
            if is_quit(line):
                break
            self._print_errors(line.strip())
        if self._waiting:
            print_line(f"not sent: {', '.join(map(_name, self._waiting))}")
        return 0

    async def _open(self) -> None:
        """A new session is written with its first message, so that looking in leaves nothing behind."""
        speaking = self._speaking
        await answer_pending(self._runtime, speaking, speaking.place)
        self._tools = await choose_tools(self._runtime, speaking.tools, default="all")
        await self._runtime.mcp.wait_ready()
        print_warnings(self._runtime)
        self._model = await requested_model(self._runtime, speaking)
        if speaking.place.is_new:
            self._model = await model_for(self._runtime, self._model)
            who = self._runtime.model(self._model).reference
        else:
            self._session = await open_place(
                self._runtime, speaking.place, model=self._model, system=speaking.system, title="", tools=self._tools
            )
            stored = await self._runtime.sessions.get(self._session.id)
            who = f"{self._runtime.model(stored.model).reference}, {one_line(stored.title or stored.id, 50)}"
        sys.stdout.write(self._ink.dim(f"loom · {who} · /help, Ctrl+D to exit") + "\n")
        sys.stdout.flush()

    def _prompt(self) -> str:
        chips = "".join(f"[{_name(item)}] " for item in self._waiting)
        return f"{chips}› "

    def _print_errors(self, line: str) -> None:
        """What goes wrong is said, and the conversation goes on."""
        if not line:
            return
        try:
            with quiet_keys():
                self._runner.run(self._command(line) if line.startswith("/") else self._say(line))
        except LoomError as error:
            print_line(sentence(error))
        except KeyboardInterrupt:
            print_interrupted()

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
        said = MessageInput(words, (*self._waiting, *mentioned))
        self._waiting = []
        system = self._speaking.system
        if self._session is None:
            said, system = apply_template(self._speaking, said)
        async with ProgressLine(plain=self._speaking.plain) as progress:
            blocks, notices = await ingest_input(self._runtime, self._speaking, said.files, said.contents, progress)
            print_notices(notices)
            await self._speak(await self._open_session(said.title, system), blocks, progress)

    async def _open_session(self, title: str, system: str) -> LocalSession:
        if self._session is None:
            self._session = await self._runtime.session(
                title=title, model=self._model, system=system, tools=self._tools
            )
        return self._session

    async def _speak(self, session: LocalSession, blocks: list[ContentBlock], progress: ProgressLine) -> None:
        speaking = self._speaking
        use_key(self._runtime, speaking, self._key, (await self._runtime.sessions.get(session.id)).model)
        async with open_session(self._runtime, speaking, session, self._tools) as speaker:
            await self._render_turn(speaker, speaker.stream(*blocks), blocks, progress)

    async def _render_turn(
        self,
        session: LocalSession | RemoteSession,
        turn: EventIterator,
        blocks: Sequence[ContentBlock],
        progress: ProgressLine,
    ) -> TurnOutcome:
        speaking = self._speaking
        outcome = await run_turn(
            self._runtime,
            session,
            turn,
            renderer_for(self._runtime, "text", shows_reasoning=speaking.shows_reasoning, plain=speaking.plain),
            said="\n".join(text_of(block) for block in blocks),
            permission=speaking.permission,
            priced=sys.stdout.isatty(),
            shows_reasoning=speaking.shows_reasoning,
            progress=progress,
            advise=partial(media_hints, self._runtime, blocks),
        )
        if outcome.error is not None:
            print_line(sentence(outcome.error))
        elif sys.stdout.isatty():
            click.echo(self._ink.dim(footer(outcome)) + "\n")
        return outcome

    async def _switch(self, name: str) -> None:
        if name:
            reference = self._runtime.model(name).reference
            self._model = name
            if self._session is not None:
                await self._session.use(name)
            click.echo(f"{reference} is now the model")
            return
        current = (await self._runtime.sessions.get(self._session.id)).model if self._session else self._model
        click.echo(self._runtime.model(current).reference)

    async def _context(self, names: str) -> None:
        if self._session is None:
            raise LoomError("The conversation is empty: nothing to show.")
        stored = await self._runtime.sessions.get(self._session.id)
        found = await compile_session(self._runtime, stored, tools=self._tools)
        await print_table(found, await found.models(names or stored.model))

    async def _attach(self, name: str) -> None:
        if not name:
            raise LoomError("No file given.", hint="Example: /attach report.pdf#3-7")
        self._waiting.append(attachment(name.strip("\"'")))

    async def _paste(self, _: str) -> None:
        self._waiting += await asyncio.to_thread(read_clipboard)

    async def _fork(self, _: str) -> None:
        if self._session is None:
            raise LoomError("The conversation is empty: nothing to fork.")
        self._session = await self._session.fork()
        click.echo(f"now in {self._session.id}; the old session is unchanged")

    async def _compact(self, _: str) -> None:
        if self._session is None:
            raise LoomError("The conversation is empty: nothing to summarise.")
        before, head = len(await self._session.path()), await self._session.head()
        async with ProgressLine(plain=self._speaking.plain) as progress:
            outcome = await self._render_turn(self._session, self._session.compact(), (), progress)
        if outcome.error is None and await self._session.head() == head:
            raise LoomError("The model returned no summary.", hint="Try again, or choose another model: /model NAME")
        if outcome.error is None:
            click.echo(f"{before} messages summarised into one; all of them are still in /tree")

    async def _tree(self, _: str) -> None:
        from loom.cli.log import draw_tree
        from loom.cli.shared.terminal import width

        if self._session is None:
            raise LoomError("The conversation is empty: no tree.")
        stored = await self._runtime.sessions.get(self._session.id)
        click.echo(draw_tree(await self._runtime.forest.read_tree(stored.id), stored.head_id, width=width()))

    async def _help(self, _: str) -> None:
        click.echo(_HELP)


def _name(item: Attachment) -> str:
    return item.name or getattr(item.source, "name", "") or str(item.source)


def is_quit(line: str) -> bool:
    return line.split()[:1] == ["/quit"]


def print_interrupted() -> None:
    """On a line of its own, wherever the answer was."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    print_line("interrupted; the conversation is saved")


def unknown_command(name: str) -> LoomError:
    return LoomError(f"Unknown command /{one_line(name, 40)}.", hint="/help lists the commands.")


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
            print_notices([f"{wrong or f'file not found: {name}'}; sent as text"])
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
