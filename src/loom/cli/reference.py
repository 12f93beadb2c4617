"""`loom completion`, and the help pages as one document: `python -m loom.cli.reference FILE` regenerates the part of
FILE after the marker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from loom.atomic_file import write_file_whole
from loom.cli.root import loom
from loom.cli.shared.exit_codes import MEANINGS

MARKER: Final = "<!-- Everything below is generated: python -m loom.cli.reference docs/cli.md -->"
_WIDTH: Final = 100


def reference() -> str:
    """Return the exit codes, then every command with its help as the terminal shows it."""
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in MEANINGS.items())
    pages = "\n".join(f"### {name}\n\n```text\n{text}\n```\n" for name, text in _pages(loom, "loom", None))
    return f"{MARKER}\n\n## Exit codes\n\n| code | meaning |\n|---|---|\n{codes}\n\n## Commands\n\n{pages}"


def update_page(page: str) -> str:
    """Return the page with everything after its marker regenerated."""
    head, found, _ = page.partition(MARKER)
    if not found:
        raise ValueError("the page has no marker after which help pages go")
    return head + reference()


def _pages(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    context = click.Context(
        command,
        info_name=name.rpartition(" ")[2],
        parent=parent,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )
    yield name, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from _pages(found, f"{name} {below}", context)


_HOW = {
    "bash": 'eval "$(loom completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(loom completion zsh)"       # in ~/.zshrc, after compinit',
    "fish": "loom completion fish | source       # in ~/.config/fish/config.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(_HOW.values()))
@click.argument("shell", type=click.Choice(list(_HOW)))
def completion_command(shell: str) -> None:
    """Print the shell completion script."""
    from loom.cli.root import loom

    found = get_completion_class(shell)
    assert found is not None
    script = found(loom, {}, "loom", "_LOOM_COMPLETE").source()
    # If Loom has no completions, let bash and fish complete file names as for other commands.
    script = script.replace("complete -o nosort -F", "complete -o nosort -o bashdefault -o default -F")
    click.echo(script.replace("complete --no-files", "complete"))


if __name__ == "__main__":
    file = Path(sys.argv[1])
    write_file_whole(file, update_page(file.read_text(encoding="utf-8")), mode=0o666)
