"""`loom keys`: store, check, list and remove API keys."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click
import msgspec

from loom.cli.shared.command_group import CommandGroup
from loom.cli.shared.terminal import safe_text
from loom.config import load_config
from loom.config.files import display_path
from loom.config.key_file import keys_file, read_keys, services, write_keys
from loom.config.secret import mask
from loom.errors import ConfigError, NotAuthorised
from loom.providers.catalog import key_env, platforms
from loom.providers.key_check import KeyCheck, check_key
from loom.runtime import key_names


@click.group("keys", cls=CommandGroup)
def keys_command() -> None:
    """Manage API keys. Environment variables work too."""


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in services() if name.startswith(incomplete)]


@keys_command.command("set")
@click.argument("service", shell_complete=_complete)
@click.option("--as", "name", default="", metavar="NAME", help="Store it under another name, for --key NAME.")
@click.option("--no-check", is_flag=True, help="Do not check the key with the provider.")
def set_(service: str, name: str, no_check: bool) -> int:
    """Store an API key for a provider, such as anthropic, openai or gemini.

    Type it at the hidden prompt or pipe it in. The key is checked with the provider at no cost; a rejected key is not
    stored.
    """
    found = _service(service)
    kept_as = _name(name) if name else found
    is_typed = sys.stdin.isatty()
    key = (click.prompt("key (hidden)", hide_input=True, err=True) if is_typed else sys.stdin.readline()).strip()
    if not key:
        raise ConfigError("No key given.", hint="Type it at the prompt, or pipe it in.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("Not a key: a key is one word of ASCII characters.", hint="Nothing was stored.")
    file = keys_file()
    keys = {**read_keys(file), kept_as: key}
    checked = None if no_check else asyncio.run(check_key(found, key))
    if checked is not None and checked.state == "refused":
        raise NotAuthorised(f"{checked.text}; nothing was stored.", hint="Copy the key again, or use --no-check.")
    write_keys(file, keys)
    click.echo(f"✔ {kept_as}: {mask(key)} {_verdict(checked)}stored in {display_path(file, Path.cwd())} (0600)")
    return 0


def _verdict(checked: KeyCheck | None) -> str:
    if checked is None:
        return ""
    return f"works: {checked.text}, " if checked.state == "works" else f"could not be checked ({checked.text}), "


@keys_command.command("remove")
@click.argument("service", shell_complete=_complete)
def remove(service: str) -> None:
    """Remove a stored key, by provider or by name."""
    name = service.strip().lower()
    file = keys_file()
    keys = read_keys(file)
    if name not in keys:
        raise ConfigError(f"No stored key for {name}.", hint="List keys: `loom keys list`.")
    del keys[name]
    write_keys(file, keys)
    click.echo(f"✔ {name}: removed")


@keys_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def list_(as_json: bool) -> None:
    """List keys with their origin and last four characters."""
    config = load_config()
    stored = config.secrets("keys")
    for warning in config.warnings:
        click.echo(f"loom: {warning}", err=True)
    for service in sorted({*services(), *stored}):
        found = next((stored[name] for name in key_names(service) if stored.get(name)), "")
        variable = key_env(service) if service in platforms() else ""
        value = found or os.environ.get(variable, "")
        origin = (
            display_path(keys_file(), Path.cwd())
            if service in read_keys(keys_file())
            else "configuration"
            if found
            else variable
        )
        if as_json:
            row = {"service": service, "key": mask(value) if value else None, "origin": origin if value else None}
            click.echo(msgspec.json.encode(row))
        elif value:
            click.echo(f"✔ {safe_text(service):<16} {mask(value):<10} {origin}")
        else:
            click.echo(f"○ {safe_text(service):<16} no key     → loom keys set {safe_text(service)}, or {variable}")


@keys_command.command("path")
def path() -> None:
    """Print where the keys are stored."""
    click.echo(str(keys_file()))


def _service(name: str) -> str:
    """Return the service of a provider name, in lower case; raise `ConfigError` if it is not known."""
    written = name.strip().lower()
    found = next((known for known in (written, *key_names(written)) if known in services()), "")
    if not found:
        raise ConfigError(f"Unknown provider {name!r}.", hint=f"Known: {', '.join(services())}.")
    return found


def _name(name: str) -> str:
    found = name.strip().lower()
    if not found.isascii() or not found.replace("-", "").replace("_", "").isalnum() or found in platforms():
        raise ConfigError(
            f"{name!r} is not a valid key name.", hint="Use letters, digits, - and _, and not the name of a provider."
        )
    return found
