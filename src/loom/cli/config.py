"""`loom config`: the settings and their origins."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from loom.cli.shared.command_group import CommandGroup
from loom.config import config_schema, load_config, user_folder

_COLUMN = 42
"""The column of the origins; nearly every value is shorter."""


@click.group("config", cls=CommandGroup)
def config_command() -> None:
    """Show the configuration and where each value comes from."""


@config_command.command()
@click.option("--origin", is_flag=True, help="Show the file, variable or default of each value.")
@click.option("--strict-config", is_flag=True, help="Fail on unknown keys.")
def show(origin: bool, strict_config: bool) -> None:
    """Print every setting; secrets are masked."""
    config = load_config(strict=strict_config)
    for warning in config.warnings:
        click.echo(f"loom: {warning}", err=True)
    for shown in config.show(origins=origin):
        line = f"{shown.key} = {shown.value}"
        click.echo(f"{line:<{_COLUMN}}  # {shown.origin}" if origin else line)


@config_command.command()
def schema() -> None:
    """Print the JSON Schema of loom.toml and loom.yaml, for editors."""
    click.echo(msgspec.json.format(msgspec.json.encode(config_schema()), indent=2))


@config_command.command()
def path() -> None:
    """Print the folder of your loom.toml."""
    click.echo(str(user_folder(os.environ, Path.cwd())))
