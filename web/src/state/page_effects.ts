// What follows from the state of the page: the tab title, and asking about a folder.
import { effect } from "@preact/signals";
import { ApiError, request } from "../api/http";
import type { FolderTrustView } from "../api/types";
import { config, folderTrust, info, sessionId, view } from "./app";

export function watchTitle(): void {
  effect(() => {
    const pending = view.value?.approvals.length ?? 0;
    const title = sessionId.value ? `${info.value?.title || "Untitled"} · Loom` : "Loom";
    document.title = pending ? `(${pending}) ${title}` : title;
  });
}

/** Whether the user trusts what the folder of a session brings is asked once for each folder, and again when it changes. */
export function watchFolderTrust(): void {
  const seen = new Set<string>();
  effect(() => {
    const folder = sessionId.value ? info.value?.workspace : config.value?.workspace;
    if (!folder || seen.has(folder)) return;
    seen.add(folder);
    request<FolderTrustView>(`/trust?workspace=${encodeURIComponent(folder)}`).then(
      (found) => found.needs_decision && (folderTrust.value = found),
      (error: unknown) => {
        // Only administrators decide, and a folder that is gone brings nothing.
        if (error instanceof ApiError && error.isOffline) seen.delete(folder);
        else if (!(error instanceof ApiError)) throw error;
      },
    );
  });
}
