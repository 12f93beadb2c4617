// Sessions by day, with search in messages, documents and image text.
import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request, mediaUrl } from "../api/http";
import type { SearchResult, SessionView } from "../api/types";
import { ArchiveIcon, DotsIcon, EditIcon, FileIcon, PlusIcon, SearchIcon, TrashIcon, WordsIcon } from "../parts/icons";
import { lazy } from "../parts/components";
import { Menu } from "../parts/Menu";
import { moreSessions, sessionId, sessions, sessionsLoaded, showsSessions } from "../state/app";
import { changeSession, go, loadArchived, loadMoreSessions, report } from "../state/sessions";
import { timeAgo, dayLabel, stripMarkdown } from "../state/format";

const Rename = lazy(() => import("./deferred").then((found) => found.Rename));
const Results = lazy(() => import("./deferred").then((found) => found.Results));
const ConfirmDelete = lazy(() => import("./deferred").then((found) => found.ConfirmDelete));

export function SessionsPane() {
  const query = useSignal("");
  const found = useSignal<SearchResult[] | null>(null);
  const deleting = useSignal<SessionView | null>(null);
  const showsArchived = useSignal(false);
  const toggleArchived = (): void => {
    showsArchived.value = !showsArchived.value;
    if (showsArchived.value) loadArchived().catch(report);
  };
  useEffect(() => {
    if (!query.value.trim()) {
      found.value = null;
      return;
    }
    const timer = setTimeout(() => {
      request<{ results: SearchResult[] }>(`/search?q=${encodeURIComponent(query.value)}&limit=20`).then(({ results }) => (found.value = results), report);
    }, 200);
    return () => clearTimeout(timer);
  }, [query.value]);
  const shown = useComputed(() => {
    const words = query.value.trim().toLowerCase();
    const kept = sessions.value.filter((one) => one.archived === showsArchived.value);
    return words ? kept.filter((one) => one.title.toLowerCase().includes(words)) : kept;
  });
  return (
    <>
      {showsSessions.value && <div class="scrim only-narrow" onClick={() => (showsSessions.value = false)} />}
      <nav class="sessions" aria-label="Sessions">
        <div class="sessions-head">
          <div class="search">
            <SearchIcon />
            <input type="search" aria-label="Search sessions and files" placeholder="Search" value={query.value} onInput={(event) => (query.value = event.currentTarget.value)} />
          </div>
          <button type="button" class="icon" aria-label="New session" title="New session (n)" onClick={() => go("")}>
            <PlusIcon />
          </button>
        </div>
        <div class="sessions-list">
          <Days sessions={shown.value} onDelete={(one) => (deleting.value = one)} />
          {found.value && <Results results={found.value} />}
          {sessionsLoaded.value && !sessions.value.length && <p class="empty">No sessions yet</p>}
          {showsArchived.value && !shown.value.length && <p class="empty">No archived sessions</p>}
          {moreSessions.value && !query.value && !showsArchived.value && (
            <button type="button" class="chip" onClick={() => void loadMoreSessions()}>Show older sessions</button>
          )}
        </div>
        <div class="sessions-foot">
          <button type="button" class="chip" aria-pressed={showsArchived.value} onClick={toggleArchived}><ArchiveIcon /> Archived</button>
        </div>
      </nav>
      {deleting.value && <ConfirmDelete session={deleting.value} onClose={() => (deleting.value = null)} />}
    </>
  );
}

function Days({ sessions: list, onDelete }: { sessions: SessionView[]; onDelete: (one: SessionView) => void }) {
  const now = new Date();
  const days = new Map<string, SessionView[]>();
  for (const one of list) {
    const day = dayLabel(one.updated_at, now);
    days.set(day, [...(days.get(day) ?? []), one]);
  }
  return (
    <>
      {[...days].map(([day, ones]) => (
        <section key={day}>
          <h2>{day}</h2>
          <ul>
            {ones.map((one) => (
              <SessionRow key={one.id} session={one} onDelete={() => onDelete(one)} />
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}

const STATES = { idle: "", running: "Answering", waiting: "Approval pending", queued: "Queued" };

function SessionRow({ session, onDelete }: { session: SessionView; onDelete: () => void }) {
  const isRenaming = useSignal(false);
  const isHere = sessionId.value === session.id;
  const title = session.title || "Untitled";
  return (
    <li class={`session${isHere ? " here" : ""}`}>
      {isRenaming.value ? (
        <Rename session={session} onDone={() => (isRenaming.value = false)} />
      ) : (
        <a href={`#/s/${session.id}`} aria-current={isHere ? "page" : undefined}>
          {session.thumb ? <img src={mediaUrl(session.thumb, "thumb")} alt="" loading="lazy" decoding="async" /> : <span class="no-thumb"><WordsIcon /></span>}
          <span class="session-text">
            <span class="clip">{title}</span>
            <span class="dim clip">
              {session.state !== "idle" ? <span class={`state ${session.state}`}>{STATES[session.state]}</span> : timeAgo(session.updated_at, Date.now())}
              {session.snippet && ` · ${stripMarkdown(session.snippet)}`}
            </span>
          </span>
        </a>
      )}
      <Menu
        label={`Actions for ${title}`}
        items={[
          { label: "Rename", icon: <EditIcon />, act: () => (isRenaming.value = true) },
          { label: "Export as Markdown", icon: <FileIcon />, act: () => location.assign(`/v1/sessions/${session.id}/export?format=md`) },
          { label: "Export with media", icon: <FileIcon />, act: () => location.assign(`/v1/sessions/${session.id}/export?format=zip`) },
          { label: session.archived ? "Unarchive" : "Archive", icon: <ArchiveIcon />, act: () => changeSession(session.id, { archived: !session.archived }).catch(report) },
          { label: "Delete", icon: <TrashIcon />, isDanger: true, act: onDelete },
        ]}
      >
        <DotsIcon />
      </Menu>
    </li>
  );
}
