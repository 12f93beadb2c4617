"""File names as safe labels: the base name, without characters that affect a terminal, a log or the reading
direction."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_NAME_BYTES: Final = 255
_JOINERS: Final = "\u200c\u200d"  # needed to write Persian, Indian scripts and emoji
_ACTING: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


def clean_name(name: str) -> str:
    """Return the base name without control characters and bidirectional overrides: `"../a/b\\u202egpj.exe\\n"` →
    `"bgpj.exe"`."""
    base = re.split(r"[/\\]", name)[-1]
    kept = "".join(char for char in base if char in _JOINERS or unicodedata.category(char) not in _ACTING)
    kept = " ".join(kept.split())
    if kept in (".", ".."):
        return ""
    return _shorten(kept)


def _shorten(name: str) -> str:
    """Shorten the stem, so that the extension stays."""
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    stem, dot, extension = name.rpartition(".")
    ending = f"…{dot}{extension}" if stem and len(extension.encode()) <= 16 else "…"
    room = MAX_NAME_BYTES - len(ending.encode())
    return name.encode()[:room].decode("utf-8", "ignore") + ending
