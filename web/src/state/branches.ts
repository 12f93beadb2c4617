// Functions on the message tree of a session. Pure.
import type { Tree, TreeNode } from "../api/types";

export function childrenOf(nodes: TreeNode[]): Map<string | null, TreeNode[]> {
  const children = new Map<string | null, TreeNode[]>();
  for (const node of nodes) {
    const found = children.get(node.parent);
    if (found) found.push(node);
    else children.set(node.parent, [node]);
  }
  return children;
}

/** Follow the newest child from a node down to a leaf. */
export function newestLeaf(tree: Tree, node: string): string {
  const children = childrenOf(tree.nodes);
  let at = node;
  for (;;) {
    const below = children.get(at);
    if (!below?.length) return at;
    at = below.reduce((newest, one) => (one.created_at >= newest.created_at ? one : newest)).node;
  }
}

export function pathOf(tree: Tree, node: string | null): string[] {
  const parents = new Map(tree.nodes.map((one) => [one.node, one.parent]));
  const path: string[] = [];
  for (let at = node; at !== null && parents.has(at); at = parents.get(at) ?? null) path.unshift(at);
  return path;
}

export function leaves(tree: Tree): TreeNode[] {
  const parents = new Set(tree.nodes.map((one) => one.parent));
  return tree.nodes.filter((one) => !parents.has(one.node));
}

/** Return how many messages the paths share, and the rest of each. */
export function divergence(tree: Tree, ends: string[]): { shared: number; own: string[][] } {
  const paths = ends.map((end) => pathOf(tree, end));
  const first = paths[0] ?? [];
  let shared = 0;
  while (shared < first.length && paths.every((path) => path[shared] === first[shared])) shared += 1;
  return { shared, own: paths.map((path) => path.slice(shared)) };
}
