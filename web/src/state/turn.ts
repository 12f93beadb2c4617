// What a person does to a session: send, edit, ask again, answer, stop, walk the tree.
import { ask, freshKey, Refused } from "../api/http";
import type { Block, MediaBlock, Message } from "../api/blocks";
import type { Posted, SessionView, Tree } from "../api/shapes";
import { announce, chosenModel, model, sessionId, view } from "./app";
import { newestLeaf } from "./branches";
import { go, keepSession, refresh, report } from "./sessions";
import { withAnswer, withoutQueued, withoutSent, withSent } from "./view";

export interface Outgoing {
  text: string;
  blocks: MediaBlock[];
  files: string[];
  /** Where an edited message hangs; undefined: at the head. */
  parent?: string | null;
  key: string;
}

/** The session that is open, or a new one. */
async function someSession(): Promise<string> {
  if (sessionId.value) return sessionId.value;
  const made = await ask<SessionView>("/sessions", { body: chosenModel.value ? { model: chosenModel.value } : {} });
  keepSession(made);
  view.value = null;
  go(made.id);
  await until(() => view.value?.session === made.id);
  return made.id;
}

function until(isSo: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const stop = view.subscribe(() => {
      if (isSo()) queueMicrotask(() => (stop(), resolve()));
    });
  });
}

/** True when the daemon has it on disk. While the daemon is away the same message is offered again, under its key. */
export async function send(outgoing: Outgoing): Promise<boolean> {
  let id: string;
  try {
    id = await someSession();
  } catch (error) {
    report(error);
    return false;
  }
  return deliver(id, outgoing);
}

const OUTBOX = "loom.out.";

/** What a page had taken on and not yet handed over when it was closed goes out under the same key: never twice. */
export function deliverLeft(): void {
  for (const name of Object.keys(localStorage).filter((one) => one.startsWith(OUTBOX))) {
    const { id, outgoing } = JSON.parse(localStorage.getItem(name) ?? "{}") as { id: string; outgoing: Outgoing };
    void deliver(id, outgoing);
  }
}

async function deliver(id: string, outgoing: Outgoing): Promise<boolean> {
  const kept = OUTBOX + outgoing.key;
  localStorage.setItem(kept, JSON.stringify({ id, outgoing }));
  const isEdit = outgoing.parent !== undefined;
  if (view.value?.session === id && !isEdit) view.value = withSent(view.value, outgoing.key, messageOf(outgoing));
  const blocks = [...outgoing.blocks.map(reference), ...outgoing.files.map((path) => ({ type: "file", path }))];
  const body = { text: outgoing.text, blocks, ...(isEdit ? { parent: outgoing.parent } : {}) };
  for (;;) {
    try {
      await ask<Posted>(`/sessions/${id}/messages`, { body, headers: { "Idempotency-Key": outgoing.key } });
      localStorage.removeItem(kept);
      if (view.value) view.value = withAnswer(view.value, outgoing.key, "accepted");
      return true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (!error.isAway) {
        localStorage.removeItem(kept);
        refuse(outgoing.key, error, isEdit);
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

function reference(block: MediaBlock): object {
  const { digest, name } = block.media;
  return { type: "media", digest, ...(name ? { name } : {}), ...(block.type === "document" && block.pages ? { pages: block.pages } : {}) };
}

function refuse(key: string, error: Refused, isEdit: boolean): void {
  if (isEdit || error.status === 401) report(error);
  else if (view.value) view.value = withAnswer(view.value, key, "refused", { code: error.code, message: error.message, hint: error.hint });
}

export function forget(key: string): void {
  if (view.value) view.value = withoutSent(view.value, key);
}

/** Do something to the open session; what is refused is shown. */
async function act(work: (id: string) => Promise<unknown>): Promise<boolean> {
  try {
    await work(sessionId.value);
    return true;
  } catch (error) {
    report(error);
    return false;
  }
}

export function again(node?: string, other?: string): Promise<boolean> {
  const body = { ...(node ? { node } : {}), ...(other ? { model: other } : {}) };
  return act((id) => ask(`/sessions/${id}/regenerate`, { body, headers: { "Idempotency-Key": freshKey() } }));
}

export function stop(): Promise<boolean> {
  announce("Stopping");
  return act((id) => ask(`/sessions/${id}/cancel`, { body: {} }));
}

export function answer(approval: string, word: "once" | "always" | "deny", reason = ""): Promise<boolean> {
  return act((id) => ask(`/sessions/${id}/approvals/${encodeURIComponent(approval)}`, { body: { answer: word, ...(reason ? { reason } : {}) } }));
}

export function unqueue(message: string): Promise<boolean> {
  return act(async (id) => {
    await ask(`/sessions/${id}/queue/${encodeURIComponent(message)}`, { method: "DELETE" });
    if (view.value) view.value = withoutQueued(view.value, message);
  });
}

export function moveHead(node: string): Promise<boolean> {
  return act(async (id) => {
    keepSession(await ask<SessionView>(`/sessions/${id}/head`, { body: { node } }));
    await refresh();
  });
}

/** Show a sibling: the head goes to the newest end below it, as it was left. */
export async function sibling(node: string): Promise<boolean> {
  let end = node;
  const isKnown = await act(async (id) => {
    end = newestLeaf(await ask<Tree>(`/sessions/${id}/tree`), node);
  });
  return isKnown && moveHead(end);
}

export async function fork(node?: string): Promise<void> {
  await act(async (id) => {
    const made = await ask<SessionView>(`/sessions/${id}/fork`, { body: node ? { node } : {} });
    keepSession(made);
    go(made.id);
    announce("Forked into a new session");
  });
}

export async function useModel(reference: string): Promise<void> {
  if (!sessionId.value) {
    chosenModel.value = reference;
    return;
  }
  await act(async (id) => keepSession(await ask<SessionView>(`/sessions/${id}`, { method: "PATCH", body: { model: reference } })));
  announce(`Now asking ${model.value}`);
}
