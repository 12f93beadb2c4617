// The next request compared with the last one that was sent, block by block. Pure.
import type { LastRow, Plan } from "../api/types";

export type Change = "added" | "changed" | "gone" | "same";

export interface PlanDiff {
  /** By the row's key. */
  rows: Map<string, { change: Change; was: LastRow | null }>;
  /** Blocks of the last request that are on another branch. */
  left: LastRow[];
  counts: Record<Change, number>;
}

/** Return null if the model has not been used yet. */
export function diffWithLast(plan: Plan, model: string): PlanDiff | null {
  const last = plan.models[model]?.last;
  if (!last) return null;
  const before = new Map(last.map((row) => [row.key, row]));
  const counts: Record<Change, number> = { added: 0, changed: 0, gone: 0, same: 0 };
  const rows: PlanDiff["rows"] = new Map();
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
