// Whom to ask next, and what each would be sent of THIS conversation: before anything is lost, it is said.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { ModelView, Plan, PlanCell, Rendition } from "../api/shapes";
import { Dialog } from "../parts/Dialog";
import { AgainIcon, ColumnsIcon, SearchIcon } from "../parts/icons";
import { announce, dialog, model, models, sessionId, turns } from "../state/app";
import { planFor } from "../state/plan";
import { report } from "../state/sessions";
import { again, useModel } from "../state/turn";
import { because, dollars, GLYPHS, plural, shortModel, tokens } from "../state/words";

const PLANNED = 19;
const MOST_MARKED = 4;

export function ModelSwitcher() {
  const query = useSignal("");
  const at = useSignal(model.value);
  const plan = useSignal<Plan | null>(null);
  const marked = useSignal<string[]>([]);
  const words = query.value.trim().toLowerCase();
  const shown = models.value.filter((one) => one.reference.toLowerCase().includes(words)).sort((a, b) => Number(b.ready) - Number(a.ready));
  const asked = shown.slice(0, PLANNED).map((one) => one.reference);
  useEffect(() => {
    if (!sessionId.value || !asked.length) return;
    const stop = new AbortController();
    planFor([...new Set([model.value, ...asked])], {}, stop.signal).then(
      (found) => (plan.value = found),
      (error: unknown) => error instanceof DOMException || report(error),
    );
    return () => stop.abort();
  }, [asked.join()]);
  const close = (): void => {
    dialog.value = "";
  };
  const choose = (one: ModelView): void => {
    close();
    void useModel(one.reference);
  };
  const mark = (reference: string): void => {
    marked.value = marked.value.includes(reference) ? marked.value.filter((one) => one !== reference) : [...marked.value, reference].slice(-MOST_MARKED);
    announce(`${plural(marked.value.length, "model")} marked`);
  };
  const askAll = async (): Promise<void> => {
    close();
    const node = turns.value.at(-1)?.answers.at(-1)?.node;
    for (const one of marked.value) if (!(await again(node, one))) return;
  };
  const walk = (event: KeyboardEvent): void => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const here = shown.findIndex((one) => one.reference === at.value);
    const chosen = shown[here];
    if (by) at.value = shown[(here + by + shown.length) % shown.length]?.reference ?? "";
    else if (event.key === "Enter" && chosen) choose(chosen);
    else if (event.key === " " && chosen && canMark) mark(chosen.reference);
    else return;
    event.preventDefault();
    requestAnimationFrame(() => document.querySelector(".model-row.at")?.scrollIntoView({ block: "nearest" }));
  };
  const current = shown.find((one) => one.reference === at.value);
  const canMark = turns.value.length > 0;
  return (
    <Dialog title="Whom to ask" kind="models" onClose={close}>
      <div class="search">
        <SearchIcon />
        <input type="search" aria-label="Filter models" placeholder="Type to filter" value={query.value} onKeyDown={walk} aria-controls="model-list" aria-activedescendant={current ? `model-${current.reference}` : undefined} onInput={(event) => {
          query.value = event.currentTarget.value;
          at.value = models.value.find((one) => one.reference.toLowerCase().includes(query.value.trim().toLowerCase()))?.reference ?? "";
        }} />
      </div>
      <div class="model-head dim" aria-hidden="true">
        <span>model</span><span>window</span><span>takes</span><span class="number">$ / M in</span><span>would be sent</span>
      </div>
      <div id="model-list" class="model-list" role="listbox" aria-label="Models" tabIndex={0} onKeyDown={walk}>
        {shown.map((one) => (
          <div key={one.reference} id={`model-${one.reference}`} role="option" aria-selected={one.reference === model.value} class={`model-row${one.reference === at.value ? " at" : ""}${one.ready ? "" : " unready"}`} onPointerEnter={() => (at.value = one.reference)} onClick={() => choose(one)}>
            <span class="model-name"><strong class="clip">{one.name}</strong><span class="dim clip">{one.provider}{one.reference === model.value ? " · now" : ""}{marked.value.includes(one.reference) && <em> · marked</em>}</span></span>
            <span>{tokens(one.context_tokens)}</span>
            <span class="takes"><Takes model={one} /></span>
            <span class="number">{one.input_usd_per_million === null ? "?" : one.input_usd_per_million === 0 ? "free" : one.input_usd_per_million.toFixed(2)}</span>
            <span class="would"><Would plan={plan.value} reference={one.reference} /></span>
          </div>
        ))}
        {!shown.length && <p class="empty">No model is called that.</p>}
      </div>
      {current && <Preview model={current} plan={plan.value} onUse={() => choose(current)} onAgain={() => (close(), void again(undefined, current.reference))} isMarked={marked.value.includes(current.reference)} onMark={canMark ? () => mark(current.reference) : null} />}
      {marked.value.length > 0 && (
        <div class="buttons marked-models">
          <button type="button" class="primary" onClick={() => void askAll()}><ColumnsIcon /> Ask {marked.value.length === 1 ? "it" : `these ${marked.value.length}`} the last message</button>
          <span class="dim clip">{marked.value.map(shortModel).join(", ")}: answers side by side, as siblings</span>
        </div>
      )}
      <p class="dim legend">✓ declared or asked · <span class="guess">?</span> guessed, learned as it is used</p>
    </Dialog>
  );
}

const FLAGS = [["vision", "eyes"], ["native_pdf", "pdf"], ["thinking", "think"], ["tools", "tools"], ["audio", "ears"]] as const;

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
  return cell ? because(cell) : "";
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
      <span class={found.error ? "grave" : ""}>{found.error ? "✖ " : ""}{tokens(found.tokens.in)} · {dollars(found.usd)}</span>
      <span class="glyphs">{counts(plan, reference).map(([rendition, count]) => <span key={rendition} class={`count-of ${rendition}`} title={`${count} ${rendition}`}>{count}<span aria-hidden="true">{GLYPHS[rendition]}</span><span class="unseen">{rendition}</span></span>)}</span>
    </>
  );
}

/** What the other model would not see. */
interface PreviewProps {
  model: ModelView;
  plan: Plan | null;
  isMarked: boolean;
  onUse: () => void;
  onAgain: () => void;
  onMark: (() => void) | null;
}

function Preview({ model: one, plan, isMarked, onUse, onAgain, onMark }: PreviewProps) {
  const rows = plan?.rows ?? [];
  const worse = rows.flatMap((row) => {
    const cell = row.by_model[one.reference];
    return cell && row.digest && cell.rendition !== "full" ? [{ row, cell }] : [];
  });
  const gone = rows.filter((row) => !row.digest && row.by_model[one.reference]?.rendition === "omitted");
  const error = plan?.models[one.reference]?.error;
  const isNow = one.reference === model.value;
  return (
    <section class="preview" aria-label="What would change" aria-live="polite">
      <h3>{isNow ? `${shortModel(one.reference)} is asked now` : `With ${shortModel(one.reference)}`}</h3>
      {!one.ready && <p class="grave">Not ready: <code>{one.needs}</code></p>}
      {error && <p class="grave">{error.message} {error.hint}</p>}
      {plan && !worse.length && !gone.length && !error && <p>Everything in this conversation is sent in full.</p>}
      {worse.length > 0 && (
        <ul>
          {worse.slice(0, 5).map(({ row, cell }) => (
            <li key={row.key}><span class={`badge ${cell.rendition}`}><span aria-hidden="true">{GLYPHS[cell.rendition]}</span> {cell.rendition}</span> {row.label} <span class="dim">{because(cell)}</span></li>
          ))}
          {worse.length > 5 && <li class="dim">and {worse.length - 5} more</li>}
        </ul>
      )}
      {gone.length > 0 && <p class="dim">{plural(gone.length, "block")} would be left out: {reasonOf(gone[0]?.by_model[one.reference])}</p>}
      <div class="buttons">
        {!isNow && <button type="button" class="primary" onClick={onUse}>Use {shortModel(one.reference)}</button>}
        {!isNow && turns.value.length > 0 && <button type="button" onClick={onAgain}><AgainIcon /> Only answer the last message again</button>}
        {onMark && <button type="button" aria-pressed={isMarked} title="Mark (Space)" onClick={onMark}>Mark</button>}
      </div>
    </section>
  );
}
