"""`loom context`: what the next request would carry, block by block, for several models side by side."""

from __future__ import annotations

import asyncio

import click
import msgspec

from loom.cli.compiling import compiled, models
from loom.content.media import size_label
from loom.context.trim import UNLIMITED
from loom.models import Model
from loom.prompt import Receipt, ReceiptRow

GLYPHS = {"full": "●", "low": "◐", "pages": "▤", "text": "○", "omitted": "✕"}
_LABEL_WIDTH = 44
_CELL_WIDTH = 24


@click.command("context")
@click.argument("source", metavar="FILE|SESSION")
@click.option("-m", "--model", "references", default="spark", show_default=True, help="One model, or several: a,b.")
@click.option("--json", "as_json", is_flag=True, help="The receipts as JSON, one a line.")
@click.option("--reasons", is_flag=True, help="Say why for every block.")
def command(source: str, references: str, as_json: bool, reasons: bool) -> None:
    """Show what the next request would carry, for one model or several. Nothing is sent by looking."""
    asyncio.run(_context(source, references, as_json, reasons))


async def _context(source: str, references: str, as_json: bool, reasons: bool) -> None:
    async with compiled(source) as found:
        chosen = models(references, found.config)
        receipts = [(await found.prepared(model)).receipt for model in chosen]
    if as_json:
        for receipt in receipts:
            click.echo(msgspec.json.encode(receipt))
        return
    click.echo(table(receipts, chosen, reasons=reasons))
    for notice in (*found.notices, *(f"{r.model}: {n}" for r in receipts for n in r.notices)):
        click.echo(f"loom: {notice}", err=True)


def table(receipts: list[Receipt], chosen: list[Model], *, reasons: bool) -> str:
    lines = [" " * _LABEL_WIDTH + "".join(f"{model.name[: _CELL_WIDTH - 1]:>{_CELL_WIDTH}}" for model in chosen)]
    for rows in zip(*(receipt.rows for receipt in receipts), strict=True):
        first = rows[0]
        label = f"{first.message + 1:>3} {first.kind:<10} {first.label}"
        lines.append(f"{label[: _LABEL_WIDTH - 1]:<{_LABEL_WIDTH}}" + "".join(_cell(row) for row in rows))
        if reasons:
            lines += [
                f"{'':8}{model.name}: {row.reason} ({row.detail})"
                for model, row in zip(chosen, rows, strict=True)
                if row.reason
            ]
    totals = [receipt.totals for receipt in receipts]
    budgets = [receipt.budgets for receipt in receipts]
    lines.append(_total("tokens ≈", [f"{t.tokens:,} / {_of(b.tokens)}" for t, b in zip(totals, budgets, strict=True)]))
    lines.append(_total("bytes on the wire", [size_label(total.wire_bytes) for total in totals]))
    lines.append(_total("images", [f"{t.images} / {_of(b.images)}" for t, b in zip(totals, budgets, strict=True)]))
    lines.append(_total("pages", [f"{t.pages} / {_of(b.pages)}" for t, b in zip(totals, budgets, strict=True)]))
    return "\n".join(lines)


def _cell(row: ReceiptRow) -> str:
    return f"{GLYPHS[row.rendition]} {row.rendition:<8}{row.tokens:>7,}".rjust(_CELL_WIDTH)


def _of(limit: int) -> str:
    return "∞" if limit >= UNLIMITED else f"{limit:,}"


def _total(label: str, cells: list[str]) -> str:
    return f"{label:<{_LABEL_WIDTH}}" + "".join(f"{cell:>{_CELL_WIDTH}}" for cell in cells)
