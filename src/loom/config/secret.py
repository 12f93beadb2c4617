"""Secrets that print masked, and masking for other output."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec

MASK: Final = "****"
_TAIL_SHOWN_FROM: Final = 12  # four of eight characters would reveal half of a password

REFERENCE: Final = re.compile(r"\{(env|file):([^{}]+)\}")
_REFERENCE_ONLY = re.compile(r"(?:(?:Bearer|Basic|Token) )?\{(?:env|file):[^{}]+\}", re.IGNORECASE)

_WORD = r"api[-_]?key|access[-_]?key|token|secret|password|passwd|authorization|credentials?"
_SECRET_FLAG = re.compile(rf"--?(?:[\w-]*[-_])?(?:{_WORD}|key)", re.IGNORECASE)
_SHAPES: Final = re.compile(
    r"\bsk-[\w-]{8,}|\bAIza[\w-]{10,}|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|\bgh[pousr]_\w{16,}|\bxox[abeprs]-[\w-]{8,}"
    r"|(?<![\w/+])(?=[a-z0-9/+]*[A-Z])(?=[A-Z0-9/+]*[a-z])(?=[A-Za-z/+]*[0-9])[A-Za-z0-9/+]{40}(?![\w/+])"
)
_NAMED: Final = re.compile(
    rf"(\bBearer\s+|[?&][^=&\s]*=|(?:{_WORD})[\"']?\s*[=:]\s*[\"']?)([^\s\"'&,;]+)", re.IGNORECASE
)
_USERINFO: Final = re.compile(r"//.*@", re.DOTALL)


def mask(text: str) -> str:
    """Return `text` with all but its last four characters masked; all of them if it is short."""
    return MASK + text[-4:] if len(text) >= _TAIL_SHOWN_FROM else MASK


def redact(text: str) -> str:
    """Return `text` with everything that looks like a key masked, for fields that are not declared secret."""
    shaped = _SHAPES.sub(lambda found: mask(found[0]), text)
    named = _NAMED.sub(lambda found: found[1] + mask(found[2]), shaped)
    return _USERINFO.sub(f"//{MASK}@", named)


class Secret:
    """Text that prints masked. A reference (`{env:NAME}`, `{file:PATH}`) is stored unresolved."""

    __slots__ = ("written",)

    written: str
    """The text in the file. `Config.secret` resolves references; nothing else should read this."""

    def __init__(self, written: str = "") -> None:
        self.written = written

    @property
    def masked_text(self) -> str:
        if not self.written or _REFERENCE_ONLY.fullmatch(self.written):
            return self.written
        return mask(self.written)

    def __bool__(self) -> bool:
        return bool(self.written)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.written == self.written

    def __hash__(self) -> int:
        return hash((type(self), self.written))

    def __str__(self) -> str:
        return self.masked_text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.masked_text!r})"


class Url(Secret):
    """A URL: printed without user, password and query values, which may contain keys."""

    __slots__ = ()

    @property
    def masked_text(self) -> str:
        return redact(self.written)


def setting_text(value: object) -> str:
    """Return a setting as TOML, with secrets masked."""
    match value:
        case None:
            return "not set"
        case Secret():
            return json.dumps(value.masked_text, ensure_ascii=False)
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(redact(value), ensure_ascii=False)
        case int() | float():
            return str(value)
        case msgspec.Struct():
            return _table({name: getattr(value, name) for name in value.__struct_fields__})
        case Mapping():
            return _table(cast("Mapping[str, object]", value))
        case Sequence():
            return "[" + ", ".join(_items(cast("Sequence[object]", value))) + "]"
        case _:
            raise TypeError(f"a setting cannot be a {type(value).__name__}")


def _table(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{name} = {setting_text(value)}" for name, value in values.items()) + "}"


def _items(values: Sequence[object]) -> list[str]:
    """Return list items; in a command line the word after `--api-key` is masked too."""
    texts: list[str] = []
    follows_flag = False
    for value in values:
        texts.append(json.dumps(mask(value)) if follows_flag and isinstance(value, str) else setting_text(value))
        follows_flag = isinstance(value, str) and _SECRET_FLAG.fullmatch(value) is not None
    return texts
