"""`loom chat`, which is also `loom` alone: the terminal UI, or with --plain the line interface.

Nothing heavy is imported here: the first screen is drawn before the runtime is loaded.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from loom.cli.shared.folder_question import ask_about_folder
from loom.cli.shared.options import MessageOptions, message_options, message_options_from
from loom.errors import ConfigError


@click.command("chat")
@message_options(tools="all")
def chat_command(**given: Any) -> int:
    """Start an interactive chat in the terminal. F1 lists keys and commands. With --plain, a line interface for screen
    readers and simple terminals."""
    options = MessageOptions(**message_options_from(given))
    ask_about_folder()
    if options.plain:
        from loom.cli.line_chat import run_line_chat

        return run_line_chat(options)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "loom chat needs a terminal.",
            hint='In scripts, ask one question with loom "…", or read messages line by line with loom chat --plain.',
        )
    from loom.cli.screen_chat import run_screen_chat

    return run_screen_chat(options)
