// The next request block by block, for several models at once. Opening it sends nothing.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { request } from "../api/http";
import type { Estimate, PlanModel, Plan } from "../api/types";
import { useFocusReturn } from "../parts/focus";
import { copyText } from "../parts/CopyButton";
import { CloseIcon, CopyIcon } from "../parts/icons";
import { Menu } from "../parts/Menu";
import { model, models, panel, sessionId, view } from "../state/app";
import { blocks, text } from "../state/composer";
import { type PlanDiff, diffWithLast } from "../state/plan_diff";
import { useModel } from "../state/actions";
import { billedText, discardText, estimateText } from "../state/estimate_text";
import { ORDER, changes, planFor } from "../state/plan";
import { riskyOverrides, setOverrides } from "../state/plan_changes";
import { report } from "../state/sessions";
import { formatCost, plural, shortModel, formatBytes, formatTokens } from "../state/format";
import { PAGE_ROWS, PlanTable } from "./PlanTable";

const MAX_MODELS = 3;

export function Inspector() {
  const others = useSignal<string[]>(defaultOthers());
  const found = useSignal<Plan | null>(null);
  const budget = useSignal(0);
  const showsReasons = useSignal(false);
  const showsDiff = useSignal(false);
  const rows = useSignal(PAGE_ROWS);
  const cheaper = useSignal<Estimate["cheaper"]>(null);
  const chosen = [model.value, ...others.value.filter((one) => one !== model.value)].slice(0, MAX_MODELS);
  const drawer = useRef<HTMLElement>(null);
  const wanted = [sessionId.value, view.value?.head, view.value?.live === null, chosen.join(), budget.value, showsDiff.value, rows.value, changes.value, text.value, blocks.value];
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      planFor(chosen, { maxTokens: budget.value, last: showsDiff.value, limit: showsDiff.value ? 0 : rows.value }, stop.signal).then(
        (plan) => (found.value = plan),
        (error: unknown) => error instanceof DOMException || report(error),
      );
    }, 120);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, wanted);
  // Searching a cheaper model compiles several requests: the plan does not wait for it.
  useEffect(() => {
    const stop = new AbortController();
    cheaper.value = null;
    const timer = setTimeout(() => {
      planFor([model.value], { cheaper: true, limit: 1 }, stop.signal).then(
        (plan) => (cheaper.value = plan.models[model.value]?.estimate?.cheaper ?? null),
        (error: unknown) => error instanceof DOMException || report(error),
      );
    }, 500);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [sessionId.value, view.value?.head, view.value?.live === null, model.value, changes.value, blocks.value]);
  useFocusReturn(drawer);
  const plan = found.value;
  const main = plan?.models[model.value];
  const changed = plan && showsDiff.value ? diffWithLast(plan, model.value) : null;
  return (
    <aside class="panel inspector" aria-label="Context inspector" ref={drawer} tabIndex={-1}>
      <header class="panel-head">
        <div>
          <h2>Context</h2>
          <p class="dim">What the <strong>next</strong> request will contain. Nothing is sent yet.</p>
        </div>
        <button type="button" class="icon" aria-label="Close inspector" onClick={() => (panel.value = "")}><CloseIcon /></button>
      </header>
      <div class="panel-body">
        <Columns chosen={chosen} plan={plan} others={others} />
        {main && <Share main={main} cheaper={cheaper.value} />}
        {riskyOverrides.value && (
          <p class="notice" role="alert">
            {riskyOverrides.value.warning}{" "}
            <button type="button" class="chip" onClick={() => void applyRisky()}>Apply</button>{" "}
            <button type="button" class="chip" onClick={() => (riskyOverrides.value = null)}>Cancel</button>
          </p>
        )}
        {main?.error && <p class="failure" role="alert"><strong>{main.error.message}</strong> {main.error.hint}</p>}
        {plan ? <PlanTable plan={plan} models={chosen.filter((one) => plan.models[one])} showsReasons={showsReasons.value} changed={changed} onMore={() => (rows.value += PAGE_ROWS)} /> : <p class="empty">Loading…</p>}
        {plan && showsDiff.value && <Since changed={changed} />}
        {plan && chosen.map((one) => plan.models[one]?.notices.map((words) => <p key={one + words} class="notice">{words}</p>))}
        <div class="buttons">
          <button type="button" class="chip" aria-pressed={showsReasons.value} onClick={() => (showsReasons.value = !showsReasons.value)}>Reasons</button>
          <button type="button" class="chip" aria-pressed={showsDiff.value} onClick={() => (showsDiff.value = !showsDiff.value)}>Diff with last request</button>
          <button type="button" class="chip" onClick={() => void copyWire()}><CopyIcon /> Copy request JSON</button>
        </div>
        {main && <Budget whole={main.limit} value={budget.value} onChange={(value) => (budget.value = value)} />}
      </div>
    </aside>
  );
}

/** What differs, in one line. */
function Since({ changed }: { changed: PlanDiff | null }) {
  if (!changed) return <p class="dim" role="status">{shortModel(model.value)} has not been used in this session yet: everything is new.</p>;
  const { added, changed: other, gone, same } = changed.counts;
  const words = [`${added} new`, `${other} changed`, `${gone} removed`, `${same} unchanged`].join(" · ");
  return <p class="dim" role="status">Since the last request to {shortModel(model.value)}: {words}</p>;
}

function defaultOthers(): string[] {
  // A text-only model shows best what images become.
  const textOnly = models.value.find((one) => !one.capabilities.vision);
  const withVision = models.value.find((one) => one.capabilities.vision && one.reference !== model.value);
  return [withVision, textOnly].flatMap((one) => (one ? [one.reference] : []));
}

function Columns({ chosen, plan, others }: { chosen: string[]; plan: Plan | null; others: { value: string[] } }) {
  const free = models.value.filter((one) => !chosen.includes(one.reference));
  return (
    <ul class="columns">
      {chosen.map((one) => {
        const found = plan?.models[one];
        const isMain = one === model.value;
        return (
          <li key={one} class={isMain ? "main" : ""}>
            <span class="clip" title={one}>{shortModel(one)}</span>
            <strong>{found ? formatTokens(found.tokens.in) : "…"}</strong>
            <span class="dim">{found ? `${formatBytes(found.bytes)} · ${formatCost(found.usd)}` : ""}</span>
            {found && found.images + found.pages > 0 && <span class="dim">{[found.images && plural(found.images, "image"), found.pages && plural(found.pages, "page")].filter(Boolean).join(" · ")}</span>}
            {!isMain && <button type="button" class="icon" aria-label={`Remove ${one}`} onClick={() => (others.value = others.value.filter((other) => other !== one))}><CloseIcon /></button>}
          </li>
        );
      })}
      {chosen.length < MAX_MODELS && free.length > 0 && (
        <li class="add">
          <Menu label="Compare with another model" class="chip" items={free.slice(0, 14).map((one) => ({ label: shortModel(one.reference), note: one.provider, act: () => (others.value = [...others.value, one.reference]) }))}>
            + Compare
          </Menu>
        </li>
      )}
    </ul>
  );
}

async function applyRisky(): Promise<void> {
  const wishes = riskyOverrides.value?.wishes;
  riskyOverrides.value = null;
  if (wishes) await setOverrides(wishes).catch(report);
}

function Share({ main, cheaper }: { main: PlanModel; cheaper: Estimate["cheaper"] }) {
  const whole = main.limit || 1;
  const estimate = main.estimate;
  const discards = discardText(estimate);
  return (
    <div class="share">
      <div class="meter-bar big" aria-hidden="true">
        {ORDER.map((one) => <span key={one} class={`seg ${one}`} style={{ width: `${Math.min(100, ((main.rendition_tokens?.[one] ?? 0) / whole) * 100)}%` }} />)}
      </div>
      <p class="dim">{main.tokens.exact ? "" : "≈ "}{formatTokens(main.tokens.in)} of {formatTokens(whole)} · {formatTokens(Math.max(0, whole - main.tokens.in))} left</p>
      {main.calibration && <p class="dim">Estimates corrected × {main.calibration.ratio.toFixed(2)}, from {plural(main.calibration.answers, "billed answer")}</p>}
      {estimate && <p class="estimate">Next request: {estimateText(estimate)}</p>}
      {discards && <p class="notice">{discards}</p>}
      {cheaper && <p class="estimate">Cheaper: <button type="button" class="link" onClick={() => void useModel(cheaper.model)}>{shortModel(cheaper.model)}</button> costs {formatCost(cheaper.usd)} ({formatTokens(cheaper.input_tokens)} tokens) and loses nothing</p>}
      {estimate?.last && <p class="dim">{billedText(estimate)}</p>}
    </div>
  );
}

function Budget({ whole, value, onChange }: { whole: number; value: number; onChange: (value: number) => void }) {
  const shown = value || whole;
  return (
    <label class="budget">
      <span>Preview with a limit of <strong>{formatTokens(shown)}</strong> tokens</span>
      <input type="range" min={Math.min(1000, whole)} max={whole} step={Math.max(1, Math.round(whole / 200))} value={shown} onInput={(event) => onChange(Number(event.currentTarget.value) >= whole ? 0 : Number(event.currentTarget.value))} />
    </label>
  );
}

async function copyWire(): Promise<void> {
  try {
    const body = await request<unknown>(`/sessions/${sessionId.value}/wire?model=${encodeURIComponent(model.value)}`);
    await copyText(JSON.stringify(body, null, 2), "Request JSON copied");
  } catch (error) {
    report(error);
  }
}
