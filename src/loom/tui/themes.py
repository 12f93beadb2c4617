"""The themes of the terminal UI. The colors are those of the web client; no meaning is expressed by color alone."""

from __future__ import annotations

from typing import Final

from textual.theme import Theme

DARK: Final = Theme(
    name="loom-dark",
    dark=True,
    primary="#56cdb8",
    secondary="#8fc0f5",
    accent="#56cdb8",
    foreground="#eceae5",
    background="#131519",
    surface="#1a1d22",
    panel="#22262d",
    success="#74d39c",
    warning="#f0bd68",
    error="#ff9d8f",
    variables={
        "dim": "#a19f98",
        "line": "#3d434e",
        "user": "#f0bd68",
        "block-cursor-background": "#17332f",
        "block-cursor-foreground": "#7fdccb",
        "block-cursor-text-style": "bold",
        "footer-key-foreground": "#56cdb8",
        "input-selection-background": "#56cdb8 35%",
    },
)
LIGHT: Final = Theme(
    name="loom-light",
    dark=False,
    primary="#0b6b5d",
    secondary="#23568f",
    accent="#0b6b5d",
    foreground="#1c1b19",
    background="#faf9f6",
    surface="#f2f0ea",
    panel="#e9e6de",
    success="#17663c",
    warning="#7a4d00",
    error="#a3271b",
    variables={
        "dim": "#625e55",
        "line": "#cfc9bc",
        "user": "#7a4d00",
        "block-cursor-background": "#d4e8e3",
        "block-cursor-foreground": "#085146",
        "block-cursor-text-style": "bold",
        "footer-key-foreground": "#0b6b5d",
        "input-selection-background": "#0b6b5d 25%",
    },
)
DEFAULT: Final = DARK.name
THEMES: Final = (DARK, LIGHT)
VARIABLES: Final = {"dim": "#a19f98", "line": "#3d434e", "user": "#f0bd68"}
"""Variables that the style sheet needs and Textual's own themes lack."""
