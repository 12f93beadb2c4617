"""The line interface of `loom chat --plain`: for screen readers, pipes and simple terminals.

The prompt is read between turns with `input()`, so that editing, history and Ctrl+C work as in a shell. A line that is
typed during an answer is sent to the running turn; if no further step reads it, it becomes the next message. Ctrl+C
ends the answer, not the chat. A new slash command is an entry of `Chat.commands` and a method.
"""

from __future__ import annotations

import asyncio
import re
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from loom.agent.tracked_files import tracked_name
from loom.cli.context import print_table
from loom.cli.log import draw_tree
from loom.cli.shared.attachments import MessageInput, confirm_mentions
from loom.cli.shared.command_group import NEAR
from loom.cli.shared.daemon_lookup import open_session, reach_daemon
from loom.cli.shared.options import MessageOptions
from loom.cli.shared.plan import compile_session
from loom.cli.shared.questions import is_interactive
from loom.cli.shared.renderers import (
    TerminalRenderer,
    TextRenderer,
    TurnOutcome,
    TurnRenderer,
    footer,
    media_hints,
    switch_preview,
)
from loom.cli.shared.session_options import (
    PLAN_MODE_NOTICE,
    apply_template,
    attached_session,
    choose_tools,
    ingest_input,
    model_for,
    open_target,
    print_notices,
    print_warnings,
    renderer_for,
    requested_model,
    stored_key,
    use_key,
)
from loom.cli.shared.terminal import (
    Colors,
    ProgressLine,
    has_color,
    is_plain,
    one_line,
    print_line,
    print_notice,
    quiet_keys,
    safe_text,
    sentence,
    width,
)
from loom.cli.shared.turns import RuntimeHost, TurnHost, answer_pending, approval_line, print_last_failure, run_turn
from loom.cli.shared.typed_lines import SentLine, TypedLines, follow_turn
from loom.client import RemoteLibrary, RemoteSession
from loom.config import load_config
from loom.content.inputs import Attachment, Content
from loom.content.messages import text_of
from loom.errors import LoomError, NotFound
from loom.estimates import compaction_label
from loom.library import Library, read_media
from loom.models import THINKING_LEVELS, Usage
from loom.runtime import Runtime
from loom.runtime.agents import STAYS, agent_list, chosen_agent
from loom.runtime.attachments import attachment
from loom.runtime.clipboard import read_clipboard
from loom.runtime.expansion import list_commands
from loom.runtime.session import LocalSession
from loom.runtime.workspace_files import missing_mentions
from loom.sampling import sampling_of
from loom.session import EventIterator, Session
from loom.tools.todos import todo_lines
from loom.tools.workspace import local_workspace, workspace_notice
from loom.tui.dropped_paths import parse_dropped_paths
from loom.work_types import process_line

_MENTION: Final = re.compile(r'(?:^|(?<=\s))@(?:"([^"]+)"|(\S+))')
_PUNCTUATION: Final = ",.;:!?)"


def run_line_chat(options: MessageOptions) -> int:
    """Chat line by line until the input ends."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        runtime = runner.run(stack.enter_async_context(Runtime.open(load_config(flags=options.flags), tools="all")))
        stack.push_async_callback(runtime.upkeep.run_if_due)
        try:
            return LocalChat(runner, runtime, options).run()
        finally:
            runner.run(stack.aclose())


class SlashCommand(NamedTuple):
    arguments: str
    help: str
    run: Callable[[str], Coroutine[Any, Any, None]]


class Chat(ABC):
    """An interactive chat in any `Session`: reads lines, runs slash commands, sends messages and shows the turns."""

    def __init__(self, runner: asyncio.Runner, host: TurnHost, options: MessageOptions) -> None:
        self._runner = runner
        self._host = host
        self._options = options
        self._sampling = options.sampling
        self._session: Session | None = None
        self._folder = Path.cwd()
        """The folder of the conversation."""
        names = options.template.attach if options.template is not None else ()
        self._attachments: list[Attachment] = [attachment(name) for name in names]
        self._ink = Colors(sys.stdout)
        self._typed: deque[str | None] = deque()
        """Lines that were typed during a turn that did not read them; None for the end of the input."""

    @abstractmethod
    async def _open(self) -> str:
        """Open the session to continue, if any, settle its pending approvals, and return the header line."""

    @abstractmethod
    async def _send(self, message: MessageInput) -> None:
        """Send a message, in a new session if there is none yet, and show the turn."""

    @abstractmethod
    async def _use_model(self, name: str) -> str:
        """Use this model from now on; an empty `name` changes nothing. Return the reference of the current model."""

    @abstractmethod
    def _renderer(self) -> TurnRenderer: ...

    def commands(self) -> dict[str, SlashCommand]:
        """Return the slash commands by name."""
        return {
            "model": SlashCommand("[NAME]", "choose a model; without a name, show the current one", self._model),
            "think": SlashCommand(
                "[LEVEL]",
                f"set how much the model thinks: {', '.join(filter(None, THINKING_LEVELS))} or auto",
                self._think,
            ),
            "agent": SlashCommand("[NAME]", "list the agents, or use one; none for no agent", self._agent),
            "attach": SlashCommand(
                "FILE", "send a file with the next message; also @FILE inside a message", self._attach
            ),
            "paste": SlashCommand("", "attach the image on the clipboard", self._paste),
            "fork": SlashCommand("", "continue in a new session; the old one is unchanged", self._fork),
            **self._more_commands(),
            "compact": SlashCommand(
                "", "summarize the conversation and continue; everything stays in the tree", self._compact
            ),
            "todos": SlashCommand("", "show the agent's todo list", self._todos),
            "processes": SlashCommand("", "show the agent's background processes", self._processes),
            "undo": SlashCommand("[STEP]", "undo the file changes of the last step, or of STEP and later", self._undo),
            "help": SlashCommand("", "show this list", self._help),
            "quit": SlashCommand("", "exit (also Ctrl+D). Continue later with -c", self._help),
        }

    def _more_commands(self) -> dict[str, SlashCommand]:
        """Return slash commands that only this kind of chat has."""
        return {}

    @abstractmethod
    def _library(self) -> Library: ...

    def _use_folder(self, workspace: str, *, is_remote: bool = False) -> None:
        """Use the folder of the conversation, and name it if it is another one."""
        self._folder = local_workspace(workspace)
        if notice := workspace_notice(workspace, is_remote=is_remote):
            print_line(notice)

    def run(self) -> int:
        header = self._runner.run(self._open())
        sys.stdout.write(self._ink.dim(f"loom · {header} · /help, Ctrl+D to exit") + "\n")
        sys.stdout.flush()
        if self._session is not None:
            self._runner.run(print_last_failure(self._session))
        use_line_editing()
        while (line := self._next_line()) is not None:
            if is_quit(line):
                break
            self._run_line(line.strip())
        if self._attachments:
            print_line(f"not sent: {', '.join(map(_name, self._attachments))}")
        return 0

    def _next_line(self) -> str | None:
        if not self._typed:
            return read_line(self._prompt())
        line = self._typed.popleft()
        sys.stdout.write(f"{self._prompt()}{safe_text(line or '')}\n")
        sys.stdout.flush()
        return line

    def _prompt(self) -> str:
        chips = "".join(f"[{_name(item)}] " for item in self._attachments)
        return f"{chips}› "

    def _run_line(self, line: str) -> None:
        """Run a slash command or send a message. Errors are printed; the chat continues."""
        if not line:
            return
        is_command = line.startswith("/") and not parse_dropped_paths(line)
        try:
            if not is_command:
                confirm_mentions(line, self._folder)
            with quiet_keys():
                self._runner.run(self._command(line) if is_command else self._say(line))
        except LoomError as error:
            print_line(sentence(error))
        except KeyboardInterrupt:
            print_interrupted()
            if self._typed:
                print_line(f"not sent: {'; '.join(one_line(line) for line in self._typed if line)}")
                self._typed.clear()

    def _command(self, line: str) -> Coroutine[Any, Any, None]:
        name, _, rest = line[1:].partition(" ")
        commands = self.commands()
        if name not in commands:
            raise _unknown_command(name, commands)
        return commands[name].run(rest.strip())

    async def _say(self, line: str) -> None:
        words, mentioned = split_attachments(line, self._folder)
        message = MessageInput(words, (*self._attachments, *mentioned))
        self._attachments = []
        await self._send(message)

    async def _render_turn(
        self,
        session: Session,
        turn: EventIterator,
        progress: ProgressLine,
        *,
        said: str = "",
        advise: Callable[[TurnOutcome], Awaitable[Sequence[str]]] | None = None,
    ) -> TurnOutcome:
        """Run a turn and print it, then the turns of lines that were typed meanwhile. Return the outcome of the
        first."""
        typed = TypedLines(session, partial(_steering_content, folder=self._folder)) if sys.stdin.isatty() else None
        begun: list[SentLine] = []
        try:
            outcome = await run_turn(
                self._host,
                session,
                turn,
                self._renderer(),
                said=said,
                permission=self._options.permission,
                priced=sys.stdout.isatty(),
                shows_reasoning=self._options.shows_reasoning,
                progress=progress,
                typed=typed,
                advise=advise,
            )
        finally:
            if typed is not None:
                begun = await typed.take_back()
                self._typed += typed.waiting
        if outcome.error is not None:
            print_line(sentence(outcome.error))
        elif sys.stdout.isatty():
            click.echo(self._ink.dim(footer(outcome)) + "\n")
        for sent in begun:  # a daemon has already started their turns
            click.echo(f"{self._prompt()}{safe_text(sent.line.strip())}")
            await self._render_turn(session, follow_turn(session, sent), progress, said=sent.line)
        return outcome

    async def _model(self, name: str) -> None:
        if name and self._session is not None and await self._session.path():
            (receipt,) = await self._session.plan([name])
            if (await self._session.info()).model not in (name, receipt.model):
                click.echo(switch_preview(receipt))
        reference = await self._use_model(name)
        click.echo(f"{reference} is now the model" if name else reference)

    async def _think(self, level: str) -> None:
        """Set the thinking level for the messages of this chat; `auto` leaves it to the session and the settings."""
        if level:
            chosen = sampling_of(thinking="" if level == "auto" else level).thinking
            self._sampling = msgspec.structs.replace(self._sampling, thinking=chosen)
        click.echo(f"thinking: {self._sampling.thinking or 'auto'}")

    async def _agent(self, name: str) -> None:
        view = await self._session.info() if self._session is not None else None
        current = view.agent if view is not None else self._options.agent
        agents = await self._library().agents(view.workspace if view is not None else str(Path.cwd()))
        if not name:
            click.echo(safe_text(agent_list(agents, current)))
            return
        chosen = chosen_agent(agents, name)
        chosen_name = chosen.name if chosen is not None else ""
        if self._session is not None:
            await self._session.change(agent=chosen_name)
        else:
            self._options = msgspec.structs.replace(self._options, agent=chosen_name)
            if chosen is not None and chosen.model:
                await self._use_model(chosen.model)
        if chosen is not None:
            for notice in (*chosen.notices, *((STAYS,) if self._session is not None else ())):
                print_notice(safe_text(notice))
        click.echo(f"agent: {safe_text(chosen_name) or 'none'}")

    async def _attach(self, name: str) -> None:
        if not name:
            raise LoomError("No file given.", hint="Example: /attach report.pdf#3-7")
        self._attachments.append(attachment(name.strip("\"'")))

    async def _paste(self, _: str) -> None:
        found = await asyncio.to_thread(read_clipboard)
        if not found.attachments:
            raise NotFound("No image on the clipboard.", hint="Copy one first.")
        self._attachments += found.attachments

    async def _fork(self, _: str) -> None:
        self._session = await self._require_session("nothing to fork").fork()
        click.echo(f"now in {self._session.id}; the old session is unchanged")

    async def _todos(self, _: str) -> None:
        click.echo(todo_lines(await self._require_session("no todo list").todos()) or "The todo list is empty.")

    async def _undo(self, step: str) -> None:
        if step and not step.isdecimal():
            raise LoomError("Not a step number.", hint="Example: /undo 3")
        report = await self._require_session("nothing to undo").undo(int(step) if step else None)
        for line in report.files:
            click.echo(safe_text(line))

    async def _processes(self, _: str) -> None:
        found = await self._require_session("no processes").processes()
        click.echo("\n".join(safe_text(process_line(process)) for process in found) or "No background processes.")

    async def _compact(self, _: str) -> None:
        session = self._require_session("nothing to summarize")
        before, head = len(await session.path()), await session.head()
        if before:
            (planned,) = (await session.plan_table(compact=True)).models.values()
            if planned.estimate is not None:
                click.echo(compaction_label(planned.estimate))
        async with ProgressLine(plain=self._options.plain) as progress:
            outcome = await self._render_turn(session, session.compact(), progress)
        if outcome.error is None and await session.head() == head:
            raise LoomError("The model returned no summary.", hint="Try again, or choose another model: /model NAME")
        if outcome.error is None:
            click.echo(f"{before} messages summarized into one; all of them stay as a branch")

    def _require_session(self, otherwise: str) -> Session:
        if self._session is None:
            raise LoomError(f"The conversation is empty: {otherwise}.")
        return self._session

    async def _help(self, _: str) -> None:
        for name, found in self.commands().items():
            click.echo(f"{f'/{name} {found.arguments}':<19}{found.help}")


class LocalChat(Chat):
    """A chat in a session of this process. If a daemon runs with the same settings, messages are sent through it."""

    def __init__(self, runner: asyncio.Runner, runtime: Runtime, options: MessageOptions) -> None:
        super().__init__(runner, RuntimeHost(runtime), options)
        self._runtime = runtime
        self._model_name = options.model
        self._key = stored_key(runtime, options)
        self._tools: Sequence[str] | None = None
        self._wants_plan: bool | None = options.plan_mode
        """Plan mode of the next message; None leaves it unchanged."""

    def _more_commands(self) -> dict[str, SlashCommand]:
        return {
            **self._own_commands(),
            "context": SlashCommand(
                "[A,B]", "show what the next request would contain, for these models", self._context
            ),
            "tree": SlashCommand("", "show the conversation with its branches", self._tree),
            "plan": SlashCommand("[off]", "plan first: only reading tools until you approve a plan", self._plan_mode),
        }

    def _own_commands(self) -> dict[str, SlashCommand]:
        """Return the user's commands. A built-in command of the same name takes precedence, except /think."""
        return {
            found.name: SlashCommand(
                "[TEXT]", found.description or "your own command", partial(self._send_command, found.name)
            )
            for found in list_commands(self._runtime, Path.cwd())
            if found.name not in ("model", "attach", "paste", "fork")
        }

    async def _send_command(self, name: str, arguments: str) -> None:
        """Send the command as a message; the session expands it."""
        await self._send(MessageInput(f"/{name} {arguments}".strip(), tuple(self._attachments)))
        self._attachments = []

    def _library(self) -> Library:
        return self._runtime.library

    async def _plan_mode(self, word: str) -> None:
        if word not in ("", "on", "off"):
            raise LoomError("Plan mode is on or off.", hint="Example: /plan off")
        self._wants_plan = word != "off"
        click.echo(f"plan mode is {'on' if self._wants_plan else 'off'} from the next message on")

    async def _open(self) -> str:
        """Open the session to continue. A new one is stored with its first message, so that opening a chat stores
        nothing."""
        options = self._options
        await answer_pending(self._runtime, options, options.place)
        self._tools = await choose_tools(self._runtime, options.tools, default="all")
        await self._runtime.mcp.wait_ready()
        self._model_name = await requested_model(self._runtime, options)
        print_warnings(self._runtime)
        if options.place.is_new:
            self._model_name = await model_for(self._runtime, self._model_name)
            return self._runtime.models.resolve(self._model_name).reference
        self._session = await open_target(
            self._runtime,
            options.place,
            model=self._model_name,
            system=options.system,
            title="",
            tools=self._tools,
            agent=options.agent,
        )
        view = await self._session.info()
        self._use_folder(view.workspace)
        if view.plan_mode and options.plan_mode is None:
            print_line(PLAN_MODE_NOTICE)
        return f"{self._runtime.models.resolve(view.model).reference}, {one_line(view.title or view.id, 50)}"

    async def _send(self, message: MessageInput) -> None:
        system = self._options.system
        if self._session is None:
            message, system = apply_template(self._options, message)
        async with ProgressLine(plain=self._options.plain) as progress:
            blocks, notices = await ingest_input(
                self._runtime, self._options, message.files, message.contents, progress
            )
            print_notices(notices)
            if self._session is None:
                self._session = await self._runtime.session(
                    title=message.title,
                    model=self._model_name,
                    system=system,
                    tools=self._tools,
                    agent=self._options.agent,
                )
            own = self._own_session("")
            use_key(self._runtime, self._options, self._key, (await own.info()).model)
            async with open_session(self._runtime, self._options, own, self._tools) as session:
                if self._wants_plan is not None:
                    await session.change(plan_mode=self._wants_plan)
                    self._wants_plan = None
                await self._render_turn(
                    session,
                    session.stream(*blocks, options=self._sampling),
                    progress,
                    said="\n".join(text_of(block) for block in blocks),
                    advise=partial(media_hints, self._runtime, blocks),
                )

    def _renderer(self) -> TurnRenderer:
        options = self._options
        return renderer_for(self._runtime, "text", shows_reasoning=options.shows_reasoning, plain=options.plain)

    async def _use_model(self, name: str) -> str:
        if name:
            reference = self._runtime.models.resolve(name).reference
            self._model_name = name
            if self._session is not None:
                await self._session.use(name)
            return reference
        if self._session is not None:
            return await self._host.model_of(self._session)
        return self._runtime.models.resolve(self._model_name).reference

    def _own_session(self, otherwise: str) -> LocalSession:
        session = self._require_session(otherwise)
        assert isinstance(session, LocalSession)
        return session

    async def _context(self, names: str) -> None:
        view = await self._own_session("nothing to show").info()
        found = await compile_session(self._runtime, view, tools=self._tools)
        await print_table(found, await found.models(names or view.model))

    async def _tree(self, _: str) -> None:
        session = self._own_session("no tree")
        click.echo(draw_tree(await session.read_tree(), await session.head(), width=width()))


def _name(item: Attachment) -> str:
    return item.name or getattr(item.source, "name", "") or str(item.source)


def _steering_content(line: str, folder: Path) -> list[Content] | None:
    """Return the content that a line sends to the running turn; None if the line has to wait for the prompt: commands,
    and mentions of files that do not exist."""
    if (line.startswith("/") and not parse_dropped_paths(line)) or missing_mentions(folder, line):
        return None
    words, files = split_attachments(line, folder)
    return MessageInput(words, tuple(files)).content


def is_quit(line: str) -> bool:
    return line.split()[:1] == ["/quit"]


def print_interrupted() -> None:
    """Print a note on a line of its own, wherever the output stopped."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    print_line("interrupted; the conversation is saved")


def _unknown_command(name: str, commands: Iterable[str]) -> LoomError:
    close = get_close_matches(name, commands, n=1, cutoff=NEAR)
    meant = f"Did you mean /{close[0]}? " if close else ""
    return LoomError(f"Unknown command /{one_line(name, 40)}.", hint=f"{meant}/help lists the commands.")


def split_attachments(line: str, folder: Path) -> tuple[str, list[Attachment]]:
    """Split `look at @login.png` into words and files of `folder`. A line that is only a path (a dropped file) is a
    file.

    Mentions stay in the text for text files of the workspace, which the session tracks, for files that do not exist,
    and for invalid page ranges, which the turn reports.
    """
    dropped = parse_dropped_paths(line)
    if dropped:
        return "", [Attachment(source=path) for path in dropped]
    try:
        return "", [attachment(line.strip("\"'").replace("\\ ", " "))]
    except LoomError:
        pass
    found: list[Attachment] = []

    def attach_mention(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        for written in dict.fromkeys((name, name.rstrip(_PUNCTUATION))):
            if tracked_name(folder, written) is not None and _is_text_name(written.rstrip(_PUNCTUATION)):
                return match[0]
            try:
                found.append(attachment(written, folder))
            except LoomError:
                continue
            else:
                return name
        return match[0]

    return _MENTION.sub(attach_mention, line), found


def _is_text_name(name: str) -> bool:
    from loom.formats.sniff.kinds import type_of_name

    return (type_of_name(name) or "text/plain").startswith("text/")


def read_line(prompt: str) -> str | None:
    """Read a line; return None at the end of the input. Ctrl+C starts the line again."""
    while True:
        try:
            return input(prompt if sys.stdin.isatty() else "")
        except EOFError:
            sys.stdout.write("\n")
            return None
        except KeyboardInterrupt:
            sys.stdout.write("\n")


def use_line_editing() -> None:
    """Enable arrow keys and history on a terminal, if Python was built with readline."""
    if not sys.stdin.isatty():
        return
    try:
        import readline
    except ImportError:
        return
    readline.set_history_length(1_000)


def run_line_attach(url: str, token: str, *, last: bool, session: str, model: str, hide_reasoning: bool) -> int:
    """Chat line by line in a session of a daemon."""
    with asyncio.Runner() as runner:
        client = runner.run(reach_daemon(load_config(), url, token))
        try:
            chosen = runner.run(_remote_session(client, last=last, session_id=session, model=model))
            options = MessageOptions(shows_reasoning=not hide_reasoning, plain=is_plain())
            return RemoteChat(runner, client, chosen, options).run()
        finally:
            runner.run(client.close())


async def _remote_session(client: RemoteLibrary, *, last: bool, session_id: str, model: str) -> RemoteSession:
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

    def _library(self) -> Library:
        return self._client

    @property
    def _remote(self) -> RemoteSession:
        assert isinstance(self._session, RemoteSession)
        return self._session

    async def _open(self) -> str:
        """Return the header line, after prompting for pending approvals; without a terminal they stay pending."""
        info = await self._remote.info()
        self._use_folder(info.workspace, is_remote=True)
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
        if has_color(sys.stdout):
            return TerminalRenderer(partial(read_media, self._client), shows_reasoning=self._options.shows_reasoning)
        return TextRenderer(shows_reasoning=self._options.shows_reasoning)

    async def _use_model(self, name: str) -> str:
        if name:
            await self._remote.use(name)
        return (await self._remote.info()).model


class DaemonHost:
    """The host of sessions in a daemon, which does not report prices and renditions."""

    async def model_of(self, session: Session) -> str:
        assert isinstance(session, RemoteSession)
        return (await session.info()).model

    def cost(self, model: str, usage: Usage) -> float | None:
        return None

    def follow_renditions(self, show: Callable[[str], None] | None) -> None:
        return
