"""The public signatures, one a line, as `tests/public_signatures.txt` keeps them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import loom
from loom.agent.event_stream import ReplyStream
from loom.session import AnswerKeywords, MessageKeywords
from loom.sync import SyncStream

VALUES = (loom.Allow, loom.Ask, loom.Deny, loom.ApprovalRequest, loom.Attachment, loom.Loom, loom.AsyncLoom)
KEYWORDS = (AnswerKeywords, MessageKeywords)
"""Keywords that several methods of sessions take."""
SURFACES = (loom.Loom, loom.AsyncLoom, SyncStream, ReplyStream)


def signature_lines() -> Iterator[str]:
    for name in loom.__all__:
        if inspect.isfunction(found := getattr(loom, name)):
            yield f"{name}{_signature(found)}"
    for cls in VALUES:
        yield f"{cls.__name__}{_signature(cls)}"
    for keywords in KEYWORDS:
        yield f"{keywords.__name__}({', '.join(sorted(keywords.__optional_keys__))})"
    yield f"Runtime.open{_signature(loom.Runtime.open)}"
    for cls in SURFACES:
        for name, member in sorted(vars(cls).items()):
            if not name.startswith("_") and inspect.isfunction(member):
                yield f"{cls.__name__}.{name}{_signature(member)}"


def _signature(found: Any) -> str:
    """Parameters with their defaults; annotations are the type checker's business."""
    parts: list[str] = []
    for parameter in inspect.signature(found).parameters.values():
        plain = parameter.replace(annotation=inspect.Parameter.empty)
        if plain.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in parts and not any(p[0] == "*" for p in parts):
            parts.append("*")
        parts.append(str(plain))
    return f"({', '.join(part for part in parts if part != 'self')})"
