"""The question about a folder: whether what it brings may instruct the model and configure Loom."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from loom.cli.shared.questions import confirm
from loom.cli.shared.terminal import safe_text
from loom.config import load_config, user_folder
from loom.config.trust import TrustRecords, files_digest
from loom.content.media import size_label
from loom.errors import ConfigError
from loom.tools.workspace import is_foreign

_MOST_SHOWN = 40
_MOST_LINES = 12


def trust_records() -> TrustRecords:
    return TrustRecords(user_folder(os.environ, Path.cwd()))


def ask_about_folder() -> None:
    """Ask once about the working directory, in a terminal: before anything in it is used, and again when it changes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    folder, records = Path.cwd(), trust_records()
    files = records.files(folder)
    try:
        if not files or load_config().is_trusted(folder) or records.find(folder) != "unknown":
            return
    except ConfigError:
        return  # the command says what is wrong
    digest = files_digest(files)
    show_files(folder, files)
    click.echo("Without your consent, only AGENTS.md of yours is read, and no setting that widens anything.", err=True)
    if digest:
        records.decide(folder, digest, is_trusted=confirm("Do you trust what this folder brings?"))
        click.echo("Remembered until it changes. `loom trust` lists and revokes decisions.", err=True)


def show_files(folder: Path, files: tuple[Path, ...]) -> None:
    """Show what a folder brings: every file, and the beginning of its text."""
    click.echo(safe_text(f"{folder} brings files that instruct the model or configure Loom:"), err=True)
    for file in files[:_MOST_SHOWN]:
        try:
            data = file.read_bytes()
        except OSError:
            data = b""
        name = str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)
        owner = ", of another user" if is_foreign(file) else ""
        click.echo(safe_text(f"\n  {name} ({size_label(len(data))}{owner})"), err=True)
        lines = data[:4_000].decode("utf-8", "replace").splitlines()
        for line in lines[:_MOST_LINES]:
            click.echo(safe_text(f"    │ {line[:110]}"), err=True)
        if len(lines) > _MOST_LINES:
            click.echo("    │ …", err=True)
    if len(files) > _MOST_SHOWN:
        click.echo(f"\n  and {len(files) - _MOST_SHOWN} more", err=True)
    click.echo("", err=True)
