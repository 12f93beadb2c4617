// The prompt library: use, write, edit and delete saved prompts.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "../api/http";
import type { PromptView } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { Row } from "../parts/Row";
import { Field } from "../parts/Field";
import { SearchIcon } from "../parts/icons";
import { announce, dialog, models } from "../state/app";
import { text } from "../state/composer";
import { fieldsOf, loadPrompts, prompts, removePrompt, savePrompt, startedPrompt, startPrompt, usePrompt } from "../state/prompts";
import { report } from "../state/sessions";

const EMPTY: PromptView = { name: "", text: "", system: "", model: "", params: {}, fields: [], is_shared: false };
const SEARCHED_FROM = 8;

export function Prompts() {
  const edited = useSignal<PromptView | null>(null);
  useEffect(() => void loadPrompts().catch(report), []);
  const close = (): void => {
    startedPrompt.value = null;
    dialog.value = "";
  };
  const title = startedPrompt.value ? startedPrompt.value.name : edited.value ? (edited.value.name ? "Edit prompt" : "New prompt") : "Prompts";
  return (
    <Dialog title={title} kind="settings" onClose={close}>
      {startedPrompt.value ? <FillIn prompt={startedPrompt.value} /> : edited.value ? <Editor prompt={edited.value} onDone={() => (edited.value = null)} /> : <List onEdit={(prompt) => (edited.value = prompt)} />}
    </Dialog>
  );
}

function List({ onEdit }: { onEdit: (prompt: PromptView) => void }) {
  const query = useSignal("");
  const words = query.value.trim().toLowerCase();
  const found = prompts.value.filter((one) => !words || one.name.toLowerCase().includes(words) || one.text.toLowerCase().includes(words));
  const written = text.value.trim();
  return (
    <div class="settings-body">
      <p class="dim">Saved prompts and templates. Type <kbd>/</kbd> and a name in the message box to use one.</p>
      {prompts.value.length > SEARCHED_FROM && (
        <div class="search"><SearchIcon /><input type="search" aria-label="Search prompts" placeholder="Search prompts" value={query.value} onInput={(event) => (query.value = event.currentTarget.value)} /></div>
      )}
      {!found.length && <p class="empty">{words ? "No matching prompts" : "No prompts yet"}</p>}
      <ul class="keys">
        {found.map((one) => (
          <li key={one.name}>
            <Row name={one.name} note={[one.is_shared && "shared", ...fieldsOf(one).map((name) => `$${name}`)].filter(Boolean).join(" · ")}>
              <span class="buttons">
                <button type="button" class="chip danger" aria-label={`Delete ${one.name}`} onClick={() => void removePrompt(one.name).then(() => announce("Prompt deleted"), report)}>Delete</button>
                <button type="button" class="chip" aria-label={`Edit ${one.name}`} onClick={() => onEdit(one)}>Edit</button>
                <button type="button" class="chip" aria-label={`Use ${one.name}`} onClick={() => startPrompt(one)}>Use</button>
              </span>
            </Row>
            <p class="dim snippet">{one.text || one.system}</p>
          </li>
        ))}
      </ul>
      <div class="buttons end">
        {written && <button type="button" onClick={() => onEdit({ ...EMPTY, text: written })}>Save the message as a prompt</button>}
        <button type="button" class="primary" onClick={() => onEdit(EMPTY)}>New prompt</button>
      </div>
    </div>
  );
}

function Editor({ prompt, onDone }: { prompt: PromptView; onDone: () => void }) {
  const name = useSignal(prompt.name);
  const words = useSignal(prompt.text);
  const system = useSignal(prompt.system);
  const model = useSignal(prompt.model);
  const problem = useSignal("");
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await savePrompt(name.value.trim(), { text: words.value, system: system.value, model: model.value, params: prompt.params });
      announce("Prompt saved");
      onDone();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = `${error.message} ${error.hint}`;
    }
  };
  return (
    <form class="settings-body session-settings" onSubmit={(event) => void save(event)}>
      <Field label="Name" hint="Letters, digits, - and _.">
        {(facts) => <input {...facts} required value={name.value} readOnly={prompt.name !== ""} onInput={(event) => (name.value = event.currentTarget.value)} />}
      </Field>
      <Field label="Text" hint={<><code>$topic</code> is a field to fill in; <code>$input</code> is the text of the message box; <code>$$</code> is a dollar sign.</>}>
        {(facts) => <textarea {...facts} rows={6} value={words.value} onInput={(event) => (words.value = event.currentTarget.value)} />}
      </Field>
      <Field label="System prompt" hint="Optional. Set for the session when the prompt is used.">
        {(facts) => <textarea {...facts} rows={3} value={system.value} onInput={(event) => (system.value = event.currentTarget.value)} />}
      </Field>
      <Field label="Model">
        {(facts) => (
          <select {...facts} value={model.value} onChange={(event) => (model.value = event.currentTarget.value)}>
            <option value="">The session's model</option>
            {model.value && !models.value.some((one) => one.reference === model.value) && <option value={model.value}>{model.value}</option>}
            {models.value.map((one) => <option key={one.reference} value={one.reference}>{one.reference}</option>)}
          </select>
        )}
      </Field>
      {problem.value && <p role="alert" class="danger">{problem.value}</p>}
      <div class="buttons end">
        <button type="button" onClick={onDone}>Cancel</button>
        <button type="submit" class="primary" disabled={!words.value.trim() && !system.value.trim()}>Save</button>
      </div>
    </form>
  );
}

function FillIn({ prompt }: { prompt: PromptView }) {
  const fields = fieldsOf(prompt);
  const values = useSignal<Record<string, string>>(Object.fromEntries(fields.map((name) => [name, prompt.params[name] ?? ""])));
  return (
    <form class="settings-body session-settings" onSubmit={(event) => (event.preventDefault(), usePrompt(prompt, values.value))}>
      <p class="dim snippet">{prompt.text}</p>
      {fields.map((name) => (
        <Field key={name} label={name}>
          {(facts) => <textarea {...facts} rows={1} required value={values.value[name]} onInput={(event) => (values.value = { ...values.value, [name]: event.currentTarget.value })} />}
        </Field>
      ))}
      <div class="buttons end">
        <button type="button" onClick={() => (startedPrompt.value = null)}>Cancel</button>
        <button type="submit" class="primary">Use</button>
      </div>
    </form>
  );
}
