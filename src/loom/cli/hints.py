"""What a person could do about media that a model was shown only as text: said once, under the answer."""

from __future__ import annotations

from collections.abc import Sequence

from loom.cli.renderers import TurnOutcome
from loom.content.blocks import ContentBlock, DocumentBlock, ImageBlock
from loom.content.messages import text_of
from loom.content.recipes import Text
from loom.formats import ocr
from loom.prompt import ReceiptRow
from loom.runtime import FIRST_CHOICES, Runtime, key_for


async def media_hints(runtime: Runtime, blocks: Sequence[ContentBlock], outcome: TurnOutcome) -> list[str]:
    """For the media of this message alone; for others it was said before."""
    if outcome.receipt is None or outcome.error is not None:
        return []
    as_text = {row.digest: row for row in outcome.receipt.rows if row.rendition == "text" and _is_blind(row)}
    model = outcome.model.rpartition("/")[2]
    sentences: list[str] = []
    for block in blocks:
        if isinstance(block, ImageBlock) and block.media.digest in as_text and not sentences:
            sentences.append(
                f'{model} is a text-only model; image sent as text: "{text_of(block)}".'
                f" To have images described: --describe-with {_seeing(runtime)}"
            )
        if isinstance(block, DocumentBlock) and block.media.digest in as_text and await _is_scan(runtime, block):
            name = block.media.name or "the document"
            sentences.append(
                f"{name} has no text layer and {model} is text-only."
                " pip install 'loom-runtime[ocr]', or choose a model that supports images"
            )
    return sentences


def _seeing(runtime: Runtime) -> str:
    """A model with eyes that could be asked now; in general words where there is none."""
    config = runtime.config
    services = [f"{platform}/{name}" for platform, name in FIRST_CHOICES.items() if key_for(platform, config)]
    known = (runtime.model(name) for name in (*config.models, *services))
    return next((found.alias or found.reference for found in known if found.capabilities.vision), "MODEL")


def _is_blind(row: ReceiptRow) -> bool:
    """It lies with the model, and nobody described the picture."""
    return row.reason == "capability" and "description by" not in row.detail


async def _is_scan(runtime: Runtime, block: DocumentBlock) -> bool:
    """Whether nothing could be read: no page has text, and no engine reads pictures of pages."""
    if ocr.is_available():
        return False
    text = await runtime.derived.get(block.media.digest, Text(pages=block.pages))
    return text is not None and bool(text.pages) and len(text.pages_without_text) == text.pages
