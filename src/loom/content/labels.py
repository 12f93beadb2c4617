"""Number formats that all interfaces share."""

from __future__ import annotations


def money_label(usd: float | None) -> str:
    """Return `$0.057`; `$?` if the price is not known, rather than a wrong zero."""
    if usd is None:
        return "$?"
    if usd == 0:
        return "$0"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.3f}" if usd >= 0.001 else "<$0.001"


def tokens_label(count: int) -> str:
    """Return a short count: 950, 5.4k, 31k, 1.2M."""
    if count < 1_000:
        return str(count)
    value, unit = (count / 1_000, "k") if count < 999_500 else (count / 1_000_000, "M")
    return f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"
