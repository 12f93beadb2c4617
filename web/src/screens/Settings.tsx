// Keys, models, limits, looks. Keys go to the daemon and never come back: only their last four characters do.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, Refused } from "../api/http";
import type { KeyView, ModelView } from "../api/shapes";
import { Dialog } from "../parts/Dialog";
import { config, defaultModel, dialog, models } from "../state/app";
import { report } from "../state/sessions";
import { setTheme, theme, THEMES } from "../state/theme";
import { plural, size } from "../state/words";

export function Settings() {
  return (
    <Dialog title="Settings" kind="settings" onClose={() => (dialog.value = "")}>
      <div class="settings-body">
        <Looks />
        <Keys />
        <Models />
        <Limits />
      </div>
    </Dialog>
  );
}

function Looks() {
  return (
    <section>
      <h3>Looks</h3>
      <fieldset class="choices">
        <legend class="unseen">Theme</legend>
        {THEMES.map((one) => (
          <label key={one}>
            <input type="radio" name="theme" checked={theme.value === one} onChange={() => setTheme(one)} /> {one}
          </label>
        ))}
      </fieldset>
    </section>
  );
}

function Keys() {
  const keys = useSignal<KeyView[]>([]);
  const load = (): Promise<void> => ask<{ keys: KeyView[] }>("/keys").then((found) => void (keys.value = found.keys), report);
  useEffect(() => void load(), []);
  return (
    <section>
      <h3>API keys</h3>
      <p class="dim">Kept on the computer where Loom runs, readable by you alone. This page can set them, never read them.</p>
      <ul class="keys">
        {keys.value.map((one) => (
          <KeyRow key={one.provider} info={one} onChange={() => void load().then(loadModels)} />
        ))}
      </ul>
    </section>
  );
}

async function loadModels(): Promise<void> {
  const found = await ask<{ models: ModelView[]; default: string }>("/models");
  models.value = found.models;
  defaultModel.value = found.default;
}

function KeyRow({ info, onChange }: { info: KeyView; onChange: () => void }) {
  const isOpen = useSignal(false);
  const words = useSignal("");
  const keep = async (event: Event): Promise<void> => {
    event.preventDefault();
    const key = new FormData(event.currentTarget as HTMLFormElement).get("key") as string;
    try {
      await ask(`/keys/${info.provider}`, { method: "PUT", body: { key } });
      isOpen.value = false;
      words.value = "";
      onChange();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      words.value = `${error.message} ${error.hint}`;
    }
  };
  const remove = (): void => {
    ask(`/keys/${info.provider}`, { method: "DELETE" }).then(onChange, report);
  };
  return (
    <li>
      <div class="key-line">
        <strong>{info.provider}</strong>
        <span class="dim">{info.set ? `set, ends in ${info.last4 || "····"}` : `not set · or ${info.env}`}</span>
        <span class="spring" />
        {info.set && <button type="button" class="chip grave" aria-label={`Forget the key of ${info.provider}`} onClick={remove}>Forget</button>}
        <button type="button" class="chip" aria-expanded={isOpen.value} aria-label={`${info.set ? "Replace" : "Set"} the key of ${info.provider}`} onClick={() => (isOpen.value = !isOpen.value)}>{info.set ? "Replace" : "Set"}</button>
      </div>
      {isOpen.value && (
        <form class="key-form" onSubmit={(event) => void keep(event)}>
          <input type="password" name="key" required autocomplete="off" aria-label={`Key for ${info.provider}`} placeholder="Paste the key" ref={(input) => input?.focus()} />
          <button type="submit" class="primary">Keep</button>
        </form>
      )}
      {words.value && <p role="alert" class="grave">{words.value}</p>}
    </li>
  );
}

function Models() {
  const ready = models.value.filter((one) => one.ready);
  return (
    <section>
      <h3>Models</h3>
      <p class="dim">{plural(ready.length, "model")} ready, {models.value.length - ready.length} more with a key. The default is <strong>{defaultModel.value}</strong>.</p>
      <button type="button" class="chip" onClick={() => (dialog.value = "models")}>Compare them for this conversation</button>
    </section>
  );
}

function Limits() {
  const limits = config.value;
  if (!limits) return null;
  const rows: [string, string][] = [
    ["Pictures in a message", String(limits.images.max_per_message)],
    ["Pictures in a session", String(limits.images.max_per_session)],
    ["Size of a picture", size(limits.images.max_size_bytes)],
    ["Size of a PDF", size(limits.documents.max_pdf_bytes)],
    ["Pages read at once", String(limits.documents.pages_per_read)],
    ["Size of an upload", size(limits.upload.max_bytes)],
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
      <p class="dim">Change them in <code>loom.toml</code>; <code>loom config show</code> tells where each comes from.</p>
    </section>
  );
}
