import assert from "node:assert/strict";
import { test } from "node:test";
import type { LastRow, Plan, PlanCell, Rendition, Tree } from "../src/api/types";
import { divergence } from "../src/state/branches";
import { diffWithLast } from "../src/state/plan_diff";

function last(key: string, rendition: Rendition = "full", bytes = 10): LastRow {
  return { key, kind: "text", label: key, digest: "", rendition, tokens: 1, bytes };
}

function plan(now: Record<string, [Rendition, number]>, before: LastRow[] | null): Plan {
  const rows = Object.entries(now).map(([key, [rendition, bytes]], message) => {
    const cell: PlanCell = { rendition, tokens: 1, bytes, reason: "", detail: "" };
    return { key, node: key, message, block: 0, inner: null, role: "user", kind: "text", label: key, digest: "", alt: "", by_model: { m: cell } };
  });
  const facts = { tokens: { in: 1, budget: null, exact: false }, bytes: 1, images: 0, pages: 0, usd: null, limit: 1, cached_rows: 0, notices: [], error: null, last: before };
  return { models: { m: facts }, rows, rev: 1 };
}

test("rows are new, changed, gone or the same against the last request", () => {
  const before = [last("same"), last("smaller", "full", 900), last("editedAlt", "text", 40), last("hidden"), last("left"), last("never", "omitted")];
  const now = plan({ same: ["full", 10], smaller: ["low", 90], editedAlt: ["text", 41], hidden: ["omitted", 0], never: ["omitted", 0], fresh: ["full", 5] }, before);
  const found = diffWithLast(now, "m");
  assert.deepEqual(found?.counts, { added: 1, changed: 2, gone: 2, same: 1 });
  assert.deepEqual(found.left.map((row) => row.key), ["left"]);
  assert.equal(found.rows.get("smaller")?.was?.rendition, "full");
  assert.equal(found.rows.has("never"), false);
});

test("a model that was not asked yet has nothing to be compared with", () => {
  assert.equal(diffWithLast(plan({ a: ["full", 1] }, null), "m"), null);
  assert.equal(diffWithLast(plan({ a: ["full", 1] }, []), "other"), null);
});

test("several ends part behind what all of them share", () => {
  const parents: [string, string | null][] = [["root", null], ["ask", "root"], ["a", "ask"], ["b", "ask"], ["c", "b"]];
  const nodes = parents.map(([node, parent], depth) => ({ node, parent, role: "user", source: "", label: node, media: [], model: "", created_at: 0, bookmark: "", tags: [], depth }));
  const tree: Tree = { root: "root", head: "c", nodes };
  assert.deepEqual(divergence(tree, ["a", "c", "b"]), { shared: 2, own: [["a"], ["b", "c"], ["b"]] });
});
