"""Numbers as people read them in every face."""

from __future__ import annotations


def tokens_label(count: int) -> str:
    """950, 5.4k, 31k, 1.2M"""
    if count < 1_000:
        return str(count)
    value, unit = (count / 1_000, "k") if count < 999_500 else (count / 1_000_000, "M")
    return f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"
