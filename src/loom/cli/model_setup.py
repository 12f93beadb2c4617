"""`loom models add URL` and `loom models show MODEL`: set up a server, and everything that is known of a model."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from loom.cli.shared.terminal import print_line, tokens_label
from loom.compile.cost import Calibration
from loom.config import load_config
from loom.config.files import display_path
from loom.config.toml_files import add_table, user_config_file
from loom.errors import ConfigError, Unavailable
from loom.models import FactOrigin, Model
from loom.providers.discovery import find_server
from loom.runtime import Runtime, key_for

_MOST_ADDED: Final = 12
_ORIGINS: Final[dict[FactOrigin, str]] = {
    "declared": "catalogue",
    "asked": "reported by the server",
    "learned": "learned from a refusal",
    "user": "your configuration",
    "guessed": "assumed, tried once",
}
_FLAGS: Final = ("vision", "native_pdf", "audio", "thinking", "tools", "citations")
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")


async def add_models(url: str, wanted: Sequence[str], key_env: str) -> None:
    """Ask a server which models it has, and write those to the user's configuration."""
    if not url:
        raise ConfigError("models add needs a URL.", hint="Example: loom models add http://127.0.0.1:8000/v1")
    if key_env and not os.environ.get(key_env):
        print_line(f"{key_env} is not set now; it is read when the model is asked")
    server = await find_server(url, os.environ.get(key_env, "") if key_env else "")
    if server is None:
        raise Unavailable(
            f"No model server answered at {url}.",
            hint="Give its address with the version, such as http://127.0.0.1:8000/v1, and --key-env for a key.",
        )
    unknown = [name for name in wanted if name not in server.models]
    if unknown:
        raise ConfigError(f"{url} has no model {unknown[0]!r}.", hint=f"It has: {', '.join(server.models[:20])}.")
    chosen = list(wanted or server.models)
    if len(chosen) > _MOST_ADDED:
        shown = ", ".join(chosen[:_MOST_ADDED])
        raise ConfigError(
            f"{url} has {len(chosen)} models: {shown} …", hint=f"Name those to add: loom models add {url} {chosen[0]}"
        )
    if not chosen:
        raise ConfigError(f"The server at {url} lists no model.", hint="Load one there first.")
    file, known = user_config_file(), load_config().models
    for model in chosen:
        name = _free_name(model, known)
        entry = {"provider": server.platform, "model": model, "base_url": server.base_url}
        add_table(file, ("models", name), entry | ({"api_key": f"{{env:{key_env}}}"} if key_env else {}))
        click.echo(f"✔ {name}: {server.platform}/{model} at {server.base_url} ({display_path(file, Path.cwd())})")
    click.echo(f'  ask it: loom -m {_free_name(chosen[0], known)} "hello"')


def _free_name(model: str, taken: Container[str]) -> str:
    name = _NOT_A_NAME.sub("-", model.rpartition("/")[2]).strip("-.") or "model"
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


async def show_models(references: Sequence[str], *, as_json: bool) -> None:
    """Print everything that is known of models, and where each fact comes from."""
    async with Runtime.open() as runtime:
        for reference in references:
            model = await runtime.models.resolve_live(reference)
            measured = await runtime.models.calibration(model.reference)
            facts = {**model_facts(model), "estimates": msgspec.to_builtins(measured) if measured else None}
            click.echo(msgspec.json.encode(facts) if as_json else _report(model, runtime, measured))


def model_facts(model: Model) -> dict[str, Any]:
    """Return the facts of a model that decide its requests."""
    origins = model.capabilities.origins
    return {
        "reference": model.reference,
        "wire": model.wire,
        "base_url": model.base_url,
        "capabilities": {
            flag: {"value": getattr(model.capabilities, flag), "origin": origins.get(flag, "declared")}
            for flag in _FLAGS
        },
        "accepts": model.capabilities.accepts,
        "limits": msgspec.to_builtins(model.limits),
        "limit_origins": {name: origins[name] for name in ("context_tokens", "max_output_tokens") if name in origins},
        "thinking": list(model.thinking.levels) if model.thinking.request != "none" else [],
        "options": list(model.options),
        "server_tools": sorted(model.server_tools),
        "price": msgspec.to_builtins(model.price) if model.price is not None else None,
    }


def _report(model: Model, runtime: Runtime, measured: Calibration | None) -> str:
    origins = model.capabilities.origins
    limits = model.limits
    has_key = bool(key_for(model.provider, runtime.config))

    def line(name: str, value: str, key: str = "") -> str:
        origin = origins.get(key, "declared") if key else ""
        return f"  {name:<14}{value:<14}{_ORIGINS[origin] if origin else ''}".rstrip()

    levels = ", ".join(model.thinking.levels) if model.thinking.request != "none" else "no"
    rows = [
        model.reference,
        line("protocol", model.wire),
        line("address", model.base_url or "built in"),
        line("key", "set" if has_key else "none"),
        *(line(flag, "yes" if getattr(model.capabilities, flag) else "no", flag) for flag in _FLAGS),
        line("context", tokens_label(limits.context_tokens), "context_tokens"),
        line("answer", tokens_label(limits.max_output_tokens), "max_output_tokens"),
        line("think levels", levels),
        line("options", ", ".join(model.options) or "none"),
        line("its own tools", ", ".join(sorted(model.server_tools)) or "none"),
        line("estimates", f"× {measured.ratio:.2f}, by {measured.samples} answers" if measured else "not measured yet"),
    ]
    return "\n".join(rows)
