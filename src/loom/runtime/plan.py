"""Plan: the next request for several models, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from loom.compile.request import NextRequest
from loom.content.inputs import Content
from loom.errors import ConfigError, ContentError
from loom.estimates import Estimate
from loom.prompt import Receipt, ReceiptRow, html_table
from loom.runtime.session import LocalSession


class Planned(msgspec.Struct, frozen=True):
    """The request for one model."""

    request: NextRequest

    @property
    def receipt(self) -> Receipt:
        return self.request.receipt

    @property
    def estimate(self) -> Estimate:
        """What the request will cost, with a cheaper model if there is one and this is the first of the plan."""
        found = self.receipt.estimate
        if found is None:
            raise AssertionError("a planned request has an estimate")
        return found

    def row(self, name: str) -> ReceiptRow:
        """Return the row of a block by its name: that of a file, or the beginning of a text. Raise `ContentError` if
        there is none."""
        rows = self.receipt.rows
        found = [row for row in rows if row.label.startswith(name)] or [row for row in rows if name in row.label]
        if not found:
            known = ", ".join(row.label for row in rows)
            raise ContentError(f"no block is called {name!r}; the blocks are: {known}")
        return found[-1]

    def wire(self) -> dict[str, Any]:
        """Return the exact JSON of the request, with each medium as its digest and size."""
        from loom.providers.http import WIRES
        from loom.providers.media_body import elide_media

        model = self.request.prompt.model
        if model.wire not in WIRES:
            raise ConfigError(f"{model.reference} runs inside Loom: it sends no request.", hint="Choose another model.")
        return elide_media(WIRES[model.wire].encode(self.request.prompt))


class Plan:
    """The receipts in the order of the models; `plan["openai/gpt-5.5"]` is the whole request for that model."""

    def __init__(self, planned: Sequence[tuple[str, Planned]]) -> None:
        self._planned = tuple(planned)

    def __getitem__(self, model: str) -> Planned:
        for name, found in self._planned:
            if model in (name, found.receipt.model):
                return found
        raise KeyError(model)

    def __iter__(self) -> Iterator[Receipt]:
        return iter([found.receipt for _, found in self._planned])

    def __len__(self) -> int:
        return len(self._planned)

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        head, *rows = self._lines()
        return html_table(head, rows)

    def table(self) -> str:
        """Return one line for each block and one column for each model: the rendition, and its tokens."""
        lines = self._lines()
        widths = [max(len(line[column]) for line in lines) for column in range(len(self) + 1)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def _lines(self) -> list[list[str]]:
        receipts = list(self)
        places = dict.fromkeys((row.message, row.block, row.inner) for found in receipts for row in found.rows)
        by_place = [{(row.message, row.block, row.inner): row for row in found.rows} for found in receipts]
        lines = [["", *(receipt.model for receipt in receipts)]]
        for place in places:
            rows = [rows.get(place) for rows in by_place]
            label = next(f"{row.kind} {row.label}" for row in rows if row is not None)
            line = " ".join(label.split())
            lines.append(
                [
                    line if len(line) <= 48 else f"{line[:47]}…",
                    *("" if row is None else f"{row.rendition} {row.tokens:,}" for row in rows),
                ]
            )
        lines.append(["tokens", *(f"{receipt.totals.tokens:,}" for receipt in receipts)])
        lines.append(["bytes", *(f"{receipt.totals.wire_bytes:,}" for receipt in receipts)])
        return lines


async def plan_request(session: LocalSession, models: Sequence[str] = (), content: Sequence[Content] = ()) -> Plan:
    """Compile the next request for each of the models; search a cheaper model for the first. Nothing is sent."""
    wanted = models or ("",)
    found = await session.plan_requests(wanted, content, cheaper=True)
    return Plan([(name, Planned(request)) for name, request in zip(wanted, found, strict=True)])
