// User actions on a session: send, edit, regenerate, approve, stop, switch branches.
import { request, randomKey, ApiError } from "../api/http";
import { type Attachable, attachmentReference, type Block, type Message, storableAttachment } from "../api/blocks";
import type { Posted, SessionView } from "../api/types";
import { announce, chosenModel, model, sessionDraft, sessionId, view } from "./app";
import { go, putSession, refresh, report } from "./sessions";
import { saveItem } from "./storage";
import { withState, withoutSent, withSent } from "./view";

export interface Outgoing {
  text: string;
  blocks: Attachable[];
  files: string[];
  /** Parent of an edited message; undefined: the head. */
  parent?: string | null;
  /** Several models answer it. */
  models?: string[];
  /** The running turn reads it at its next step. */
  steer?: boolean;
  key: string;
}

/** Return the id of the open session, or create one. */
async function ensureSession(): Promise<string> {
  if (sessionId.value) return sessionId.value;
  const made = await request<SessionView>("/sessions", { body: { ...sessionDraft.value, ...(chosenModel.value ? { model: chosenModel.value } : {}) } });
  sessionDraft.value = {};
  putSession(made);
  view.value = null;
  go(made.id);
  await waitFor(() => view.value?.session === made.id);
  return made.id;
}

function waitFor(isSo: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const stop = view.subscribe(() => {
      if (isSo()) queueMicrotask(() => (stop(), resolve()));
    });
  });
}

/** Return true once the server has stored the message. While it is offline the message is sent again under the same key. */
export async function send(outgoing: Outgoing): Promise<boolean> {
  let id: string;
  try {
    id = await ensureSession();
  } catch (error) {
    report(error);
    return false;
  }
  return deliver(id, outgoing);
}

const OUTBOX = "loom.out.";

/** Send messages that were not delivered before the page was closed; the key prevents duplicates. */
export function resendOutbox(): void {
  for (const name of Object.keys(localStorage).filter((one) => one.startsWith(OUTBOX))) {
    const { id, outgoing } = JSON.parse(localStorage.getItem(name) ?? "{}") as { id: string; outgoing: Outgoing };
    void deliver(id, outgoing);
  }
}

export async function deliver(id: string, outgoing: Outgoing): Promise<boolean> {
  const kept = OUTBOX + outgoing.key;
  saveItem(kept, JSON.stringify({ id, outgoing: { ...outgoing, blocks: outgoing.blocks.map(storableAttachment) } }));
  const isEdit = outgoing.parent !== undefined;
  if (view.value?.session === id && !isEdit) view.value = withSent(view.value, outgoing.key, messageOf(outgoing));
  const blocks = [...outgoing.blocks.map(attachmentReference), ...outgoing.files.map((path) => ({ type: "file", path }))];
  const body = { text: outgoing.text, blocks, ...(isEdit ? { parent: outgoing.parent } : {}), ...(outgoing.models ? { models: outgoing.models } : {}), ...(outgoing.steer ? { steer: true } : {}) };
  for (;;) {
    try {
      await request<Posted>(`/sessions/${id}/messages`, { body, headers: { "Idempotency-Key": outgoing.key } });
      localStorage.removeItem(kept);
      if (view.value) view.value = withState(view.value, outgoing.key, "accepted");
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (!error.isOffline) {
        localStorage.removeItem(kept);
        showRefusal(outgoing.key, error, isEdit);
        return false;
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

function messageOf(outgoing: Outgoing): Message {
  const blocks: Block[] = [...outgoing.blocks];
  const text = [outgoing.text, ...outgoing.files.map((path) => `@${path}`)].filter(Boolean).join("\n");
  if (text) blocks.unshift({ type: "text", text });
  return { role: "user", blocks };
}

function showRefusal(key: string, error: ApiError, isEdit: boolean): void {
  if (isEdit || error.status === 401) report(error);
  else if (view.value) view.value = withState(view.value, key, "refused", { code: error.code, message: error.message, hint: error.hint });
}

export function dismissSent(key: string): void {
  if (view.value) view.value = withoutSent(view.value, key);
}

/** Run an action on the open session and show a refusal. */
export async function runAction(work: (id: string) => Promise<unknown>): Promise<boolean> {
  try {
    await work(sessionId.value);
    return true;
  } catch (error) {
    report(error);
    return false;
  }
}

export function regenerate(node?: string, other?: string): Promise<boolean> {
  const body = { ...(node ? { node } : {}), ...(other ? { model: other } : {}) };
  return runAction((id) => request(`/sessions/${id}/regenerate`, { body, headers: { "Idempotency-Key": randomKey() } }));
}

/** Stop the answer. Queued messages would start at once, so they are paused until the user sends or removes them. */
export function stop(): Promise<boolean> {
  announce("Stopping");
  return runAction((id) => request(`/sessions/${id}/cancel`, { body: { pause_queue: true } }));
}

export function moveHead(node: string): Promise<boolean> {
  return runAction(async (id) => {
    putSession(await request<SessionView>(`/sessions/${id}/head`, { body: { node } }));
    await refresh();
  });
}

export async function useModel(reference: string): Promise<void> {
  if (!sessionId.value) {
    chosenModel.value = reference;
    return;
  }
  await runAction(async (id) => putSession(await request<SessionView>(`/sessions/${id}`, { method: "PATCH", body: { model: reference } })));
  announce(`Model: ${model.value}`);
}
