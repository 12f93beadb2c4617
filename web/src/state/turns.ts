// Turns: stored messages and the live answer as the page shows them. A user's message, then the parts of the answer in
// order, calls with their results. What did not change keeps its identity, so that only the last turn is drawn again.
import type { Block, Citation, MediaBlock, ToolCall, ToolResult } from "../api/blocks";
import { isMedia } from "../api/blocks";
import type { ApprovalRequested, MessageView, Usage } from "../api/shapes";
import { addUsage, type Draft, type Live, type Run, type View } from "./view";

export type Part =
  | { kind: "text"; key: string; text: string; citations: Citation[]; isOpen: boolean }
  | { kind: "thinking"; key: string; text: string; began: number | null; seconds: number | null; isOpen: boolean }
  | { kind: "media"; key: string; block: MediaBlock }
  | { kind: "tool"; key: string; call: ToolCall; isWhole: boolean; result: ToolResult | null; run: Run | null; approval: ApprovalRequested | null };

export interface Turn {
  key: string;
  number: number;
  user: MessageView | null;
  answers: MessageView[];
  /** The first message of the answer that has others in its place; a tool that answered otherwise counts too. */
  forked: MessageView | null;
  parts: Part[];
  model: string;
  isLive: boolean;
  began: number | null;
  usage: Usage | null;
  usd: number | null;
  seconds: number | null;
  stop: string | null;
}

type Kept = { turn: Turn; sources: unknown[] };

/** Remembers the turns that it gave, so that equal input gives the same objects. */
export class Turns {
  private kept = new Map<string, Kept>();

  of(view: View): Turn[] {
    const fresh = new Map<string, Kept>();
    const turns = grouped(view.messages).map((messages, index, all) => {
      const isLast = index === all.length - 1;
      const live = isLast ? view.live : null;
      const key = messages[0]?.node ?? "";
      const ids = messages.flatMap((message) => message.blocks.flatMap((block) => (block.type === "tool_call" ? [block.id] : [])));
      const sources: unknown[] = [...messages, index, live, ...ids.map((id) => view.runs[id]), isLast ? view.approvals : null];
      const old = this.kept.get(key);
      const found = old && equal(old.sources, sources) ? old : { turn: turnOf(messages, index + 1, view, live), sources };
      fresh.set(key, found);
      return found.turn;
    });
    this.kept = fresh;
    const onlyLive = view.messages.length === 0 && view.live;
    return onlyLive ? [turnOf([], 1, view, view.live)] : turns;
  }
}

function equal(a: unknown[], b: unknown[]): boolean {
  return a.length === b.length && a.every((value, index) => value === b[index]);
}

function grouped(messages: MessageView[]): MessageView[][] {
  const groups: MessageView[][] = [];
  for (const message of messages) {
    const last = groups.at(-1);
    if (message.role === "user" || !last) groups.push([message]);
    else last.push(message);
  }
  return groups;
}

function turnOf(messages: MessageView[], number: number, view: View, live: Live | null): Turn {
  const user = messages[0]?.role === "user" ? messages[0] : null;
  const answers = messages.filter((message) => message.role === "assistant");
  const results = new Map<string, ToolResult>();
  for (const message of messages) {
    for (const block of message.blocks) if (block.type === "tool_result") results.set(block.call_id, block);
  }
  const parts = answers.flatMap((message) =>
    joined(message.blocks).map((block, index) => stored(block, message, index, results, view)),
  ).filter((part): part is Part => part !== null);
  if (live) parts.push(...drafts(live, view));
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
  };
}

function sumOf(values: (number | null | undefined)[]): number | null {
  const known = values.filter((value): value is number => typeof value === "number");
  return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
}

/** A model's neighbouring texts are pieces of one: they are cut at citations. */
function joined(blocks: Block[]): Block[] {
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

function stored(block: Block, message: MessageView, index: number, results: Map<string, ToolResult>, view: View): Part | null {
  const key = `${message.node}.${index}`;
  if (isMedia(block)) return { kind: "media", key, block };
  switch (block.type) {
    case "text":
      return { kind: "text", key, text: block.text, citations: block.citations ?? [], isOpen: false };
    case "thinking":
      return { kind: "thinking", key, text: block.text ?? "", began: null, seconds: view.thought[message.node] ?? null, isOpen: false };
    case "tool_call":
      return tool(block, key, true, results.get(block.id) ?? null, view);
    default:
      return null;
  }
}

function tool(call: ToolCall, key: string, isWhole: boolean, result: ToolResult | null, view: View): Part {
  const run = view.runs[call.id] ?? null;
  const approval = view.approvals.find((one) => one.call.id === call.id) ?? null;
  return { kind: "tool", key, call, isWhole, result: result ?? run?.result ?? null, run, approval };
}

function drafts(live: Live, view: View): Part[] {
  return Object.entries(live.drafts)
    .sort(([a], [b]) => Number(a) - Number(b))
    .map(([index, draft]) => drafted(draft, `live.${index}`, view))
    .filter((part): part is Part => part !== null);
}

function drafted(draft: Draft, key: string, view: View): Part | null {
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
      return tool(call, key, draft.isWhole, null, view);
    }
  }
}

function argumentsOf(text: string): Pick<ToolCall, "arguments" | "raw_arguments"> {
  if (!text.trim()) return {};
  try {
    const value: unknown = JSON.parse(text);
    if (value && typeof value === "object" && !Array.isArray(value)) return { arguments: value as Record<string, unknown> };
  } catch {
    // Not whole yet: shown as it stands.
  }
  return { raw_arguments: text };
}
