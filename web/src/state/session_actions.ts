// Rarer actions on a session: approvals, queued and paused messages, summaries.
import { request, randomKey } from "../api/http";
import { runAction } from "./actions";
import type { QueueView, SearchResult, SessionView, Tree } from "../api/types";
import { announce, problem, sessionId, sessions, view } from "./app";
import { newestLeaf } from "./branches";
import { draftOf, storedDraft } from "./composer";
import { addressOf, go, putSession, refresh, route } from "./sessions";
import { addToDraft } from "./unsent";
import type { View } from "./view";

/** Replace the conversation by a summary; all of it stays as a branch. */
export function compact(): Promise<boolean> {
  return runAction((id) => request(`/sessions/${id}/compact`, { body: {}, headers: { "Idempotency-Key": randomKey() } }));
}

/** Send the messages that were paused when an answer was stopped, in their order. */
export function resumeQueue(messages: string[]): Promise<boolean> {
  return runAction(async (id) => {
    const { queue } = await request<QueueView>(`/sessions/${id}/queue`, { method: "PATCH", body: { paused: false, messages } });
    if (view.value?.session === id) view.value = { ...view.value, queue };
  });
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

export function moveHead(node: string): Promise<boolean> {
  return runAction(async (id) => {
    putSession(await request<SessionView>(`/sessions/${id}/head`, { body: { node } }));
    await refresh();
  });
}

let removed = "";

export async function removeSession(id: string): Promise<void> {
  removed = id;
  await request(`/sessions/${id}`, { method: "DELETE" });
  sessions.value = sessions.value.filter((one) => one.id !== id);
  announce("Session deleted");
  if (sessionId.value === id) go("");
}

/** Leave a session that is gone, and say why, unless the user deleted it here. Its draft becomes one for a new session. */
export async function leaveSession(id: string, message: string, hint: string): Promise<void> {
  if (sessionId.value !== id || removed === id) return;
  const draft = storedDraft(draftOf(id));
  localStorage.removeItem(draftOf(id));
  history.replaceState(null, "", addressOf(""));
  await route();
  if (draft) addToDraft(draftOf(""), draft.text, draft.attachments);
  problem.value = { message, hint: draft ? `${hint} Your draft is kept for a new session.`.trim() : hint };
}

export async function changeSession(id: string, change: Partial<Pick<SessionView, "title" | "model" | "archived" | "folder" | "tags" | "pinned">>): Promise<void> {
  putSession(await request<SessionView>(`/sessions/${id}`, { method: "PATCH", body: change }));
}

/** Return the title of a search result's session; the list knows generated titles. */
export function titleOf(found: SearchResult): string {
  return found.title || sessions.value.find((one) => one.id === found.session)?.title || "Untitled";
}

function withoutQueued(view: View, message: string): View {
  return { ...view, queue: view.queue.filter((one) => one.message !== message) };
}
