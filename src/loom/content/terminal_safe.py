"""Text that is safe to print on a terminal: without control characters."""

from __future__ import annotations

from typing import Final

_HARMFUL: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t\r"},
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "\N{REPLACEMENT CHARACTER}"),
    **dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"),
    0x0D: None,
}
"""Control characters become visible symbols, such as `␛`; carriage returns, which could overwrite text on the screen,
are removed; surrogates, which some file names contain, are replaced because they cannot be printed."""


def safe_text(text: str) -> str:
    """Return model output or a file name without characters that control the terminal: they could move the cursor, set
    the title or send queries."""
    return text.translate(_HARMFUL)
