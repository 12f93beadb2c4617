// The list of sessions, and opening one.
import { batch } from "@preact/signals";
import { ask, Refused } from "../api/http";
import type { History, Listed, SearchResult, SessionPage, SessionView } from "../api/shapes";
import {
  announce, chosenModel, info, isLockedOut, moreSessions, panel, problem, sessionId, sessions, sessionsLoaded, showsSessions, sought, view,
} from "./app";
import { join, leave } from "./connection";
import type { Envelope } from "./envelopes";
import { applied, merged, older, opened } from "./view";

/** Messages at a time: a screenful or five, so that neither opening nor scrolling up holds the page. */
const PAGE = 60;

export async function loadSessions(): Promise<void> {
  const found = await ask<SessionPage>("/sessions?limit=60");
  batch(() => {
    sessions.value = found.sessions;
    moreSessions.value = found.next;
    sessionsLoaded.value = true;
  });
}

export async function loadMoreSessions(): Promise<void> {
  if (!moreSessions.value) return;
  const found = await ask<SessionPage>(`/sessions?limit=60&before=${encodeURIComponent(moreSessions.value)}`);
  const known = new Set(sessions.value.map((one) => one.id));
  sessions.value = [...sessions.value, ...found.sessions.filter((one) => !known.has(one.id))];
  moreSessions.value = found.next;
}

/** What was put away, for the list to show it. */
export async function loadArchived(): Promise<void> {
  const found = await ask<SessionPage>("/sessions?archived=true&limit=200");
  for (const one of found.sessions) keepSession(one);
}

export function keepSession(fresh: SessionView): void {
  const others = sessions.value.filter((one) => one.id !== fresh.id);
  sessions.value = [fresh, ...others].sort((a, b) => b.updated_at - a.updated_at);
}

async function refreshSession(id: string): Promise<void> {
  try {
    keepSession(await ask<SessionView>(`/sessions/${id}`));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
}

export function onSessionChange(change: Listed): void {
  if (change.deleted) {
    sessions.value = sessions.value.filter((one) => one.id !== change.session);
    if (sessionId.value === change.session) go("");
    return;
  }
  const old = sessions.value.find((one) => one.id === change.session);
  if (!old || change.state === "idle" || change.title !== old.title) void refreshSession(change.session);
  else sessions.value = sessions.value.map((one) => (one.id === change.session ? { ...one, state: change.state ?? one.state, rev: change.rev ?? one.rev } : one));
}

/** The address of a session, or of a message in it. */
export function addressOf(id: string, node = ""): string {
  return id ? `#/s/${id}${node ? `/${encodeURIComponent(node)}` : ""}` : "#/";
}

/** The address is the truth: everything that opens a session goes through the hash. */
export function go(id: string, node = ""): void {
  const hash = addressOf(id, node);
  if (location.hash === hash || (!id && location.hash === "")) void route();
  else location.hash = hash;
}

export function sessionInAddress(): string {
  return /^#\/s\/([\w-]+)/.exec(location.hash)?.[1] ?? "";
}

/** A session that has no name of its own is called by its first words, which only the list knows. */
export function titleOf(found: SearchResult): string {
  return found.title || sessions.value.find((one) => one.id === found.session)?.title || "Untitled";
}

function nodeInAddress(): string {
  return decodeURIComponent(/^#\/s\/[\w-]+\/(.+)$/.exec(location.hash)?.[1] ?? "");
}

export async function route(): Promise<void> {
  const id = sessionInAddress();
  const before = sessionId.value;
  if (before && before !== id) leave(before);
  batch(() => {
    sessionId.value = id;
    if (view.value?.session !== id) view.value = null;
    problem.value = null;
    showsSessions.value = false;
    if (!id) {
      panel.value = "";
      chosenModel.value = "";
    }
  });
  document.title = "Loom";
  if (id) await openSession(id);
  sought.value = nodeInAddress();
}

async function openSession(id: string): Promise<void> {
  if (!info.value) void refreshSession(id);
  try {
    const history = await ask<History>(`/sessions/${id}/messages?limit=${PAGE}`);
    if (sessionId.value !== id) return;
    view.value = opened(id, history, Date.now());
    join(id);
  } catch (error) {
    report(error);
  }
}

/** A new snapshot of the open session, for what events do not tell. Older pages stay. */
export async function refresh(): Promise<void> {
  const seen = view.value;
  if (!seen) return;
  try {
    const history = await ask<History>(`/sessions/${seen.session}/messages?limit=${PAGE}`);
    const now = view.value;
    if (now?.session !== seen.session) return;
    view.value = merged(now, history, Date.now());
    join(seen.session);
  } catch (error) {
    if (!(error instanceof Refused && error.isAway)) report(error);
  }
}

let isPaging = false;

export async function loadOlder(count = PAGE): Promise<void> {
  const seen = view.value;
  const first = seen?.messages[0];
  if (!seen?.more || !first || isPaging) return;
  isPaging = true;
  try {
    const history = await ask<History>(`/sessions/${seen.session}/messages?limit=${count}&before=${encodeURIComponent(first.node)}`);
    if (view.value?.session === seen.session) view.value = older(view.value, history);
  } catch (error) {
    report(error);
  } finally {
    isPaging = false;
  }
}

export function onEnvelope(envelope: Envelope): void {
  const seen = view.value;
  if (!seen) return;
  const after = applied(seen, envelope, Date.now());
  if (after === seen) return;
  view.value = after;
  spoken(envelope);
  if (after.isStale) void refresh();
  else if (after.wantsFacts > seen.wantsFacts) void refresh();
  // The first words of a session are its title.
  if (envelope.type === "message_stored" && !info.value?.title) void refreshSession(after.session);
}

function spoken(envelope: Envelope): void {
  if (envelope.type === "turn_started") announce(`${envelope.data.model} is answering`);
  if (envelope.type === "approval_requested") announce(`Approval needed: ${envelope.data.call.name}`);
  if (envelope.type === "turn_failed") announce(`The turn failed: ${envelope.data.text}`);
  if (envelope.type === "turn_finished") {
    const last = view.value?.messages.at(-1);
    const words = last?.blocks.map((block) => (block.type === "text" ? block.text : "")).join(" ").split(/\s+/).filter(Boolean).length ?? 0;
    announce(`Done, ${words} words`);
  }
}

export function report(error: unknown): void {
  if (!(error instanceof Refused)) throw error;
  if (error.status === 401) isLockedOut.value = true;
  else problem.value = { message: error.message, hint: error.hint };
}

export async function removeSession(id: string): Promise<void> {
  await ask(`/sessions/${id}`, { method: "DELETE" });
  sessions.value = sessions.value.filter((one) => one.id !== id);
  announce("Session deleted");
  if (sessionId.value === id) go("");
}

export async function changeSession(id: string, change: Partial<Pick<SessionView, "title" | "model" | "archived">>): Promise<void> {
  keepSession(await ask<SessionView>(`/sessions/${id}`, { method: "PATCH", body: change }));
}
