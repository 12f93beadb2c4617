"""The lines under an answer: receipt, usage and cost, and hints for media that were sent as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loom.cli.shared.renderers import TurnOutcome
from loom.cli.shared.terminal import GLYPHS, is_plain, money_label, one_line, tokens_label, width
from loom.content.blocks import ContentBlock, DocumentBlock, ImageBlock
from loom.content.messages import text_of
from loom.formats import ocr
from loom.prompt import Receipt, ReceiptRow
from loom.runtime import FIRST_CHOICES, Runtime, key_for

_MOST_NAMED: Final = 3
_LEAST_PARTS: Final = 3
"""Model, cost, time."""
_RULES: Final = 6


def footer(outcome: TurnOutcome, *, hint: str = "") -> str:
    """On one line: where it is too narrow, what is said of media goes first, then the tokens."""
    parts = [outcome.model.removeprefix("loom/")]
    if outcome.receipt is not None:
        parts += media_parts(outcome.receipt)
    usage = outcome.usage
    if usage.input_tokens or usage.output_tokens:
        parts.append(f"{tokens_label(usage.input_tokens)} in · {tokens_label(usage.output_tokens)} out")
    parts += [money_label(outcome.usd), f"{outcome.seconds:.1f} s"]
    if is_plain():
        return f"({', '.join(parts)}{f'; {hint}' if hint else ''})"
    while len(" · ".join(parts)) > width() - _RULES and len(parts) > _LEAST_PARTS:
        del parts[-4 if len(parts) > _LEAST_PARTS + 1 else 1]
    line = f"── {one_line(' · '.join(parts), 200)} "
    room = width() - len(line) - len(hint) - 1
    return f"{line}{'─' * room} {hint}" if hint and room >= 2 else line.rstrip() + " ──"


def usage_line(outcome: TurnOutcome) -> str:
    """`-u`: what an answer took, for stderr."""
    usage = outcome.usage
    cached = f" ({tokens_label(usage.cache_read_tokens)} from the cache)" if usage.cache_read_tokens else ""
    estimated = f" (estimated {tokens_label(outcome.estimated_tokens)})" if outcome.estimated_tokens else ""
    size = f"{tokens_label(usage.input_tokens)} in{estimated}{cached}, {tokens_label(usage.output_tokens)} out"
    return f"usage: {outcome.model}, {size}, {money_label(outcome.usd)}, {outcome.seconds:.1f} s"


def switch_preview(receipt: Receipt, usd: float | None) -> str:
    """Before another model goes on: in which form it is shown what was said, how much that is, what was left out."""
    counts: dict[str, int] = {}
    for row in receipt.rows:
        if row.digest:
            counts[GLYPHS[row.rendition]] = counts.get(GLYPHS[row.rendition], 0) + 1
    unsaid = sum(row.rendition == "omitted" and not row.digest for row in receipt.rows)
    media = "media " + " ".join(f"{count}{glyph}" for glyph, count in counts.items()) if counts else ""
    left_out = f"{unsaid} thinking blocks of another model left out" if unsaid else ""
    size = f"{tokens_label(receipt.totals.tokens)} tok ≈ {money_label(usd)}"
    return f"[{' · '.join(part for part in (receipt.model, media, left_out, size) if part)}]"


def media_parts(receipt: Receipt) -> list[str]:
    """Return the media of the last message one by one, those before it in numbers."""
    last = max((row.message for row in receipt.rows if row.kind != "thinking"), default=0)
    newest = max((row.message for row in receipt.rows if row.digest and row.message <= last), default=-1)
    named: list[str] = []
    earlier: dict[str, int] = {}
    pictures = 0
    for row in receipt.rows:
        if not row.digest:
            continue
        pictures += row.kind == "image"
        if row.message == newest and len(named) < _MOST_NAMED:
            mark = "" if is_plain() else f"{GLYPHS[row.rendition]} "
            named.append(f"{chip(row, pictures)} {mark}{row.rendition}{_tokens(row)}")
        else:
            earlier[row.rendition] = earlier.get(row.rendition, 0) + 1
    if earlier:
        counts = (f"{n} {name}" if is_plain() else f"{n}{GLYPHS[name]}" for name, n in earlier.items())
        named.append("media before " + " ".join(counts))
    return named


def chip(row: ReceiptRow, number: int) -> str:
    """`[Image #1]`, `[report.pdf, 117 pages]`"""
    return f"[Image #{number}]" if row.kind == "image" else f"[{row.label.split(', ')[0]}]"


def _tokens(row: ReceiptRow) -> str:
    return f" {tokens_label(row.tokens)}" if row.kind != "image" and row.tokens else ""


async def media_hints(runtime: Runtime, blocks: Sequence[ContentBlock], outcome: TurnOutcome) -> list[str]:
    """For the media of this message alone; for others it was said before."""
    if outcome.receipt is None or outcome.error is not None:
        return []
    as_text = {
        row.digest: row
        for row in outcome.receipt.rows
        if row.rendition == "text" and row.reason == "capability" and "description by" not in row.detail
    }
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
    """Return the name of an available model that supports images, or a general phrase if there is none."""
    config = runtime.config
    services = [f"{platform}/{name}" for platform, name in FIRST_CHOICES.items() if key_for(platform, config)]
    known = (runtime.models.resolve(name) for name in (*config.models, *services))
    return next((found.alias or found.reference for found in known if found.capabilities.vision), "MODEL")


async def _is_scan(runtime: Runtime, block: DocumentBlock) -> bool:
    """Return whether nothing could be read: no page has text, and no engine reads pictures of pages."""
    if ocr.is_available():
        return False
    return await runtime.library.is_scan(block)
