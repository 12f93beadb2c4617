// What a row of the list becomes when something is done to it, and what a search found inside sessions.
import { useEffect, useRef } from "preact/hooks";
import { mediaUrl } from "../api/http";
import type { SearchResult, SessionView } from "../api/shapes";
import { Dialog } from "../parts/Dialog";
import { addressOf, changeSession, removeSession, report, titleOf } from "../state/sessions";
import { unmarked } from "../state/words";

export function Rename({ session, onDone }: { session: SessionView; onDone: () => void }) {
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

export function Results({ results }: { results: SearchResult[] }) {
  return (
    <section>
      <h2>Found inside</h2>
      {!results.length && <p class="empty">Nothing but the titles above.</p>}
      <ul>
        {results.map((one, index) => (
          <li key={`${one.node}.${index}`} class="session found">
            <a href={addressOf(one.session, one.node)}>
              {one.media && <img src={mediaUrl(one.media, "thumb")} alt="" loading="lazy" />}
              <span class="session-words">
                <span class="clip">{titleOf(one)}</span>
                <span class="dim snippet">{unmarked(one.snippet)}</span>
                <span class="dim">{{ text: "in a message", document: "in a document", picture: "in a picture" }[one.where]}</span>
              </span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Doomed({ session, onClose }: { session: SessionView; onClose: () => void }) {
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
