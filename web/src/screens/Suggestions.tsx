// `@` suggests workspace files, `/` suggests commands.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { request } from "../api/http";
import type { CommandView, PromptView } from "../api/types";
import { dialog, info, panel, sessionDialog, sessionId, view } from "../state/app";
import { COMMAND, mentioned, submit, text } from "../state/composer";
import { editLast, openPalette, toggle } from "../state/keys";
import { go, report } from "../state/sessions";
import { regenerate, stop } from "../state/actions";
import { forkSession } from "../state/session_actions";
import { loadPrompts, prompts, startPrompt } from "../state/prompts";
import { cycleTheme } from "../state/theme";

interface Suggestion {
  label: string;
  note: string;
  take: () => void;
}

/** What the message box needs from the list: it has the keyboard. */
export interface SuggestionHandle {
  onKey: (event: KeyboardEvent) => boolean;
}

interface Props {
  cursor: number;
  handle: { current: SuggestionHandle | null };
  onAccept: () => void;
}

const COMMANDS: [string, string, () => unknown][] = [
  ["new", "New session", () => go("")],
  ["model", "Choose a model", () => (dialog.value = "models")],
  ["context", "Context of the next request", () => toggle("inspector")],
  ["tree", "Branches of this session", () => toggle("branches")],
  ["retry", "Regenerate the answer", () => regenerate()],
  ["edit", "Edit the last message", () => editLast()],
  ["session", "Thinking, agent, tools, system prompt", () => (dialog.value = "session")],
  ["compact", "Replace a long conversation by a summary", () => (dialog.value = "compact")],
  ["activity", "Todos, processes and file changes", () => (panel.value = "activity")],
  ["usage", "Tokens and cost", () => (dialog.value = "usage")],
  ["fork", "Fork into a new session", () => forkSession()],
  ["stop", "Stop the answer", () => stop()],
  ["share", "Share or export this session", () => info.value && (sessionDialog.value = { kind: "share", session: info.value })],
  ["import", "Import conversations from a file", () => (dialog.value = "import")],
  ["prompts", "Saved prompts", () => (dialog.value = "prompts")],
  ["search", "Search", openPalette],
  ["settings", "API keys, models, limits", () => (dialog.value = "settings")],
  ["theme", "Light, dark or system", () => cycleTheme()],
  ["help", "Keyboard shortcuts", () => (dialog.value = "shortcuts")],
];

/** Slash commands of the user, by name; null until a message starts with a slash. */
const ownCommands = signal<Record<string, CommandView> | null>(null);

async function loadOwnCommands(): Promise<void> {
  const found = await request<{ commands: CommandView[] }>(`/commands?workspace=${encodeURIComponent(info.value?.workspace ?? "")}`).catch(report);
  if (found) ownCommands.value = Object.fromEntries(found.commands.map((one) => [one.name, one]));
}

/** Commands of the user: the rest of the line becomes their argument. Loom's own win over them. */
function ownItems(start: string): Suggestion[] {
  const taken = new Set(COMMANDS.map(([name]) => name));
  const found = Object.values(ownCommands.value ?? {}).filter((one) => one.name.startsWith(start) && !taken.has(one.name));
  const commands = found.map((one) => ({ label: `/${one.name}`, note: one.description || "Your command", take: () => (text.value = `/${one.name} `) }));
  const saved = prompts.value.filter((one) => one.name.startsWith(start) && !taken.has(one.name) && !ownCommands.value?.[one.name]);
  return [...commands, ...saved.map((one) => ({ label: `/${one.name}`, note: "Saved prompt", take: () => takePrompt(one) }))];
}

function takePrompt(prompt: PromptView): void {
  text.value = "";
  startPrompt(prompt);
}

function commandItems(start: string): Suggestion[] {
  const found = COMMANDS.filter(([name]) => name.startsWith(start));
  return [...found.map(([name, note, act]) => ({ label: `/${name}`, note, take: () => ((text.value = ""), act()) })), ...ownItems(start)];
}

/** Enter came before the list was shown: take its first command, which is not a message to the model. */
export async function takeCommand(asked: string, onAccept: () => void): Promise<void> {
  if (!ownCommands.value) await loadOwnCommands();
  if (text.value !== asked) return;
  const [first] = commandItems(asked.slice(1));
  if (!first) return submit();
  first.take();
  onAccept();
}

export function Suggestions({ cursor, handle, onAccept }: Props) {
  const [files, setFiles] = useState<string[]>([]);
  const [at, setAt] = useState(0);
  const [hidden, setHidden] = useState("");
  const before = text.value.slice(0, cursor);
  const mention = /(?:^|\s)@([\w./-]*)$/.exec(before)?.[1];
  const command = COMMAND.exec(text.value)?.[1];
  const isCommand = command !== undefined;
  useEffect(() => {
    if (!isCommand) return;
    void loadOwnCommands();
    loadPrompts().catch(report);
  }, [isCommand, info.value?.workspace]);

  useEffect(() => {
    setAt(0);
    if (mention === undefined || !view.value) return setFiles([]);
    const timer = setTimeout(() => {
      request<{ files: string[] }>(`/sessions/${sessionId.value}/files?q=${encodeURIComponent(mention)}`).then((found) => setFiles(found.files.slice(0, 8)), report);
    }, 100);
    return () => clearTimeout(timer);
  }, [mention, command]);

  const put = (path: string): void => {
    const start = cursor - (mention?.length ?? 0);
    text.value = `${text.value.slice(0, start)}${path} ${text.value.slice(cursor)}`;
    mentioned.value = [...new Set([...mentioned.value, path])];
  };
  const items: Suggestion[] =
    hidden === before && before ? []
    : command !== undefined ? commandItems(command)
    : mention !== undefined ? files.map((path) => ({ label: path, note: "", take: () => put(path) }))
    : [];

  const accept = (item: Suggestion): void => {
    item.take();
    onAccept();
  };
  const onKey = (event: KeyboardEvent): boolean => {
    if (!items.length) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const chosen = items[Math.min(at, items.length - 1)];
    if (step) setAt((at + step + items.length) % items.length);
    else if ((event.key === "Enter" || event.key === "Tab") && chosen) accept(chosen);
    else if (event.key === "Escape") setHidden(before);
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  };
  handle.current = { onKey };
  useEffect(() => {
    // Only while the list exists: an id that is not in the page is no reference.
    const box = document.querySelector("#message");
    box?.setAttribute("aria-controls", "suggestions");
    return () => {
      handle.current = null;
      box?.removeAttribute("aria-controls");
    };
  }, []);
  useEffect(() => {
    const box = document.querySelector("#message");
    if (items.length) box?.setAttribute("aria-activedescendant", `suggestion-${at}`);
    return () => box?.removeAttribute("aria-activedescendant");
  }, [items.length, at]);
  return (
    <ul id="suggestions" class="suggestions" role="listbox" aria-label="Suggestions" hidden={!items.length}>
      {items.map((item, index) => (
        <li key={item.label} id={`suggestion-${index}`} role="option" aria-selected={index === at} onPointerDown={(event) => (event.preventDefault(), accept(item))}>
          <span>{item.label}</span>
          <span class="dim">{item.note}</span>
        </li>
      ))}
    </ul>
  );
}
