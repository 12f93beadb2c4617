"""The image protocol of a terminal: Kitty, iTerm2, Sixel, half blocks, or none.

`LOOM_IMAGES` is `off`, `halfcell`, `sixel`, `kitty` or `iterm2`. Without it, the terminal is recognized by its
environment variables. No query is sent to it: over a slow connection the reply would arrive as keystrokes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from loom.errors import ConfigError

ImageProtocol: TypeAlias = Literal["off", "halfcell", "sixel", "kitty", "iterm2"]

_SIXEL_TERMS: Final = ("foot", "mlterm", "contour", "yaft")
_KONSOLE_WITH_SIXEL: Final = 220400


def choose_protocol(environ: Mapping[str, str] | None = None) -> ImageProtocol:
    """Return the best protocol of this terminal. Raise `ConfigError` for an unknown `LOOM_IMAGES`."""
    environ = os.environ if environ is None else environ
    wanted = environ.get("LOOM_IMAGES", "")
    if wanted:
        if wanted not in ("off", "halfcell", "sixel", "kitty", "iterm2"):
            raise ConfigError(f"LOOM_IMAGES is off, halfcell, sixel, kitty or iterm2, not {wanted!r}.")
        return wanted
    is_plain = environ.get("LOOM_PLAIN", "") not in ("", "0")
    if is_plain or environ.get("NO_COLOR") or environ.get("TERM", "dumb") == "dumb":
        return "off"
    in_multiplexer = environ.get("TMUX") or environ.get("TERM", "").startswith(("screen", "tmux"))
    program = environ.get("TERM_PROGRAM", "")
    if not in_multiplexer and (environ.get("KITTY_WINDOW_ID") or program in ("ghostty", "WezTerm")):
        return "kitty"
    if not in_multiplexer and (program == "iTerm.app" or environ.get("LC_TERMINAL") == "iTerm2"):
        return "iterm2"
    if not in_multiplexer and (environ.get("TERM", "").startswith(_SIXEL_TERMS) or _is_konsole(environ)):
        return "sixel"
    has_colors = environ.get("COLORTERM") in ("truecolor", "24bit") or "256color" in environ.get("TERM", "")
    return "halfcell" if has_colors else "off"


def choose_screen_protocol(environ: Mapping[str, str] | None = None) -> ImageProtocol:
    """Return the best protocol for the full-screen interface, which places Kitty images by placeholder characters.
    WezTerm does not support those, but supports Sixel."""
    environ = os.environ if environ is None else environ
    found = choose_protocol(environ)
    if found == "kitty" and not environ.get("LOOM_IMAGES") and environ.get("TERM_PROGRAM") == "WezTerm":
        return "sixel"
    return found


def _is_konsole(environ: Mapping[str, str]) -> bool:
    version = environ.get("KONSOLE_VERSION", "")
    return version.isdigit() and int(version) >= _KONSOLE_WITH_SIXEL
