// The view of a session: a pure fold of its history and of the envelopes that follow. Nothing here touches the page,
// the network or the clock (`now` is handed in), so the same code runs in the tests.
//
//   openView(history)         build a view from a snapshot
//   applyEnvelope(view, envelope) apply the next envelope; an older one changes nothing
//   mergeHistory(view, history)   merge a later snapshot, which has facts that events lack (siblings, cost)
import type { Citation, ImageBlock, Message, ToolCall, ToolResult } from "../api/blocks";
import type { ApprovalRequested, History, MessageView, Picture, Problem, QueuedView, Usage } from "../api/types";
import { type Envelope, type SessionEvent, asEvent, type EventsByType } from "./envelopes";

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

/** A message that this page sent and that has not come back as stored or queued. */
export interface Sent {
  key: string;
  message: Message;
  state: "sending" | "accepted" | "refused";
  problem: Problem | null;
}

/** Shown between stored messages: words that streamed in and were not stored, or a notice that belongs to its place. */
export interface Aside {
  id: number;
  kind: "partial" | "notice";
  after: string | null;
  text: string;
}

/** Notices that say something about a place in the conversation, not about the turn as a whole. */
const PLACED_NOTICES = new Set(["turn.continued"]);

export interface View {
  session: string;
  seq: number;
  head: string | null;
  system: string;
  messages: MessageView[];
  more: boolean;
  branches: number;
  queue: QueuedView[];
  approvals: ApprovalRequested[];
  live: Live | null;
  runs: Record<string, Run>;
  thought: Record<string, number>;
  /** How the last turn ended, unless it finished. */
  failure: Problem | null;
  /** The notices of the last turn, without repetitions. */
  notices: string[];
  /** The notices since it ended: they are about the next message, and its turn takes them over. */
  earlyNotices: string[];
  asides: Aside[];
  sent: Sent[];
  /** The head moved to a message that is not loaded: a new snapshot is needed. */
  isStale: boolean;
  /** Counts changes of stored facts (siblings, cost, queue) that only a new snapshot carries. */
  refreshes: number;
}

export function openView(session: string, history: History, now: number): View {
  let view: View = {
    session,
    seq: history.seq,
    head: history.head,
    system: history.system,
    messages: history.messages,
    more: history.more,
    branches: history.branches ?? 1,
    queue: history.queue,
    approvals: history.approvals,
    live: null,
    runs: {},
    thought: {},
    failure: history.failure ? problemOf(history.failure) : null,
    notices: [],
    earlyNotices: [],
    asides: [],
    sent: [],
    isStale: false,
    refreshes: 0,
  };
  for (const notice of history.notices ?? []) view = addNotice(view, notice, notice.after, notice.is_early ? "earlyNotices" : "notices");
  if (history.running) {
    const { turn, model, partial } = history.running;
    view = { ...view, live: { turn, model, began: now, drafts: {} } };
    for (const raw of partial) {
      const event = asEvent(raw);
      // Messages and approvals are in the snapshot itself.
      if (event.type !== "message_stored" && event.type !== "approval_requested") view = applyEvent(view, event, now);
    }
  }
  return view;
}

export function applyEnvelope(view: View, envelope: Envelope, now: number): View {
  if (envelope.session !== view.session || envelope.seq <= view.seq) return view;
  return { ...applyEvent(view, envelope, now), seq: envelope.seq };
}

export function mergeHistory(view: View, history: History, now: number): View {
  const loaded = new Map(view.messages.map((message) => [message.node, message]));
  const page = history.messages.map((message) => reuseMessage(loaded.get(message.node), message));
  if (history.seq < view.seq) {
    const found = new Map(page.map((message) => [message.node, message]));
    return { ...view, messages: view.messages.map((message) => found.get(message.node) ?? message), branches: history.branches ?? 1, refreshes: 0 };
  }
  const after = openView(view.session, { ...history, messages: page }, now);
  const [messages, more] = withOlder(view, page, history.more);
  const live = after.live && view.live?.turn === after.live.turn ? { ...after.live, began: view.live.began } : after.live;
  const sent = view.sent.filter((one) => one.state !== "accepted");
  const kept = after.live && view.live?.turn === after.live.turn ? view : keepPartial(view);
  const asides = after.asides.reduce(addAside, kept).asides.filter((one) => !isStored(one, messages) && !isStreaming(one, live));
  // A failure keeps its identity: another one with the same text is news.
  const failure = JSON.stringify(after.failure) === JSON.stringify(view.failure) ? view.failure : after.failure;
  return { ...after, messages, more, live, sent, asides, failure, runs: view.runs, thought: view.thought };
}

/** Keep older messages that were already loaded if the new page continues them. */
function withOlder(view: View, fresh: MessageView[], more: boolean): [MessageView[], boolean] {
  const first = fresh[0];
  if (!first) return [fresh, more];
  const at = view.messages.findIndex((message) => message.node === first.node);
  if (at <= 0) return [fresh, at === 0 ? view.more && more : more];
  return [[...view.messages.slice(0, at), ...fresh], view.more];
}

export function prependOlder(view: View, history: History): View {
  const known = new Set(view.messages.map((message) => message.node));
  const fresh = history.messages.filter((message) => !known.has(message.node));
  return { ...view, messages: [...fresh, ...view.messages], more: history.more };
}

/** Return the old object if nothing visible changed, so that it is not rendered again. */
function reuseMessage(old: MessageView | undefined, fresh: MessageView): MessageView {
  if (!old || old.blocks.length !== fresh.blocks.length) return fresh;
  fresh = { ...fresh, seconds: fresh.seconds ?? old.seconds };
  const facts = ({ blocks, ...rest }: MessageView): string => JSON.stringify([blocks.length, Object.entries(rest).sort()]);
  return facts(old) === facts(fresh) ? old : { ...fresh, blocks: old.blocks };
}

function problemOf({ code, text, hint }: EventsByType["turn_failed"]): Problem {
  return { code, message: text, hint: hint ?? "" };
}

/** Show a notice once, however often a turn repeats it: at its place if it belongs to one. */
function addNotice(view: View, { code, text }: EventsByType["notice"], after: string | null, list: "notices" | "earlyNotices"): View {
  if (PLACED_NOTICES.has(code ?? "")) return addAside(view, { kind: "notice", after, text });
  return view[list].includes(text) ? view : { ...view, [list]: [...view[list], text] };
}

/** Begin a turn, or end one that never started. */
function takeEarlyNotices(view: View): View {
  return { ...view, notices: view.earlyNotices, earlyNotices: [] };
}

export function shownNotices(view: View): string[] {
  return [...new Set([...view.notices, ...view.earlyNotices])];
}

function addAside(view: View, aside: Omit<Aside, "id">): View {
  const isKnown = view.asides.some((one) => one.kind === aside.kind && one.after === aside.after && one.text === aside.text);
  return isKnown ? view : { ...view, asides: [...view.asides, { ...aside, id: view.asides.length + 1 }] };
}

function applyEvent(view: View, event: SessionEvent, now: number): View {
  switch (event.type) {
    case "text":
    case "thinking":
      return updateDraft(view, event.data.index ?? 0, event.type, now, (draft) => ({ text: draft.text + event.data.text }));
    case "cited":
      return updateDraft(view, event.data.index, "text", now, (draft) => ({
        citations: [...draft.citations, event.data.citation],
      }));
    case "call_started":
      return updateDraft(view, event.data.index, "call", now, () => ({ id: event.data.id, name: event.data.name }));
    case "call":
      return updateDraft(view, event.data.index, "call", now, (draft) => ({ text: draft.text + event.data.arguments }));
    case "call_finished":
      return updateDraft(view, event.data.index, "call", now, () => ({ isWhole: true }));
    case "image":
      return updateDraft(view, event.data.index, "image", now, () => ({ image: event.data.image }));
    case "turn_started":
      return {
        ...keepPartial(takeEarlyNotices(view)),
        live: { turn: event.data.turn, model: event.data.model, began: now, drafts: {} },
        failure: null,
      };
    case "step_started":
      return view.live ? { ...keepPartial(view), live: { ...view.live, model: event.data.model, drafts: {} } } : view;
    case "step_finished":
      return finishStep(view, event.data);
    case "message_stored":
      return addMessage(view, event.data, now);
    case "tool_started":
      return updateRun(view, event.data.call.id, now, { call: event.data.call });
    case "tool_progressed":
      return updateRun(view, event.data.call_id, now, { progress: event.data.text, fraction: event.data.fraction ?? null });
    case "tool_call":
      return updateRun(view, event.data.call_id, now, {
        result: event.data.result,
        seconds: event.data.seconds,
        images: event.data.images,
      });
    case "approval_requested": {
      const others = view.approvals.filter((one) => one.approval !== event.data.approval);
      return { ...view, approvals: [...others, event.data] };
    }
    case "approval_answered":
      return { ...view, approvals: view.approvals.filter((one) => one.approval !== event.data.approval) };
    case "notice":
      if (PLACED_NOTICES.has(event.data.code ?? "")) view = { ...keepPartial(view), live: view.live && { ...view.live, drafts: {} } };
      return addNotice(view, event.data, view.head, view.live ? "notices" : "earlyNotices");
    case "message_queued":
      return addQueued(view, event.data, now);
    case "turn_finished":
    case "turn_failed": {
      const failure = event.type === "turn_failed" ? problemOf(event.data) : null;
      if (!view.live) view = takeEarlyNotices(view);
      return { ...keepPartial(view), live: null, approvals: [], failure, refreshes: view.refreshes + 1 };
    }
    default:
      return view;
  }
}

/** Nothing that was seen disappears: keep streamed words, which are not stored, before the drafts are cleared. */
function keepPartial(view: View): View {
  const texts = Object.values(view.live?.drafts ?? {}).flatMap((draft) => (draft.kind === "text" && draft.text.trim() ? [draft.text] : []));
  return texts.length ? addAside(view, { kind: "partial", after: view.head, text: texts.join("\n\n") }) : view;
}

/** A partial answer is stored once a later message holds its words. */
function isStored(aside: Aside, messages: MessageView[]): boolean {
  if (aside.kind !== "partial") return false;
  const from = messages.findIndex((message) => message.node === aside.after) + 1;
  return messages.slice(from).some((message) => message.role === "assistant" && message.blocks.some((block) => block.type === "text" && block.text.includes(aside.text)));
}

function isStreaming(aside: Aside, live: Live | null): boolean {
  return aside.kind === "partial" && Object.values(live?.drafts ?? {}).some((draft) => draft.text.includes(aside.text));
}

function updateDraft(view: View, index: number, kind: Draft["kind"], now: number, change: (draft: Draft) => Partial<Draft>): View {
  const live = view.live ?? { turn: "", model: "", began: now, drafts: {} };
  const fresh: Draft = {
    kind, text: "", citations: [], id: "", name: "", isWhole: false, image: null, began: now, ended: null,
  };
  const draft = live.drafts[index] ?? fresh;
  const drafts: Record<number, Draft> = { ...live.drafts, [index]: { ...draft, ...change(draft) } };
  for (const [key, other] of Object.entries(drafts)) {
    // A block ends when the next one starts.
    if (Number(key) < index && other.ended === null) drafts[Number(key)] = { ...other, ended: now };
  }
  return { ...view, live: { ...live, drafts } };
}

function addMessage(view: View, { node, message, parent }: EventsByType["message_stored"], now: number): View {
  if (view.messages.some((one) => one.node === node)) {
    // Identical content in the same place is the same node: a regenerated answer can repeat.
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
  const messages = [...kept, fresh];
  const after: View = { ...view, head: node, messages, asides: view.asides.filter((one) => !isStored(one, messages)) };
  // A message that was replaced now has a sibling.
  if (kept.length < view.messages.length) after.refreshes += 1;
  if (message.role === "user") return { ...after, sent: removeSent(view.sent, message), queue: removeQueued(view, message) };
  if (message.role !== "assistant" || !view.live) return after;
  return { ...after, live: { ...view.live, drafts: {} }, thought: { ...view.thought, [node]: thinkingSeconds(view.live, now) } };
}

/** Return the loaded messages up to a node, or null if it is not loaded. */
function pathTo(view: View, node: string | null): MessageView[] | null {
  if (node === view.head) return view.messages;
  if (node === null || (!view.more && node === view.messages[0]?.parent)) return [];
  const at = view.messages.findIndex((message) => message.node === node);
  return at < 0 ? null : view.messages.slice(0, at + 1);
}

function thinkingSeconds(live: Live, now: number): number {
  let seconds = 0;
  for (const draft of Object.values(live.drafts)) {
    if (draft.kind === "thinking") seconds += ((draft.ended ?? now) - draft.began) / 1000;
  }
  return seconds;
}

function finishStep(view: View, facts: EventsByType["step_finished"]): View {
  const at = view.messages.findLastIndex((message) => message.role === "assistant");
  const message = view.messages[at];
  if (!message) return view;
  const messages = [...view.messages];
  messages[at] = { ...message, usage: facts.usage, seconds: facts.seconds ?? 0, stop: facts.stop ?? "", usd: facts.usd };
  return { ...view, messages };
}

function updateRun(view: View, id: string, now: number, change: Partial<Run>): View {
  const fresh: Run = { call: null, began: now, progress: "", fraction: null, result: null, seconds: null, images: [] };
  return { ...view, runs: { ...view.runs, [id]: { ...(view.runs[id] ?? fresh), ...change } } };
}

function messageText(message: Message): string {
  return message.blocks.map((block) => (block.type === "text" ? block.text : block.type)).join("\n");
}

function removeSent(sent: Sent[], message: Message): Sent[] {
  const words = messageText(message);
  let at = sent.findIndex((one) => one.state !== "refused" && messageText(one.message) === words);
  if (at < 0) at = sent.findIndex((one) => one.state === "accepted");
  return sent.filter((_, index) => index !== at);
}

function addQueued(view: View, { id, message, steers, paused = false }: EventsByType["message_queued"], now: number): View {
  if (view.queue.some((one) => one.message === id)) return { ...view, queue: view.queue.map((one) => (one.message === id ? { ...one, paused } : one)) };
  const text = message.blocks.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
  const queue = [...view.queue, { message: id ?? "", text, blocks: message.blocks, created_at: now / 1000, steers: steers ?? false, paused }];
  // While nothing runs it starts at once; the sent message stays visible until then.
  return { ...view, queue, sent: view.live ? removeSent(view.sent, message) : view.sent };
}

/** The queued messages that are not paused. */
export function waitingMessages(view: View): QueuedView[] {
  return view.queue.filter((one) => !one.paused);
}

function removeQueued(view: View, message: Message): QueuedView[] {
  const words = messageText(message);
  const waiting = waitingMessages(view);
  const gone = waiting.find((one) => messageText({ role: "user", blocks: one.blocks }) === words) ?? waiting[0];
  return view.queue.filter((one) => one !== gone);
}

// Changes made by this page ------------------------------------------------------------------------------------------

export function withSent(view: View, key: string, message: Message): View {
  return { ...view, sent: [...view.sent, { key, message, state: "sending", problem: null }] };
}

export function withState(view: View, key: string, state: Sent["state"], problem: Problem | null = null): View {
  return { ...view, sent: view.sent.map((one) => (one.key === key ? { ...one, state, problem } : one)) };
}

export function addUsage(a: Usage, b: Usage): Usage {
  const sum: Usage = { ...a };
  for (const [key, value] of Object.entries(b) as [keyof Usage, number][]) sum[key] = (sum[key] ?? 0) + value;
  return sum;
}
