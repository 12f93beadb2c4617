// Sessions by day, with search over words, pages and the text in pictures.
import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ask, mediaUrl } from "../api/http";
import type { SearchResult, SessionView } from "../api/shapes";
import { Dialog } from "../parts/Dialog";
import { DotsIcon, EditIcon, FileIcon, PlusIcon, SearchIcon, TrashIcon } from "../parts/icons";
import { Menu } from "../parts/Menu";
import { moreSessions, sessionId, sessions, sessionsLoaded, showsSessions } from "../state/app";
import { changeSession, go, loadMoreSessions, removeSession, report } from "../state/sessions";
import { ago, dayOf } from "../state/words";

export function SessionsPane() {
  const query = useSignal("");
  const found = useSignal<SearchResult[] | null>(null);
  const doomed = useSignal<SessionView | null>(null);
  useEffect(() => {
    if (!query.value.trim()) {
      found.value = null;
      return;
    }
    const timer = setTimeout(() => {
      ask<{ results: SearchResult[] }>(`/search?q=${encodeURIComponent(query.value)}&limit=20`).then(({ results }) => (found.value = results), report);
    }, 200);
    return () => clearTimeout(timer);
  }, [query.value]);
  const shown = useComputed(() => {
    const words = query.value.trim().toLowerCase();
    return words ? sessions.value.filter((one) => one.title.toLowerCase().includes(words)) : sessions.value;
  });
  return (
    <>
      {showsSessions.value && <div class="scrim only-narrow" onClick={() => (showsSessions.value = false)} />}
      <nav class="sessions" aria-label="Sessions">
        <div class="sessions-head">
          <div class="search">
            <SearchIcon />
            <input type="search" aria-label="Search sessions, pages and pictures" placeholder="Search" value={query.value} onInput={(event) => (query.value = event.currentTarget.value)} />
          </div>
          <button type="button" class="icon" aria-label="New session" title="New session (n)" onClick={() => go("")}>
            <PlusIcon />
          </button>
        </div>
        <div class="sessions-list">
          <Days sessions={shown.value} onDelete={(one) => (doomed.value = one)} />
          {found.value && <Results results={found.value} />}
          {sessionsLoaded.value && !sessions.value.length && <p class="empty">Your conversations will be listed here.</p>}
          {moreSessions.value && !query.value && (
            <button type="button" class="chip" onClick={() => void loadMoreSessions()}>Earlier sessions</button>
          )}
        </div>
      </nav>
      {doomed.value && <Doomed session={doomed.value} onClose={() => (doomed.value = null)} />}
    </>
  );
}

function Days({ sessions: list, onDelete }: { sessions: SessionView[]; onDelete: (one: SessionView) => void }) {
  const now = new Date();
  const days = new Map<string, SessionView[]>();
  for (const one of list) {
    const day = dayOf(one.updated_at, now);
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

const STATES = { idle: "", running: "answering", waiting: "needs your word", queued: "queued" };

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
          {session.thumb && <img src={mediaUrl(session.thumb, "thumb")} alt="" loading="lazy" decoding="async" />}
          <span class="session-words">
            <span class="clip">{title}</span>
            <span class="dim clip">
              {session.state !== "idle" ? <span class={`state ${session.state}`}>{STATES[session.state]}</span> : ago(session.updated_at, Date.now())}
              {session.snippet && ` · ${session.snippet}`}
            </span>
          </span>
        </a>
      )}
      <Menu
        label={`More about ${title}`}
        items={[
          { label: "Rename", icon: <EditIcon />, act: () => (isRenaming.value = true) },
          { label: "Export as Markdown", icon: <FileIcon />, act: () => location.assign(`/v1/sessions/${session.id}/export?format=md`) },
          { label: "Export with media", icon: <FileIcon />, act: () => location.assign(`/v1/sessions/${session.id}/export?format=zip`) },
          { label: "Delete", icon: <TrashIcon />, isGrave: true, act: onDelete },
        ]}
      >
        <DotsIcon />
      </Menu>
    </li>
  );
}

function Rename({ session, onDone }: { session: SessionView; onDone: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.select(), []);
  const keep = (): void => {
    const title = input.current?.value.trim();
    if (title && title !== session.title) changeSession(session.id, { title }).catch(report);
    onDone();
  };
  return (
    <form class="rename" onSubmit={(event) => (event.preventDefault(), keep())}>
      <input ref={input} aria-label="Title" defaultValue={session.title} onBlur={keep} onKeyDown={(event) => event.key === "Escape" && (event.preventDefault(), onDone())} />
    </form>
  );
}

function Results({ results }: { results: SearchResult[] }) {
  return (
    <section>
      <h2>SearchResult inside</h2>
      {!results.length && <p class="empty">Nothing but the titles above.</p>}
      <ul>
        {results.map((one, index) => (
          <li key={`${one.node}.${index}`} class="session found">
            <a href={`#/s/${one.session}`}>
              {one.media && <img src={mediaUrl(one.media, "thumb")} alt="" loading="lazy" />}
              <span class="session-words">
                <span class="clip">{one.title || "Untitled"}</span>
                <span class="dim snippet">{one.snippet}</span>
                <span class="dim">{{ text: "in a message", document: "in a document", picture: "in a picture" }[one.where]}</span>
              </span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Doomed({ session, onClose }: { session: SessionView; onClose: () => void }) {
  return (
    <Dialog title={`Delete “${session.title || "Untitled"}”?`} kind="small" onClose={onClose}>
      <p>The conversation and its branches go. Pictures that other sessions use stay.</p>
      <div class="buttons end">
        <button type="button" onClick={onClose}>Keep it</button>
        <button type="button" class="primary grave" onClick={() => (onClose(), removeSession(session.id).catch(report))}>Delete</button>
      </div>
    </Dialog>
  );
}
