// Tokens and cost by day, model and session, with a plot of the days; and the use of tools.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request } from "../api/http";
import type { ToolUsageRow, UsageReport, UsageRow } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { dialog } from "../state/app";
import { formatCost, formatTokens, plural, shortModel } from "../state/format";
import { go, report } from "../state/sessions";

const PERIODS = [7, 30, 90];

interface Sum {
  key: string;
  label: string;
  answers: number;
  input: number;
  output: number;
  usd: number;
  unpriced: number;
  /** Tokens of requests as estimated before they were sent, and as billed. */
  estimated: number;
  billed: number;
}

function sumBy(rows: UsageRow[], keyOf: (row: UsageRow) => [string, string]): Sum[] {
  const sums = new Map<string, Sum>();
  for (const row of rows) {
    const [key, label] = keyOf(row);
    const found = sums.get(key) ?? { key, label, answers: 0, input: 0, output: 0, usd: 0, unpriced: 0, estimated: 0, billed: 0 };
    found.answers += row.answers ?? 0;
    found.input += row.usage?.input_tokens ?? 0;
    found.output += row.usage?.output_tokens ?? 0;
    found.usd += row.usd ?? 0;
    found.unpriced += row.unpriced ?? 0;
    found.estimated += row.estimated_tokens ?? 0;
    found.billed += row.estimated_input_tokens ?? 0;
    sums.set(key, found);
  }
  return [...sums.values()];
}

export function Usage() {
  const days = useSignal(30);
  const found = useSignal<UsageReport | null>(null);
  useEffect(() => {
    request<UsageReport>(`/usage?days=${days.value}&tools=true`).then((usage) => (found.value = usage), report);
  }, [days.value]);
  const rows = found.value?.rows ?? [];
  const [total] = sumBy(rows, () => ["total", "Total"]);
  return (
    <Dialog title="Usage and cost" kind="wide" onClose={() => (dialog.value = "")}>
      <div class="usage">
        <fieldset class="choices">
          <legend class="visually-hidden">Period</legend>
          {PERIODS.map((one) => (
            <label key={one}><input type="radio" name="period" checked={days.value === one} onChange={() => (days.value = one)} /> {one} days</label>
          ))}
        </fieldset>
        {!found.value && <p class="empty">Loading…</p>}
        {found.value && !total && <p class="empty">No answers in this period.</p>}
        {total && (
          <>
            <p class="usage-total"><strong>{cost(total)}</strong> · {plural(total.answers, "answer")} · {formatTokens(total.input)} in · {formatTokens(total.output)} out</p>
            {total.unpriced > 0 && <p class="notice">The price of {plural(total.unpriced, "answer")} is not known.</p>}
            <Plot days={found.value?.days ?? 30} sums={sumBy(rows, (row) => [row.day, row.day])} />
            <Sums title="By model" sums={sumBy(rows, (row) => [row.model, shortModel(row.model) || "unknown"])} />
            <Sums title="By session" sums={sumBy(rows, (row) => [row.session, row.title || "Untitled"])} onOpen={(key) => ((dialog.value = ""), go(key))} />
            <Tools rows={found.value?.tools ?? []} />
          </>
        )}
      </div>
    </Dialog>
  );
}

function cost(sum: Sum): string {
  return formatCost(sum.usd) + (sum.unpriced ? " +" : "");
}

/** `+4 %` if more was estimated than billed. */
function estimateError(sum: Sum): string {
  if (!sum.billed) return "-";
  const percent = Math.round(100 * (sum.estimated / sum.billed - 1));
  return `${percent < 0 ? "−" : "+"}${Math.abs(percent)} %`;
}

function dayBefore(count: number): string {
  const day = new Date();
  day.setDate(day.getDate() - count);
  return `${day.getFullYear()}-${String(day.getMonth() + 1).padStart(2, "0")}-${String(day.getDate()).padStart(2, "0")}`;
}

/** A bar for each day: the cost, or the tokens where nothing has a price. The table below it has the same numbers. */
function Plot({ days, sums }: { days: number; sums: Sum[] }) {
  const byDay = new Map(sums.map((one) => [one.key, one]));
  const shown = Array.from({ length: days }, (_, index) => dayBefore(days - 1 - index));
  const isPriced = sums.some((one) => one.usd > 0);
  const valueOf = (sum: Sum | undefined): number => (!sum ? 0 : isPriced ? sum.usd : sum.input + sum.output);
  const most = Math.max(...shown.map((day) => valueOf(byDay.get(day))), Number.MIN_VALUE);
  const label = (sum: Sum | undefined): string => (!sum ? "0" : isPriced ? cost(sum) : `${formatTokens(sum.input + sum.output)} tokens`);
  const width = 100 / days;
  return (
    <figure class="plot">
      <svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label={`${isPriced ? "Cost" : "Tokens"} per day, at most ${label(byDay.get(shown.reduce((best, day) => (valueOf(byDay.get(day)) > valueOf(byDay.get(best)) ? day : best))))}`}>
        {shown.map((day, index) => {
          const height = (valueOf(byDay.get(day)) / most) * 38;
          return <rect key={day} x={index * width + width * 0.1} y={40 - height} width={width * 0.8} height={height}><title>{day}: {label(byDay.get(day))}</title></rect>;
        })}
      </svg>
      <figcaption class="dim"><span>{shown[0]}</span><span>{isPriced ? "cost per day" : "tokens per day"}</span><span>{shown.at(-1)}</span></figcaption>
    </figure>
  );
}

interface Line {
  key: string;
  label: string;
  cells: (string | number)[];
}

function Table({ title, columns, lines, onOpen }: { title: string; columns: string[]; lines: Line[]; onOpen?: (key: string) => void }) {
  return (
    <section>
      <h3>{title}</h3>
      <div class="wide" tabIndex={0} role="group" aria-label={title}>
        <table class="sums">
          <thead><tr><th scope="col">{title.slice(3)}</th>{columns.map((one) => <th key={one} scope="col" class="number">{one}</th>)}</tr></thead>
          <tbody>
            {lines.slice(0, 20).map((one) => (
              <tr key={one.key}>
                <th scope="row">{onOpen ? <button type="button" class="link" onClick={() => onOpen(one.key)}>{one.label}</button> : one.label}</th>
                {one.cells.map((cell, at) => <td key={columns[at]} class="number">{cell}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Sums({ title, sums, onOpen }: { title: string; sums: Sum[]; onOpen?: (key: string) => void }) {
  const sorted = [...sums].sort((a, b) => b.usd - a.usd || b.input + b.output - a.input - a.output);
  const lines = sorted.map((one) => ({ ...one, cells: [one.answers, formatTokens(one.input), formatTokens(one.output), estimateError(one), cost(one)] }));
  return <Table title={title} columns={["answers", "in", "out", "estimate", "cost"]} lines={lines} onOpen={onOpen} />;
}

/** The calls of each tool, most used first, and what their results add to requests. */
function Tools({ rows }: { rows: ToolUsageRow[] }) {
  const used = new Map<string, { calls: number; failed: number; media: number; tokens: number }>();
  for (const row of rows) {
    const found = used.get(row.tool) ?? { calls: 0, failed: 0, media: 0, tokens: 0 };
    found.calls += row.calls ?? 0;
    found.failed += row.failed ?? 0;
    found.media += row.media ?? 0;
    found.tokens += row.text_tokens ?? 0;
    used.set(row.tool, found);
  }
  if (!used.size) return null;
  const sorted = [...used].sort(([, a], [, b]) => b.calls - a.calls);
  const lines = sorted.map(([key, one]) => ({ key, label: key || "unknown", cells: [one.calls, one.failed, one.media, formatTokens(one.tokens)] }));
  return <Table title="By tool" columns={["calls", "failed", "media", "tokens"]} lines={lines} />;
}
