"""Characters that Word stores as positions in a symbol font (`w:sym`), as Unicode."""

from __future__ import annotations

from typing import Final

from loom.formats.office.text_marks import UNKNOWN_SYMBOL

_PRIVATE_FIRST: Final = 0xF000
_PRIVATE_LAST: Final = 0xF0FF
_SYMBOL: Final = {
    **dict(zip(range(0x41, 0x5B), "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True)),
    **dict(zip(range(0x61, 0x7B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True)),
    **dict(zip(range(0xA2, 0xC0), "′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵", strict=True)),
    **dict(zip(range(0xC4, 0xD8), "⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅", strict=True)),
    **dict(zip(range(0xD8, 0xE0), "¬∧∨⇔⇐⇑⇒⇓", strict=True)),
    0xE5: "∑",
    0xF2: "∫",
}
_WINGDINGS: Final = {
    0x28: "☎", 0x2A: "✉", 0x46: "☞", 0x4A: "☺", 0x4C: "☹", 0x6C: "●", 0x6E: "■", 0x6F: "□", 0x71: "❑", 0x75: "◆",
    0x76: "❖", 0x77: "⬥", 0x9F: "•", 0xA7: "▪", 0xA8: "◻", 0xAB: "★", 0xD8: "➢", 0xDF: "←", 0xE0: "→", 0xE1: "↑",
    0xE2: "↓", 0xE8: "➔", 0xF0: "⇨", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑",
}  # fmt: skip


def symbol(font: str, code: str) -> str:
    """Return the character at a font's position: `symbol("Wingdings", "F0FC")` is ✓."""
    try:
        position = int(code[:8], 16)
    except ValueError:
        return UNKNOWN_SYMBOL
    if _PRIVATE_FIRST <= position <= _PRIVATE_LAST:
        position -= _PRIVATE_FIRST
        if font.lower() != "symbol":
            return _WINGDINGS.get(position, UNKNOWN_SYMBOL)
        return _SYMBOL.get(position) or (chr(position) if 0x20 <= position < 0x7F else UNKNOWN_SYMBOL)
    is_character = 0x20 <= position < 0x110000 and not 0xD800 <= position < 0xE000
    return chr(position) if is_character else UNKNOWN_SYMBOL
