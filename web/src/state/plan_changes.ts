// What the user changes in the plan: how blocks are sent, and text alternatives.
import { signal } from "@preact/signals";
import { request } from "../api/http";
import type { Override, SessionView } from "../api/types";
import { model, sessionId } from "./app";
import { discardText } from "./estimate_text";
import { changes, planFor } from "./plan";
import { putSession } from "./sessions";

/** A choice that discards cached tokens, until the user confirms it. */
export const riskyOverrides = signal<{ wishes: Record<string, Override>; warning: string } | null>(null);

/** Set overrides at once if they cost nothing; otherwise show first what they discard. */
export async function chooseOverrides(wishes: Record<string, Override>): Promise<void> {
  const planned = await planFor([model.value], { overrides: wishes, limit: 1 });
  const warning = discardText(planned.models[model.value]?.estimate);
  riskyOverrides.value = warning ? { wishes, warning } : null;
  if (!warning) await setOverrides(wishes);
}

/** By the key of the row. */
export async function setOverrides(wishes: Record<string, Override>): Promise<void> {
  putSession(await request<SessionView>(`/sessions/${sessionId.value}/overrides`, { method: "PUT", body: wishes }));
  changes.value += 1;
}

/** Set the user's text alternative; an empty text removes it. */
export async function setAlt(digest: string, words: string): Promise<void> {
  putSession(await request<SessionView>(`/sessions/${sessionId.value}/alts`, { method: "PUT", body: { [digest]: words } }));
  changes.value += 1;
}
