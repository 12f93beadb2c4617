// The view of a session: a pure fold of its history and of the envelopes that follow. Nothing here touches the page,
// the network or the clock (`now` is handed in), so the same code runs in the tests.
//
//   opened(history)         a snapshot becomes a view
//   applied(view, envelope) the next envelope; one that is not newer than the view changes nothing
//   merged(view, history)   a later snapshot: the daemon knows more about stored messages (siblings, cost) than events say
import type { Citation, ImageBlock, Message, ToolCall, ToolResult } from "../api/blocks";
import type { ApprovalRequested, History, MessageView, Picture, Problem, QueuedView, Usage } from "../api/shapes";
import { type Envelope, type Fact, factOf, type Facts } from "./envelopes";

export interface Draft {
  kind: "text" | "thinking" | "call" | "image";
  text: string;
  citations: Citation[];
  id: string;
  name: string;
  isWhole: boolean;
  image: ImageBlock | null;
  began: number;
  ended: number | null;
}

export interface Run {
  call: ToolCall | null;
  began: number;
  progress: string;
  fraction: number | null;
  result: ToolResult | null;
  seconds: number | null;
  images: Picture[];
}

export interface Live {
  turn: string;
  model: string;
  began: number;
  drafts: Record<number, Draft>;
}

/** What this page sent and has not yet seen come back as a stored or queued message. */
export interface Sent {
  key: string;
  message: Message;
  state: "sending" | "accepted" | "refused";
  problem: Problem | null;
}

export interface Notice {
  id: number;
  text: string;
  code: string;
}

export interface View {
  session: string;
  seq: number;
  head: string | null;
  system: string;
  messages: MessageView[];
  more: boolean;
  queue: QueuedView[];
  approvals: ApprovalRequested[];
  live: Live | null;
  runs: Record<string, Run>;
  thought: Record<string, number>;
  failure: (Problem & { turn: string }) | null;
  notices: Notice[];
  sent: Sent[];
  /** The head went somewhere that only a new snapshot can tell. */
  isStale: boolean;
  /** Stored facts (siblings, cost, the queue) changed: worth asking for, nothing on the page is wrong meanwhile. */
  wantsFacts: number;
}

export function opened(session: string, history: History, now: number): View {
  let view: View = {
    session,
    seq: history.seq,
    head: history.head,
    system: history.system,
    messages: history.messages,
    more: history.more,
    queue: history.queue,
    approvals: history.approvals,
    live: null,
    runs: {},
    thought: {},
    failure: null,
    notices: [],
    sent: [],
    isStale: false,
    wantsFacts: 0,
  };
  if (history.running) {
    const { turn, model, partial } = history.running;
    view = { ...view, live: { turn, model, began: now, drafts: {} } };
    for (const raw of partial) {
      const fact = factOf(raw);
      // The snapshot's own messages and approvals are already there.
      if (fact.type !== "message_stored" && fact.type !== "approval_requested") view = changed(view, fact, now);
    }
  }
  return view;
}

export function applied(view: View, envelope: Envelope, now: number): View {
  if (envelope.session !== view.session || envelope.seq <= view.seq) return view;
  return { ...changed(view, envelope, now, envelope.seq), seq: envelope.seq };
}

export function merged(view: View, history: History, now: number): View {
  const known = new Map(view.messages.map((message) => [message.node, message]));
  const fresh = history.messages.map((message) => same(known.get(message.node), message));
  if (history.seq < view.seq) {
    const found = new Map(fresh.map((message) => [message.node, message]));
    return { ...view, messages: view.messages.map((message) => found.get(message.node) ?? message), wantsFacts: 0 };
  }
  const after = opened(view.session, { ...history, messages: fresh }, now);
  const [messages, more] = withOlder(view, fresh, history.more);
  const live = after.live && view.live?.turn === after.live.turn ? { ...after.live, began: view.live.began } : after.live;
  const sent = view.sent.filter((one) => one.state !== "accepted");
  return { ...after, messages, more, live, sent, runs: view.runs, thought: view.thought, failure: view.failure, notices: view.notices };
}

/** Older messages that were paged in stay, where the new page continues them. */
function withOlder(view: View, fresh: MessageView[], more: boolean): [MessageView[], boolean] {
  const first = fresh[0];
  if (!first) return [fresh, more];
  const at = view.messages.findIndex((message) => message.node === first.node);
  if (at <= 0) return [fresh, at === 0 ? view.more && more : more];
  return [[...view.messages.slice(0, at), ...fresh], view.more];
}

export function older(view: View, history: History): View {
  const known = new Set(view.messages.map((message) => message.node));
  const fresh = history.messages.filter((message) => !known.has(message.node));
  return { ...view, messages: [...fresh, ...view.messages], more: history.more };
}

/** The old object where nothing a page shows has changed: what is unchanged is not drawn again. */
function same(old: MessageView | undefined, fresh: MessageView): MessageView {
  if (!old || old.blocks.length !== fresh.blocks.length) return fresh;
  fresh = { ...fresh, seconds: fresh.seconds ?? old.seconds };
  const facts = ({ blocks, ...rest }: MessageView): string => JSON.stringify([blocks.length, Object.entries(rest).sort()]);
  return facts(old) === facts(fresh) ? old : { ...fresh, blocks: old.blocks };
}

function changed(view: View, fact: Fact, now: number, id = 0): View {
  switch (fact.type) {
    case "text":
    case "thinking":
      return drafted(view, fact.data.index ?? 0, fact.type, now, (draft) => ({ text: draft.text + fact.data.text }));
    case "cited":
      return drafted(view, fact.data.index, "text", now, (draft) => ({
        citations: [...draft.citations, fact.data.citation],
      }));
    case "call_started":
      return drafted(view, fact.data.index, "call", now, () => ({ id: fact.data.id, name: fact.data.name }));
    case "call":
      return drafted(view, fact.data.index, "call", now, (draft) => ({ text: draft.text + fact.data.arguments }));
    case "call_finished":
      return drafted(view, fact.data.index, "call", now, () => ({ isWhole: true }));
    case "image":
      return drafted(view, fact.data.index, "image", now, () => ({ image: fact.data.image }));
    case "turn_started":
      return {
        ...view,
        live: { turn: fact.data.turn, model: fact.data.model, began: now, drafts: {} },
        failure: null,
        notices: [],
      };
    case "step_started":
      return view.live ? { ...view, live: { ...view.live, model: fact.data.model, drafts: {} } } : view;
    case "step_finished":
      return stepped(view, fact.data);
    case "message_stored":
      return stored(view, fact.data, now);
    case "tool_started":
      return ran(view, fact.data.call.id, now, { call: fact.data.call });
    case "tool_progressed":
      return ran(view, fact.data.call_id, now, { progress: fact.data.text, fraction: fact.data.fraction ?? null });
    case "tool_call":
      return ran(view, fact.data.call_id, now, {
        result: fact.data.result,
        seconds: fact.data.seconds,
        images: fact.data.images,
      });
    case "approval_requested": {
      const others = view.approvals.filter((one) => one.approval !== fact.data.approval);
      return { ...view, approvals: [...others, fact.data] };
    }
    case "approval_answered":
      return { ...view, approvals: view.approvals.filter((one) => one.approval !== fact.data.approval) };
    case "notice":
      return { ...view, notices: [...view.notices, { id, text: fact.data.text, code: fact.data.code ?? "" }] };
    case "message_queued":
      return queued(view, fact.data, now);
    case "turn_finished":
      return { ...view, live: null, approvals: [], wantsFacts: view.wantsFacts + 1 };
    case "turn_failed": {
      const { turn, code, text, hint } = fact.data;
      const failure = { turn, code, message: text, hint: hint ?? "" };
      return { ...view, live: null, approvals: [], failure, wantsFacts: view.wantsFacts + 1 };
    }
    default:
      return view;
  }
}

function drafted(view: View, index: number, kind: Draft["kind"], now: number, change: (draft: Draft) => Partial<Draft>): View {
  const live = view.live ?? { turn: "", model: "", began: now, drafts: {} };
  const fresh: Draft = {
    kind, text: "", citations: [], id: "", name: "", isWhole: false, image: null, began: now, ended: null,
  };
  const draft = live.drafts[index] ?? fresh;
  const drafts: Record<number, Draft> = { ...live.drafts, [index]: { ...draft, ...change(draft) } };
  for (const [key, other] of Object.entries(drafts)) {
    // A block ends when the next one begins.
    if (Number(key) < index && other.ended === null) drafts[Number(key)] = { ...other, ended: now };
  }
  return { ...view, live: { ...live, drafts } };
}

function stored(view: View, { node, message, parent }: Facts["message_stored"], now: number): View {
  if (view.messages.some((one) => one.node === node)) {
    // The same words in the same place are the same node: an answer given again, word for word.
    return { ...view, head: node, isStale: view.head !== node, live: view.live && { ...view.live, drafts: {} } };
  }
  const kept = pathTo(view, parent);
  if (kept === null) return { ...view, head: node, isStale: true };
  const fresh: MessageView = {
    node,
    parent,
    role: message.role,
    source: "",
    blocks: message.blocks,
    model: message.role === "assistant" ? (view.live?.model ?? "") : "",
    usage: null,
    usd: null,
    stop: "",
    seconds: 0,
    created_at: now / 1000,
    bookmark: "",
    tags: [],
    siblings: [],
  };
  const after: View = { ...view, head: node, messages: [...kept, fresh] };
  // A message that is no longer at the end has a sibling now.
  if (kept.length < view.messages.length) after.wantsFacts += 1;
  if (message.role === "user") return { ...after, sent: landed(view.sent, message), queue: unqueued(view, message) };
  if (message.role !== "assistant" || !view.live) return after;
  return { ...after, live: { ...view.live, drafts: {} }, thought: { ...view.thought, [node]: thoughtFor(view.live, now) } };
}

/** The loaded messages up to a node; null where it is not among them. */
function pathTo(view: View, node: string | null): MessageView[] | null {
  if (node === view.head) return view.messages;
  if (node === null || (!view.more && node === view.messages[0]?.parent)) return [];
  const at = view.messages.findIndex((message) => message.node === node);
  return at < 0 ? null : view.messages.slice(0, at + 1);
}

function thoughtFor(live: Live, now: number): number {
  let seconds = 0;
  for (const draft of Object.values(live.drafts)) {
    if (draft.kind === "thinking") seconds += ((draft.ended ?? now) - draft.began) / 1000;
  }
  return seconds;
}

function stepped(view: View, facts: Facts["step_finished"]): View {
  const at = view.messages.findLastIndex((message) => message.role === "assistant");
  const message = view.messages[at];
  if (!message) return view;
  const messages = [...view.messages];
  messages[at] = { ...message, usage: facts.usage, seconds: facts.seconds ?? 0, stop: facts.stop ?? "", usd: facts.usd };
  return { ...view, messages };
}

function ran(view: View, id: string, now: number, change: Partial<Run>): View {
  const fresh: Run = { call: null, began: now, progress: "", fraction: null, result: null, seconds: null, images: [] };
  return { ...view, runs: { ...view.runs, [id]: { ...(view.runs[id] ?? fresh), ...change } } };
}

function wordsOf(message: Message): string {
  return message.blocks.map((block) => (block.type === "text" ? block.text : block.type)).join("\n");
}

function landed(sent: Sent[], message: Message): Sent[] {
  const words = wordsOf(message);
  let at = sent.findIndex((one) => one.state !== "refused" && wordsOf(one.message) === words);
  if (at < 0) at = sent.findIndex((one) => one.state === "accepted");
  return sent.filter((_, index) => index !== at);
}

function queued(view: View, { id, message }: Facts["message_queued"], now: number): View {
  if (view.queue.some((one) => one.message === id)) return view;
  const text = message.blocks.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
  const queue = [...view.queue, { message: id ?? "", text, blocks: message.blocks, created_at: now / 1000 }];
  // While nothing runs it is taken at once, and what was sent stays in sight until then.
  return { ...view, queue, sent: view.live ? landed(view.sent, message) : view.sent };
}

function unqueued(view: View, message: Message): QueuedView[] {
  const words = wordsOf(message);
  const at = view.queue.findIndex((one) => wordsOf({ role: "user", blocks: one.blocks }) === words);
  return view.queue.filter((_, index) => index !== Math.max(at, 0));
}

// What this page does itself ------------------------------------------------------------------------------------------

export function withSent(view: View, key: string, message: Message): View {
  return { ...view, sent: [...view.sent, { key, message, state: "sending", problem: null }] };
}

export function withAnswer(view: View, key: string, state: Sent["state"], problem: Problem | null = null): View {
  return { ...view, sent: view.sent.map((one) => (one.key === key ? { ...one, state, problem } : one)) };
}

export function withoutSent(view: View, key: string): View {
  return { ...view, sent: view.sent.filter((one) => one.key !== key) };
}

export function withoutQueued(view: View, message: string): View {
  return { ...view, queue: view.queue.filter((one) => one.message !== message) };
}

export function addUsage(a: Usage, b: Usage): Usage {
  const sum: Usage = { ...a };
  for (const [key, value] of Object.entries(b) as [keyof Usage, number][]) sum[key] = (sum[key] ?? 0) + value;
  return sum;
}
