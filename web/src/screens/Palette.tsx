// Ctrl K: search sessions, messages, documents and images; run actions.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request, mediaUrl } from "../api/http";
import type { SearchResult } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { SearchIcon } from "../parts/icons";
import { dialog, info, sessionDialog, sessionId, sessions, typedAhead } from "../state/app";
import { focusComposer } from "../state/composer";
import { toggle } from "../state/keys";
import { titleOf } from "../state/session_actions";
import { go, report } from "../state/sessions";
import { cycleTheme } from "../state/theme";
import { regenerate } from "../state/actions";
import { timeAgo, stripMarkdown } from "../state/format";

interface Choice {
  key: string;
  kind: string;
  label: string;
  note: string;
  thumb: string | null;
  act: () => unknown;
}

function actions(): Choice[] {
  const all: [string, string, () => unknown][] = [
    ["New session", "n", () => (go(""), focusComposer())],
    ["Choose a model", "m", () => (dialog.value = "models")],
    ["Session settings", "o", () => (dialog.value = "session")],
    ["Prompts", "", () => (dialog.value = "prompts")],
    ["Import conversations", "", () => (dialog.value = "import")],
    ["Usage and cost", "", () => (dialog.value = "usage")],
    ["Settings", "", () => (dialog.value = "settings")],
    ["Change appearance", "", cycleTheme],
    ["Keyboard shortcuts", "?", () => (dialog.value = "shortcuts")],
  ];
  if (sessionId.value) all.push(["Context inspector", "i", () => toggle("inspector")], ["Branches", "t", () => toggle("branches")], ["Activity", "", () => toggle("activity")], ["Compact the conversation", "", () => (dialog.value = "compact")], ["Regenerate answer", "", () => regenerate()]);
  const session = info.value;
  if (session) all.push(["Share or export", "", () => (sessionDialog.value = { kind: "share", session })], ["Folder and tags", "", () => (sessionDialog.value = { kind: "organize", session })]);
  return all.map(([label, note, act]) => ({ key: label, kind: "action", label, note, thumb: null, act }));
}

export function Palette() {
  const query = useSignal("");
  useEffect(() => void (query.value = typedAhead.value), []);
  const found = useSignal<SearchResult[]>([]);
  const at = useSignal(0);
  const words = query.value.trim().toLowerCase();
  useEffect(() => {
    at.value = 0;
    found.value = [];
    if (words.length < 2) return;
    const timer = setTimeout(() => {
      request<{ results: SearchResult[] }>(`/search?q=${encodeURIComponent(words)}&limit=12`).then(({ results }) => (found.value = results), report);
    }, 150);
    return () => clearTimeout(timer);
  }, [words]);
  const choices: Choice[] = [
    ...sessions.value.filter((one) => one.title.toLowerCase().includes(words)).slice(0, 6).map((one) => ({ key: one.id, kind: "session", label: one.title || "Untitled", note: timeAgo(one.updated_at, Date.now()), thumb: one.thumb, act: () => go(one.id) })),
    ...found.value.map((one, index) => ({ key: `${one.node}.${index}`, kind: one.where === "text" ? "message" : one.where, label: stripMarkdown(one.snippet), note: titleOf(one), thumb: one.media, act: () => go(one.session, one.node) })),
    ...actions().filter((one) => one.label.toLowerCase().includes(words)),
  ];
  const close = (): void => {
    dialog.value = "";
  };
  const take = (choice: Choice | undefined): void => {
    if (!choice) return;
    close();
    choice.act();
  };
  const walk = (event: KeyboardEvent): void => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) at.value = (at.value + by + choices.length) % Math.max(1, choices.length);
    else if (event.key === "Enter") take(choices[at.value]);
    else return;
    event.preventDefault();
    requestAnimationFrame(() => document.querySelector(".palette [aria-selected=true]")?.scrollIntoView({ block: "nearest" }));
  };
  return (
    <Dialog title="Search" kind="palette" isPlain onClose={close}>
      <div class="palette-inner">
        <div class="search">
          <SearchIcon />
          <input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-label="Search everything" aria-activedescendant={`choice-${at.value}`} placeholder="Search sessions, messages, files and actions" value={query.value} onKeyDown={walk} onInput={(event) => (query.value = event.currentTarget.value)} ref={(input) => input?.focus()} />
        </div>
        <ul id="palette-list" role="listbox" aria-label="Results">
          {choices.map((one, index) => (
            <li key={one.key} id={`choice-${index}`} role="option" aria-selected={index === at.value} onPointerMove={() => (at.value = index)} onClick={() => take(one)}>
              <span class="kind-word">{one.kind}</span>
              {one.thumb && <img src={mediaUrl(one.thumb, "thumb")} alt="" loading="lazy" />}
              <span class="clip">{one.label}</span>
              <span class="dim clip">{one.note}</span>
            </li>
          ))}
        </ul>
        {!choices.length && <p class="empty">No results</p>}
      </div>
    </Dialog>
  );
}
