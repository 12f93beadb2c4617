// Formatting of numbers, names and times.
import type { PlanCell, Rendition } from "../api/types";

export const GLYPHS: Record<Rendition, string> = { full: "●", low: "◐", pages: "▤", text: "○", omitted: "✕" };

const REASONS: Record<PlanCell["reason"], string> = {
  "": "",
  age: "older turns are sent smaller",
  budget: "to fit the context window",
  capability: "not supported by the model",
  limit: "provider limit",
  missing: "file no longer available",
  "other-model": "another model's reasoning",
  override: "chosen by you",
  prefix: "keeps the prompt cache",
  quarantine: "refused by the provider before",
  repair: "repaired",
};

/** The reason for a rendition. */
export function reasonText(cell: PlanCell): string {
  return cell.detail || REASONS[cell.reason];
}

export function formatTokens(count: number): string {
  if (count < 1000) return String(count);
  const value = count / 1000;
  return value < 99.95 ? `${trimmed(value)}k` : value < 1000 ? `${Math.round(value)}k` : `${trimmed(value / 1000)}M`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["KB", "MB", "GB"];
  let value = bytes / 1000;
  let at = 0;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${value >= 10 || at === 0 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export function formatCost(usd: number | null | undefined): string {
  if (usd == null) return "$?";
  if (usd === 0) return "free";
  return usd < 0.0005 ? "< $0.001" : `$${usd < 1 ? usd.toFixed(3) : usd.toFixed(2)}`;
}

export function formatSeconds(value: number): string {
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 60) return `${Math.round(value)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

function trimmed(value: number): string {
  return value.toFixed(1).replace(/\.0$/, "");
}

/** `anthropic/claude-opus-5` → `claude-opus-5`. */
export function shortModel(reference: string): string {
  return reference.slice(reference.lastIndexOf("/") + 1) || reference;
}

/** Remove Markdown markers from a one-line preview. */
export function stripMarkdown(line: string): string {
  return line.replace(/[`*#>]+/g, "");
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

export function dayLabel(epochSeconds: number, now: Date): string {
  const then = new Date(epochSeconds * 1000);
  const days = Math.round((midnight(now) - midnight(then)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return then.toLocaleDateString("en", { weekday: "long" });
  return then.toLocaleDateString("en", { day: "numeric", month: "long", year: then.getFullYear() === now.getFullYear() ? undefined : "numeric" });
}

function midnight(date: Date): number {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

/** Made once each: making one takes longer than all formatting. */
const clocks = new Map<string, Intl.DateTimeFormat>();

/** "14:05" today, "12 Nov, 14:05" before. */
export function clockTime(epochSeconds: number, now: Date): string {
  const then = new Date(epochSeconds * 1000);
  const isToday = midnight(then) === midnight(now);
  const isThisYear = then.getFullYear() === now.getFullYear();
  const kind = `${isToday}${isThisYear}`;
  const clock = clocks.get(kind) ?? new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", ...(isToday ? {} : { day: "numeric", month: "short" }), ...(isThisYear ? {} : { year: "numeric" }) });
  clocks.set(kind, clock);
  return clock.format(then);
}

export function timeAgo(epochSeconds: number, now: number): string {
  const past = Math.max(0, now / 1000 - epochSeconds);
  if (past < 60) return "now";
  if (past < 3600) return `${Math.floor(past / 60)} min`;
  if (past < 86_400) return `${Math.floor(past / 3600)} h`;
  return new Date(epochSeconds * 1000).toLocaleDateString("en", { day: "numeric", month: "short" });
}

/** A day and a time, as the browser's language writes them. */
export function formatMoment(epochSeconds: number): string {
  return new Date(epochSeconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}
