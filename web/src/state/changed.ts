// The next request against the last one that the model was really sent, block by block. Pure.
import type { LastRow, Plan } from "../api/shapes";

export type Change = "added" | "changed" | "gone" | "same";

export interface Changed {
  /** By the row's key. */
  rows: Map<string, { change: Change; was: LastRow | null }>;
  /** Blocks that the last request held and the next one does not know: they stand on another branch. */
  left: LastRow[];
  counts: Record<Change, number>;
}

/** Nothing where the model was not asked yet: then all of it is new. */
export function changedSince(plan: Plan, model: string): Changed | null {
  const last = plan.models[model]?.last;
  if (!last) return null;
  const before = new Map(last.map((row) => [row.key, row]));
  const counts: Record<Change, number> = { added: 0, changed: 0, gone: 0, same: 0 };
  const rows: Changed["rows"] = new Map();
  for (const row of plan.rows) {
    const cell = row.by_model[model];
    const was = before.get(row.key) ?? null;
    before.delete(row.key);
    if (!cell) continue;
    const change = changeOf(was, cell);
    if (!change) continue;
    counts[change] += 1;
    rows.set(row.key, { change, was });
  }
  const left = [...before.values()].filter((row) => row.rendition !== "omitted");
  counts.gone += left.length;
  return { rows, left, counts };
}

function changeOf(was: LastRow | null, now: { rendition: string; bytes: number }): Change | null {
  const [isShown, wasShown] = [now.rendition !== "omitted", was !== null && was.rendition !== "omitted"];
  if (!was || !wasShown) return isShown ? "added" : null;
  if (!isShown) return "gone";
  return was.rendition === now.rendition && was.bytes === now.bytes ? "same" : "changed";
}
