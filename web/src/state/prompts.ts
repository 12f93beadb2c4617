// The prompt library: saved prompts with fields, and filling one into the message box.
import { signal } from "@preact/signals";
import { request } from "../api/http";
import type { PromptView } from "../api/types";
import { chosenModel, dialog, sessionDraft, sessionId } from "./app";
import { focusComposer, text } from "./composer";
import { changeSession } from "./session_actions";
import { putSession, report } from "./sessions";
import type { SessionView } from "../api/types";

const INPUT = "input";

export const prompts = signal<PromptView[]>([]);
/** The prompt whose fields are being filled in. */
export const startedPrompt = signal<PromptView | null>(null);

export async function loadPrompts(): Promise<void> {
  prompts.value = (await request<{ prompts: PromptView[] }>("/prompts")).prompts;
}

/** The fields of a prompt that the user fills in. */
export function fieldsOf(prompt: PromptView): string[] {
  return prompt.fields.filter((name) => name !== INPUT);
}

/** Put a prompt into the message box, or ask for its fields first. */
export function startPrompt(prompt: PromptView): void {
  if (fieldsOf(prompt).length) {
    startedPrompt.value = prompt;
    dialog.value = "prompts";
  } else usePrompt(prompt, {});
}

/** Fill a prompt into the message box. What is written there stands for `$input`, or follows. */
export function usePrompt(prompt: PromptView, values: Record<string, string>): void {
  const said = text.value.trim();
  const fill = (template: string): string =>
    template.replace(/\$(?:\$|([a-z_]\w*)|\{([a-z_]\w*)\})/gi, (whole, plain?: string, braced?: string) => {
      const name = plain ?? braced;
      if (!name) return "$";
      return name === INPUT ? said : (values[name] ?? prompt.params[name] ?? whole);
    });
  const filled = fill(prompt.text);
  text.value = !said || prompt.fields.includes(INPUT) ? filled : `${filled}\n\n${said}`;
  const change = { ...(prompt.system ? { system: fill(prompt.system) } : {}), ...(prompt.model ? { model: prompt.model } : {}) };
  if (sessionId.value && prompt.system) request<SessionView>(`/sessions/${sessionId.value}`, { method: "PATCH", body: change }).then(putSession, report);
  else if (sessionId.value && prompt.model) changeSession(sessionId.value, { model: prompt.model }).catch(report);
  else {
    if (prompt.model) chosenModel.value = prompt.model;
    if (prompt.system) sessionDraft.value = { ...sessionDraft.value, system: fill(prompt.system) };
  }
  startedPrompt.value = null;
  dialog.value = "";
  focusComposer();
}

export async function savePrompt(name: string, body: Pick<PromptView, "text" | "system" | "model" | "params">): Promise<void> {
  await request<PromptView>(`/prompts/${encodeURIComponent(name)}`, { method: "PUT", body });
  await loadPrompts();
}

export async function removePrompt(name: string): Promise<void> {
  await request(`/prompts/${encodeURIComponent(name)}`, { method: "DELETE" });
  await loadPrompts();
}
