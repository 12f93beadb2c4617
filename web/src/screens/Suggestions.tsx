// `@` names files of the workspace, `/` names what can be done.
import { useEffect, useState } from "preact/hooks";
import { ask } from "../api/http";
import { dialog, sessionId, view } from "../state/app";
import { mentioned, text } from "../state/composer";
import { editLast, toggle } from "../state/keys";
import { go, report } from "../state/sessions";
import { again, fork, stop } from "../state/turn";
import { cycleTheme } from "../state/theme";

export interface Suggested {
  label: string;
  note: string;
  take: () => void;
}

interface Suggesting {
  items: Suggested[];
  at: number;
  onKey: (event: KeyboardEvent, accept: (item: Suggested) => void) => boolean;
  accept: (item: Suggested) => void;
}

const COMMANDS: [string, string, () => unknown][] = [
  ["new", "a new session", () => go("")],
  ["model", "whom to ask; what it would not see", () => (dialog.value = "models")],
  ["context", "what the next request carries", () => toggle("inspector")],
  ["tree", "branches of this session", () => toggle("forest")],
  ["retry", "answer again", () => again()],
  ["edit", "edit the last message", () => editLast()],
  ["fork", "go on in a new session", () => fork()],
  ["stop", "stop the answer", () => stop()],
  ["export", "as Markdown", () => location.assign(`/v1/sessions/${sessionId.value}/export?format=md`)],
  ["search", "find anything", () => (dialog.value = "palette")],
  ["settings", "keys, models, limits", () => (dialog.value = "settings")],
  ["theme", "light, dark or the system's", () => cycleTheme()],
  ["help", "every key", () => (dialog.value = "shortcuts")],
];

export function useSuggestions(cursor: number): Suggesting {
  const [files, setFiles] = useState<string[]>([]);
  const [at, setAt] = useState(0);
  const [hidden, setHidden] = useState("");
  const before = text.value.slice(0, cursor);
  const mention = /(?:^|\s)@([\w./-]*)$/.exec(before)?.[1];
  const command = /^\/(\w*)$/.exec(text.value)?.[1];

  useEffect(() => {
    setAt(0);
    if (mention === undefined || !view.value) return setFiles([]);
    const timer = setTimeout(() => {
      ask<{ files: string[] }>(`/sessions/${sessionId.value}/files?q=${encodeURIComponent(mention)}`).then((found) => setFiles(found.files.slice(0, 8)), report);
    }, 100);
    return () => clearTimeout(timer);
  }, [mention, command]);

  const put = (path: string): void => {
    const start = cursor - (mention?.length ?? 0);
    text.value = `${text.value.slice(0, start)}${path} ${text.value.slice(cursor)}`;
    mentioned.value = [...new Set([...mentioned.value, path])];
  };
  const items: Suggested[] =
    hidden === before && before ? []
    : command !== undefined ? COMMANDS.filter(([name]) => name.startsWith(command)).map(([name, note, act]) => ({ label: `/${name}`, note, take: () => ((text.value = ""), act()) }))
    : mention !== undefined ? files.map((path) => ({ label: path, note: "", take: () => put(path) }))
    : [];

  const onKey = (event: KeyboardEvent, accept: (item: Suggested) => void): boolean => {
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
  return { items, at, onKey, accept: (item) => item.take() };
}

export function Suggestions({ suggested, onAccept }: { suggested: Suggesting; onAccept: (item: Suggested) => void }) {
  return (
    <ul id="suggestions" class="suggestions" role="listbox" aria-label="Suggestions" hidden={!suggested.items.length}>
      {suggested.items.map((item, index) => (
        <li key={item.label} id={`suggestion-${index}`} role="option" aria-selected={index === suggested.at} onPointerDown={(event) => (event.preventDefault(), onAccept(item))}>
          <span>{item.label}</span>
          <span class="dim">{item.note}</span>
        </li>
      ))}
    </ul>
  );
}
