// What the user changes in the plan: how blocks are sent, and text alternatives.
import { request } from "../api/http";
import type { Override, SessionView } from "../api/types";
import { sessionId } from "./app";
import { changes } from "./plan";
import { putSession } from "./sessions";

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
