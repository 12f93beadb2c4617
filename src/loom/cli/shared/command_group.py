"""A group of commands whose help shows the first sentence of each in full."""

from __future__ import annotations

import sys

import click


class CommandGroup(click.Group):
    """Like `click.Group`, which would cut the sentences to the width of a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(sys.maxsize)) for name in self.list_commands(ctx)]
            )
