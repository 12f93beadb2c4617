"""A group of commands, such as `loom sessions`: its help, and the error for an unknown command."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import Final

import click

NEAR: Final = 0.75
"""The similarity at which a word is taken for a mistyped name."""
_LIST: Final = "list"


class CommandGroup(click.Group):
    """Like `click.Group`, whose help would cut the sentences to the width of a line. A group that lists without a
    command also does so with `list`, as other groups do."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(sys.maxsize)) for name in self.list_commands(ctx)]
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_list = self.invoke_without_command and args[:1] == [_LIST]
        return super().parse_args(ctx, args[1:] if is_list else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; raise `UsageError` with a similar name, or with all names."""
        word = args[0]
        if word in self.commands or word.startswith("-"):
            return super().resolve_command(ctx, args)
        names = [*self.list_commands(ctx), *([_LIST] if self.invoke_without_command else [])]
        close = get_close_matches(word, names, n=1, cutoff=NEAR)
        hint = f"Did you mean `{ctx.command_path} {close[0]}`?" if close else f"Commands: {', '.join(names)}."
        raise click.UsageError(f"Unknown command {word!r}. {hint}")
