// The five words for how a model is shown a medium: a glyph, a word, a colour; never colour alone.
import type { PlanCell, Rendition } from "../api/shapes";
import { because, GLYPHS, tokens } from "../state/words";

export function Badge({ rendition, note = "" }: { rendition: Rendition; note?: string }) {
  return (
    <span class={`badge ${rendition}`}>
      <span aria-hidden="true">{GLYPHS[rendition]}</span> {rendition}
      {note && <span class="badge-note">{note}</span>}
    </span>
  );
}

export function CellBadge({ cell }: { cell: PlanCell }) {
  const why = because(cell);
  return (
    <span class="cell-badge" title={why || undefined}>
      <Badge rendition={cell.rendition} />
      <span class="dim">{tokens(cell.tokens)} tok</span>
    </span>
  );
}
