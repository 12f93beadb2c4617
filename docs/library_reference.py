"""Generate `docs/reference.md`: the public names of the library, with their signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import loom
from loom.agent.event_stream import ReplyStream
from loom.session import AnswerKeywords, MessageKeywords
from loom.sync import SyncSession, SyncStream

_HEAD = """# Library reference

Every public name with its signature, generated from the code. Start with the [guide](library.md). See also
[events](events.md), [errors](errors.md) and [request options](options.md).
"""
_MORE = (SyncSession, SyncStream, ReplyStream, MessageKeywords, AnswerKeywords)


def page() -> str:
    names = [name for name in loom.__all__ if name not in ("errors", "events")]
    found = [(f"loom.{name}", getattr(loom, name)) for name in names]
    found += [(f"{cls.__module__}.{cls.__name__}", cls) for cls in _MORE]
    return _HEAD + "".join(f"\n{''.join(_entry(name, value))}" for name, value in found)


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"## `{name}`\n"
    if not inspect.isclass(value):
        if callable(value):
            yield f"\n```text\n{name.rpartition('.')[2]}{_signature(value)}\n```\n"
            yield _text(value)
        else:
            yield f"\n`{name.rpartition('.')[2]}` is a union or an alias: `{_alias_text(value)}`.\n"
        return
    if not hasattr(value, "__optional_keys__"):
        yield f"\n```text\n{value.__name__}{_signature(value)}\n```\n"
    yield _text(value)
    for key in sorted(getattr(value, "__optional_keys__", ())):
        yield f"\n- `{key}`"
    for member_name, member in sorted(vars(value).items()):
        if not member_name.startswith("_") and inspect.isfunction(member):
            yield f"\n- `{member_name}{_signature(member)}`: {_first_line(member)}"
    yield "\n"


def _signature(value: Any) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "(…)"
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters if parameter.name != "self"
    ]
    return str(inspect.Signature(plain))


def _text(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    return f"\n{text}\n" if text and not text.startswith(("dict(", "Protocol")) else ""


def _first_line(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()) or "–"


def _alias_text(value: Any) -> str:
    return str(value).replace("loom.content.blocks.", "").replace("|", "or")[:400]
