// Global keyboard shortcuts. Single letters work only outside text fields.
import { dialog, isBusy, panel, sessionId, showsSessions, turns, typedAhead } from "./app";
import { cancelScheduled, edit, editing, focusComposer, scheduled, stopEditing, text } from "./composer";
import { lightbox } from "./images";
import { go } from "./sessions";
import { stop } from "./actions";

export function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || lightbox.value) return;
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, textarea, select, [contenteditable]");
  const withControl = event.ctrlKey || event.metaKey;
  if (withControl && event.key.toLowerCase() === "k") return act(event, openPalette);
  if (dialog.value) return;
  if (event.key === "Escape") return escape(event);
  if (isTyping || withControl || event.altKey) return;
  const action = LETTERS[event.key];
  if (action) act(event, action);
}

const LETTERS: Record<string, () => unknown> = {
  "/": focusComposer,
  "?": () => (dialog.value = "shortcuts"),
  i: () => toggle("inspector"),
  t: () => toggle("branches"),
  m: () => (dialog.value = "models"),
  o: () => (dialog.value = "session"),
  n: () => (go(""), focusComposer()),
  s: () => (showsSessions.value = !showsSessions.value),
  e: editLast,
  "[": () => step(-1),
  "]": () => step(1),
};

/** Open the search. What is typed while its code is being loaded belongs to it, not to the message. */
export function openPalette(): void {
  dialog.value = "palette";
  typedAhead.value = "";
  const waiting = new AbortController();
  const take = (event: KeyboardEvent): void => {
    if (dialog.value !== "palette" || document.querySelector("dialog[open]")) return waiting.abort();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") dialog.value = "";
    else if (event.key === "Backspace") typedAhead.value = typedAhead.value.slice(0, -1);
    else if (event.key.length === 1) typedAhead.value += event.key;
    event.preventDefault();
    event.stopPropagation();
  };
  addEventListener("keydown", take, { capture: true, signal: waiting.signal });
}

function act(event: KeyboardEvent, action: () => unknown): void {
  event.preventDefault();
  action();
}

export function toggle(which: "inspector" | "branches" | "activity"): void {
  if (sessionId.value) panel.value = panel.value === which ? "" : which;
}

function escape(event: KeyboardEvent): void {
  if (document.querySelector(":popover-open")) return;
  if (scheduled.value) act(event, cancelScheduled);
  else if (editing.value) act(event, stopEditing);
  else if (isBusy.value) act(event, () => void stop());
  else if (showsSessions.value) act(event, () => (showsSessions.value = false));
  else if (panel.value) act(event, () => (panel.value = ""));
}

export function editLast(): void {
  const last = turns.value.findLast((turn) => turn.user)?.user;
  if (last && !text.value) edit(last);
}

/** `[` and `]`: switch versions of the last message that has several. */
function step(by: number): void {
  for (const turn of [...turns.value].reverse()) {
    for (const message of [turn.forked, turn.user]) {
      const siblings = message?.siblings ?? [];
      if (!message || siblings.length < 2) continue;
      const next = siblings[(siblings.indexOf(message.node) + by + siblings.length) % siblings.length];
      if (next) void import("../screens/deferred").then(({ showSibling }) => showSibling(next));
      return;
    }
  }
}
