// Open the message that a link names: load older pages until it is there, or switch to its branch.
import { announce, turns, view } from "./app";
import { loadOlder } from "./sessions";
import { showSibling } from "./session_actions";

const PAGE = 200;

/** Load a message and return the node under which it is drawn. */
async function openMessage(node: string): Promise<string> {
  if (!(await loadUntil(node)) && (await showSibling(node))) {
    announce("Switched to the branch of that message");
    await loadUntil(node);
  }
  return drawnMessage(node);
}

async function loadUntil(node: string): Promise<boolean> {
  for (;;) {
    const seen = view.value;
    if (!seen || seen.messages.some((one) => one.node === node)) return seen !== null;
    if (!seen.more) return false;
    await loadOlder(PAGE);
    // Another load is running, or nothing arrived: look again shortly.
    if (view.value?.messages.length === seen.messages.length) await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Return the drawn node of a message: its own, or that of the answer it belongs to. */
function drawnMessage(node: string): string {
  const order = new Map(view.value?.messages.map((one, index) => [one.node, index]) ?? []);
  const at = order.get(node) ?? -1;
  const drawn = turns.value.flatMap((turn) => [turn.user?.node, turn.answers[0]?.node]).filter((one) => one !== undefined);
  return drawn.findLast((one) => (order.get(one) ?? at + 1) <= at) ?? "";
}

/** Open a message that a link names, scroll to it and highlight it. The conversation no longer `follows` its end. */
export async function showMessage(linked: string, follows: { current: boolean }): Promise<void> {
  const node = await openMessage(linked);
  requestAnimationFrame(() => {
    const found = document.querySelector<HTMLElement>(`.chat [data-node="${CSS.escape(node)}"]`);
    if (found) scrollToMessage(found, follows);
  });
}

function scrollToMessage(found: HTMLElement, follows: { current: boolean }): void {
  // Only now: until then, the page was at its end, and its scroll events said so.
  follows.current = false;
  found.scrollIntoView({ block: "center" });
  // Content that was skipped gets its real height only now.
  requestAnimationFrame(() => found.scrollIntoView({ block: "center" }));
  found.tabIndex = -1;
  found.focus({ preventScroll: true });
  found.classList.add("linked");
  announce("Message found");
}
