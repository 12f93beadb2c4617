// Folders and tags: which sessions the list shows, and where a session belongs.
import { useSignal } from "@preact/signals";
import { useEffect, useId } from "preact/hooks";
import { ApiError, request } from "../api/http";
import type { FolderList, SessionView } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { Field } from "../parts/Field";
import { announce, listFilter, sessions } from "../state/app";
import { chooseList } from "../state/lists";
import { changeSession } from "../state/session_actions";
import { report } from "../state/sessions";

const NONE: FolderList = { folders: {}, tags: {} };

/** The folders and tags that exist; read again when a session changes its place. */
function useFolders(): FolderList {
  const found = useSignal(NONE);
  const places = sessions.value.map((one) => `${one.folder}\n${one.tags?.join()}\n${one.archived}`).join("\t");
  useEffect(() => void request<FolderList>("/folders").then((list) => (found.value = list), report), [places]);
  return found.value;
}

export function Folders() {
  const { folders, tags } = useFolders();
  const choose = (label: string, query: string, matches: (one: SessionView) => boolean): void => {
    const isChosen = listFilter.value?.query === query;
    chooseList(isChosen ? null : { label, query, matches: (one) => !one.archived && matches(one) }).catch(report);
  };
  if (!Object.keys(folders).length && !Object.keys(tags).length) return <p class="empty">No folders or tags yet. Choose “Folder and tags” in the menu of a session.</p>;
  return (
    <section class="folders" aria-label="Folders and tags">
      <ul>
        {Object.entries(folders).map(([name, count]) => {
          const query = `folder=${encodeURIComponent(name)}`;
          // Below the folder that holds it, if that one is in the list; else by its whole path.
          const above = Object.keys(folders).filter((one) => name.startsWith(`${one}/`));
          const label = name.slice(Math.max(0, ...above.map((one) => one.length + 1)));
          return (
            <li key={name} style={{ paddingInlineStart: `${above.length * 14}px` }}>
              <button type="button" aria-pressed={listFilter.value?.query === query} title={name} onClick={() => choose(name, query, (one) => one.folder === name)}>
                <span class="clip">{label}</span><span class="dim">{count}</span>
              </button>
            </li>
          );
        })}
      </ul>
      <div class="tags">
        {Object.entries(tags).map(([name, count]) => {
          const query = `tag=${encodeURIComponent(name)}`;
          return <button key={name} type="button" class="chip" aria-pressed={listFilter.value?.query === query} onClick={() => choose(`#${name}`, query, (one) => one.tags?.includes(name) ?? false)}>#{name} <span class="dim">{count}</span></button>;
        })}
      </div>
    </section>
  );
}

const split = (words: string): string[] => [...new Set(words.split(",").map((one) => one.trim().replace(/^#/, "")).filter(Boolean))];

export function Organize({ session, onClose }: { session: SessionView; onClose: () => void }) {
  const known = useFolders();
  const folder = useSignal(session.folder ?? "");
  const tags = useSignal((session.tags ?? []).join(", "));
  const problem = useSignal("");
  const list = useId();
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await changeSession(session.id, { folder: folder.value, tags: split(tags.value) });
      announce("Saved");
      onClose();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = `${error.message} ${error.hint}`;
    }
  };
  const chosen = split(tags.value);
  const others = Object.keys(known.tags).filter((tag) => !chosen.includes(tag));
  return (
    <Dialog title="Folder and tags" kind="small" onClose={onClose}>
      <form class="settings-body session-settings" onSubmit={(event) => void save(event)}>
        <Field label="Folder" hint="A path such as Work/Invoices. Empty: no folder.">
          {(facts) => <input {...facts} list={list} value={folder.value} autocomplete="off" onInput={(event) => (folder.value = event.currentTarget.value)} />}
        </Field>
        <datalist id={list}>{Object.keys(known.folders).map((name) => <option key={name} value={name} />)}</datalist>
        <Field label="Tags" hint="Separated by commas.">
          {(facts) => <input {...facts} value={tags.value} autocomplete="off" onInput={(event) => (tags.value = event.currentTarget.value)} />}
        </Field>
        {others.length > 0 && <div class="tags">{others.map((tag) => <button key={tag} type="button" class="chip" aria-label={`Add the tag ${tag}`} onClick={() => (tags.value = [...chosen, tag].join(", "))}>#{tag}</button>)}</div>}
        {problem.value && <p role="alert" class="danger">{problem.value}</p>}
        <div class="buttons end">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary">Save</button>
        </div>
      </form>
    </Dialog>
  );
}
