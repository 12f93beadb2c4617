"""Labels of the terminal UI for numbers and names."""

from __future__ import annotations

import time


def short_model(reference: str) -> str:
    """Return `claude-opus` for `anthropic/claude-opus`."""
    return reference.rpartition("/")[2] or reference


def age_label(moment: float) -> str:
    """Return `2 min`, `3 h`, `yesterday` or `Nov 12`."""
    seconds = max(time.time() - moment, 0)
    if seconds < 60:
        return "now"
    if seconds < 3_600:
        return f"{seconds // 60:.0f} min"
    if seconds < 86_400:
        return f"{seconds // 3_600:.0f} h"
    if seconds < 172_800:
        return "yesterday"
    return time.strftime("%b %d", time.localtime(moment))
