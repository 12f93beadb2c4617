"""Long documents begin with their first pages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loom.content.blocks import ContentBlock, DocumentBlock, page_label


def limit_pages(blocks: Sequence[ContentBlock], pages_per_read: int) -> tuple[list[ContentBlock], list[str]]:
    """Return the blocks with at most `pages_per_read` pages of each document, and how to get the other pages."""
    shown: list[ContentBlock] = []
    notices: list[str] = []
    for block in blocks:
        if not isinstance(block, DocumentBlock) or block.pages or (block.media.pages or 0) <= pages_per_read:
            shown.append(block)
            continue
        count = block.media.pages or 0
        first = page_label(1, pages_per_read)
        more = page_label(pages_per_read + 1, min(2 * pages_per_read, count))
        shown.append(msgspec.structs.replace(block, pages=first))
        notices.append(f"attached {block.media.label}; sending {first}, more with @{block.media.name}#{more}")
    return shown, notices
