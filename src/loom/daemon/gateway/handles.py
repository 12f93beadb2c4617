"""Thinking handles: a client gets a handle in place of a foreign model's signature, and sends it back with its history.

A handle names a block of an answer, with a code that only this store can make. It is resolved to the stored block; a
forged one is ignored.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

_PREFIX: Final = "loom1"
_CODE_CHARS: Final = 32


class ThinkingHandle(msgspec.Struct, frozen=True):
    answer: str
    index: int


def make_handle(secret: bytes, handle: ThinkingHandle) -> str:
    named = f"{_PREFIX}.{handle.answer}.{handle.index}"
    return f"{named}.{_code(secret, named)}"


def is_handle(text: str) -> bool:
    """Return whether a signature has the form of a handle, forged or not."""
    return text.startswith(f"{_PREFIX}.")


def read_handle(secret: bytes, text: str) -> ThinkingHandle | None:
    """Return the contents of a handle; None if this store did not make it."""
    named, _, code = text.rpartition(".")
    parts = named.split(".")
    if len(parts) != 3 or parts[0] != _PREFIX or not parts[2].isdecimal():
        return None
    if not hmac.compare_digest(code.encode(), _code(secret, named).encode()):
        return None
    return ThinkingHandle(answer=parts[1], index=int(parts[2]))


def _code(secret: bytes, named: str) -> str:
    return hmac.new(secret, named.encode(), hashlib.sha256).hexdigest()[:_CODE_CHARS]
