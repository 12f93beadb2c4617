// Import conversations from files of Loom and of other programs.
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { ApiError, request } from "../api/http";
import type { ImportReport } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { Row } from "../parts/Row";
import { announce, dialog } from "../state/app";
import { addressOf, loadSessions, report } from "../state/sessions";
import { plural } from "../state/format";

interface Entry {
  name: string;
  report: ImportReport | null;
  problem: string;
}

export function Import() {
  const picker = useRef<HTMLInputElement>(null);
  const entries = useSignal<Entry[]>([]);
  const isBusy = useSignal(false);
  const put = (entry: Entry): void => {
    entries.value = [...entries.value.filter((one) => one.name !== entry.name), entry];
  };
  const read = async (files: File[]): Promise<void> => {
    isBusy.value = true;
    for (const file of files) {
      put({ name: file.name, report: null, problem: "" });
      try {
        // Bytes whatever their type: the server looks at the content.
        const found = await request<ImportReport>(`/import/file?name=${encodeURIComponent(file.name)}`, { body: file, headers: { "Content-Type": "application/octet-stream" } });
        put({ name: file.name, report: found, problem: "" });
        announce(`${plural(found.sessions.length, "conversation")} imported from ${file.name}`);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        put({ name: file.name, report: null, problem: `${error.message} ${error.hint}` });
      }
    }
    isBusy.value = false;
    loadSessions().catch(report);
  };
  const onDrop = (event: DragEvent): void => {
    event.preventDefault();
    event.stopPropagation();
    void read([...(event.dataTransfer?.files ?? [])]);
  };
  return (
    <Dialog title="Import conversations" kind="settings" onClose={() => (dialog.value = "")}>
      <div class="settings-body" onDragOver={(event) => event.preventDefault()} onDrop={onDrop}>
        <p class="dim">Data exports of ChatGPT, claude.ai, Open WebUI and LibreChat (zip or JSON), chat files as JSONL, and exports of Loom. Importing a file again adds nothing twice.</p>
        <div class="buttons">
          <button type="button" class="primary" disabled={isBusy.value} onClick={() => picker.current?.click()}>{isBusy.value ? "Importing…" : "Choose files"}</button>
          <span class="dim">or drop them here</span>
        </div>
        <input ref={picker} type="file" multiple hidden data-pick="import" onChange={(event) => { const files = [...(event.currentTarget.files ?? [])]; event.currentTarget.value = ""; void read(files); }} />
        {entries.value.map((one) => (
          <section key={one.name}>
            <h3>{one.name}</h3>
            {one.problem ? <p role="alert" class="danger">{one.problem}</p> : one.report ? <Found report={one.report} /> : <p class="dim">Reading…</p>}
          </section>
        ))}
      </div>
    </Dialog>
  );
}

function Found({ report: found }: { report: ImportReport }) {
  return (
    <>
      {found.notices?.map((notice) => <p key={notice} class="notice">{notice}</p>)}
      {!found.sessions.length && <p class="empty">No conversations in this file.</p>}
      <ul class="keys">
        {found.sessions.map((one) => (
          <li key={one.session}>
            <Row
              name={<a href={addressOf(one.session)} onClick={() => (dialog.value = "")}>{one.title || "Untitled"}</a>}
              note={[one.kind, plural(one.messages, "message"), one.media > 0 && plural(one.media, "file"), !one.is_new && "already here"].filter(Boolean).join(" · ")}
            />
            {one.notices.map((notice) => <p key={notice} class="dim">{notice}</p>)}
          </li>
        ))}
      </ul>
    </>
  );
}
