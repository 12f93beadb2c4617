// The plan of the next request for one or more models, computed by the server. Planning sends nothing to a model.
import { effect, signal } from "@preact/signals";
import { attachmentReference } from "../api/blocks";
import { request, ApiError } from "../api/http";
import type { Override, Plan, SessionView } from "../api/types";
import { model, sessionId, view } from "./app";
import { blocks, text } from "./composer";
import { putSession } from "./sessions";

/** The plan for the current model with the draft: used by the meter and the badges below images. */
export const plan = signal<Plan | null>(null);

/** `maxTokens` limits the plan; `last` includes the last request for comparison. */
interface Wanted {
  maxTokens?: number;
  last?: boolean;
}

export async function planFor(models: string[], wanted: Wanted = {}, signalled?: AbortSignal): Promise<Plan> {
  const draft = text.value.trim() || blocks.value.length ? { text: text.value, blocks: blocks.value.map((block) => (block.type === "text" ? attachmentReference(block) : block)) } : {};
  const body = { models, ...draft, ...(wanted.maxTokens ? { max_tokens: wanted.maxTokens } : {}), ...(wanted.last ? { last: true } : {}) };
  return request<Plan>(`/sessions/${sessionId.value}/plan`, { body, signal: signalled });
}

/** By the key of the row. */
export async function setOverrides(wishes: Record<string, Override>): Promise<void> {
  putSession(await request<SessionView>(`/sessions/${sessionId.value}/overrides`, { method: "PUT", body: wishes }));
  changes.value += 1;
}

/** The media block whose text alternative is being edited. */
export const editedAlt = signal<{ digest: string; kind: string; label: string; alt: string } | null>(null);

/** Set the user's text alternative; an empty text removes it. */
export async function setAlt(digest: string, words: string): Promise<void> {
  putSession(await request<SessionView>(`/sessions/${sessionId.value}/alts`, { method: "PUT", body: { [digest]: words } }));
  changes.value += 1;
}

/** Counts changes that affect the plan besides messages: overrides and text alternatives. */
export const changes = signal(0);

export function watchPlan(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stop = new AbortController();
  effect(() => {
    const [id, reference] = [sessionId.value, model.value];
    const isIdle = view.value?.live == null;
    // Read so that the effect runs again when they change.
    void [view.value?.head, changes.value, text.value, blocks.value];
    clearTimeout(timer);
    if (!id || !reference || !view.value) {
      plan.value = null;
      return;
    }
    if (!isIdle && plan.value) return;
    timer = setTimeout(() => {
      stop.abort();
      stop = new AbortController();
      planFor([reference], {}, stop.signal).then(
        (found) => {
          if (sessionId.value === id) plan.value = found;
        },
        (error: unknown) => {
          if (error instanceof DOMException || error instanceof ApiError) return;
          throw error;
        },
      );
    }, 250);
  });
}
