"""`loom keys`: the keys of model services, in a file that only you can read. No key is ever printed whole."""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final, cast

import click
import msgspec

from loom.cli.terminal import harmless
from loom.config import load_config, user_folder
from loom.config.secret import mask
from loom.errors import ConfigError
from loom.providers.catalog import key_env, platforms
from loom.runtime import key_names

FILE: Final = "keys.toml"


@click.group("keys")
def command() -> None:
    """Keep the keys of model services. They are read from the environment, too."""


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _services() if name.startswith(incomplete)]


@command.command("set")
@click.argument("service", shell_complete=_complete)
def set_(service: str) -> None:
    """Store the key of a service, such as anthropic, openai or gemini.

    It is asked for and not shown; a pipe works too.
    """
    name = _service(service)
    asks = sys.stdin.isatty()
    key = (click.prompt("key (hidden)", hide_input=True, err=True) if asks else sys.stdin.readline()).strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("that is no key: a key is one word of plain characters.", hint="Nothing was stored.")
    file = keys_file()
    write_keys(file, {**read_keys(file), name: key})
    click.echo(f"✔ {name}: {mask(key)} stored in {_shown(file)} (0600)")


@command.command("remove")
@click.argument("service", shell_complete=_complete)
def remove(service: str) -> None:
    """Forget the stored key of a service."""
    name = _service(service)
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
    for service in sorted({*_services(), *stored}):
        found = next((stored[name] for name in key_names(service) if stored.get(name)), "")
        variable = key_env(service) if service in platforms() else ""
        value = found or os.environ.get(variable, "")
        origin = _shown(keys_file()) if service in read_keys(keys_file()) else "configuration" if found else variable
        if as_json:
            row = {"service": service, "key": mask(value) if value else None, "origin": origin if value else None}
            click.echo(msgspec.json.encode(row))
        elif value:
            click.echo(f"✔ {harmless(service):<12} {mask(value):<10} {origin}")
        else:
            click.echo(f"○ {harmless(service):<12} no key     loom keys set {service}, or {variable}")


@command.command("path")
def path() -> None:
    """Print where the keys are stored."""
    click.echo(str(keys_file()))


def keys_file() -> Path:
    return user_folder(os.environ, Path.cwd()) / FILE


def read_keys(file: Path) -> dict[str, str]:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise ConfigError(f"{_shown(file)} cannot be read as TOML.", hint="Correct or delete it.") from None
    keys = data.get("keys", {})
    if set(data) - {"keys"} or not all(isinstance(value, str) for value in keys.values()):
        raise ConfigError(f"{_shown(file)} holds more than keys.", hint="Edit it by hand; it is left as it is.")
    return cast("dict[str, str]", keys)


def write_keys(file: Path, keys: dict[str, str]) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    lines = [
        f"{msgspec.json.encode(name).decode()} = {msgspec.json.encode(key).decode()}" for name, key in keys.items()
    ]
    text = "# Written by `loom keys`.\n[keys]\n" + "".join(f"{line}\n" for line in lines)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".keys-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"{_shown(file)} cannot be written: {error.strerror}.") from None


def _services() -> list[str]:
    return [name for name, facts in platforms().items() if facts.get("key_env") and name != "bedrock"]


def _service(name: str) -> str:
    """A service that Loom knows, or one of the user's own, in small letters."""
    found = name.strip().lower()
    if found not in _services():
        raise ConfigError(f"there is no service {name!r} that needs a key.", hint=f"Known: {', '.join(_services())}.")
    return found


def _shown(file: Path) -> str:
    try:
        return f"~/{file.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(file)
