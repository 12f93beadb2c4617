// Appearance, API keys, models, limits. A key is sent to the server once; only its last four characters come back.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { request, ApiError } from "../api/http";
import type { KeyView, LoginView, UserView } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { Row } from "../parts/Row";
import { config, defaultModel, dialog, models } from "../state/app";
import { canNotify, notifies, setNotifies } from "../state/notifications";
import { loadModels } from "../state/models";
import { report } from "../state/sessions";
import { forgetWork } from "../state/sign_out";
import { setTheme, theme, THEMES } from "../state/theme";
import { plural, formatBytes, formatMoment } from "../state/format";
import { ModelServers, ServerSettings, Users } from "./AdminSettings";

const TABS = ["General", "Models", "Server", "Users"] as const;
type Tab = (typeof TABS)[number];

export function Settings() {
  const tab = useSignal<Tab>("General");
  const me = useSignal<UserView | null>(null);
  useEffect(() => {
    request<UserView>("/me").then((found) => (me.value = found), report);
  }, []);
  const isAdmin = me.value?.role === "admin";
  const pages: Record<Tab, ComponentChildren> = {
    General: <><Appearance /><Notifications /><Logins /></>,
    Models: <><Models /><Keys />{isAdmin && <ModelServers />}</>,
    Server: <>{isAdmin && <ServerSettings />}<Limits /></>,
    Users: <Users />,
  };
  return (
    <Dialog title="Settings" kind="settings" onClose={() => (dialog.value = "")}>
      <div class="tabs" role="tablist" aria-label="Settings">
        {TABS.filter((one) => isAdmin || one !== "Users").map((one) => <button key={one} type="button" role="tab" id={`tab-${one}`} aria-selected={tab.value === one} aria-controls="settings-page" onClick={() => (tab.value = one)}>{one}</button>)}
      </div>
      <div class="settings-body" id="settings-page" role="tabpanel" aria-labelledby={`tab-${tab.value}`}>{pages[tab.value]}</div>
    </Dialog>
  );
}

const THEME_NAMES = { system: "System", light: "Light", dark: "Dark" } as const;

function Appearance() {
  return (
    <section>
      <h3>Appearance</h3>
      <fieldset class="choices">
        <legend class="visually-hidden">Appearance</legend>
        {THEMES.map((one) => (
          <label key={one}>
            <input type="radio" name="theme" checked={theme.value === one} onChange={() => setTheme(one)} /> {THEME_NAMES[one]}
          </label>
        ))}
      </fieldset>
    </section>
  );
}

function Notifications() {
  const isDenied = useSignal(false);
  const change = async (isOn: boolean): Promise<void> => {
    isDenied.value = !(await setNotifies(isOn));
  };
  return (
    <section>
      <h3>Notifications</h3>
      <label class="choice">
        <input type="checkbox" checked={notifies.value} disabled={!canNotify} onChange={(event) => void change(event.currentTarget.checked)} /> <span>Notify me when an answer is finished or an approval is pending</span>
      </label>
      {!canNotify && <p class="dim">This browser allows notifications only over https or on this computer.</p>}
      {isDenied.value && <p class="danger" role="alert">The browser blocks notifications for this page. Allow them in the site settings.</p>}
    </section>
  );
}

function Keys() {
  const keys = useSignal<KeyView[]>([]);
  const load = (): Promise<void> => request<{ keys: KeyView[] }>("/keys").then((found) => void (keys.value = found.keys), report);
  useEffect(() => void load(), []);
  return (
    <section>
      <h3>API keys</h3>
      <p class="dim">Stored on the computer where Loom runs, readable only by you. This page can set keys but not show them.</p>
      <ul class="keys">
        {keys.value.map((one) => (
          <KeyRow key={one.provider} info={one} onChange={() => void load().then(loadModels)} />
        ))}
      </ul>
    </section>
  );
}

function KeyRow({ info, onChange }: { info: KeyView; onChange: () => void }) {
  const isOpen = useSignal(false);
  const words = useSignal("");
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    const key = new FormData(event.currentTarget as HTMLFormElement).get("key") as string;
    try {
      await request(`/keys/${info.provider}`, { method: "PUT", body: { key } });
      isOpen.value = false;
      words.value = "";
      onChange();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      words.value = `${error.message} ${error.hint}`;
    }
  };
  const remove = (): void => {
    request(`/keys/${info.provider}`, { method: "DELETE" }).then(onChange, report);
  };
  return (
    <li>
      <Row name={info.provider} note={info.set ? `Saved, ends in ${info.last4 || "····"}` : `Not set · or use ${info.env}`}>
        {info.set && <button type="button" class="chip danger" aria-label={`Remove the key for ${info.provider}`} onClick={remove}>Remove key</button>}
        <button type="button" class="chip" aria-expanded={isOpen.value} aria-label={`${info.set ? "Replace" : "Add"} the key for ${info.provider}`} onClick={() => (isOpen.value = !isOpen.value)}>{info.set ? "Replace" : "Add key"}</button>
      </Row>
      {isOpen.value && (
        <form class="key-form" onSubmit={(event) => void save(event)}>
          <input type="password" name="key" required autocomplete="off" aria-label={`API key for ${info.provider}`} placeholder="Paste the key" ref={(input) => input?.focus()} />
          <button type="submit" class="primary">Save</button>
        </form>
      )}
      {words.value && <p role="alert" class="danger">{words.value}</p>}
    </li>
  );
}

function Logins() {
  const logins = useSignal<LoginView[]>([]);
  const load = (): Promise<void> => request<{ logins: LoginView[] }>("/logins").then((found) => void (logins.value = found.logins), report);
  useEffect(() => void load(), []);
  const close = (id: string): void => void request(`/logins/${id}`, { method: "DELETE" }).then(load, report);
  const signOut = (): void => void request("/logout", { method: "POST" }).then(forgetWork).then(() => location.reload(), report);
  return (
    <section>
      <h3>Signed-in browsers</h3>
      <ul class="keys">
        {logins.value.map((one) => (
          <li key={one.id}>
            <Row name={browserName(one.agent)} note={`${one.user} · ${one.address} · ${one.current ? "this browser" : `last seen ${formatMoment(one.seen_at)}`}`}>
              {one.current
                ? <button type="button" class="chip" title="Also removes drafts from this browser" onClick={signOut}>Sign out</button>
                : <button type="button" class="chip danger" aria-label={`Sign out ${browserName(one.agent)} at ${one.address}`} onClick={() => close(one.id)}>Sign out</button>}
            </Row>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** A short name for a browser, from its User-Agent header. */
export function browserName(agent: string): string {
  const browser = /(Edg|OPR|Firefox|Chrome|Safari)\//.exec(agent)?.[1] ?? "Browser";
  const system = /(Android|iPhone|iPad|Windows|Mac OS X|Linux)/.exec(agent)?.[1] ?? "";
  const name = { Edg: "Edge", OPR: "Opera" }[browser] ?? browser;
  return system ? `${name} on ${system === "Mac OS X" ? "macOS" : system}` : name;
}

function Models() {
  const ready = models.value.filter((one) => one.ready);
  return (
    <section>
      <h3>Models</h3>
      <p class="dim">{plural(ready.length, "model")} available, {models.value.length - ready.length} more need a key. Default: <strong>{defaultModel.value}</strong>.</p>
      <div class="buttons">
        <button type="button" class="chip" onClick={() => (dialog.value = "models")}>Choose a model</button>
        <button type="button" class="chip" onClick={() => (dialog.value = "usage")}>Usage and cost</button>
      </div>
    </section>
  );
}

function Limits() {
  const limits = config.value;
  if (!limits) return null;
  const rows: [string, string][] = [
    ["Images per message", String(limits.images.max_per_message)],
    ["Images per session", String(limits.images.max_per_session)],
    ["Image size", formatBytes(limits.images.max_size_bytes)],
    ["PDF size", formatBytes(limits.documents.max_pdf_bytes)],
    ["Pages per request", String(limits.documents.pages_per_read)],
    ["Upload size", formatBytes(limits.upload.max_bytes)],
    ["Workspace", limits.workspace],
  ];
  return (
    <section>
      <h3>Limits</h3>
      <dl class="limits">
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <p class="dim">Change other limits in <code>loom.toml</code>. <code>loom config show</code> lists each value and where it is set.</p>
    </section>
  );
}
