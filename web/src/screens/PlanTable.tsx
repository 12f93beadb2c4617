// Blocks × models: rendition, tokens, reason. A click on a rendition changes it.
import { mediaUrl } from "../api/http";
import type { LastRow, Override, Plan, PlanCell, PlanRow, Rendition } from "../api/types";
import { EditIcon } from "../parts/icons";
import { Menu } from "../parts/Menu";
import { highlightedDigest } from "../state/app";
import { blockOf, lightbox, images } from "../state/images";
import type { Change, PlanDiff } from "../state/plan_diff";
import { editedAlt } from "../state/plan";
import { chooseOverrides } from "../state/plan_changes";
import { report } from "../state/sessions";
import { reasonText, formatCost, GLYPHS, shortModel, formatBytes, formatTokens } from "../state/format";

export const PAGE_ROWS = 60;

interface Props {
  plan: Plan;
  models: string[];
  showsReasons: boolean;
  /** Compared with the last request to the first model; null if hidden or if there was none. */
  changed: PlanDiff | null;
  /** Load earlier rows. */
  onMore: () => void;
}

export function PlanTable({ plan, models, showsReasons, changed, onMore }: Props) {
  const main = models[0] ?? "";
  const cached = plan.models[main]?.cached_rows ?? 0;
  // Loading and rendering thousands of rows takes seconds: the newest are shown, and more on request.
  const from = plan.above ?? 0;
  return (
    <div class="wide plan-wide" tabIndex={0} role="group" aria-label="Blocks of the next request">
      <table class="plan">
        <thead>
          <tr>
            <th scope="col">block</th>
            {models.map((one) => <th key={one} scope="col" class="number" title={one}>{shortModel(one)}</th>)}
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row"><div class="row-head"><span class="kind" aria-hidden="true">§</span><span class="row-label">System prompt and tools</span></div></th>
            {models.map((one) => <td key={one} class="number"><span class="cell">{formatTokens(overheadTokens(plan, one))}</span></td>)}
          </tr>
          {from > 0 && (
            <tr>
              <th scope="row" colSpan={models.length + 1}><button type="button" class="chip" onClick={onMore}>Show earlier blocks ({from} more)</button></th>
            </tr>
          )}
          {plan.rows.map((row, index) => (
            <Row key={`${row.key}.${from + index}`} row={row} models={models} showsReasons={showsReasons} since={changed?.rows.get(row.key) ?? null} isLastCached={cached > 0 && from + index === cached - 1} />
          ))}
          {changed?.left.map((row) => (
            <tr key={row.key} class="gone">
              <th scope="row"><div class="row-head"><span class="kind" aria-hidden="true">{KINDS[row.kind] ?? ""}</span><span class="row-label"><ChangeLabel change="gone" /> {row.label}</span></div></th>
              <td class="number"><span class="was">{row.rendition} {formatTokens(row.tokens)}</span></td>
              {models.slice(1).map((one) => <td key={one} />)}
            </tr>
          ))}
        </tbody>
        <tfoot>
          <Totals label="tokens" models={models} of={(one) => formatTokens(plan.models[one]?.tokens.in ?? 0)} />
          <Totals label="request size" models={models} of={(one) => formatBytes(plan.models[one]?.bytes ?? 0)} />
          <Totals label="cost" models={models} of={(one) => formatCost(plan.models[one]?.usd)} />
        </tfoot>
      </table>
      <p class="dim cache-note">{LEGEND.map((one) => <span key={one}><span class={`badge ${one}`} aria-hidden="true">{GLYPHS[one]}</span> {one} </span>)}</p>
      {cached > 0 && <p class="dim cache-note"><span class="dash" aria-hidden="true" /> unchanged since the last request up to here: eligible for the provider's prompt cache</p>}
    </div>
  );
}

/** Tokens of the system prompt and the tools: the total without the message blocks. */
function overheadTokens(plan: Plan, model: string): number {
  const shown = Object.values(plan.models[model]?.rendition_tokens ?? {}).reduce((sum, tokens) => sum + tokens, 0);
  return Math.max(0, (plan.models[model]?.tokens.in ?? 0) - shown);
}

function Totals({ label, models, of }: { label: string; models: string[]; of: (model: string) => string }) {
  return (
    <tr>
      <th scope="row">{label}</th>
      {models.map((one) => <td key={one} class="number">{of(one)}</td>)}
    </tr>
  );
}

const KINDS: Record<string, string> = { image: "▣", document: "▤", audio: "♪", video: "▶", tool_call: "⚒", tool_result: "⚒", thinking: "…" };
const LEGEND: Rendition[] = ["full", "low", "pages", "text", "omitted"];
const CHOICES: Override[] = ["full", "low", "text", "omitted"];

const CHANGE_LABELS: Record<Change, [string, string]> = { added: ["+", "new"], changed: ["~", "changed"], gone: ["−", "removed"], same: ["", ""] };

/** A sign and a word, never colour alone. */
function ChangeLabel({ change }: { change: Change }) {
  const [sign, word] = CHANGE_LABELS[change];
  return word ? <span class={`change ${change}`}>{sign} {word}</span> : null;
}

interface RowProps {
  row: PlanRow;
  models: string[];
  showsReasons: boolean;
  since: { change: Change; was: LastRow | null } | null;
  isLastCached: boolean;
}

function Row({ row, models, showsReasons, since, isLastCached }: RowProps) {
  const isMedia = row.digest !== "";
  const light = (digest: string): void => {
    highlightedDigest.value = digest;
  };
  const classes = [isMedia && highlightedDigest.value === row.digest && "lit", since?.change, isLastCached && "cached-to"].filter(Boolean).join(" ");
  return (
    <tr class={classes} onPointerEnter={() => light(row.digest)} onPointerLeave={() => light("")}>
      <th scope="row"><div class="row-head">
        {isMedia && row.kind === "image" ? <button type="button" class="row-thumb" aria-label={`Open ${row.label}`} onClick={() => show(row)}><img src={mediaUrl(row.digest, "thumb")} alt="" loading="lazy" /></button> : <span class="kind" aria-hidden="true">{KINDS[row.kind] ?? ""}</span>}
        <span class="row-label">
          {since && <ChangeLabel change={since.change} />} <span class="dim">{row.role === "user" ? "You" : row.role === "assistant" ? "Answer" : row.role}</span> {row.label}
          {row.alt && <span class="reason">“{row.alt}”</span>}
        </span>
      </div></th>
      {models.map((one, index) => {
        const cell = row.by_model[one];
        const was = index === 0 && since?.was && since.change !== "same" && since.was.rendition !== cell?.rendition ? since.was : null;
        return (
          <td key={one} class="number">
            {was && <span class="was">{was.rendition}</span>}
            {cell ? <Cell row={row} cell={cell} showsReasons={showsReasons} isMedia={isMedia} /> : "–"}
          </td>
        );
      })}
    </tr>
  );
}

function Cell({ row, cell, showsReasons, isMedia }: { row: PlanRow; cell: PlanCell; showsReasons: boolean; isMedia: boolean }) {
  const why = reasonText(cell);
  const isPlain = !isMedia && cell.rendition !== "omitted";
  const face = (
    <>
      {!isPlain && <span class={`badge ${cell.rendition}`} title={cell.rendition}><span aria-hidden="true">{GLYPHS[cell.rendition]}</span><span class="visually-hidden">{cell.rendition}</span></span>}
      <span>{cell.rendition === "omitted" ? "" : formatTokens(cell.tokens)}</span>
    </>
  );
  const set = (word: Override): void => {
    chooseOverrides({ [row.key]: word }).catch(report);
  };
  return (
    <>
      {row.key ? (
        <Menu
          label={`${row.label}: ${cell.rendition}, ${cell.tokens} tokens. Change`}
          class="cell"
          items={[
            { label: "Automatic", note: "use the default", act: () => set("auto") },
            ...CHOICES.filter((word) => isMedia || word === "omitted").map((word) => ({
              label: LABELS[word], icon: GLYPHS[word as Rendition], isChosen: cell.rendition === word, act: () => set(word),
            })),
            ...(isMedia ? [{ label: "Edit text alternative…", note: "sent to text-only models", icon: <EditIcon />, act: () => (editedAlt.value = row) }] : []),
          ]}
        >
          {face}
        </Menu>
      ) : (
        <span class="cell" title={why || undefined}>{face}</span>
      )}
      {showsReasons && why && <span class="reason">{why}</span>}
    </>
  );
}

const LABELS: Record<Override, string> = { full: "Always send in full", low: "Send at low resolution", text: "Send as text", omitted: "Do not send", auto: "Automatic" };

function show(row: PlanRow): void {
  const block = blockOf(row);
  const at = images.value.findIndex((one) => one.block === block);
  if (at >= 0) lightbox.value = { list: images.value, at };
}
