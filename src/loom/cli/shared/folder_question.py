"""The question about a folder: whether what it brings may instruct the model and configure Loom."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from loom.api_types import FolderTrustView
from loom.cli.shared.questions import confirm
from loom.cli.shared.terminal import safe_text
from loom.config import load_config
from loom.content.media import size_label
from loom.errors import ConfigError

TRUST_QUESTION = "Do you trust what this folder brings?"
_MOST_LINES = 12


def ask_about_folder() -> None:
    """Ask once about the working directory, in a terminal: before anything in it is used, and again when it changes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    folder = Path.cwd()
    try:
        config = load_config()
        found = config.folder_trust(folder)
    except ConfigError:
        return  # the command says what is wrong
    if not found.needs_decision:
        return
    show_files(found)
    click.echo("Until you trust it, only your own AGENTS.md is read, and no setting that widens anything.", err=True)
    records = config.trust_records(folder)
    records.decide_about(folder, found.digest, is_trusted=confirm(TRUST_QUESTION))
    click.echo("Remembered until it changes. `loom trust` lists and revokes decisions.", err=True)


def show_files(found: FolderTrustView) -> None:
    """Show what a folder brings: every file, and the beginning of its text."""
    click.echo(safe_text(f"{found.folder} brings files that instruct the model or configure Loom:"), err=True)
    for file in found.files:
        owner = ", of another user" if file.is_foreign else ""
        click.echo(safe_text(f"\n  {file.name} ({size_label(file.bytes)}{owner})"), err=True)
        lines = file.text.splitlines()
        for line in lines[:_MOST_LINES]:
            click.echo(safe_text(f"    │ {line[:110]}"), err=True)
        if len(lines) > _MOST_LINES:
            click.echo("    │ …", err=True)
    if found.more:
        click.echo(f"\n  and {found.more} more", err=True)
    click.echo("", err=True)
