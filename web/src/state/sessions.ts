// The list of sessions, and opening one.
import { batch } from "@preact/signals";
import { request, ApiError, wait } from "../api/http";
import type { History, Listed, SessionPage, SessionView } from "../api/types";
import {
  askedModels, chosenModel, NOTIFY_CHOICE, info, isUnauthorized, moreSessions, panel, problem, sessionId, sessions, sessionsLoaded, showsSessions, linkedMessage, view,
} from "./app";
import { join, leave } from "./connection";
import type { Envelope } from "./envelopes";
import { withReopened } from "./outbox";
import { applyEnvelope, mergeHistory, prependOlder, openView, type View } from "./view";

/** Messages per page: small enough to render without a pause. */
const PAGE = 60;

export async function loadSessions(): Promise<void> {
  const [found, pinned] = await Promise.all([request<SessionPage>("/sessions?limit=60"), request<SessionPage>("/sessions?pinned=true&limit=200")]);
  batch(() => {
    sessions.value = found.sessions;
    mergeSessions(pinned.sessions);
    moreSessions.value = found.next;
    sessionsLoaded.value = true;
  });
}

export function mergeSessions(fresh: SessionView[]): void {
  const known = new Set(fresh.map((one) => one.id));
  sessions.value = [...fresh, ...sessions.value.filter((one) => !known.has(one.id))].sort((a, b) => b.updated_at - a.updated_at);
}

export function putSession(fresh: SessionView): void {
  mergeSessions([fresh]);
}

async function refreshSession(id: string): Promise<void> {
  try {
    putSession(await request<SessionView>(`/sessions/${id}`));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

export function onSessionChange(change: Listed): void {
  if (change.deleted) {
    sessions.value = sessions.value.filter((one) => one.id !== change.session);
    if (sessionId.value === change.session) leaveDeleted(change.session, "This session was deleted.");
    return;
  }
  const old = sessions.value.find((one) => one.id === change.session);
  notifyState(old, change.state);
  if (!old || change.state === "idle" || change.title !== old.title) void refreshSession(change.session);
  else sessions.value = sessions.value.map((one) => (one.id === change.session ? { ...one, state: change.state ?? one.state, rev: change.rev ?? one.rev } : one));
}

/** The address of a session, or of a message in it. */
export function addressOf(id: string, node = ""): string {
  return id ? `#/s/${id}${node ? `/${encodeURIComponent(node)}` : ""}` : "#/";
}

/** Open a session through the URL hash, which is the only source of the current session. */
export function go(id: string, node = ""): void {
  const hash = addressOf(id, node);
  if (location.hash === hash || (!id && location.hash === "")) void route();
  else location.hash = hash;
}

export function sessionInAddress(): string {
  return /^#\/s\/([\w-]+)/.exec(location.hash)?.[1] ?? "";
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
    if (before !== id) askedModels.value = [];
    if (!id) {
      panel.value = "";
      chosenModel.value = "";
    }
  });
  if (id) await openSession(id);
  linkedMessage.value = nodeInAddress();
}

const readHistory = (id: string): Promise<History> => request<History>(`/sessions/${id}/messages?limit=${PAGE}`);
let prefetched: { id: string; history: Promise<History | null> } | null = null;

/** Ask for the session in the address before anything else is known. If that fails it is asked for again. */
export function prefetchHistory(id: string): void {
  prefetched = { id, history: readHistory(id).catch(() => null) };
}

async function openSession(id: string): Promise<void> {
  if (!info.value) void refreshSession(id);
  try {
    const early = prefetched?.id === id ? await prefetched.history : null;
    prefetched = null;
    const found = early ?? (await readHistory(id));
    if (sessionId.value !== id) return;
    view.value = withReopened(openView(id, found, Date.now()));
    join(id);
  } catch (error) {
    if (error instanceof ApiError && error.isOffline) {
      await wait(1000);
      return sessionId.value === id && !view.value ? openSession(id) : undefined;
    }
    if (!(error instanceof ApiError && error.status === 404)) return report(error);
    leaveDeleted(id, "Session not found.", "It was deleted, or the link is incomplete.");
  }
}

function leaveDeleted(id: string, message: string, hint = ""): void {
  void import("../screens/deferred").then(({ leaveSession }) => leaveSession(id, message, hint), () => undefined);
}

/** Load a new snapshot of the open session, for facts that events do not carry. Older pages stay. */
export async function refresh(): Promise<void> {
  const seen = view.value;
  if (!seen) return;
  try {
    const history = await readHistory(seen.session);
    const now = view.value;
    if (now?.session !== seen.session) return;
    showChange(now, mergeHistory(now, history, Date.now()));
    join(seen.session);
  } catch (error) {
    if (!(error instanceof ApiError && error.isOffline)) report(error);
  }
}

let isPaging = false;

export async function loadOlder(count = PAGE): Promise<void> {
  const seen = view.value;
  const first = seen?.messages[0];
  if (!seen?.more || !first || isPaging) return;
  isPaging = true;
  try {
    const history = await request<History>(`/sessions/${seen.session}/messages?limit=${count}&before=${encodeURIComponent(first.node)}`);
    if (view.value?.session === seen.session) view.value = prependOlder(view.value, history);
  } catch (error) {
    report(error);
  } finally {
    isPaging = false;
  }
}

/** Show a later view of the open session, and let screen readers hear what is new. */
function showChange(before: View, after: View): void {
  view.value = after;
  void import("../screens/deferred").then(({ announceChange }) => announceChange(before, after), () => undefined);
}

export function onEnvelope(envelope: Envelope): void {
  const seen = view.value;
  if (!seen) return;
  const after = applyEnvelope(seen, envelope, Date.now());
  if (after === seen) return;
  showChange(seen, after);
  if (after.isStale) void refresh();
  else if (after.refreshes > seen.refreshes) void refresh();
  // The first message becomes the title.
  if (envelope.type === "message_stored" && !info.value?.title) void refreshSession(after.session);
}

/** Tell a user who looks elsewhere that a session needs them, or has ended its turn. */
function notifyState(before: SessionView | undefined, state: SessionView["state"] | undefined): void {
  if (!before || !state || before.state === state || !document.hidden || !localStorage.getItem(NOTIFY_CHOICE)) return;
  void import("../screens/deferred").then(({ notifyOf }) => notifyOf(before, state));
}

export function report(error: unknown): void {
  if (!(error instanceof ApiError)) throw error;
  if (error.status === 401) isUnauthorized.value = true;
  else problem.value = error;
}

