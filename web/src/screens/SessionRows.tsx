// Rename, delete, organize and share a session; search results inside sessions.
import { useEffect, useRef } from "preact/hooks";
import { mediaUrl } from "../api/http";
import type { SearchResult, SessionView } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { ArchiveIcon, EditIcon, FolderIcon } from "../parts/icons";
import { PinIcon, ShareIcon, TrashIcon } from "../parts/rare_icons";
import type { Item } from "../parts/Menu";
import { sessionDialog } from "../state/app";
import { changeSession, removeSession, titleOf } from "../state/session_actions";
import { addressOf, report } from "../state/sessions";
import { stripMarkdown } from "../state/format";
import { Organize } from "./Organize";
import { Share } from "./Share";

/** The menu of a row. */
export function sessionActions(session: SessionView, onRename: () => void): Item[] {
  return [
    { label: "Rename", icon: <EditIcon />, act: onRename },
    { label: session.pinned ? "Unpin" : "Pin", icon: <PinIcon />, act: () => changeSession(session.id, { pinned: !session.pinned }).catch(report) },
    { label: "Folder and tags", icon: <FolderIcon />, act: () => (sessionDialog.value = { kind: "organize", session }) },
    { label: "Share or export", icon: <ShareIcon />, act: () => (sessionDialog.value = { kind: "share", session }) },
    { label: session.archived ? "Unarchive" : "Archive", icon: <ArchiveIcon />, act: () => changeSession(session.id, { archived: !session.archived }).catch(report) },
    { label: "Delete", icon: <TrashIcon />, isDanger: true, act: () => (sessionDialog.value = { kind: "delete", session }) },
  ];
}

export function SessionDialog() {
  const shown = sessionDialog.value;
  const close = (): void => {
    sessionDialog.value = null;
  };
  if (!shown) return null;
  const Shown = { delete: ConfirmDelete, share: Share, organize: Organize }[shown.kind];
  return <Shown session={shown.session} onClose={close} />;
}

export function Rename({ session, onDone }: { session: SessionView; onDone: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.select(), []);
  const save = (): void => {
    const title = input.current?.value.trim();
    if (title && title !== session.title) changeSession(session.id, { title }).catch(report);
    onDone();
  };
  return (
    <form class="rename" onSubmit={(event) => (event.preventDefault(), save())}>
      <input ref={input} aria-label="Title" defaultValue={session.title} onBlur={save} onKeyDown={(event) => event.key === "Escape" && (event.preventDefault(), onDone())} />
    </form>
  );
}

export function Results({ results }: { results: SearchResult[] }) {
  return (
    <section>
      <h2>Results</h2>
      {!results.length && <p class="empty">No results in messages or files.</p>}
      <ul>
        {results.map((one, index) => (
          <li key={`${one.node}.${index}`} class="session found">
            <a href={addressOf(one.session, one.node)}>
              {one.media && <img src={mediaUrl(one.media, "thumb")} alt="" loading="lazy" />}
              <span class="session-words">
                <span class="clip">{titleOf(one)}</span>
                <span class="dim snippet">{stripMarkdown(one.snippet)}</span>
                <span class="dim">{{ text: "in a message", document: "in a document", picture: "in an image" }[one.where]}</span>
              </span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function ConfirmDelete({ session, onClose }: { session: SessionView; onClose: () => void }) {
  return (
    <Dialog title={`Delete “${session.title || "Untitled"}”?`} kind="small" onClose={onClose}>
      <p>This deletes the conversation with all branches. Files that other sessions use are kept.</p>
      <div class="buttons end">
        <button type="button" onClick={onClose}>Cancel</button>
        <button type="button" class="primary danger" onClick={() => (onClose(), removeSession(session.id).catch(report))}>Delete</button>
      </div>
    </Dialog>
  );
}
