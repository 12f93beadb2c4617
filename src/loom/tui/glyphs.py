"""Signs of the terminal UI, in Unicode and, for terminals that cannot show it, in ASCII."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec


class Glyphs(msgspec.Struct, frozen=True, kw_only=True):
    """One set of signs. `renditions` are the same in all interfaces of Loom."""

    renditions: Mapping[str, str]
    opened: str
    folded: str
    running: tuple[str, ...]
    succeeded: str
    failed: str
    image: str
    document: str
    audio: str
    video: str
    tool: str
    head: str
    on_path: str
    off_path: str
    prompt: str
    full_cell: str
    empty_cell: str
    separator: str
    approx: str
    branch: str
    return_key: str
    dash: str
    quote: str


UNICODE: Final = Glyphs(
    renditions={"full": "●", "low": "◐", "pages": "▤", "text": "○", "omitted": "✕"},
    opened="▾",
    folded="▸",
    running=("⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"),
    succeeded="✔",
    failed="✖",
    image="▣",
    document="▤",
    audio="♪",
    video="▶",
    tool="⚒",
    head="◉",
    on_path="●",
    off_path="○",
    prompt="›",
    full_cell="█",
    empty_cell="░",
    separator="·",
    approx="≈",
    branch="⎇",
    return_key="⏎",
    dash="─",
    quote="▏",
)
ASCII: Final = Glyphs(
    renditions={"full": "F", "low": "L", "pages": "P", "text": "T", "omitted": "x"},
    opened="v",
    folded=">",
    running=("|", "/", "-", "\\"),
    succeeded="+",
    failed="!",
    image="[i]",
    document="[d]",
    audio="[a]",
    video="[v]",
    tool="#",
    head="@",
    on_path="*",
    off_path="o",
    prompt=">",
    full_cell="#",
    empty_cell=".",
    separator="|",
    approx="~",
    branch="Y",
    return_key="Enter",
    dash="-",
    quote="|",
)


def choose_glyphs(environ: Mapping[str, str] | None = None) -> Glyphs:
    """Return the signs that the locale supports. `LOOM_ASCII` is 1 for ASCII, 0 for Unicode."""
    environ = os.environ if environ is None else environ
    if wish := environ.get("LOOM_ASCII", ""):
        return UNICODE if wish == "0" else ASCII
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    is_console = environ.get("TERM") == "linux"
    return ASCII if is_console or (locale and "utf" not in locale.lower()) else UNICODE
