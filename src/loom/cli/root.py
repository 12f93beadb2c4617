"""The group of commands. Each is imported when it is used; what is no command is a question, so `loom "…"` asks it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Final

import click

from loom.cli import exits
from loom.cli.main import COMPLETING
from loom.errors import LoomError

COMMANDS: Final = {
    "ask": 'Ask a model, with files. `loom "…"` is the same.',
    "chat": "Talk on the line. `loom` alone is the same.",
    "approvals": "Show what waits for your word.",
    "approve": "Allow what waits for your word, or deny it; the turn goes on.",
    "sessions": "List, search, rename, delete and export conversations.",
    "log": "Show a conversation, or with --graph its tree.",
    "tree": "Show a conversation with all its branches.",
    "context": "Show what the next request would carry, for one model or several.",
    "wire": "Show the exact request that a model would be sent.",
    "read": "Show what Loom makes of files: blocks, text, errors.",
    "models": "Show models, what they take, and how Loom knows.",
    "keys": "Keep the keys of model services.",
    "config": "Show where each setting comes from.",
    "import": "Take in conversations from elsewhere.",
    "doctor": "Check the set-up, the store or a foreign transcript; repair it.",
    "sweep": "Delete media that no conversation refers to.",
    "mcp": "Use the tools of MCP servers.",
    "mcp-serve": "Serve read_file and look to an MCP client.",
    "serve": "Run the daemon: the web client, the HTTP API, live events.",
    "web": "Open Loom in the browser.",
    "attach": "Talk through a daemon, here or elsewhere.",
    "token": "Print the token of the daemon.",
    "service": "Run the daemon whenever you are logged in.",
    "completion": "Print the completion script for a shell.",
}
_MODULES: Final = {"import": "import_", "mcp-serve": "mcp_serve"}
_OWN_OPTIONS: Final = ("-h", "--help", "--version")
_DEFAULT: Final = "ask"
_NEAR: Final = 0.75
"""How like a name a word must be to have been meant as one."""


class LazyGroup(click.Group):
    """Knows the names and one-line helps; imports `loom.cli.<name>` only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"loom.cli.{_MODULES.get(cmd_name, cmd_name)}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in COMMANDS and args[0] not in _OWN_OPTIONS:
            _refuse_typing_error(args)
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


def _refuse_typing_error(args: list[str]) -> None:
    """`loom sesions` is hardly a question, and asking it would cost money."""
    import difflib
    from pathlib import Path

    word = args[0]
    if len(args) > 1 or not word.isalpha() or Path(word).exists():
        return
    close = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=_NEAR)
    if close:
        raise click.UsageError(
            f"there is no command {word!r}. Did you mean `loom {close[0]}`? To ask it: loom ask {word}"
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
  loom -c "and the first picture again?"
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
    """Text, pictures, documents and sound, for any model.

    With no key and no network, the built-in model loom/spark answers: it looks, it does not reason. `--debug` with any
    command shows tracebacks.
    """


def _invoked(arguments: list[str]) -> object:
    """As click's own `main` does, which would end the process by itself where nobody reads what it writes."""
    if COMPLETING in os.environ:
        return loom.main(args=arguments, prog_name="loom", standalone_mode=False)
    with loom.make_context("loom", arguments) as context:
        return loom.invoke(context)


def run(arguments: list[str], *, debug: bool = False) -> int:
    """Run a command line and give its exit code."""
    try:
        result = _invoked(arguments)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        return _refused(error)
    except (click.Abort, KeyboardInterrupt):
        click.echo("loom: interrupted", err=True)
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has gone (`| head`): nothing is wrong, and Python must not complain when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except Exception as error:
        if debug and not isinstance(error, LoomError):
            raise
        return _explained(error, debug=debug)
    return result if isinstance(result, int) else exits.OK


def _refused(error: click.ClickException) -> int:
    """What click says of a command line, in one sentence as ours are; a group without a command shows its help."""
    from loom.cli.terminal import say

    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.NoSuchOption):
        near = _near(error.option_name, error.possibilities or ())
        error = click.NoSuchOption(error.option_name, error.message, near, error.ctx)
    words = " ".join(error.format_message().split())
    sentence = f"{words[:1].lower()}{words[1:]}"
    context = error.ctx if isinstance(error, click.UsageError) else None
    stop = "" if sentence.endswith((".", "?", "?)")) else "."
    say(f"{sentence}{stop} See `{context.command_path} --help`." if context else sentence)
    return error.exit_code


def _near(option: str, names: Iterable[str]) -> list[str]:
    """Those that could have been meant. Click compares the dashes, too, which makes every option like every other."""
    import difflib

    bare = option.lstrip("-")
    return [name for name in names if difflib.SequenceMatcher(a=bare, b=name.lstrip("-")).ratio() >= _NEAR]


def _explained(error: Exception, *, debug: bool) -> int:
    """One sentence and the next step; what is left is a fault of ours, and says so."""
    from loom.cli.terminal import say, sentence

    match error:
        case LoomError():
            if debug:
                import traceback

                traceback.print_exception(error)
            say(sentence(error))
            return exits.exit_code(error)
        case OSError():
            what = f"{error.filename}: " if isinstance(error.filename, str) else ""
            why = error.strerror or "the system refused"
            say(f"{what}{why}. Check the file, its permissions and the room on the disk.")
        case _:
            name = type(error).__name__
            say(f"something went wrong inside Loom ({name}). Run it again with --debug and report what it says.")
    return exits.FAILED
