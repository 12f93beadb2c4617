// Which sessions the list shows: older ones, a folder, a tag, the archive.
import { batch } from "@preact/signals";
import { request } from "../api/http";
import type { SessionPage } from "../api/types";
import { listFilter, type ListFilter, moreSessions } from "./app";
import { mergeSessions } from "./sessions";

export async function loadMoreSessions(): Promise<void> {
  const filter = listFilter.value;
  const before = filter ? filter.next : moreSessions.value;
  if (!before) return;
  const found = await request<SessionPage>(`/sessions?limit=60&${filter?.query ?? ""}&before=${encodeURIComponent(before)}`);
  batch(() => {
    mergeSessions(found.sessions);
    if (!filter) moreSessions.value = found.next;
    else if (listFilter.value === filter) listFilter.value = { ...filter, next: found.next };
  });
}

/** Show the sessions of a filter, or all of them. */
export async function chooseList(filter: Omit<ListFilter, "next"> | null): Promise<void> {
  listFilter.value = filter && { ...filter, next: null };
  if (!filter) return;
  const found = await request<SessionPage>(`/sessions?limit=60&${filter.query}`);
  batch(() => {
    mergeSessions(found.sessions);
    if (listFilter.value?.query === filter.query) listFilter.value = { ...filter, next: found.next };
  });
}
