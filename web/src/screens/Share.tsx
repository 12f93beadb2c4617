// Share a session as a read-only link, or as a file.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request } from "../api/http";
import type { SessionView, ShareView } from "../api/types";
import { copyText, CopyButton } from "../parts/CopyButton";
import { Dialog } from "../parts/Dialog";
import { Field } from "../parts/Field";
import { report } from "../state/sessions";

const PERIODS: [number, string][] = [[1, "1 day"], [7, "7 days"], [30, "30 days"], [0, "Until deleted"]];
const FORMATS: [string, string, string][] = [
  ["html", "Web page", "One file with its images, for people to read"],
  ["md", "Markdown", "The text"],
  ["zip", "Zip", "All branches, settings and media; can be imported again"],
  ["json", "JSON", "The same in one text file"],
];

export function Share({ session, onClose }: { session: SessionView; onClose: () => void }) {
  const shares = useSignal<ShareView[]>([]);
  const days = useSignal(7);
  /** The address of the link that was just made; the server does not tell it again. */
  const link = useSignal("");
  const path = `/sessions/${session.id}/shares`;
  const load = (): Promise<void> => request<{ shares: ShareView[] }>(path).then((found) => void (shares.value = found.shares), report);
  useEffect(() => void load(), []);
  const create = async (): Promise<void> => {
    const made = await request<ShareView>(path, { body: { days: days.value } }).catch(report);
    if (!made) return;
    link.value = location.origin + made.path;
    await load();
    await copyText(link.value, "Link copied");
  };
  const remove = (id: string): void => void request(`${path}/${id}`, { method: "DELETE" }).then(() => ((link.value = ""), load()), report);
  const moment = (seconds: number): string => new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  return (
    <Dialog title={`Share “${session.title || "Untitled"}”`} onClose={onClose}>
      <div class="settings-body">
        <section>
          <h3>Read-only link</h3>
          <p class="dim">Anyone who can reach this server and has the link can read the conversation as it is now, with its images, without signing in. Later messages are not shown.</p>
          <div class="share-new">
            <Field label="Link works for">
              {(facts) => <select {...facts} value={days.value} onChange={(event) => (days.value = Number(event.currentTarget.value))}>{PERIODS.map(([value, name]) => <option key={value} value={value}>{name}</option>)}</select>}
            </Field>
            <button type="button" class="primary" onClick={() => void create()}>Create link</button>
          </div>
          {link.value && (
            <div class="key-form">
              <input type="text" readOnly aria-label="Link" value={link.value} onFocus={(event) => event.currentTarget.select()} />
              <CopyButton text={link.value} label="Copy link" />
              <a class="chip" href={link.value} target="_blank" rel="noreferrer">Open</a>
            </div>
          )}
          {shares.value.length > 0 && (
            <ul class="keys" aria-label="Links">
              {shares.value.map((one) => (
                <li key={one.id}>
                  <div class="key-line">
                    <span>Created {moment(one.created_at)}</span>
                    <span class="dim">{one.expires_at ? `works until ${moment(one.expires_at)}` : "works until deleted"}</span>
                    <span class="spring" />
                    <button type="button" class="chip danger" aria-label={`Delete the link of ${moment(one.created_at)}`} onClick={() => remove(one.id)}>Delete link</button>
                  </div>
                </li>
              ))}
            </ul>
          )}
        </section>
        <section>
          <h3>As a file</h3>
          <ul class="keys">
            {FORMATS.map(([format, name, note]) => (
              <li key={format}>
                <div class="key-line">
                  <strong>{name}</strong>
                  <span class="dim">{note}</span>
                  <span class="spring" />
                  <a class="chip" href={`/v1/sessions/${session.id}/export?format=${format}`} download aria-label={`Download as ${name}`}>Download</a>
                </div>
              </li>
            ))}
          </ul>
        </section>
      </div>
    </Dialog>
  );
}
