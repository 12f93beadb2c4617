// Messages that the server does not have yet, or has refused. They are kept in the browser across reloads, and their session
// shows them whenever it is opened.
import { type Attachable, attachmentReference, type Block, type Message, storableAttachment } from "../api/blocks";
import type { Problem } from "../api/types";
import { saveItem } from "./storage";
import { type View, withSent, withState } from "./view";

export interface Outgoing {
  text: string;
  blocks: Attachable[];
  files: string[];
  /** Parent of an edited message; undefined: the head. */
  parent?: string | null;
  /** Several models answer it. */
  models?: string[];
  /** The running turn reads it at its next step. */
  steer?: boolean;
  key: string;
}

export interface Undelivered {
  /** The session; empty until it is created. */
  id: string;
  outgoing: Outgoing;
  /** Entries of older versions have no time. */
  at?: number;
  /** Why the server refused it: it is not sent again. */
  problem?: Problem;
}

export const OUTBOX = "loom.out.";
export const undelivered = new Map<string, Undelivered>();
const reopened = new Set<string>();

export function keepUndelivered(one: Undelivered): void {
  const { outgoing } = one;
  undelivered.set(outgoing.key, one);
  saveItem(OUTBOX + outgoing.key, JSON.stringify({ ...one, outgoing: { ...outgoing, blocks: outgoing.blocks.map(storableAttachment) } }));
}

/** Return whether the message was in a snapshot of its session before the server had confirmed it. */
export function forgetUndelivered(key: string): boolean {
  undelivered.delete(key);
  localStorage.removeItem(OUTBOX + key);
  return reopened.delete(key);
}

/** Whether an earlier page, or an earlier version, left messages in the browser, or another tab the draft of one. */
export function hasUnsent(): boolean {
  return Object.keys(localStorage).some((one) => /^loom\.(out\.|held\.|draft\.new)/.test(one));
}

/** Add the undelivered messages of a session to its view. An edit is shown only if it was refused: it would replace what is shown. */
export function withUndelivered(view: View): View {
  for (const { id, outgoing, problem } of undelivered.values()) {
    if (id !== view.session || (outgoing.parent !== undefined && !problem)) continue;
    if (!view.sent.some((one) => one.key === outgoing.key)) view = withSent(view, outgoing.key, messageOf(outgoing));
    if (problem) view = withState(view, outgoing.key, "refused", problem);
  }
  return view;
}

/** The same, for a view of a snapshot: it may already hold messages whose confirmation is still on its way. */
export function withReopened(view: View): View {
  const after = withUndelivered(view);
  for (const one of after.sent) reopened.add(one.key);
  return after;
}

function messageOf(outgoing: Outgoing): Message {
  const blocks: Block[] = [...outgoing.blocks];
  const text = [outgoing.text, ...outgoing.files.map((path) => `@${path}`)].filter(Boolean).join("\n");
  if (text) blocks.unshift({ type: "text", text });
  return { role: "user", blocks };
}

/** Absent fields stay absent in JSON. */
export function requestBody({ text, blocks, files, parent, models, steer }: Outgoing): object {
  return { text, blocks: [...blocks.map(attachmentReference), ...files.map((path) => ({ type: "file", path }))], parent, models, steer: steer || undefined };
}
