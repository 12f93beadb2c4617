"""The file of API keys: `loom keys` and the daemon's settings write it, and `load_config` reads it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from loom.atomic_file import write_file_whole
from loom.config.files import KEYS_NAME, display_path
from loom.config.loader import user_folder
from loom.config.schema_tree import as_table
from loom.errors import ConfigError
from loom.providers.catalog import platforms


def services() -> list[str]:
    """Return the providers that need a key."""
    return [name for name, facts in platforms().items() if facts.get("key_env") and name != "bedrock"]


def keys_file(environ: Mapping[str, str] | None = None) -> Path:
    return user_folder(os.environ if environ is None else environ, Path.cwd()) / KEYS_NAME


def read_keys(file: Path) -> dict[str, str]:
    name = display_path(file, Path.cwd())
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=name) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise ConfigError(f"{name} cannot be read as TOML.", hint="Fix or delete it.") from None
    keys = as_table(data.get("keys", {}))
    if keys is None or set(data) - {"keys"} or not all(isinstance(value, str) for value in keys.values()):
        raise ConfigError(f"{name} contains more than keys.", hint="Edit it in a text editor; it was not changed.")
    return cast("dict[str, str]", dict(keys))


def write_keys(file: Path, keys: Mapping[str, str]) -> None:
    """Write all keys atomically, with mode 0600 from the start."""
    lines = [
        f"{msgspec.json.encode(name).decode()} = {msgspec.json.encode(key).decode()}" for name, key in keys.items()
    ]
    text = "# Written by `loom keys`.\n[keys]\n" + "".join(f"{line}\n" for line in lines)
    try:
        write_file_whole(file, text, private=True)
    except OSError as error:
        raise ConfigError(f"{display_path(file, Path.cwd())} cannot be written: {error.strerror}.") from None
