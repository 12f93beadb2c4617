"""The root command group. Commands are imported when they are used; arguments that name no command are a question."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Final

import click

from loom.cli.main import COMPLETING
from loom.cli.shared import exit_codes
from loom.errors import LoomError

COMMANDS: Final = {
    "ask": 'Ask a model, with files. `loom "…"` is the same.',
    "chat": "Start an interactive chat. `loom` alone is the same.",
    "approvals": "List pending approvals.",
    "approve": "Approve or deny a pending tool call; the turn continues.",
    "sessions": "List, organize, share, export and delete conversations.",
    "search": "Search conversations, documents and images.",
    "log": "Show a conversation, or with --graph its tree.",
    "tree": "Show a conversation with all its branches.",
    "replay": "Ask another model the questions of a conversation, and compare.",
    "undo": "Undo what the agent changed in files.",
    "ps": "List background processes of agents.",
    "context": "Show what the next request would contain, for one model or several.",
    "wire": "Show the exact request body for a model.",
    "prompt": "Show the system prompt of a new session.",
    "read": "Show how Loom reads files: blocks, text, errors.",
    "transcribe": "Transcribe recordings and videos.",
    "speak": "Convert text to speech.",
    "models": "List models and what they accept.",
    "usage": "Show the tokens and the cost of answers.",
    "keys": "Manage API keys.",
    "config": "Show where each setting comes from.",
    "import": "Import conversations from other programs.",
    "export": "Export a conversation: Markdown, HTML, JSON or zip.",
    "doctor": "Check the setup, the store or a transcript, and repair it.",
    "backup": "Copy the store and its media to a folder, while Loom runs.",
    "restore": "Restore a backup.",
    "sweep": "Delete media that no conversation refers to.",
    "mcp": "Use the tools of MCP servers.",
    "mcp-serve": "Serve the tools read_file and look to an MCP client.",
    "serve": "Run the daemon: the web client, the HTTP API, live events.",
    "status": "Show whether the daemon is running.",
    "stop": "Stop the daemon.",
    "web": "Open Loom in the browser.",
    "attach": "Chat through a running daemon, local or remote.",
    "gateway": "Show how to use any model from other programs, through Loom.",
    "trust": "Decide which folders may instruct the model and configure Loom.",
    "token": "Print the daemon's access token.",
    "users": "Manage who may use the daemon.",
    "service": "Run the daemon as a login service.",
    "completion": "Print the shell completion script.",
}
_MODULES: Final = {
    "approvals": "work",
    "approve": "work",
    "ps": "work",
    "undo": "work",
    "attach": "chat",
    "tree": "log",
    "wire": "context",
    "prompt": "context",
    "read": "media",
    "transcribe": "media",
    "speak": "media",
    "import": "import_",
    "search": "sessions",
    "export": "sessions",
    "backup": "store",
    "restore": "store",
    "sweep": "store",
    "mcp-serve": "mcp",
    "serve": "daemon",
    "status": "daemon",
    "stop": "daemon",
    "web": "daemon",
    "token": "daemon",
    "service": "daemon",
    "completion": "reference",
}
"""The modules of commands that do not have a module of their own name."""
_OTHER_WORDS: Final = {
    **dict.fromkeys(("start", "up", "daemon", "server"), "To run the daemon: loom serve"),
    **dict.fromkeys(("restart", "reload"), "To restart the daemon: loom stop, then loom serve"),
    **dict.fromkeys(("quit", "exit", "kill", "down", "shutdown"), "To stop the daemon: loom stop"),
    **dict.fromkeys(("list", "ls", "history", "conversations", "chats"), "To list conversations: loom sessions"),
    **dict.fromkeys(("resume", "continue"), "To continue the last conversation: loom chat -c"),
    **dict.fromkeys(("new", "init", "tui", "ui"), "To start a conversation: loom"),
    **dict.fromkeys(("login", "auth", "setup", "key"), "To add an API key: loom keys set PROVIDER"),
    "logout": "To remove an API key: loom keys remove PROVIDER",
    **dict.fromkeys(("delete", "rm", "remove"), "To delete a conversation: loom sessions delete ID"),
    **dict.fromkeys(("settings", "env"), "To see the settings: loom config show"),
    **dict.fromkeys(("update", "upgrade", "install"), "To update Loom: pip install --upgrade loom-runtime"),
    "version": "To see the version: loom --version",
    **dict.fromkeys(("show", "cat"), "To show a conversation: loom log"),
    **dict.fromkeys(("info", "check", "health"), "To check the setup: loom doctor"),
}
"""Names of commands in other programs, and the equivalent in Loom. Such a word alone is not treated as a question."""
_OWN_OPTIONS: Final = ("-h", "--help", "--version")
_DEFAULT: Final = "ask"


class LazyGroup(click.Group):
    """A group of commands with their one-line help. It imports the module with `<name>_command` only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"loom.cli.{_MODULES.get(cmd_name, cmd_name)}")
        return getattr(module, f"{cmd_name.replace('-', '_')}_command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"] and len(args) <= 2 and set(args[1:]) <= set(COMMANDS):
            args = [*args[1:], "--help"]
        if args and args[0] not in COMMANDS and args[0] not in _OWN_OPTIONS:
            _refuse_typing_error(args)
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


def _refuse_typing_error(args: list[str]) -> None:
    """Raise `UsageError` for a single word such as `sesions` or `restart`: it is hardly a question, and would cost
    money."""
    from difflib import get_close_matches
    from pathlib import Path

    from loom.cli.shared.command_group import NEAR

    word = args[0]
    if len(args) > 1 or not word.isalpha() or Path(word).exists():
        return
    if hint := _OTHER_WORDS.get(word.lower()):
        raise click.UsageError(f"Unknown command {word!r}. {hint}. To send it as a question: loom ask {word}")
    close = get_close_matches(word, (*COMMANDS, "help"), n=1, cutoff=NEAR)
    if close:
        raise click.UsageError(
            f"Unknown command {word!r}. Did you mean `loom {close[0]}`? To send it as a question: loom ask {word}"
        )


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from loom.cli.main import version

        click.echo(f"loom {version()}")
        ctx.exit()


_EPILOG: Final = """\b
Examples:
  loom "what is wrong here?" -a login.png
  loom report.pdf "which pages talk about timeouts?"
  loom -c "and the first image again?"
  git diff | loom "explain this"
"""


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
    subcommand_metavar='"QUESTION" [FILE]... | COMMAND [ARGS]...',
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version and exit."
)
def loom() -> None:
    """Text, images, documents, audio and video, for any model.

    Without an API key, the built-in demo model loom/spark answers; it is not a language model. Any command takes
    `--debug` to show tracebacks.
    """


def _invoke(arguments: list[str]) -> object:
    """Run like click's `main`, which would exit the process itself on a closed pipe."""
    if COMPLETING in os.environ:
        return loom.main(args=arguments, prog_name="loom", standalone_mode=False)
    with loom.make_context("loom", arguments) as context:
        return loom.invoke(context)


def run_command_line(arguments: list[str], *, debug: bool = False) -> int:
    """Run a command line and return its exit code."""
    try:
        result = _invoke(arguments)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        return _print_usage_error(error)
    except (click.Abort, KeyboardInterrupt):
        click.echo("loom: interrupted", err=True)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout has closed it (`| head`): not an error. Python must not report it when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    except Exception as error:
        if debug and not isinstance(error, LoomError):
            raise
        return _print_error(error, debug=debug)
    return result if isinstance(result, int) else exit_codes.OK


def _print_usage_error(error: click.ClickException) -> int:
    """Print an error of click as one sentence, or the help of a group without a command. Return the exit code."""
    from loom.cli.shared.terminal import print_line

    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.NoSuchOption):
        near = _similar_options(error.option_name, error.possibilities or ())
        error = click.NoSuchOption(error.option_name, error.message, near, error.ctx)
    sentence = " ".join(error.format_message().split())
    sentence = sentence.replace("a valid integer range", "a whole number")  # what click calls its own type
    context = error.ctx if isinstance(error, click.UsageError) else None
    stop = "" if sentence.endswith((".", "?", "?)")) else "."
    print_line(f"{sentence}{stop} See `{context.command_path} --help`." if context else sentence)
    return error.exit_code


def _similar_options(option: str, names: Iterable[str]) -> list[str]:
    """Return the options with a similar name. Click includes the dashes in its comparison, which makes all options
    similar."""
    from difflib import SequenceMatcher

    from loom.cli.shared.command_group import NEAR

    bare = option.lstrip("-")
    return [name for name in names if SequenceMatcher(a=bare, b=name.lstrip("-")).ratio() >= NEAR]


def _print_error(error: Exception, *, debug: bool) -> int:
    """Print an error and the next step as one sentence; other exceptions are reported as internal errors. Return the
    exit code."""
    from loom.cli.shared.terminal import print_line, sentence

    match error:
        case LoomError():
            if debug:
                import traceback

                traceback.print_exception(error)
            print_line(sentence(error))
            return exit_codes.exit_code(error)
        case OSError():
            what = f"{error.filename}: " if isinstance(error.filename, str) else ""
            why = error.strerror or "the operating system refused"
            print_line(f"{what}{why}. Check the file, its permissions and the free disk space.")
        case _:
            name = type(error).__name__
            print_line(f"Internal error ({name}). Run the command again with --debug and report the output.")
    return exit_codes.FAILED
