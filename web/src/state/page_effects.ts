// What follows from the state of the page: the tab title and the number of branches.
import { effect, signal } from "@preact/signals";
import { request } from "../api/http";
import type { Tree } from "../api/types";
import { compared, comparesAnswers, info, MAX_COMPARED, sessionId, turns, view } from "./app";
import { leaves } from "./branches";

/** Leaves of the message tree of the open session: the number that the Branches panel shows. */
export const branchCount = signal(1);

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

const SETTLE_MS = 400;

export function watchBranches(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  effect(() => {
    const id = sessionId.value;
    const seen = view.value;
    clearTimeout(timer);
    // Read so that the effect runs again when they change.
    void [seen?.head, seen?.live === null];
    const hasForks = turns.value.some((turn) => [turn.user, turn.forked].some((one) => (one?.siblings.length ?? 0) > 1));
    // Without forks in view, other branches can only start at messages that are not loaded.
    if (!id || !seen || (!hasForks && !seen.more)) {
      branchCount.value = 1;
      return;
    }
    timer = setTimeout(() => {
      request<Tree>(`/sessions/${id}/tree`).then(
        (tree) => {
          if (sessionId.value === id) branchCount.value = leaves(tree).length;
        },
        () => undefined, // offline: the old number stays
      );
    }, SETTLE_MS);
  });
}
