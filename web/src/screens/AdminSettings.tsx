// Settings of the server: defaults and budgets, model servers with a test, users. For admins.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request, ApiError } from "../api/http";
import type { ServerCheck, ServerView, SettingList, SettingView, UserEntry, UserKey } from "../api/types";
import { CopyButton } from "../parts/CopyButton";
import { Field } from "../parts/Field";
import { Row } from "../parts/Row";
import { announce, models } from "../state/app";
import { loadModels } from "../state/models";
import { report } from "../state/sessions";

const LABELS: Record<string, string> = {
  model: "Default model",
  "context.describer": "Image description model",
  "prompt.append": "Addition to the system prompt",
  "turn.max_usd": "Budget per turn ($)",
  "turn.max_steps": "Steps per turn",
  "budget.session_usd": "Budget per session ($)",
  "budget.day_usd": "Budget per day ($)",
  "server.host": "Server address",
  "server.port": "Server port",
  "server.max_upload_bytes": "Largest upload (bytes)",
};

function messageOf(error: unknown): string {
  if (!(error instanceof ApiError)) throw error;
  return `${error.message} ${error.hint}`.trim();
}

export function ServerSettings() {
  const list = useSignal<SettingList | null>(null);
  useEffect(() => {
    request<SettingList>("/settings").then((found) => (list.value = found), report);
  }, []);
  if (!list.value) return <p class="empty">Loading…</p>;
  const restart = list.value.restart ?? [];
  return (
    <section>
      <h3>Defaults and budgets</h3>
      <p class="dim">Written to <code>{list.value.file}</code>. No further turn starts once a budget is spent.</p>
      {restart.length > 0 && <p class="notice" role="status">Restart Loom to apply: {restart.map((key) => LABELS[key] ?? key).join(", ")}.</p>}
      {list.value.settings.map((one) => <SettingRow key={one.key} setting={one} onChange={(found) => (list.value = found)} />)}
    </section>
  );
}

let lastSave: Promise<unknown> = Promise.resolve();

/** One change after the other: each answer lists all settings, and the last one must be the newest. */
function saveInTurn(key: string, value: string | number | null): Promise<SettingList> {
  const send = (): Promise<SettingList> => request<SettingList>(`/settings/${key}`, { method: "PUT", body: { value } });
  const saved = lastSave.then(send, send);
  lastSave = saved;
  return saved;
}

function SettingRow({ setting, onChange }: { setting: SettingView; onChange: (found: SettingList) => void }) {
  const words = useSignal("");
  /** What is being typed: another setting that is saved meanwhile renders this row again. */
  const draft = useSignal<string | null>(null);
  const value = setting.value === null ? "" : String(setting.value);
  const save = async (written: string): Promise<void> => {
    if (written === value) {
      draft.value = null;
      words.value = "";
      return;
    }
    const fresh = written === "" ? null : setting.kind === "number" ? Number(written) : written;
    try {
      onChange(await saveInTurn(setting.key, fresh));
      if (draft.value?.trim() === written) draft.value = null;
      words.value = "";
      announce(`${LABELS[setting.key] ?? setting.key} saved${setting.applies === "restart" ? ". It applies after a restart" : ""}`);
      if (setting.key === "model") await loadModels();
    } catch (error) {
      words.value = messageOf(error);
    }
  };
  const hint = [setting.description, setting.applies === "restart" && "Applies after a restart.", setting.fixed_by && `Set by ${setting.fixed_by}, which takes precedence after a restart.`].filter(Boolean).join(" ");
  return (
    <>
      <Field label={LABELS[setting.key] ?? setting.key} hint={hint}>
        {(facts) =>
          setting.kind === "model" ? (
            <select {...facts} value={value} onChange={(event) => void save(event.currentTarget.value)}>
              <option value="">{setting.key === "model" ? "Automatic" : "None"}</option>
              {[...new Set([value, ...models.value.filter((one) => one.ready).map((one) => one.reference)])].filter(Boolean).map((one) => <option key={one} value={one}>{one}</option>)}
            </select>
          ) : setting.kind === "number" ? (
            <input {...facts} type="number" min="0" step="any" value={draft.value ?? value} placeholder="No limit" onInput={(event) => (draft.value = event.currentTarget.value)} onChange={(event) => void save(event.currentTarget.value.trim())} />
          ) : (
            <input {...facts} type="text" value={draft.value ?? value} onInput={(event) => (draft.value = event.currentTarget.value)} onChange={(event) => void save(event.currentTarget.value.trim())} />
          )
        }
      </Field>
      {words.value && <p role="alert" class="danger">{words.value}</p>}
    </>
  );
}

const PROVIDERS = ["compatible", "ollama", "openai", "anthropic", "gemini"];

export function ModelServers() {
  const servers = useSignal<ServerView[]>([]);
  const isOpen = useSignal(false);
  const apply = (found: { servers: ServerView[] }): void => {
    servers.value = found.servers;
    void loadModels().catch(report);
  };
  useEffect(() => {
    request<{ servers: ServerView[] }>("/servers").then((found) => (servers.value = found.servers), report);
  }, []);
  const remove = (name: string): void => {
    request<{ servers: ServerView[] }>(`/servers/${name}`, { method: "DELETE" }).then(apply, report);
  };
  return (
    <section>
      <h3>Model servers</h3>
      <p class="dim">Ollama, llama.cpp, vLLM or any server with an OpenAI-compatible API.</p>
      <ul class="keys">
        {servers.value.map((one) => (
          <li key={one.name}>
            <Row name={one.name} note={`${one.model} · ${one.base_url}${one.has_key ? " · with a key" : ""}`}>
              <TestButton body={{ provider: one.provider || one.name.split("/")[0], base_url: one.base_url }} label={`Test ${one.name}`} />
              {/* Names with a slash are written in the file by hand. */}
              {!one.name.includes("/") && <button type="button" class="chip danger" aria-label={`Remove ${one.name}`} onClick={() => remove(one.name)}>Remove</button>}
            </Row>
          </li>
        ))}
      </ul>
      {isOpen.value ? <ServerForm onDone={(found) => ((isOpen.value = false), found && apply(found))} /> : <button type="button" class="chip" onClick={() => (isOpen.value = true)}>Add a server</button>}
    </section>
  );
}

function TestButton({ body, label }: { body: object; label: string }) {
  const check = useSignal<ServerCheck | null>(null);
  const isBusy = useSignal(false);
  const test = async (): Promise<void> => {
    isBusy.value = true;
    try {
      check.value = await request<ServerCheck>("/servers/test", { body });
    } catch (error) {
      check.value = { state: "unknown", text: messageOf(error), models: [] };
    }
    isBusy.value = false;
  };
  return (
    <>
      <button type="button" class="chip" aria-label={label} disabled={isBusy.value} onClick={() => void test()}>{isBusy.value ? "Testing…" : "Test"}</button>
      {check.value && <span role="status" class={check.value.state === "works" ? "works" : "danger"}>{check.value.state === "works" ? `✓ Works: ${check.value.text}` : `✕ ${check.value.text}`}</span>}
    </>
  );
}

function ServerForm({ onDone }: { onDone: (found: { servers: ServerView[] } | null) => void }) {
  const wanted = useSignal({ name: "", provider: "compatible", base_url: "", model: "", api_key: "" });
  const words = useSignal("");
  const set = (change: Partial<typeof wanted.value>): void => {
    wanted.value = { ...wanted.value, ...change };
  };
  const { name, ...body } = wanted.value;
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      onDone(await request<{ servers: ServerView[] }>(`/servers/${encodeURIComponent(name)}`, { method: "PUT", body }));
      announce("Server saved");
    } catch (error) {
      words.value = messageOf(error);
    }
  };
  return (
    <form class="server-form" aria-label="Add a server" onSubmit={(event) => void save(event)}>
      <Field label="Name" hint="Its name in the model list.">{(facts) => <input {...facts} required pattern="[A-Za-z0-9][A-Za-z0-9._\-]*" value={name} onInput={(event) => set({ name: event.currentTarget.value })} />}</Field>
      <Field label="Type">
        {(facts) => <select {...facts} value={body.provider} onChange={(event) => set({ provider: event.currentTarget.value })}>{PROVIDERS.map((one) => <option key={one} value={one}>{one === "compatible" ? "OpenAI-compatible" : one}</option>)}</select>}
      </Field>
      <Field label="Address" hint="For example http://127.0.0.1:8000/v1">{(facts) => <input {...facts} type="url" required value={body.base_url} onInput={(event) => set({ base_url: event.currentTarget.value.trim() })} />}</Field>
      <Field label="Model" hint="The server's name for it. Test lists the models.">{(facts) => <input {...facts} value={body.model} onInput={(event) => set({ model: event.currentTarget.value.trim() })} />}</Field>
      <Field label="API key" hint="If the server requires one.">{(facts) => <input {...facts} type="password" autocomplete="off" value={body.api_key} onInput={(event) => set({ api_key: event.currentTarget.value.trim() })} />}</Field>
      {words.value && <p role="alert" class="danger">{words.value}</p>}
      <div class="buttons">
        <button type="submit" class="primary">Save server</button>
        <TestButton body={body} label="Test this server" />
        <button type="button" onClick={() => onDone(null)}>Cancel</button>
      </div>
    </form>
  );
}

type Role = UserEntry["role"];
/** The first is what a new user gets. */
const ROLES: Role[] = ["user", "viewer", "admin"];

export function Users() {
  const users = useSignal<UserEntry[]>([]);
  const fresh = useSignal<UserKey | null>(null);
  const words = useSignal("");
  const load = (): Promise<void> => request<{ users: UserEntry[] }>("/users").then((found) => void (users.value = found.users), report);
  useEffect(() => void load(), []);
  const run = async (work: Promise<unknown>): Promise<void> => {
    try {
      await work;
      words.value = "";
      await load();
    } catch (error) {
      words.value = messageOf(error);
    }
  };
  const add = (event: Event): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    (event.currentTarget as HTMLFormElement).reset();
    void run(request<UserKey>("/users", { body: { name: form.get("name"), role: form.get("role") } }).then((made) => (fresh.value = made)));
  };
  return (
    <section>
      <h3>Users</h3>
      <p class="dim">A user sees their own sessions and those shared with them; an admin sees all and manages the server; a viewer reads only.</p>
      <ul class="keys">
        {users.value.map((one) => (
          <li key={one.name}>
            <Row name={one.name}>
              <select aria-label={`Role of ${one.name}`} value={one.role} onChange={(event) => void run(request(`/users/${one.name}`, { method: "PATCH", body: { role: event.currentTarget.value } }))}>{ROLES.map((role) => <option key={role}>{role}</option>)}</select>
              <button type="button" class="chip" aria-label={`New key for ${one.name}`} onClick={() => void run(request<UserKey>(`/users/${one.name}/key`, { method: "POST" }).then((made) => (fresh.value = made)))}>New key</button>
              <button type="button" class="chip danger" aria-label={`Remove ${one.name}`} onClick={() => void run(request(`/users/${one.name}`, { method: "DELETE" }))}>Remove</button>
            </Row>
          </li>
        ))}
      </ul>
      {fresh.value && <p class="notice" role="status">Key for {fresh.value.name}, shown once: <code>{fresh.value.key}</code> <CopyButton text={fresh.value.key} label="Copy key" /></p>}
      <form class="key-form" aria-label="Add a user" onSubmit={add}>
        <input name="name" required aria-label="Name of the user" placeholder="Name" pattern="[a-z0-9][a-z0-9._\-]*" title="Lower-case letters, digits and . _ -" />
        <select name="role" aria-label="Role">{ROLES.map((role) => <option key={role}>{role}</option>)}</select>
        <button type="submit">Add user</button>
      </form>
      {words.value && <p role="alert" class="danger">{words.value}</p>}
    </section>
  );
}
