// What the agent of the open session works on: todo list, background processes, changed files.
import { signal } from "@preact/signals";
import { request } from "../api/http";
import type { ChangedStep, ProcessView, Todo, UndoReport } from "../api/types";
import { announce, panel, sessionId } from "./app";
import { refresh, report } from "./sessions";

interface Work {
  session: string;
  todos: Todo[];
  processes: ProcessView[];
  steps: ChangedStep[];
}

const NONE: Work = { session: "", todos: [], processes: [], steps: [] };
export const work = signal<Work>(NONE);
/** What became of each file of the last undo. */
export const undone = signal<string[]>([]);

export async function loadWork(): Promise<void> {
  const id = sessionId.value;
  if (!id) return;
  try {
    const [{ todos }, { processes }, { steps }] = await Promise.all([
      request<{ todos: Todo[] }>(`/sessions/${id}/todos`),
      request<{ processes: ProcessView[] }>(`/sessions/${id}/processes`),
      request<{ steps: ChangedStep[] }>(`/sessions/${id}/changes`),
    ]);
    if (sessionId.value !== id) return;
    if (work.value.session !== id) undone.value = [];
    work.value = { session: id, todos, processes, steps };
  } catch (error) {
    report(error);
  }
}

/** Undo the file changes of a step and of all later ones; without a step, of the last one. */
export async function undo(step?: number): Promise<void> {
  try {
    const done = await request<UndoReport>(`/sessions/${sessionId.value}/undo`, { body: step === undefined ? {} : { step } });
    undone.value = done.files;
    announce(done.steps.length ? "Changes undone" : "Some changes were not undone");
    // The panel says why.
    if (!done.steps.length) panel.value = "activity";
    await Promise.all([loadWork(), refresh()]);
  } catch (error) {
    report(error);
  }
}

export async function stopProcess(process: string): Promise<void> {
  try {
    await request(`/sessions/${sessionId.value}/processes/${encodeURIComponent(process)}`, { method: "DELETE" });
    await loadWork();
  } catch (error) {
    report(error);
  }
}
