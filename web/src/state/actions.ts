// User actions on a session: send, edit, regenerate, approve, stop, switch branches.
import { request, randomKey, ApiError, wait } from "../api/http";
import type { Posted, SessionView } from "../api/types";
import { announce, chosenModel, createdSession, model, sessionDraft, sessionId, view } from "./app";
import { forgetUndelivered, keepUndelivered, type Outgoing, requestBody, type Undelivered, withUndelivered } from "./outbox";
import { go, putSession, refresh, report } from "./sessions";
import { withState } from "./view";

let creating: Promise<string> | null = null;

/** Create a session for a message, and open it unless another one was opened meanwhile. Return its id. */
async function createSession(outgoing: Outgoing): Promise<string> {
  const made = await request<SessionView>("/sessions", { body: { ...sessionDraft.value, ...(chosenModel.value ? { model: chosenModel.value } : {}) } });
  keepUndelivered({ id: made.id, outgoing, at: Date.now() });
  sessionDraft.value = {};
  putSession(made);
  if (!sessionId.value) {
    createdSession.value = made.id;
    go(made.id);
  }
  return made.id;
}

/** Return true once the server has stored the message. While it is offline the message is sent again under the same key. */
export async function send(outgoing: Outgoing, id = sessionId.value): Promise<boolean> {
  keepUndelivered({ id, outgoing, at: Date.now() });
  try {
    // What is sent while the session is being created belongs to it.
    if (!id) id = await (creating ??= createSession(outgoing).finally(() => (creating = null)));
  } catch (error) {
    report(error);
    return false;
  }
  return deliver({ id, outgoing, at: Date.now() });
}

const deliveries = new Map<string, Promise<boolean>>();

/** Send a message after those that were sent before it in the same session. */
export function deliver(one: Undelivered): Promise<boolean> {
  keepUndelivered(one);
  if (view.value?.session === one.id) view.value = withUndelivered(view.value);
  const delivery = (deliveries.get(one.id) ?? Promise.resolve(true)).then(() => post(one));
  deliveries.set(one.id, delivery);
  return delivery;
}

async function post(one: Undelivered): Promise<boolean> {
  const { id, outgoing } = one;
  for (;;) {
    try {
      await request<Posted>(`/sessions/${id}/messages`, { body: requestBody(outgoing), headers: { "Idempotency-Key": outgoing.key } });
      const isReopened = forgetUndelivered(outgoing.key);
      if (view.value) view.value = withState(view.value, outgoing.key, "accepted");
      if (isReopened) void refresh();
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (!error.isOffline) {
        keepUndelivered({ ...one, problem: { code: error.code, message: error.message, hint: error.hint } });
        if (outgoing.parent !== undefined || error.status === 401) report(error);
        else if (view.value?.session === id) view.value = withUndelivered(view.value);
        return false;
      }
      await wait(1000);
    }
  }
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

export async function useModel(reference: string): Promise<void> {
  if (!sessionId.value) {
    chosenModel.value = reference;
    return;
  }
  await runAction(async (id) => putSession(await request<SessionView>(`/sessions/${id}`, { method: "PATCH", body: { model: reference } })));
  announce(`Model: ${model.value}`);
}
