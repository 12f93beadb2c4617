"""`loom keys`: the keys of model services, in a file that only you can read. No key is ever printed whole."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click
import msgspec

from loom.cli.key_check import Checked, check_key
from loom.cli.terminal import harmless
from loom.config import load_config
from loom.config.keys import keys_file, read_keys, services, write_keys
from loom.config.secret import mask
from loom.config.sources import shown
from loom.errors import ConfigError, NotAuthorised
from loom.providers.catalog import key_env, platforms
from loom.runtime import key_names


@click.group("keys")
def command() -> None:
    """Keep the keys of model services. They are read from the environment, too."""


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in services() if name.startswith(incomplete)]


@command.command("set")
@click.argument("service", shell_complete=_complete)
@click.option("--as", "name", default="", metavar="NAME", help="Keep it under another name, for --key NAME.")
@click.option("--no-check", is_flag=True, help="Do not ask the service whether it works.")
def set_(service: str, name: str, no_check: bool) -> int:
    """Store the key of a service, such as anthropic, openai or gemini.

    It is asked for and not shown; a pipe works too. The service is asked whether it works, which costs nothing; a key
    that it refuses is not stored.
    """
    found = _service(service)
    kept_as = _name(name) if name else found
    asks = sys.stdin.isatty()
    key = (click.prompt("key (hidden)", hide_input=True, err=True) if asks else sys.stdin.readline()).strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("that is no key: a key is one word of plain characters.", hint="Nothing was stored.")
    file = keys_file()
    keys = {**read_keys(file), kept_as: key}
    checked = None if no_check else asyncio.run(check_key(found, key))
    if checked is not None and checked.state == "refused":
        raise NotAuthorised(f"{checked.text}; nothing was stored.", hint="Copy the key again, or use --no-check.")
    write_keys(file, keys)
    click.echo(f"✔ {kept_as}: {mask(key)} {_verdict(checked)}stored in {shown(file, Path.cwd())} (0600)")
    return 0


def _verdict(checked: Checked | None) -> str:
    if checked is None:
        return ""
    return f"works: {checked.text}, " if checked.state == "works" else f"could not be checked ({checked.text}), "


@command.command("remove")
@click.argument("service", shell_complete=_complete)
def remove(service: str) -> None:
    """Forget the stored key of a service, or one of a name of your own."""
    name = service.strip().lower()
    file = keys_file()
    keys = read_keys(file)
    if name not in keys:
        raise ConfigError(f"there is no stored key for {name}.", hint="See what is there: loom keys list.")
    del keys[name]
    write_keys(file, keys)
    click.echo(f"✔ {name}: forgotten")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(as_json: bool) -> None:
    """Show which services have a key, where it comes from, and its last four characters."""
    config = load_config()
    stored = config.secrets("keys")
    for warning in config.warnings:
        click.echo(f"loom: {warning}", err=True)
    for service in sorted({*services(), *stored}):
        found = next((stored[name] for name in key_names(service) if stored.get(name)), "")
        variable = key_env(service) if service in platforms() else ""
        value = found or os.environ.get(variable, "")
        origin = (
            shown(keys_file(), Path.cwd())
            if service in read_keys(keys_file())
            else "configuration"
            if found
            else variable
        )
        if as_json:
            row = {"service": service, "key": mask(value) if value else None, "origin": origin if value else None}
            click.echo(msgspec.json.encode(row))
        elif value:
            click.echo(f"✔ {harmless(service):<12} {mask(value):<10} {origin}")
        else:
            click.echo(f"○ {harmless(service):<12} no key     → loom keys set {harmless(service)}, or {variable}")


@command.command("path")
def path() -> None:
    """Print where the keys are stored."""
    click.echo(str(keys_file()))


def _service(name: str) -> str:
    """A service that Loom knows, or one of the user's own, in small letters."""
    written = name.strip().lower()
    found = next((known for known in (written, *key_names(written)) if known in services()), "")
    if not found:
        raise ConfigError(f"there is no service {name!r} that needs a key.", hint=f"Known: {', '.join(services())}.")
    return found


def _name(name: str) -> str:
    found = name.strip().lower()
    if not found.isascii() or not found.replace("-", "").replace("_", "").isalnum() or found in platforms():
        raise ConfigError(
            f"{name!r} is no name for a key.", hint="Use letters, digits, - and _, and not the name of a service."
        )
    return found
