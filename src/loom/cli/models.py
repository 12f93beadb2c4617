"""`loom models`: what each model takes, and how Loom knows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from loom.cli.model_setup import add_models, show_models
from loom.cli.shared.exit_codes import OK, exit_code
from loom.cli.shared.options import complete_models
from loom.cli.shared.terminal import money_label, one_line, print_line, sentence, tokens_label
from loom.config import Config, load_config
from loom.config.files import display_path
from loom.config.key_file import services
from loom.config.toml_files import set_key, user_config_file
from loom.errors import ConfigError, LoomError
from loom.models import FactOrigin, Model, Usage
from loom.providers.catalog import key_env
from loom.runtime import FIRST_CHOICES, Runtime, key_for, key_names, price, resolve_model
from loom.runtime.model_resolution import BUILT_IN_MODEL

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
@click.option("--key-env", default="", metavar="NAME", help="With add: the variable that holds the server's API key.")
def models_command(references: tuple[str, ...], as_json: bool, key_env: str) -> int:
    """List models: configured ones, Loom's choices and the built-in one, or those you name.

    ✔ in the catalogue  ✓ reported by the server or learned  u set by you  ? assumed, tried once  - no

    `loom models show MODEL` prints all that is known of a model and where each fact comes from: the catalogue, the
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
        raise ConfigError("default takes one model.", hint="Example: loom models default ollama/llava")
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
    click.echo(f"{model.reference} is now the model ({display_path(file, Path.cwd())})")
    chosen = load_config().model
    if chosen != reference:
        print_line(f"but not here: {chosen or 'another'} is set by {load_config().origin('model')}")


async def _models(references: tuple[str, ...], as_json: bool) -> int:
    """A name that means no model is said, and the others are listed."""
    listed: list[ModelRow] = []
    code = OK
    async with Runtime.open() as runtime:
        default = await runtime.models.default()
        for name in references or _known_models(runtime, default):
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


def _known_models(runtime: Runtime, default: str) -> tuple[str, ...]:
    chosen = (f"{platform}/{name}" for platform, name in FIRST_CHOICES.items())
    return tuple(dict.fromkeys([default, *runtime.config.models, *chosen, BUILT_IN_MODEL]))


def _model_row(runtime: Runtime, name: str, default: str) -> ModelRow:
    model = runtime.models.resolve(name)
    service = service_without_key(model, runtime.config)
    note = f"no key: loom keys set {service}" if service else ""
    return ModelRow(name, model, _means(runtime, default, model), note)


def _means(runtime: Runtime, name: str, model: Model) -> bool:
    """Return whether a name, which may be a wrong one, means this model: `spark` is `loom/spark`."""
    try:
        return runtime.models.resolve(name) == model
    except LoomError:
        return False


def service_without_key(model: Model, config: Config) -> str:
    """Return what `loom keys set` takes, where the key of a model's service is still missing; else empty."""
    provider = model.provider
    has_own = bool(model.alias) and bool(config.models[model.alias].api_key)
    if has_own or not key_env(provider) or key_for(provider, config):
        return ""
    return next((name for name in key_names(provider) if name in services()), "")


def _row(found: ModelRow) -> str:
    model = found.model
    flags = "".join(f"{_mark(model, flag):>7}" for flag in _FLAGS.values())
    usd = _usd_per_million(model)
    cost = "free" if usd == 0 else money_label(usd) if usd is None or usd < _CENT else f"${usd:.2f}"
    mark = "▸" if found.is_default else " "
    line = f"{mark} {one_line(found.name, 35):<36}{tokens_label(model.limits.context_tokens):>6}{flags}{cost:>10}"
    return f"{line}   {found.note}" if found.note else line


def _usd_per_million(model: Model) -> float | None:
    """At the price of a short request; some services ask more for each token of a long one."""
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
            for flag in (*_FLAGS.values(), "citations")
        },
        "accepts": capabilities.accepts,
        "context_tokens": model.limits.context_tokens,
        "max_output_tokens": model.limits.max_output_tokens,
        "limits_as_of": model.limits.as_of,
        "usd_per_million_input_tokens": _usd_per_million(model),
        "note": found.note,
    }
