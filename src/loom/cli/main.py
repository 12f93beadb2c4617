"""The `loom` command. Subcommands are loaded when they are used, so that `--help` and `--version` answer at once."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import click

from loom.errors import ConfigError, ExtraMissing, LoomError, MediaError, NotAuthorised, ProviderError

COMMANDS: Final = {
    "config": "Show where each setting comes from.",
    "context": "Show what the next request would carry, for one model or several.",
    "read": "Show what Loom makes of files: blocks, text, errors.",
    "wire": "Show the exact request that a model would be sent.",
}

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_KEY: Final = 3
EXIT_PROVIDER: Final = 4
EXIT_MEDIA: Final = 5
EXIT_INTERRUPTED: Final = 130


class LazyGroup(click.Group):
    """Knows the names and one-line helps; imports `loom.cli.<name>` only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"loom.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"loom {version('loom-runtime')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version and exit."
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def loom(debug: bool) -> None:
    """Text, pictures, documents and sound, for any model."""


def exit_code(error: LoomError) -> int:
    """What a script can rely on."""
    match error:
        case NotAuthorised():
            return EXIT_NO_KEY
        case ProviderError():
            return EXIT_PROVIDER
        case MediaError() | ExtraMissing():
            return EXIT_MEDIA
        case ConfigError():
            return EXIT_USAGE
        case _:
            return EXIT_FAILED


def main(arguments: list[str] | None = None) -> Any:
    """One clear sentence for every error; a traceback only with --debug."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        loom.main(args=arguments or ["--help"], prog_name="loom", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except LoomError as error:
        if "--debug" in arguments:
            raise
        click.echo(f"loom: {error}", err=True)
        sys.exit(exit_code(error))
