// The plan of the next request for one or more models, computed by the server. Planning sends nothing to a model.
import { effect, signal } from "@preact/signals";
import { attachmentReference } from "../api/blocks";
import { request, ApiError } from "../api/http";
import type { Override, Plan, Rendition } from "../api/types";
import { model, sessionId, view } from "./app";
import { blocks, editing, text } from "./composer";

/** The plan for the current model with the draft: used by the meter and the badges below images. */
export const plan = signal<Plan | null>(null);

/** The order of renditions in the meter and the inspector. */
export const ORDER: Rendition[] = ["text", "full", "pages", "low", "omitted"];

/** `maxTokens` limits the plan; `last` includes the last request for comparison; `limit` counts the newest rows, 0 means all. The others: see `PlanRequest`. */
interface Wanted {
  maxTokens?: number;
  last?: boolean;
  limit?: number;
  cheaper?: boolean;
  compact?: boolean;
  overrides?: Record<string, Override>;
  system?: string;
  tools?: string[];
}

/** Rows that the page needs for the badges below images. */
const BADGE_ROWS = 400;

export async function planFor(models: string[], wanted: Wanted = {}, signalled?: AbortSignal): Promise<Plan> {
  const draft = text.value.trim() || blocks.value.length ? { text: text.value, blocks: blocks.value.map((block) => (block.type === "text" ? attachmentReference(block) : block)) } : {};
  const { maxTokens, ...others } = wanted;
  const at = editing.value?.parent;
  const body = { models, ...draft, ...(maxTokens ? { max_tokens: maxTokens } : {}), ...(at ? { at } : {}), ...others };
  const found = await request<Plan>(`/sessions/${sessionId.value}/plan`, { body, signal: signalled });
  if (Object.values(found.models).some((one) => one.is_preparing)) {
    clearTimeout(again);
    again = setTimeout(() => (changes.value += 1), PREPARED_MS);
  }
  return found;
}

/** A plan whose images are still prepared is asked for again. */
const PREPARED_MS = 3000;
let again: ReturnType<typeof setTimeout> | undefined;

/** The media block whose text alternative is being edited. */
export const editedAlt = signal<{ digest: string; kind: string; label: string; alt: string } | null>(null);

/** Counts changes that affect the plan besides messages: overrides and text alternatives. */
export const changes = signal(0);

export function watchPlan(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stop = new AbortController();
  effect(() => {
    const [id, reference] = [sessionId.value, model.value];
    const isIdle = view.value?.live == null;
    // Read so that the effect runs again when they change.
    void [view.value?.head, changes.value, text.value, blocks.value, editing.value];
    clearTimeout(timer);
    if (!id || !reference || !view.value) {
      plan.value = null;
      return;
    }
    if (!isIdle && plan.value) return;
    timer = setTimeout(() => {
      stop.abort();
      stop = new AbortController();
      planFor([reference], { limit: BADGE_ROWS }, stop.signal).then(
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
