// Rarer actions on a session: approvals, held and queued messages, summaries.
import { request, randomKey } from "../api/http";
import { splitBlocks } from "../api/blocks";
import { deliver, moveHead, runAction } from "./actions";
import type { SessionView, Tree } from "../api/types";
import { announce, sessionId, view } from "./app";
import { newestLeaf } from "./branches";
import { heldFor, release } from "./held";
import { go, putSession } from "./sessions";
import { withoutQueued } from "./view";

/** Replace the conversation by a summary; all of it stays as a branch. */
export function compact(): Promise<boolean> {
  return runAction((id) => request(`/sessions/${id}/compact`, { body: {}, headers: { "Idempotency-Key": randomKey() } }));
}

/** Send the messages that were held when an answer was stopped, in their order. */
export async function sendHeld(): Promise<void> {
  const id = sessionId.value;
  for (const one of heldFor(id)) {
    const { text, attachments } = splitBlocks(one.blocks);
    release(id, one.key);
    if (!(await deliver(id, { text, blocks: attachments, files: [], key: randomKey() }))) return;
  }
}

export function answerApproval(approval: string, word: "once" | "always" | "deny", reason = ""): Promise<boolean> {
  return runAction((id) => request(`/sessions/${id}/approvals/${encodeURIComponent(approval)}`, { body: { answer: word, ...(reason ? { reason } : {}) } }));
}

export function unqueue(message: string): Promise<boolean> {
  return runAction(async (id) => {
    await request(`/sessions/${id}/queue/${encodeURIComponent(message)}`, { method: "DELETE" });
    if (view.value) view.value = withoutQueued(view.value, message);
  });
}

/** Switch to a sibling: move the head to the newest leaf below it. */
export async function showSibling(node: string): Promise<boolean> {
  let end = node;
  const isKnown = await runAction(async (id) => {
    end = newestLeaf(await request<Tree>(`/sessions/${id}/tree`), node);
  });
  return isKnown && moveHead(end);
}

export async function forkSession(node?: string): Promise<void> {
  await runAction(async (id) => {
    const made = await request<SessionView>(`/sessions/${id}/fork`, { body: node ? { node } : {} });
    putSession(made);
    go(made.id);
    announce("Forked into a new session");
  });
}
