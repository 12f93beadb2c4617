// Whether the user trusts what the folder of a session brings: asked once for each folder, and again when it changes.
import { effect, signal } from "@preact/signals";
import { ApiError, request } from "../api/http";
import type { FolderTrustView } from "../api/types";
import { config, info, sessionId } from "./app";

/** The folder that the dialog asks about. */
export const folderTrust = signal<FolderTrustView | null>(null);

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
