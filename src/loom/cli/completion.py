"""`loom completion`: the script that makes a shell complete commands, options, models and sessions."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_HOW = {
    "bash": 'eval "$(loom completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(loom completion zsh)"       # in ~/.zshrc, behind compinit',
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
    # Where Loom has nothing to offer, bash and fish complete file names as they do for other commands.
    script = script.replace("complete -o nosort -F", "complete -o nosort -o bashdefault -o default -F")
    click.echo(script.replace("complete --no-files", "complete"))
