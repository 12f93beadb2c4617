// What the agent works on besides its answer: a line above the message box, and a panel with the details.
import { useEffect, useRef } from "preact/hooks";
import type { ChangedStep, ProcessView, Todo } from "../api/types";
import { useFocusReturn } from "../parts/focus";
import { CloseIcon, StopIcon } from "../parts/icons";
import { UndoIcon } from "../parts/rare_icons";
import { panel, sessionId, view } from "../state/app";
import { formatSeconds, plural } from "../state/format";
import { toggle } from "../state/keys";
import { loadWork, stopProcess, undo, undone, work } from "../state/work";

const MARKS: Record<string, string> = { pending: "○", in_progress: "◐", done: "●", cancelled: "✕" };
const WORDS: Record<string, string> = { pending: "To do", in_progress: "In progress", done: "Done", cancelled: "Cancelled" };

function useWork(): void {
  const seen = view.value;
  useEffect(() => void loadWork(), [sessionId.value, seen?.head, seen?.live === null]);
}

export function ActivityBar() {
  useWork();
  const { session, todos, processes, steps } = work.value;
  if (session !== sessionId.value) return null;
  const running = processes.filter((one) => one.is_running);
  const left = steps.filter((one) => !one.is_undone);
  const isBusy = view.value?.live != null;
  const current = todos.find((one) => one.state === "in_progress");
  const words = [
    todos.length > 0 && `${todos.filter((one) => one.state === "done").length} of ${todos.length} todos done`,
    running.length > 0 && plural(running.length, "process running", "processes running"),
    left.length > 0 && `${plural(filesIn(left).length, "file")} changed`,
  ].filter(Boolean);
  if (!words.length) return null;
  return (
    <div class="activity-bar">
      <button type="button" class="link clip" aria-expanded={panel.value === "activity"} onClick={() => toggle("activity")}>
        {words.join(" · ")}{current && <span class="dim"> · {current.text}</span>}
      </button>
      {left.length > 0 && <button type="button" class="chip" disabled={isBusy} title={isBusy ? "Wait until the answer is finished" : "Restore the files that the last step changed"} onClick={() => void undo()}><UndoIcon /> Undo</button>}
    </div>
  );
}

export function Activity() {
  const drawer = useRef<HTMLElement>(null);
  useWork();
  useFocusReturn(drawer);
  const { todos, processes, steps } = work.value;
  return (
    <aside class="panel activity" aria-label="Activity" ref={drawer} tabIndex={-1}>
      <header class="panel-head">
        <div>
          <h2>Activity</h2>
          <p class="dim">Todos, background processes and changed files of this session.</p>
        </div>
        <button type="button" class="icon" aria-label="Close activity" onClick={() => (panel.value = "")}><CloseIcon /></button>
      </header>
      <div class="panel-body">
        <Todos todos={todos} />
        <Processes processes={processes} />
        <Changes steps={steps} />
        {undone.value.length > 0 && <ul class="undone" role="status" aria-label="Undone">{undone.value.map((line) => <li key={line}>{line}</li>)}</ul>}
      </div>
    </aside>
  );
}

function Todos({ todos }: { todos: Todo[] }) {
  return (
    <section>
      <h3>Todos</h3>
      {!todos.length && <p class="dim">No todo list.</p>}
      <ul class="todos">
        {todos.map((one, index) => (
          <li key={index} class={one.state}>
            <span aria-hidden="true">{MARKS[one.state ?? "pending"]}</span>
            <span><span class="visually-hidden">{WORDS[one.state ?? "pending"]}: </span>{one.text}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Processes({ processes }: { processes: ProcessView[] }) {
  return (
    <section>
      <h3>Background processes</h3>
      {!processes.length && <p class="dim">No background processes.</p>}
      <ul class="processes">
        {processes.map((one) => (
          <li key={one.process}>
            <code>{one.command}</code>
            <span class="dim">{one.is_running ? `Running for ${formatSeconds(one.seconds)}` : `Ended${one.exit_code === null ? "" : ` with code ${one.exit_code}`}`}{one.ports.length > 0 && ` · port ${one.ports.join(", ")}`}</span>
            {one.is_running && <button type="button" class="chip danger" aria-label={`Stop ${one.command}`} onClick={() => void stopProcess(one.process)}><StopIcon /> Stop</button>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Changes({ steps }: { steps: ChangedStep[] }) {
  const isBusy = view.value?.live != null;
  return (
    <section>
      <h3>Changed files</h3>
      {!steps.length && <p class="dim">No files changed.</p>}
      <ol class="changes">
        {[...steps].reverse().map((one) => (
          <li key={one.step}>
            <span class="dim">Step {one.step}</span>
            <ul>{filesIn([one]).map((path) => <li key={path}><code>{path}</code></li>)}</ul>
            {one.is_undone ? <span class="dim">Undone</span> : <button type="button" class="chip" disabled={isBusy} aria-label={`Undo step ${one.step} and later ones`} onClick={() => void undo(one.step)}><UndoIcon /> Undo</button>}
          </li>
        ))}
      </ol>
    </section>
  );
}

function filesIn(steps: ChangedStep[]): string[] {
  return [...new Set(steps.flatMap((one) => one.changes.map((change) => change.path)))];
}
