// Sessions by day, with search in messages, documents and image text.
import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request, mediaUrl } from "../api/http";
import type { SearchResult, SessionView } from "../api/types";
import { ArchiveIcon, CloseIcon, DotsIcon, FolderIcon, PlusIcon, SearchIcon, WordsIcon } from "../parts/icons";
import { deferred } from "../parts/components";
import { Menu } from "../parts/Menu";
import { type Dialog, dialog, listFilter, moreSessions, sessionDialog, sessionId, sessions, sessionsLoaded, showsSessions } from "../state/app";
import { go, report } from "../state/sessions";
import { timeAgo, dayLabel, stripMarkdown } from "../state/format";

const Rename = deferred((found) => found.Rename);
const Results = deferred((found) => found.Results);
const Folders = deferred((found) => found.Folders);
const SessionDialog = deferred((found) => found.SessionDialog);
const ARCHIVED = { label: "Archived", query: "archived=true", matches: (one: SessionView): boolean => one.archived };

const MORE: [string, Dialog][] = [["Prompts", "prompts"], ["Import conversations", "import"], ["Usage and cost", "usage"]];

export function SessionsPane() {
  const query = useSignal("");
  const found = useSignal<SearchResult[] | null>(null);
  const showsFolders = useSignal(false);
  const filter = listFilter.value;
  const showsArchived = filter?.query === ARCHIVED.query;
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
    const kept = sessions.value.filter(listFilter.value?.matches ?? ((one) => !one.archived));
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
          {showsFolders.value && <Folders />}
          {filter && (
            <p class="filter">
              <span class="clip">{filter.label}</span>
              <button type="button" class="icon" aria-label="Show all sessions" title="Show all sessions" onClick={() => (listFilter.value = null)}><CloseIcon /></button>
            </p>
          )}
          <Days sessions={shown.value} />
          {found.value && <Results results={found.value} />}
          {sessionsLoaded.value && !sessions.value.length && <p class="empty">No sessions yet</p>}
          {filter && !shown.value.length && <p class="empty">{showsArchived ? "No archived sessions" : "No sessions here"}</p>}
          {(filter ? filter.next : moreSessions.value) && !query.value && (
            <button type="button" class="chip" onClick={() => void import("./deferred").then(({ loadMoreSessions }) => loadMoreSessions()).catch(report)}>Show older sessions</button>
          )}
        </div>
        <div class="sessions-foot">
          <button type="button" class="chip" aria-pressed={showsFolders.value} onClick={() => (showsFolders.value = !showsFolders.value)}><FolderIcon /> Folders</button>
          <button type="button" class="chip" aria-pressed={showsArchived} onClick={() => void import("./deferred").then(({ chooseList }) => chooseList(showsArchived ? null : ARCHIVED)).catch(report)}><ArchiveIcon /> Archived</button>
          <Menu
            label="More"
            items={MORE.map(([label, name]) => ({
              label,
              act: () => {
                showsSessions.value = false;
                dialog.value = name;
              },
            }))}
          >
            <DotsIcon />
          </Menu>
        </div>
      </nav>
      {sessionDialog.value && <SessionDialog />}
    </>
  );
}

function Days({ sessions: list }: { sessions: SessionView[] }) {
  const now = new Date();
  const days = new Map<string, SessionView[]>();
  for (const one of [...list.filter((one) => one.pinned), ...list.filter((one) => !one.pinned)]) {
    const day = one.pinned ? "Pinned" : dayLabel(one.updated_at, now);
    days.set(day, [...(days.get(day) ?? []), one]);
  }
  return (
    <>
      {[...days].map(([day, ones]) => (
        <section key={day}>
          <h2>{day}</h2>
          <ul>
            {ones.map((one) => (
              <SessionRow key={one.id} session={one} />
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}

const STATES = { idle: "", running: "Answering", waiting: "Approval pending", queued: "Queued" };

function SessionRow({ session }: { session: SessionView }) {
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
              {session.tags?.map((tag) => ` #${tag}`)}
              {session.snippet && ` · ${stripMarkdown(session.snippet)}`}
            </span>
          </span>
        </a>
      )}
      <Menu
        label={`Actions for ${title}`}
        items={() => import("./deferred").then(({ sessionActions }) => sessionActions(session, () => (isRenaming.value = true)))}
      >
        <DotsIcon />
      </Menu>
    </li>
  );
}
