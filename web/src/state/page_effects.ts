// What follows from the state of the page: the tab title, and comparing answers.
import { effect } from "@preact/signals";
import { compared, comparesAnswers, info, MAX_COMPARED, sessionId, turns, view } from "./app";

export function watchTitle(): void {
  effect(() => {
    const pending = view.value?.approvals.length ?? 0;
    const title = sessionId.value ? `${info.value?.title || "Untitled"} · Loom` : "Loom";
    document.title = pending ? `(${pending}) ${title}` : title;
  });
}

/** When the last of several models has answered, show the answers side by side. */
export function watchComparison(): void {
  effect(() => {
    const seen = view.value;
    const last = turns.value.at(-1);
    if (!seen || comparesAnswers.value !== seen.session || seen.live || seen.queue.length || !last?.forked) return;
    const { siblings } = last.forked;
    if (siblings.length < 2) return;
    comparesAnswers.value = "";
    compared.value = siblings.slice(-MAX_COMPARED);
  });
}
