"""`loom models`: list models, add those of a server, and show all facts about one."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from loom.cli.shared.exit_codes import OK, exit_code
from loom.cli.shared.options import complete_models
from loom.cli.shared.terminal import money_label, one_line, print_line, sentence, tokens_label
from loom.compile.cost import Calibration
from loom.config import Config, load_config
from loom.config.files import display_path
from loom.config.key_file import services
from loom.config.toml_files import add_table, set_key, user_config_file
from loom.errors import ConfigError, LoomError, Unavailable
from loom.models import FactOrigin, Model, Usage
from loom.providers.discovery import find_server
from loom.runtime import FIRST_CHOICES, Runtime, key_for, key_names, price, resolve_model
from loom.runtime.model_resolution import BUILT_IN_MODEL, lacks_key

_MARKS: Final[dict[FactOrigin, str]] = {"declared": "✔", "asked": "✓", "learned": "✓", "user": "u", "guessed": "?"}
_CENT: Final = 0.01
_FLAGS: Final = {
    "images": "vision",
    "pdf": "native_pdf",
    "audio": "audio",
    "video": "video",
    "think": "thinking",
    "tools": "tools",
}
_CAPABILITIES: Final = (*_FLAGS.values(), "citations")


class ModelRow(msgspec.Struct, frozen=True):
    name: str
    model: Model
    is_default: bool
    note: str


@click.command("models")
@click.argument(
    "references",
    nargs=-1,
    metavar="[MODEL]... | show MODEL... | add URL [MODEL]... | default [MODEL]",
    shell_complete=complete_models,
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, with limits and the origin of each flag.")
@click.option(
    "--key-env", default="", metavar="NAME", help="With add: the variable that contains the server's API key."
)
def models_command(references: tuple[str, ...], as_json: bool, key_env: str) -> int:
    """List models: configured ones, Loom's choices and the built-in one, or those you name.

    ✔ in the catalog  ✓ reported by the server or learned  u set by you  ? assumed, tried once  - no

    `loom models show MODEL` prints everything known about a model and where each fact comes from: the catalog, the
    server, refusals, your configuration.

    `loom models add URL` asks a server which models it has and writes them to your configuration; name some to add
    only those.

    `loom models default MODEL` sets the default model; without MODEL, it prints the default.
    """
    if references[:1] == ("add",):
        asyncio.run(add_models("".join(references[1:2]), references[2:], key_env))
        return OK
    if references[:1] == ("show",) and len(references) > 1:
        asyncio.run(show_models(references[1:], as_json=as_json))
        return OK
    if references[:1] != ("default",):
        return asyncio.run(_models(references, as_json))
    if len(references) > 2:
        raise ConfigError("Expected one model.", hint="Example: loom models default ollama/llava")
    asyncio.run(_default(*references[1:]))
    return OK


async def _default(reference: str = "") -> None:
    if not reference:
        async with Runtime.open() as runtime:
            click.echo(await runtime.models.default())
        return
    model = resolve_model(reference, load_config())
    file = user_config_file()
    set_key(file, "model", reference)
    click.echo(f"{model.reference} is now the default model ({display_path(file, Path.cwd())})")
    chosen = load_config().model
    if chosen != reference:
        print_line(f"but not here: {chosen or 'another'} is set by {load_config().origin('model')}")


async def _models(references: tuple[str, ...], as_json: bool) -> int:
    """List models; names without a model are reported, and the others are still listed."""
    listed: list[ModelRow] = []
    code = OK
    async with Runtime.open() as runtime:
        default = await runtime.models.default()
        first = (f"{platform}/{name}" for platform, name in FIRST_CHOICES.items())
        for name in references or dict.fromkeys([default, *runtime.config.models, *first, BUILT_IN_MODEL]):
            try:
                listed.append(_model_row(runtime, name, default))
            except LoomError as error:
                code = code or exit_code(error)
                print_line(sentence(error))
    if as_json:
        for found in listed:
            click.echo(msgspec.json.encode(_facts(found)))
    elif listed:
        click.echo(f"{'':2}{'model':<36}{'ctx':>6}" + "".join(f"{name:>7}" for name in _FLAGS) + f"{'$/M in':>10}")
        for found in listed:
            click.echo(_row(found))
    return code


def _model_row(runtime: Runtime, name: str, default: str) -> ModelRow:
    model = runtime.models.resolve(name)
    service = service_without_key(model, runtime.config)
    note = f"no key: loom keys set {service}" if service else ""
    return ModelRow(name, model, _refers_to(runtime, default, model), note)


def _refers_to(runtime: Runtime, name: str, model: Model) -> bool:
    """Return whether a name, which may be unknown, refers to this model: `spark` is `loom/spark`."""
    try:
        return runtime.models.resolve(name) == model
    except LoomError:
        return False


def service_without_key(model: Model, config: Config) -> str:
    """Return the name for `loom keys set` if the key of a model's service is missing; else empty."""
    if not lacks_key(model, config):
        return ""
    return next((name for name in key_names(model.provider) if name in services()), "")


def _row(found: ModelRow) -> str:
    model = found.model
    flags = "".join(f"{_mark(model, flag):>7}" for flag in _FLAGS.values())
    usd = _usd_per_million(model)
    cost = "free" if usd == 0 else money_label(usd) if usd is None or usd < _CENT else f"${usd:.2f}"
    mark = "▸" if found.is_default else " "
    line = f"{mark} {one_line(found.name, 35):<36}{tokens_label(model.limits.context_tokens):>6}{flags}{cost:>10}"
    return f"{line}   {found.note}" if found.note else line


def _usd_per_million(model: Model) -> float | None:
    """Return the price per million input tokens in a short request; some services charge more per token in a long
    one."""
    usd = price(model, Usage(input_tokens=1_000))
    return None if usd is None else usd * 1_000


def _mark(model: Model, flag: str) -> str:
    origin = model.capabilities.origins.get(flag, "declared")
    if origin != "guessed" and not getattr(model.capabilities, flag):
        return "-"
    return _MARKS[origin]


def _facts(found: ModelRow) -> dict[str, Any]:
    model = found.model
    capabilities = model.capabilities
    return {
        "name": found.name,
        "reference": model.reference,
        "is_default": found.is_default,
        "capabilities": {
            flag: {"value": getattr(capabilities, flag), "origin": capabilities.origins.get(flag, "declared")}
            for flag in _CAPABILITIES
        },
        "accepts": capabilities.accepts,
        "context_tokens": model.limits.context_tokens,
        "max_output_tokens": model.limits.max_output_tokens,
        "limits_as_of": model.limits.as_of,
        "usd_per_million_input_tokens": _usd_per_million(model),
        "note": found.note,
    }


_MOST_ADDED: Final = 12
_ORIGINS: Final[dict[FactOrigin, str]] = {
    "declared": "catalog",
    "asked": "reported by the server",
    "learned": "learned from a refusal",
    "user": "your configuration",
    "guessed": "assumed, tried once",
}
_ADD_EXAMPLE: Final = "Example: loom models add http://127.0.0.1:8000/v1"
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")


async def add_models(url: str, wanted: Sequence[str], key_env: str) -> None:
    """Read the list of models of a server, and write them to the user's configuration."""
    if not url:
        raise ConfigError("models add needs a URL.", hint=_ADD_EXAMPLE)
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"Not a URL: {url}.", hint=_ADD_EXAMPLE)
    if key_env and not os.environ.get(key_env):
        print_line(f"{key_env} is not set; it is read when you use the model")
    server = await find_server(url, os.environ.get(key_env, "") if key_env else "")
    if server is None:
        raise Unavailable(
            f"No model server found at {url}.",
            hint="Use its URL with the version, such as http://127.0.0.1:8000/v1, and --key-env for a key.",
        )
    unknown = [name for name in wanted if name not in server.models]
    if unknown:
        raise ConfigError(f"{url} has no model {unknown[0]!r}.", hint=f"Available: {', '.join(server.models[:20])}.")
    chosen = list(wanted or server.models)
    if len(chosen) > _MOST_ADDED:
        shown = ", ".join(chosen[:_MOST_ADDED])
        raise ConfigError(
            f"{url} has {len(chosen)} models: {shown} …",
            hint=f"Choose which to add: `loom models add {url} {chosen[0]}`.",
        )
    if not chosen:
        raise ConfigError(f"The server at {url} lists no model.", hint="Load one there first.")
    file, known = user_config_file(), load_config().models
    for model in chosen:
        name = _free_name(model, known)
        entry = {"provider": server.platform, "model": model, "base_url": server.base_url}
        add_table(file, ("models", name), entry | ({"api_key": f"{{env:{key_env}}}"} if key_env else {}))
        click.echo(f"✔ {name}: {server.platform}/{model} at {server.base_url} ({display_path(file, Path.cwd())})")
    click.echo(f'  try it: loom -m {_free_name(chosen[0], known)} "hello"')


def _free_name(model: str, taken: Container[str]) -> str:
    name = _NOT_A_NAME.sub("-", model.rpartition("/")[2]).strip("-.") or "model"
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


async def show_models(references: Sequence[str], *, as_json: bool) -> None:
    """Print all facts about models, with the origin of each."""
    async with Runtime.open() as runtime:
        for reference in references:
            model = await runtime.models.resolve_live(reference)
            measured = await runtime.models.calibration(model.reference)
            facts = {**model_facts(model), "estimates": msgspec.to_builtins(measured) if measured else None}
            click.echo(msgspec.json.encode(facts) if as_json else _report(model, runtime, measured))


def model_facts(model: Model) -> dict[str, Any]:
    """Return the facts about a model that affect its requests."""
    origins = model.capabilities.origins
    return {
        "reference": model.reference,
        "wire": model.wire,
        "base_url": model.base_url,
        "capabilities": {
            flag: {"value": getattr(model.capabilities, flag), "origin": origins.get(flag, "declared")}
            for flag in _CAPABILITIES
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
        *(line(flag, "yes" if getattr(model.capabilities, flag) else "no", flag) for flag in _CAPABILITIES),
        line("context", tokens_label(limits.context_tokens), "context_tokens"),
        line("answer", tokens_label(limits.max_output_tokens), "max_output_tokens"),
        line("think levels", levels),
        line("options", ", ".join(model.options) or "none"),
        line("its own tools", ", ".join(sorted(model.server_tools)) or "none"),
        line(
            "estimates", f"× {measured.ratio:.2f}, from {measured.samples} answers" if measured else "not measured yet"
        ),
    ]
    return "\n".join(rows)
