"""Templates: prompts saved as TOML files.

prompt = "Summarize $input in $length."
system = "Be exact."
attach = ["house-style.pdf"]        # relative to the template's file
params.length = "one line"          # overridden by --param length "…"
context.full_turns = 3              # and any other setting of [context], [images] or [documents]
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template as Text
from typing import Any, Final

import msgspec

from loom.config import user_folder
from loom.config.toml_files import read_toml, write_toml
from loom.errors import ConfigError, NotFound
from loom.struct_types import convert

FOLDER: Final = "templates"
_NAME: Final = re.compile(r"\w[\w.-]{0,63}")
_INPUT: Final = "input"


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    prompt: str = ""
    system: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    attach: tuple[str, ...] = ()
    params: dict[str, str | int | float] = {}
    context: dict[str, Any] = {}
    images: dict[str, Any] = {}
    documents: dict[str, Any] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `[context]`, `[images]` and `[documents]` for this run."""
        named = {"context": self.context, "images": self.images, "documents": self.documents}
        return {name: values for name, values in named.items() if values}


def templates_folder(account: str = "") -> Path:
    """Return the folder of the templates; with `account`, that of a user of the daemon."""
    folder = user_folder(os.environ, Path.cwd()) / FOLDER
    return folder / "users" / account if account else folder


def template_names(account: str = "") -> list[str]:
    """Return the names of the saved templates, in order; with `account`, those of a user of the daemon."""
    return sorted(file.stem for file in templates_folder(account).glob("*.toml"))


def read_template(name: str, account: str = "") -> Template:
    """Read a template by its name or the path of its file. Attachments are relative to that file. Raise `ConfigError`
    if there is none or it is not valid."""
    file = Path(name) if "/" in name or name.endswith(".toml") else _file(name, account)
    if not file.is_file():
        known = template_names()
        saved = f"Saved: {', '.join(known)}." if known else 'Save one: loom "…" --save NAME.'
        raise ConfigError(f"Template {name!r} not found.", hint=saved)
    _, data = read_toml(file)
    try:
        found = convert(data, Template)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{error}.", file=file.name, hint="See `loom ask --help` and docs/cli.md.") from None
    return msgspec.structs.replace(found, attach=tuple(_resolve_attachment(file, item) for item in found.attach))


def save_template(name: str, template: Template, account: str = "") -> Path:
    file = _file(name, account)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    plain: dict[str, Any] = msgspec.to_builtins(template)
    write_toml(file, plain)
    return file


def remove_template(name: str, account: str = "") -> None:
    """Raise `NotFound` if there is no template of this name."""
    file = _file(name, account)
    if not file.is_file():
        raise NotFound(f"Template {name!r} not found.", hint="List them: GET /v1/prompts.")
    file.unlink()


def remove_templates(account: str) -> None:
    """Remove all templates of a user of the daemon."""
    shutil.rmtree(templates_folder(account), ignore_errors=True)


def fields_of(template: Template) -> tuple[str, ...]:
    """Return the names in a template that need a value, including `input` if it is used."""
    texts = (template.prompt, template.system)
    return tuple(sorted({name for text in texts for name in Text(text).get_identifiers()}))


def fill_template(
    template: Template, message: str, params: Sequence[tuple[str, str]], *, names: str = ""
) -> tuple[str, str]:
    """Return the prompt and the system prompt with every `$name` replaced. `message` replaces `$input`, or is added at
    the end if the template does not use that. If it is empty, `names` (of attached files) replaces `$input`. Raise
    `ConfigError` for unknown or missing parameters."""
    values: Mapping[str, str] = {key: str(value) for key, value in template.params.items()} | dict(params)
    text = Text(template.prompt)
    used = set(text.get_identifiers()) | set(Text(template.system).get_identifiers())
    unknown = sorted({name for name, _ in params} - used)
    if unknown:
        takes = ", ".join(f"${name}" for name in sorted(used - {_INPUT}))
        raise ConfigError(
            f"Unknown --param {unknown[0]}.",
            hint=f"The template takes {takes}." if takes else "--param sets $NAME in a template (-t).",
        )
    lacking = sorted(used - set(values) - {_INPUT})
    if lacking:
        raise ConfigError(
            f"The template needs {', '.join(f'${name}' for name in lacking)}.",
            hint="Add " + " ".join(f'--param {name} "…"' for name in lacking),
        )
    if _INPUT in used and not message:
        message = names
        if not message:
            raise ConfigError(
                "The template needs input ($input).", hint="Type a message, pipe it in, or attach a file."
            )
    try:
        prompt = text.substitute(values, input=message)
        system = Text(template.system).substitute(values, input=message)
    except ValueError:
        raise ConfigError("The template contains a single $.", hint="Write $$ for a dollar sign.") from None
    return (prompt if _INPUT in used or not message else f"{prompt}\n\n{message}".strip()), system


def _file(name: str, account: str = "") -> Path:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a valid template name.", hint="Use letters, digits, - and _.")
    return templates_folder(account) / f"{name}.toml"


def _resolve_attachment(file: Path, item: str) -> str:
    if item.startswith(("http://", "https://")):
        return item
    return str(file.absolute().parent / Path(item).expanduser())
