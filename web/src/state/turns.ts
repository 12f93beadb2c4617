// Turns: stored messages and the live answer as the page shows them. A user's message, then the parts of the answer in
// order, calls with their results. Unchanged turns keep their identity, so that only the last turn is rendered again.
import type { Block, Citation, MediaBlock, ToolCall, ToolResult } from "../api/blocks";
import { isMedia } from "../api/blocks";
import type { ApprovalRequested, MessageView, Usage } from "../api/types";
import { addUsage, type Draft, type Live, type Run, type View, waitingMessages } from "./view";

export type Part =
  | { kind: "text"; key: string; text: string; citations: Citation[]; isOpen: boolean }
  | { kind: "thinking"; key: string; text: string; began: number | null; seconds: number | null; isOpen: boolean }
  | { kind: "media"; key: string; block: MediaBlock }
  | { kind: "partial" | "notice"; key: string; text: string }
  | { kind: "tool"; key: string; call: ToolCall; isWhole: boolean; result: ToolResult | null; run: Run | null; approval: ApprovalRequested | null };

export interface Turn {
  key: string;
  number: number;
  user: MessageView | null;
  answers: MessageView[];
  /** The first message of the answer that has other versions. */
  forked: MessageView | null;
  parts: Part[];
  model: string;
  isLive: boolean;
  began: number | null;
  usage: Usage | null;
  usd: number | null;
  seconds: number | null;
  stop: string | null;
  ending: Ending;
  /** Only the last turn can be continued. */
  isLast: boolean;
}

/** Why the answer of a turn is not complete; empty for a complete or running one. */
export type Ending = "" | "stopped" | "interrupted" | "incomplete" | "unanswered";

const ENDINGS: Record<string, Ending> = { "turn.cancelled": "stopped", "turn.interrupted": "interrupted" };
const STORED_ENDINGS: Record<string, Ending> = { cancelled: "stopped", interrupted: "interrupted", incomplete: "incomplete" };

type Kept = { turn: Turn; sources: unknown[] };

/** Caches turns, so that equal input returns the same objects. */
export class TurnList {
  private kept = new Map<string, Kept>();

  of(view: View): Turn[] {
    const fresh = new Map<string, Kept>();
    const turns = groupTurns(view.messages).map((messages, index, all) => {
      const isLast = index === all.length - 1;
      const live = isLast ? view.live : null;
      const key = messages[0]?.node ?? "";
      const ids = messages.flatMap((message) => message.blocks.flatMap((block) => (block.type === "tool_call" ? [block.id] : [])));
      const sources: unknown[] = [...messages, index, live, ...ids.map((id) => view.runs[id]), isLast, isLast ? view.approvals : null, isLast ? view.failure : null, isLast ? view.asides : null, isLast && waitingMessages(view).length > 0];
      const old = this.kept.get(key);
      const found = old && equal(old.sources, sources) ? old : { turn: buildTurn(messages, index + 1, view, live, isLast), sources };
      fresh.set(key, found);
      return found.turn;
    });
    this.kept = fresh;
    const onlyLive = view.messages.length === 0 && view.live;
    return onlyLive ? [buildTurn([], 1, view, view.live, true)] : turns;
  }
}

function equal(a: unknown[], b: unknown[]): boolean {
  return a.length === b.length && a.every((value, index) => value === b[index]);
}

function groupTurns(messages: MessageView[]): MessageView[][] {
  const groups: MessageView[][] = [];
  for (const message of messages) {
    const last = groups.at(-1);
    if (message.role === "user" || !last) groups.push([message]);
    else last.push(message);
  }
  return groups;
}

function buildTurn(messages: MessageView[], number: number, view: View, live: Live | null, isLast: boolean): Turn {
  const user = messages[0]?.role === "user" ? messages[0] : null;
  const answers = messages.filter((message) => message.role === "assistant");
  const results = new Map<string, ToolResult>();
  for (const message of messages) {
    for (const block of message.blocks) if (block.type === "tool_result") results.set(block.call_id, block);
  }
  const parts = messages.flatMap((message, index): (Part | null)[] => {
    const asides = asidesAfter(view, message.node);
    const isContinued = message.stop === "interrupted" && (index < messages.length - 1 || live !== null);
    // The notice of the event says more, but only a page that was open has it.
    if (isContinued && !asides.some((part) => part.kind === "notice")) asides.push({ kind: "notice", key: `continued.${message.node}`, text: "Continued after an interruption." });
    return [...(message.role === "assistant" ? joinTexts(message.blocks).map((block, at) => storedPart(block, message, at, results, view)) : []), ...asides];
  }).filter((part): part is Part => part !== null);
  if (!messages.length) parts.push(...asidesAfter(view, view.head));
  if (live) parts.push(...liveParts(live, view));
  joinContinued(parts);
  const usage = answers.reduce<Usage | null>((sum, one) => (one.usage ? addUsage(sum ?? {}, one.usage) : sum), null);
  return {
    key: messages[0]?.node ?? "live",
    number,
    user,
    answers,
    forked: messages.find((one) => one.role !== "user" && one.siblings.length > 1) ?? null,
    parts,
    model: live?.model || (answers.at(-1)?.model ?? ""),
    isLive: live !== null,
    began: live?.began ?? null,
    usage,
    usd: sumOf(answers.map((one) => one.usd)),
    seconds: sumOf(answers.map((one) => one.seconds)),
    stop: answers.at(-1)?.stop ?? null,
    ending: live ? "" : endingOf(user, messages, view, isLast),
    isLast,
  };
}

function asidesAfter(view: View, node: string | null): Part[] {
  return view.asides.filter((one) => one.after === node).map((one) => ({ kind: one.kind, key: `aside.${one.id}`, text: one.text }));
}

function endingOf(user: MessageView | null, messages: MessageView[], view: View, isLast: boolean): Ending {
  const answers = messages.filter((message) => message.role === "assistant");
  // A card below the conversation says why a turn failed.
  if (isLast && view.failure) return ENDINGS[view.failure.code] ?? "";
  const stored = STORED_ENDINGS[answers.at(-1)?.stop ?? ""];
  if (stored) return stored;
  // Stopped while tools ran. Before a message that steered the turn, that is how its beginning looks.
  if (isLast && messages.at(-1)?.role === "tool") return "incomplete";
  // Only a snapshot lists siblings: a message that has just arrived is about to be answered.
  const isOld = user !== null && user.siblings.length > 0;
  return isOld && !answers.length && !(isLast && waitingMessages(view).length) ? "unanswered" : "";
}

function sumOf(values: (number | null | undefined)[]): number | null {
  const known = values.filter((value): value is number => typeof value === "number");
  return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
}

/** Join the texts around the notice of a continuation, which then follows: a code block or a sentence may be cut there. */
function joinContinued(parts: Part[]): void {
  for (let at = parts.length - 1; at > 1; at -= 1) {
    const [before, notice, after] = parts.slice(at - 2, at + 1);
    if (before?.kind !== "text" || notice?.kind !== "notice" || after?.kind !== "text") continue;
    const text = { ...before, text: before.text + after.text, citations: [...before.citations, ...after.citations], isOpen: after.isOpen };
    const next = parts[at + 1];
    parts.splice(at - 2, 3, text, ...(next?.kind === "notice" && next.text === notice.text ? [] : [notice]));
  }
}

/** Join neighbouring text blocks: providers split them at citations. */
function joinTexts(blocks: Block[]): Block[] {
  const whole: Block[] = [];
  for (const block of blocks) {
    const last = whole.at(-1);
    if (block.type === "text" && last?.type === "text") {
      const citations = [...(last.citations ?? []), ...(block.citations ?? [])];
      whole[whole.length - 1] = { ...last, text: last.text + block.text, citations };
    } else whole.push(block);
  }
  return whole;
}

function storedPart(block: Block, message: MessageView, index: number, results: Map<string, ToolResult>, view: View): Part | null {
  const key = `${message.node}.${index}`;
  if (isMedia(block)) return { kind: "media", key, block };
  switch (block.type) {
    case "text":
      return { kind: "text", key, text: block.text, citations: block.citations ?? [], isOpen: false };
    case "thinking":
      return { kind: "thinking", key, text: block.text ?? "", began: null, seconds: view.thought[message.node] ?? null, isOpen: false };
    case "tool_call":
      return toolPart(block, key, true, results.get(block.id) ?? null, view);
    default:
      return null;
  }
}

function toolPart(call: ToolCall, key: string, isWhole: boolean, result: ToolResult | null, view: View): Part {
  const run = view.runs[call.id] ?? null;
  const approval = view.approvals.find((one) => one.call.id === call.id) ?? null;
  return { kind: "tool", key, call, isWhole, result: result ?? run?.result ?? null, run, approval };
}

function liveParts(live: Live, view: View): Part[] {
  return Object.entries(live.drafts)
    .sort(([a], [b]) => Number(a) - Number(b))
    .map(([index, draft]) => draftPart(draft, `live.${index}`, view))
    .filter((part): part is Part => part !== null);
}

function draftPart(draft: Draft, key: string, view: View): Part | null {
  const isOpen = draft.ended === null;
  switch (draft.kind) {
    case "text":
      return { kind: "text", key, text: draft.text, citations: draft.citations, isOpen };
    case "thinking": {
      const seconds = draft.ended === null ? null : (draft.ended - draft.began) / 1000;
      return { kind: "thinking", key, text: draft.text, began: draft.began, seconds, isOpen };
    }
    case "image":
      return draft.image && { kind: "media", key, block: draft.image };
    case "call": {
      const call: ToolCall = { type: "tool_call", id: draft.id || key, name: draft.name, ...argumentsOf(draft.text) };
      return toolPart(call, key, draft.isWhole, null, view);
    }
  }
}

function argumentsOf(text: string): Pick<ToolCall, "arguments" | "raw_arguments"> {
  if (!text.trim()) return {};
  try {
    const value: unknown = JSON.parse(text);
    if (value && typeof value === "object" && !Array.isArray(value)) return { arguments: value as Record<string, unknown> };
  } catch {
    // Still incomplete: show the raw text.
  }
  return { raw_arguments: text };
}
