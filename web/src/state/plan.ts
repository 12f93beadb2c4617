// What the next request would carry, for one model or several. Asked for, never guessed; nothing is sent by looking.
import { effect, signal } from "@preact/signals";
import { ask, Refused } from "../api/http";
import type { Override, Plan, SessionView } from "../api/shapes";
import { model, sessionId, view } from "./app";
import { blocks, text } from "./composer";
import { keepSession } from "./sessions";

/** For the model that is asked next, the draft included: the meter, and the badges under pictures. */
export const plan = signal<Plan | null>(null);

/** What it was asked besides: how many tokens may be used at most, and what was really sent last. */
interface Wanted {
  maxTokens?: number;
  last?: boolean;
}

export async function planFor(models: string[], wanted: Wanted = {}, signalled?: AbortSignal): Promise<Plan> {
  const draft = text.value.trim() || blocks.value.length ? { text: text.value, blocks: blocks.value } : {};
  const body = { models, ...draft, ...(wanted.maxTokens ? { max_tokens: wanted.maxTokens } : {}), ...(wanted.last ? { last: true } : {}) };
  return ask<Plan>(`/sessions/${sessionId.value}/plan`, { body, signal: signalled });
}

/** By the key of the row. */
export async function setOverrides(wishes: Record<string, Override>): Promise<void> {
  keepSession(await ask<SessionView>(`/sessions/${sessionId.value}/overrides`, { method: "PUT", body: wishes }));
  changes.value += 1;
}

/** A medium whose words are being edited: what a model reads that cannot take the thing itself. */
export const worded = signal<{ digest: string; kind: string; label: string; alt: string } | null>(null);

/** Empty words take them back: then what was read or described counts again. */
export async function setAlt(digest: string, words: string): Promise<void> {
  keepSession(await ask<SessionView>(`/sessions/${sessionId.value}/alts`, { method: "PUT", body: { [digest]: words } }));
  changes.value += 1;
}

/** Counts what changes a plan besides the conversation: an override, a person's words. */
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
          if (error instanceof DOMException || error instanceof Refused) return;
          throw error;
        },
      );
    }, 250);
  });
}
