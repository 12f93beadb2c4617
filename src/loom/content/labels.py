"""Number formats that all interfaces share."""

from __future__ import annotations


def tokens_label(count: int) -> str:
    """Return a short count: 950, 5.4k, 31k, 1.2M."""
    if count < 1_000:
        return str(count)
    value, unit = (count / 1_000, "k") if count < 999_500 else (count / 1_000_000, "M")
    return f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"
