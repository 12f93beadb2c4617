// How a model gets a media block: a glyph, a word and a colour, never colour alone.
import type { PlanCell, Rendition } from "../api/types";
import { reasonText, GLYPHS, formatTokens } from "../state/format";

export function Badge({ rendition, note = "" }: { rendition: Rendition; note?: string }) {
  return (
    <span class={`badge ${rendition}`}>
      <span aria-hidden="true">{GLYPHS[rendition]}</span> {rendition}
      {note && <span class="badge-note">{note}</span>}
    </span>
  );
}

export function CellBadge({ cell }: { cell: PlanCell }) {
  const why = reasonText(cell);
  return (
    <span class="cell-badge" title={why || undefined}>
      <Badge rendition={cell.rendition} />
      <span class="dim">{formatTokens(cell.tokens)} tok</span>
    </span>
  );
}
