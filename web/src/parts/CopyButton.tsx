// Copy text to the clipboard, also over plain http, where the clipboard API is missing.
import { useState } from "preact/hooks";
import { announce } from "../state/app";
import { CheckIcon, CopyIcon, WarnIcon } from "./icons";

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [state, setState] = useState<"" | "done" | "failed">("");
  const copy = async (): Promise<void> => {
    const isDone = await copyText(text);
    setState(isDone ? "done" : "failed");
    setTimeout(() => setState(""), 2000);
  };
  const words = state === "done" ? "Copied" : state === "failed" ? "Copy failed" : label;
  return (
    <button type="button" class="icon" aria-label={words} title={words} onClick={() => void copy()}>
      {state === "done" ? <CheckIcon /> : state === "failed" ? <WarnIcon /> : <CopyIcon />}
    </button>
  );
}

/** Copy and announce the result. Return false if the browser refuses. */
export async function copyText(text: string, words = "Copied"): Promise<boolean> {
  const isDone = (await writeClipboard(text)) || copyBySelection(text);
  announce(isDone ? words : "Copy failed: the browser does not allow it here");
  return isDone;
}

async function writeClipboard(text: string): Promise<boolean> {
  if (!isSecureContext || !navigator.clipboard) return false;
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No permission: the older way may still work.
    return false;
  }
}

/** `execCommand` is deprecated, and the only way on a page without a secure context. */
function copyBySelection(text: string): boolean {
  const before = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.readOnly = true;
  area.className = "visually-hidden";
  // Inside an open dialog everything else is inert and cannot be selected.
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  return isDone;
}
