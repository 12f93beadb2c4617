// Share a session as a read-only link, or as a file.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request } from "../api/http";
import type { MemberView, SessionView, ShareView, UserEntry, UserView } from "../api/types";
import { copyText, CopyButton } from "../parts/CopyButton";
import { Dialog } from "../parts/Dialog";
import { Field } from "../parts/Field";
import { Row } from "../parts/Row";
import { formatMoment } from "../state/format";
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
  return (
    <Dialog title={`Share “${session.title || "Untitled"}”`} onClose={onClose}>
      <div class="settings-body">
        <section>
          <h3>Read-only link</h3>
          <p class="dim">Anyone who can reach this server and has the link can read the conversation as it is now, with its images, without signing in. Later messages and the system prompt are not shown.</p>
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
                  <Row name={`Created ${formatMoment(one.created_at)}`} note={one.expires_at ? `Works until ${formatMoment(one.expires_at)}` : "Works until deleted"}>
                    <button type="button" class="chip danger" aria-label={`Delete the link of ${formatMoment(one.created_at)}`} onClick={() => remove(one.id)}>Delete link</button>
                  </Row>
                </li>
              ))}
            </ul>
          )}
        </section>
        <People session={session.id} />
        <section>
          <h3>As a file</h3>
          <ul class="keys">
            {FORMATS.map(([format, name, note]) => (
              <li key={format}>
                <Row name={name} note={note}>
                  <a class="chip" href={`/v1/sessions/${session.id}/export?format=${format}`} download aria-label={`Download as ${name}`}>Download</a>
                </Row>
              </li>
            ))}
          </ul>
        </section>
      </div>
    </Dialog>
  );
}

const ACCESS: [MemberView["access"], string][] = [["view", "can read"], ["edit", "can write"], ["own", "can share and delete"]];

/** The users of this server that the session is shared with. Hidden on a server without users. */
function People({ session }: { session: string }) {
  const members = useSignal<MemberView[]>([]);
  /** What an admin may choose from; others have to know the name. */
  const names = useSignal<string[]>([]);
  const hasUsers = useSignal(false);
  const path = `/sessions/${session}/members`;
  const load = (): Promise<void> => request<{ members: MemberView[] }>(path).then((found) => void (members.value = found.members));
  const loadNames = async (): Promise<void> => {
    if ((await request<UserView>("/me")).role === "admin") names.value = (await request<{ users: UserEntry[] }>("/users")).users.map((one) => one.name);
    else hasUsers.value = true;
  };
  useEffect(() => void Promise.all([load(), loadNames()]).catch(report), []);
  if (!hasUsers.value && !names.value.length && !members.value.length) return null;
  const set = (user: string, access: string): void => void request(`${path}/${encodeURIComponent(user)}`, { method: "PUT", body: { access } }).then(load).catch(report);
  const remove = (user: string): void => void request(`${path}/${user}`, { method: "DELETE" }).then(load).catch(report);
  const add = (event: Event): void => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    set(String(new FormData(form).get("user")).trim(), "view");
    form.reset();
  };
  return (
    <section>
      <h3>People on this server</h3>
      <ul class="keys" aria-label="People">
        {members.value.map((one) => (
          <li key={one.user}>
            <Row name={one.user}>
              <select aria-label={`Access of ${one.user}`} value={one.access} onChange={(event) => set(one.user, event.currentTarget.value)}>{ACCESS.map(([access, words]) => <option key={access} value={access}>{words}</option>)}</select>
              <button type="button" class="chip danger" aria-label={`Stop sharing with ${one.user}`} onClick={() => remove(one.user)}>Remove</button>
            </Row>
          </li>
        ))}
      </ul>
      <form class="key-form" aria-label="Share with a user" onSubmit={add}>
        <input name="user" required list="people" aria-label="Name of the user" placeholder="User name, or everyone" autocomplete="off" />
        <datalist id="people">{["everyone", ...names.value].map((name) => <option key={name} value={name} />)}</datalist>
        <button type="submit">Share</button>
      </form>
    </section>
  );
}
