// Blocks × models: rendition, tokens, reason. A click on a rendition pins another one; the plan is made anew.
import { mediaUrl } from "../api/http";
import type { LastRow, Override, Plan, PlanCell, PlanRow, Rendition } from "../api/shapes";
import { EditIcon } from "../parts/icons";
import { Menu } from "../parts/Menu";
import { litDigest } from "../state/app";
import { opened, pictures } from "../state/pictures";
import type { Change, Changed } from "../state/changed";
import { setOverrides, worded } from "../state/plan";
import { report } from "../state/sessions";
import { because, dollars, GLYPHS, shortModel, size, tokens } from "../state/words";

interface Props {
  plan: Plan;
  models: string[];
  showsReasons: boolean;
  /** Against the last request to the first model; null where that is not asked for, or where there was none. */
  changed: Changed | null;
}

export function PlanTable({ plan, models, showsReasons, changed }: Props) {
  const main = models[0] ?? "";
  const cached = plan.models[main]?.cached_rows ?? 0;
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
            <th scope="row"><div class="row-face"><span class="kind" aria-hidden="true">§</span><span class="row-label">system and tools</span></div></th>
            {models.map((one) => <td key={one} class="number"><span class="cell">{tokens(beside(plan, one))}</span></td>)}
          </tr>
          {plan.rows.map((row, index) => (
            <Row key={`${row.key}.${index}`} row={row} models={models} showsReasons={showsReasons} since={changed?.rows.get(row.key) ?? null} isLastCached={cached > 0 && index === cached - 1} />
          ))}
          {changed?.left.map((row) => (
            <tr key={row.key} class="gone">
              <th scope="row"><div class="row-face"><span class="kind" aria-hidden="true">{KINDS[row.kind] ?? ""}</span><span class="row-label"><Mark change="gone" /> {row.label}</span></div></th>
              <td class="number"><span class="was">{row.rendition} {tokens(row.tokens)}</span></td>
              {models.slice(1).map((one) => <td key={one} />)}
            </tr>
          ))}
        </tbody>
        <tfoot>
          <Totals label="tokens" models={models} of={(one) => tokens(plan.models[one]?.tokens.in ?? 0)} />
          <Totals label="on the wire" models={models} of={(one) => size(plan.models[one]?.bytes ?? 0)} />
          <Totals label="this request" models={models} of={(one) => dollars(plan.models[one]?.usd)} />
        </tfoot>
      </table>
      <p class="dim cache-note">{LEGEND.map((one) => <span key={one}><span class={`badge ${one}`} aria-hidden="true">{GLYPHS[one]}</span> {one} </span>)}</p>
      {cached > 0 && <p class="dim cache-note"><span class="dash" aria-hidden="true" /> unchanged since the last request up to here: the provider's cache can serve it</p>}
    </div>
  );
}

/** What goes along with the messages: the whole less its blocks. */
function beside(plan: Plan, model: string): number {
  const shown = plan.rows.reduce((sum, row) => sum + (row.by_model[model]?.tokens ?? 0), 0);
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

const KINDS: Record<string, string> = { image: "▣", document: "▤", audio: "♪", tool_call: "⚒", tool_result: "⚒", thinking: "…" };
const LEGEND: Rendition[] = ["full", "low", "pages", "text", "omitted"];
const WORDS: Override[] = ["full", "low", "text", "omitted"];

const MARKS: Record<Change, [string, string]> = { added: ["+", "new"], changed: ["~", "changed"], gone: ["−", "gone"], same: ["", ""] };

/** A sign and a word: never colour alone. */
function Mark({ change }: { change: Change }) {
  const [sign, word] = MARKS[change];
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
    litDigest.value = digest;
  };
  const classes = [isMedia && litDigest.value === row.digest && "lit", since?.change, isLastCached && "cached-to"].filter(Boolean).join(" ");
  return (
    <tr class={classes} onPointerEnter={() => light(row.digest)} onPointerLeave={() => light("")}>
      <th scope="row"><div class="row-face">
        {isMedia && row.kind === "image" ? <button type="button" class="row-thumb" aria-label={`Open ${row.label}`} onClick={() => show(row)}><img src={mediaUrl(row.digest, "thumb")} alt="" loading="lazy" /></button> : <span class="kind" aria-hidden="true">{KINDS[row.kind] ?? ""}</span>}
        <span class="row-label">
          {since && <Mark change={since.change} />} <span class="dim">{row.role === "user" ? "you" : row.role === "assistant" ? "answer" : row.role}</span> {row.label}
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
  const why = because(cell);
  const isPlain = !isMedia && cell.rendition !== "omitted";
  const face = (
    <>
      {!isPlain && <span class={`badge ${cell.rendition}`} title={cell.rendition}><span aria-hidden="true">{GLYPHS[cell.rendition]}</span><span class="unseen">{cell.rendition}</span></span>}
      <span>{cell.rendition === "omitted" ? "" : tokens(cell.tokens)}</span>
    </>
  );
  const set = (word: Override): void => {
    setOverrides({ [row.key]: word }).catch(report);
  };
  return (
    <>
      {row.key ? (
        <Menu
          label={`${row.label}: ${cell.rendition}, ${cell.tokens} tokens. Change`}
          class="cell"
          items={[
            { label: "auto", note: "as the policy says", act: () => set("auto") },
            ...WORDS.filter((word) => isMedia || word === "omitted").map((word) => ({
              label: LABELS[word], icon: GLYPHS[word as Rendition], isChosen: cell.rendition === word, act: () => set(word),
            })),
            ...(isMedia ? [{ label: "edit the words…", note: "what the blind will read", icon: <EditIcon />, act: () => (worded.value = row) }] : []),
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

const LABELS: Record<Override, string> = { full: "pin at full", low: "pin at low", text: "send as text", omitted: "leave out", auto: "auto" };

function show(row: PlanRow): void {
  const at = pictures.value.findIndex((one) => one.digest === row.digest);
  if (at >= 0) opened.value = { list: pictures.value, at };
}
