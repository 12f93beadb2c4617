// Confirm that the conversation is replaced by a summary, with the price.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Estimate } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { dialog, model } from "../state/app";
import { discardText, estimateText } from "../state/estimate_text";
import { shortModel } from "../state/format";
import { planFor } from "../state/plan";
import { compact } from "../state/session_actions";
import { report } from "../state/sessions";

const close = (): void => {
  dialog.value = "";
};

export function Compact() {
  const found = useSignal<Estimate | null | undefined>(undefined);
  useEffect(() => {
    const stop = new AbortController();
    planFor([model.value], { compact: true, limit: 1 }, stop.signal).then(
      (plan) => (found.value = plan.models[model.value]?.estimate ?? null),
      (error: unknown) => error instanceof DOMException || report(error),
    );
    return () => stop.abort();
  }, []);
  const discards = discardText(found.value);
  return (
    <Dialog title="Compact the conversation" kind="narrow" onClose={close}>
      <p>{shortModel(model.value)} writes a summary, and the conversation continues from it. All messages stay as a branch.</p>
      <p aria-live="polite">{found.value ? `Request: ${estimateText(found.value)}` : found.value === null ? "" : "Loading…"}</p>
      {discards && <p class="notice">{discards}</p>}
      <div class="buttons end">
        <button type="button" onClick={close}>Cancel</button>
        <button type="button" class="primary" onClick={() => (close(), void compact())}>Compact</button>
      </div>
    </Dialog>
  );
}
