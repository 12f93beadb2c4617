// To a message that a link names: older pages are fetched until it is there; on another branch, the head goes to it.
import { announce, turns, view } from "./app";
import { loadOlder } from "./sessions";
import { sibling } from "./turn";

const PAGE = 200;

/** What is drawn for it, once it is loaded. */
export async function seek(node: string): Promise<string> {
  if (!(await reached(node)) && (await sibling(node))) {
    announce("That message is on another branch: you are there now");
    await reached(node);
  }
  return anchorOf(node);
}

async function reached(node: string): Promise<boolean> {
  for (;;) {
    const seen = view.value;
    if (!seen || seen.messages.some((one) => one.node === node)) return seen !== null;
    if (!seen.more) return false;
    await loadOlder(PAGE);
    // Somebody else is fetching, or nothing came: what is there is looked at again only when it has grown.
    if (view.value?.messages.length === seen.messages.length) await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** What is drawn for a message: a user's own, or the answer that it is part of. */
function anchorOf(node: string): string {
  const order = new Map(view.value?.messages.map((one, index) => [one.node, index]) ?? []);
  const at = order.get(node) ?? -1;
  const drawn = turns.value.flatMap((turn) => [turn.user?.node, turn.answers[0]?.node]).filter((one) => one !== undefined);
  return drawn.findLast((one) => (order.get(one) ?? at + 1) <= at) ?? "";
}
