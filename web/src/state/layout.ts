// Layout of the message tree. The messages of a turn are one node; long straight runs are folded. Pure.
import { hierarchy, tree as flexible } from "d3-hierarchy";
import type { Tree, TreeNode } from "../api/types";
import { childrenOf, pathOf } from "./branches";

export const ROW_PX = 64;
export const COLUMN_PX = 232;
const RUN = 5;

export interface Spot {
  node: TreeNode;
  /** Number of nodes folded before this one. */
  folded: number;
  children: Spot[];
}

export interface Placed {
  node: TreeNode;
  folded: number;
  x: number;
  y: number;
  isOnPath: boolean;
  parent: Placed | null;
}

/** Keep the nodes to draw: user messages, last answers, leaves, forks, bookmarks, the head. */
export function trimmedTree(tree: Tree, unfolded: ReadonlySet<string>): Spot[] {
  const children = childrenOf(tree.nodes);
  const isShown = (node: TreeNode): boolean => {
    const below = children.get(node.node) ?? [];
    if (node.node === tree.head || node.bookmark || below.length !== 1) return true;
    return node.role === "user" || (node.role === "assistant" && below[0]?.role !== "tool");
  };
  const shownBelow = (node: TreeNode): TreeNode[] => (children.get(node.node) ?? []).flatMap((child) => (isShown(child) ? [child] : shownBelow(child)));
  const grow = (node: TreeNode): Spot => {
    const run: TreeNode[] = [];
    let at = node;
    for (let below = shownBelow(at); below.length === 1; below = shownBelow(at)) {
      const next = below[0];
      if (!next || next.bookmark || next.node === tree.head) break;
      run.push(next);
      at = next;
    }
    // The first and the last node of a run stay; those between are folded unless expanded.
    const last = run.at(-1);
    if (run.length > RUN && last && !unfolded.has(last.node)) {
      return { node, folded: 0, children: [{ ...grow(last), folded: run.length - 1 }] };
    }
    return { node, folded: 0, children: shownBelow(node).map(grow) };
  };
  const known = new Set(tree.nodes.map((one) => one.node));
  return tree.nodes.filter((one) => one.parent === null || !known.has(one.parent)).map(grow);
}

export function placeNodes(tree: Tree, unfolded: ReadonlySet<string>): Placed[] {
  const onPath = new Set(pathOf(tree, tree.head));
  const all: Placed[] = [];
  let top = 0;
  for (const root of trimmedTree(tree, unfolded)) {
    const laid = flexible<Spot>().nodeSize([ROW_PX, COLUMN_PX]).separation(() => 1)(hierarchy(root));
    const places = laid.descendants();
    const highest = places.reduce((least, place) => Math.min(least, place.x), Infinity);
    const found = new Map<unknown, Placed>();
    for (const place of places) {
      const spot: Placed = { node: place.data.node, folded: place.data.folded, x: place.y, y: place.x - highest + top, isOnPath: onPath.has(place.data.node.node), parent: found.get(place.parent) ?? null };
      found.set(place, spot);
      all.push(spot);
    }
    top += places.reduce((most, place) => Math.max(most, place.x), -Infinity) - highest + ROW_PX;
  }
  return all;
}
