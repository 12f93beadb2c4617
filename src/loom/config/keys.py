"""The file of keys: what `loom keys` and the daemon's settings write, and every configuration reads."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from loom.config.load import user_folder
from loom.config.shape import as_table
from loom.config.sources import KEYS_NAME, shown
from loom.errors import ConfigError
from loom.providers.catalog import platforms


def services() -> list[str]:
    """The services that need a key."""
    return [name for name, facts in platforms().items() if facts.get("key_env") and name != "bedrock"]


def keys_file(environ: Mapping[str, str] | None = None) -> Path:
    return user_folder(os.environ if environ is None else environ, Path.cwd()) / KEYS_NAME


def read_keys(file: Path) -> dict[str, str]:
    name = shown(file, Path.cwd())
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=name) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise ConfigError(f"{name} cannot be read as TOML.", hint="Correct or delete it.") from None
    keys = as_table(data.get("keys", {}))
    if keys is None or set(data) - {"keys"} or not all(isinstance(value, str) for value in keys.values()):
        raise ConfigError(f"{name} holds more than keys.", hint="Edit it by hand; it is left as it is.")
    return cast("dict[str, str]", dict(keys))


def write_keys(file: Path, keys: Mapping[str, str]) -> None:
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
        raise ConfigError(f"{shown(file, Path.cwd())} cannot be written: {error.strerror}.") from None
