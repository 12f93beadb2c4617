// Choose the model, with a preview of what each one would be sent of this conversation.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { ModelView, Plan, PlanCell, Rendition } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { AgainIcon, SearchIcon } from "../parts/icons";
import { ColumnsIcon } from "../parts/rare_icons";
import { announce, askedModels, dialog, model, models, sessionId, turns } from "../state/app";
import { focusComposer } from "../state/composer";
import { discardText, estimateText } from "../state/estimate_text";
import { planFor } from "../state/plan";
import { report } from "../state/sessions";
import { regenerate, useModel } from "../state/actions";
import { reasonText, formatCost, GLYPHS, plural, shortModel, formatTokens } from "../state/format";

const PLANNED = 19;
const MAX_SELECTED = 4;

export function ModelSwitcher() {
  const query = useSignal("");
  const at = useSignal(model.value);
  const plan = useSignal<Plan | null>(null);
  const selected = useSignal<string[]>([]);
  const words = query.value.trim().toLowerCase();
  const shown = models.value.filter((one) => one.reference.toLowerCase().includes(words)).sort((a, b) => Number(b.ready) - Number(a.ready));
  const planned = shown.slice(0, PLANNED).map((one) => one.reference);
  useEffect(() => {
    if (!sessionId.value || !planned.length) return;
    const stop = new AbortController();
    planFor([...new Set([model.value, ...planned])], {}, stop.signal).then(
      (found) => (plan.value = found),
      (error: unknown) => error instanceof DOMException || report(error),
    );
    return () => stop.abort();
  }, [planned.join()]);
  const close = (): void => {
    dialog.value = "";
  };
  const choose = (one: ModelView): void => {
    close();
    void useModel(one.reference);
  };
  /** With a mouse the preview follows the pointer; a finger has none, so the first tap previews and the second chooses. */
  const pick = (one: ModelView, event: PointerEvent): void => {
    if (event.pointerType !== "mouse" && event.pointerType !== "" && at.value !== one.reference) {
      at.value = one.reference;
      announce(`Preview of ${shortModel(one.reference)}. Tap again to use it`);
    } else choose(one);
  };
  const toggleSelected = (reference: string): void => {
    selected.value = selected.value.includes(reference) ? selected.value.filter((one) => one !== reference) : [...selected.value, reference].slice(-MAX_SELECTED);
    announce(`${plural(selected.value.length, "model")} selected`);
  };
  const askNext = (): void => {
    close();
    askedModels.value = selected.value;
    focusComposer();
  };
  const askAll = async (): Promise<void> => {
    close();
    const node = turns.value.at(-1)?.answers.at(-1)?.node;
    for (const one of selected.value) if (!(await regenerate(node, one))) return;
  };
  const onKey = (event: KeyboardEvent): void => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const here = shown.findIndex((one) => one.reference === at.value);
    const chosen = shown[here];
    if (by) at.value = shown[(here + by + shown.length) % shown.length]?.reference ?? "";
    else if (event.key === "Enter" && chosen) choose(chosen);
    else if (event.key === " " && chosen) toggleSelected(chosen.reference);
    else return;
    event.preventDefault();
    requestAnimationFrame(() => document.querySelector(".model-row.at")?.scrollIntoView({ block: "nearest" }));
  };
  const current = shown.find((one) => one.reference === at.value);
  const hasQuestion = turns.value.length > 0;
  return (
    <Dialog title="Choose a model" kind="models" onClose={close}>
      <div class="search">
        <SearchIcon />
        <input type="search" aria-label="Filter models" placeholder="Type to filter" value={query.value} onKeyDown={onKey} aria-controls="model-list" aria-activedescendant={current ? `model-${current.reference}` : undefined} onInput={(event) => {
          query.value = event.currentTarget.value;
          at.value = models.value.find((one) => one.reference.toLowerCase().includes(query.value.trim().toLowerCase()))?.reference ?? "";
        }} />
      </div>
      <div class="model-head dim" aria-hidden="true">
        <span>model</span><span>context</span><span>supports</span><span class="number">$ / M in</span><span>request</span>
      </div>
      <div id="model-list" class="model-list" role="listbox" aria-label="Models" tabIndex={0} onKeyDown={onKey}>
        {shown.map((one) => (
          <div key={one.reference} id={`model-${one.reference}`} role="option" aria-selected={one.reference === model.value} class={`model-row${one.reference === at.value ? " at" : ""}${one.ready ? "" : " unready"}`} onPointerEnter={(event) => event.pointerType === "mouse" && (at.value = one.reference)} onClick={(event) => pick(one, event as unknown as PointerEvent)}>
            <span class="model-name"><strong class="clip">{one.name}</strong><span class="dim clip">{one.provider}{one.reference === model.value ? " · current" : ""}{selected.value.includes(one.reference) && <em> · selected</em>}</span></span>
            <span>{formatTokens(one.context_tokens)}</span>
            <span class="takes"><Takes model={one} /></span>
            <span class="number">{one.input_usd_per_million === null ? "?" : one.input_usd_per_million === 0 ? "free" : one.input_usd_per_million.toFixed(2)}</span>
            <span class="would"><Would plan={plan.value} reference={one.reference} /></span>
          </div>
        ))}
        {!shown.length && <p class="empty">No matching models</p>}
      </div>
      {current && <Preview model={current} plan={plan.value} onUse={() => choose(current)} onRegenerate={() => (close(), void regenerate(undefined, current.reference))} isSelected={selected.value.includes(current.reference)} onSelect={() => toggleSelected(current.reference)} />}
      {selected.value.length > 0 && (
        <div class="buttons selected-models">
          {selected.value.length > 1 && <button type="button" class="primary" onClick={askNext}><ColumnsIcon /> Ask {plural(selected.value.length, "model")} side by side</button>}
          {hasQuestion && <button type="button" onClick={() => void askAll()}><AgainIcon /> Send the last message to {plural(selected.value.length, "model")}</button>}
          <span class="dim clip">{selected.value.map(shortModel).join(", ")}: each answer becomes a version</span>
        </div>
      )}
      {shown.some(isGuessed) && <p class="dim legend"><span class="guess">?</span> assumed until the model is used</p>}
    </Dialog>
  );
}

const FLAGS = [["vision", "images"], ["native_pdf", "PDF"], ["thinking", "thinking"], ["tools", "tools"], ["audio", "audio"], ["video", "video"]] as const;

function isGuessed(one: ModelView): boolean {
  return FLAGS.some(([flag]) => one.capabilities[flag] && one.origins[flag] === "guessed");
}

function Takes({ model: one }: { model: ModelView }) {
  return (
    <>
      {FLAGS.filter(([flag]) => one.capabilities[flag]).map(([flag, word]) => (
        <span key={flag} class={`flag${one.origins[flag] === "guessed" ? " guess" : ""}`}>{word}{one.origins[flag] === "guessed" ? "?" : ""}</span>
      ))}
    </>
  );
}

function reasonOf(cell: PlanCell | undefined): string {
  return cell ? reasonText(cell) : "";
}

function counts(plan: Plan, reference: string): [Rendition, number][] {
  const found = new Map<Rendition, number>();
  for (const row of plan.rows) {
    const cell = row.by_model[reference];
    if (cell && (row.digest || cell.rendition === "omitted")) found.set(cell.rendition, (found.get(cell.rendition) ?? 0) + 1);
  }
  return [...found];
}

function Would({ plan, reference }: { plan: Plan | null; reference: string }) {
  const found = plan?.models[reference];
  if (!plan || !found) return <span class="dim">{sessionId.value ? "…" : ""}</span>;
  return (
    <>
      <span class={found.error ? "danger" : ""}>{found.error ? "✖ " : ""}{formatTokens(found.tokens.in)} · {formatCost(found.usd)}</span>
      <span class="glyphs">{counts(plan, reference).map(([rendition, count]) => <span key={rendition} class={`count-of ${rendition}`} title={`${count} ${rendition}`}>{count}<span aria-hidden="true">{GLYPHS[rendition]}</span><span class="visually-hidden">{rendition}</span></span>)}</span>
    </>
  );
}

/** What the model would not get in full. */
interface PreviewProps {
  model: ModelView;
  plan: Plan | null;
  isSelected: boolean;
  onUse: () => void;
  onRegenerate: () => void;
  onSelect: () => void;
}

function Preview({ model: one, plan, isSelected, onUse, onRegenerate, onSelect }: PreviewProps) {
  const rows = plan?.rows ?? [];
  const worse = rows.flatMap((row) => {
    const cell = row.by_model[one.reference];
    return cell && row.digest && cell.rendition !== "full" ? [{ row, cell }] : [];
  });
  const gone = rows.filter((row) => !row.digest && row.by_model[one.reference]?.rendition === "omitted");
  const error = plan?.models[one.reference]?.error;
  const estimate = plan?.models[one.reference]?.estimate;
  const discards = discardText(estimate);
  const isNow = one.reference === model.value;
  return (
    <section class="preview" aria-label="What would change" aria-live="polite">
      <h3>{isNow ? `${shortModel(one.reference)} is the current model` : `With ${shortModel(one.reference)}`}</h3>
      {!one.ready && <p class="danger">Not ready: <code>{one.needs}</code></p>}
      {error && <p class="danger">{error.message} {error.hint}</p>}
      {plan && !worse.length && !gone.length && !error && <p>Everything in this conversation is sent in full.</p>}
      {estimate && !error && <p class="estimate">Next request: {estimateText(estimate)}</p>}
      {discards && <p class="notice">{discards}</p>}
      {worse.length > 0 && (
        <ul>
          {worse.slice(0, 5).map(({ row, cell }) => (
            <li key={row.key}><span class={`badge ${cell.rendition}`}><span aria-hidden="true">{GLYPHS[cell.rendition]}</span> {cell.rendition}</span> {row.label} <span class="dim">{reasonText(cell)}</span></li>
          ))}
          {worse.length > 5 && <li class="dim">and {worse.length - 5} more</li>}
        </ul>
      )}
      {gone.length > 0 && <p class="dim">{plural(gone.length, "block")} would be omitted: {reasonOf(gone[0]?.by_model[one.reference])}</p>}
      <div class="buttons">
        {!isNow && <button type="button" class="primary" onClick={onUse}>Use {shortModel(one.reference)}</button>}
        {!isNow && turns.value.length > 0 && <button type="button" onClick={onRegenerate}><AgainIcon /> Regenerate the last answer only</button>}
        <button type="button" aria-pressed={isSelected} title="Ask it together with others (Space)" onClick={onSelect}><ColumnsIcon /> {isSelected ? "Remove from comparison" : "Add to comparison"}</button>
      </div>
    </section>
  );
}
