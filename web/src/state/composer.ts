// The message being written: text, attachments, the message it edits. Saved per session across reloads.
import { batch, computed, effect, signal } from "@preact/signals";
import { randomKey } from "../api/http";
import { type Attachable, attachmentName, type Block, splitBlocks, storableAttachment } from "../api/blocks";
import type { MessageView, Problem } from "../api/types";
import { announce, askedModels, comparesAnswers, createdSession, sessionId } from "./app";
import { forgetUndelivered } from "./outbox";
import { saveItem } from "./storage";
import { tab } from "./tab";
import { send } from "./actions";

export interface Attachment {
  key: string;
  name: string;
  bytes: number;
  preview: string;
  /** Progress of the upload; null when it has ended. */
  fraction: number | null;
  block: Attachable | null;
  /** The selected page range of a document, counted from one. */
  pages: [number, number] | null;
  problem: Problem | null;
  notices: string[];
  /** Kept for a retry; null for what is uploaded after a reload. */
  file: File | null;
  cancel: () => void;
}

export const text = signal("");
export const attachments = signal<Attachment[]>([]);
/** Workspace files mentioned with `@`. */
export const mentioned = signal<string[]>([]);
/** The message being edited; sending creates a sibling. */
export const editing = signal<MessageView | null>(null);
export const isUploading = computed(() => attachments.value.some((one) => one.fraction !== null));
/** Attachments that failed: they stay until the user retries or removes them, and nothing is sent without them. */
export const failed = computed(() => attachments.value.filter((one) => one.problem !== null));
export const blocks = computed(() => blocksOf(attachments.value));
/** Whether Send does something: while files are uploaded, it schedules the message. */
export const canSend = computed(() => !failed.value.length && (isUploading.value || text.value.trim() !== "" || blocks.value.length > 0));

interface Draft {
  /** The idempotency key of the message. */
  key: string;
  text: string;
  attachments: Attachment[];
  mentioned: string[];
}

/** A message that the user has sent. */
export interface ComposedMessage extends Draft {
  session: string;
  steer: boolean;
  /** The models that answer it, if there are several. */
  models: string[];
  edited: MessageView | null;
}

/** Messages that wait for their uploads, whether or not their draft is shown. */
export const scheduledMessages = signal<ComposedMessage[]>([]);
export const draftKey = signal(randomKey());
/** The one of them that is shown. */
export const scheduled = computed(() => scheduledMessages.value.find((one) => one.key === draftKey.value) ?? null);

/** Attachments whose draft does not have their block yet. The draft need not be shown meanwhile: their uploads go on. */
export const uploads = new Map<string, Attachment>();
/** The draft that was there before a message was edited; it comes back afterwards. */
let suspended: Draft | null = null;
const focusers: (() => void)[] = [];

export function onFocusWanted(focus: () => void): () => void {
  focusers.push(focus);
  return () => focusers.splice(focusers.indexOf(focus), 1);
}

export function focusComposer(): void {
  for (const focus of focusers) focus();
}

function blocksOf(list: Attachment[]): Attachable[] {
  return list.flatMap((one) => (one.block ? [withPages(one, one.block)] : []));
}

function withPages(one: Attachment, block: Attachable): Attachable {
  if (block.type !== "document" || !one.pages) return block;
  const [first, last] = one.pages;
  const isAll = first === 1 && last === block.media.pages;
  return isAll ? { ...block, pages: "" } : { ...block, pages: first === last ? `${first}` : `${first}-${last}` };
}

export function notUploaded(name: string): Problem {
  return { code: "upload.interrupted", message: `${name} was not uploaded.`, hint: "Attach it again." };
}

export function newAttachment(name: string, bytes: number): Attachment {
  return { key: randomKey(), name, bytes, preview: "", fraction: null, block: null, pages: null, problem: null, notices: [], file: null, cancel: () => undefined };
}

export function attachmentOf(block: Attachable): Attachment {
  const bytes = block.type === "text" ? block.text.length : block.media.size_bytes;
  const pages = block.type === "document" && block.pages ? (block.pages.split("-").map(Number) as [number, number]) : null;
  return { ...newAttachment(attachmentName(block), bytes), block, pages };
}

/** Attach files. They are listed at once, so that nothing is sent without them; the code of uploads is loaded with the first. */
export function attach(files: File[]): void {
  const fresh = files.map((file) => {
    const name = (file as File & { loomPath?: string }).loomPath ?? (file.name || "pasted");
    const isImage = file.type.startsWith("image/") && file.type !== "image/svg+xml";
    return { ...newAttachment(name, file.size), file, fraction: 0, preview: isImage ? URL.createObjectURL(file) : "" };
  });
  attachments.value = [...attachments.value, ...fresh];
  for (const one of fresh) uploads.set(one.key, one);
  uploadWith(fresh, ({ retry }) => fresh.forEach((one) => retry(one.key)));
}

/** Load the code of uploads for these attachments; without it they are marked as not uploaded. */
function uploadWith(listed: Attachment[], begin: (code: typeof import("../screens/deferred")) => void): void {
  import("../screens/deferred").then(begin, () => {
    for (const { key } of listed) for (const { key: message } of scheduledMessages.value.filter((one) => one.attachments.some((file) => file.key === key))) unschedule(message);
    for (const { key, name } of listed) update(key, { fraction: null, problem: notUploaded(name) });
  });
}

export function update(at: string, change: Partial<Attachment>): void {
  const changed = (one: Attachment): Attachment => (one.key === at ? { ...one, ...change } : one);
  const kept = uploads.get(at);
  if (kept) uploads.set(at, changed(kept));
  attachments.value = attachments.value.map(changed);
  scheduledMessages.value = scheduledMessages.value.map((one) => ({ ...one, attachments: one.attachments.map(changed) }));
}

const PASTED = /^pasted(-\d+)?\.txt$/;

/** Attach a long paste as a text file with a name of its own. */
export function attachPaste(words: string): void {
  const count = attachments.value.filter((one) => PASTED.test(one.name)).length;
  attach([new File([words], count ? `pasted-${count + 1}.txt` : "pasted.txt", { type: "text/plain" })]);
}

export function edit(message: MessageView): void {
  suspended ??= currentDraft();
  fillComposer(message.blocks, message);
}

function emptyDraft(): Draft {
  return { key: randomKey(), text: "", attachments: [], mentioned: [] };
}

function currentDraft(): Draft {
  return { key: draftKey.value, text: text.value, attachments: attachments.value, mentioned: mentioned.value };
}

/** All at once: a scheduled message that seems to change is not sent. */
function showDraft(draft: Draft, edited: MessageView | null = null): void {
  batch(() => {
    editing.value = edited;
    text.value = draft.text;
    attachments.value = draft.attachments.map((one) => uploads.get(one.key) ?? one);
    mentioned.value = draft.mentioned;
    draftKey.value = draft.key;
  });
}

/** End the edit, or clear what was sent; the draft from before the edit comes back. */
function resumeDraft(): void {
  showDraft(suspended ?? emptyDraft());
  suspended = null;
  focusComposer();
}

/** Put the blocks of a message back into the composer. */
export function fillComposer(message: Block[], edited: MessageView | null = null): void {
  const parts = splitBlocks(message);
  showDraft({ ...emptyDraft(), text: parts.text, attachments: parts.attachments.map(attachmentOf) }, edited);
  focusComposer();
}

export function stopEditing(): void {
  unschedule(draftKey.value);
  resumeDraft();
}

/** The name of a command, and nothing else. */
export const COMMAND = /^\/([\w:.-]*)$/;

export function unschedule(key: string): void {
  scheduledMessages.value = scheduledMessages.value.filter((one) => one.key !== key);
}

export function cancelScheduled(): void {
  unschedule(draftKey.value);
  announce("Sending cancelled");
  focusComposer();
}

/** `steer`: the running turn reads the message at its next step. */
export async function submit(steer = false): Promise<void> {
  if (failed.value.length) announce("Retry or remove the failed attachment to send");
  if (!canSend.value) return;
  const before = currentDraft();
  const message = { ...before, session: sessionId.value, steer, models: askedModels.value, edited: editing.value };
  unschedule(message.key);
  if (isUploading.value) {
    scheduledMessages.value = [...scheduledMessages.value, message];
    announce("The message is sent when the upload has finished");
    return;
  }
  resumeDraft();
  const shown = currentDraft();
  const isTaken = await sendComposed(message);
  if (isTaken && message.models.length > 1) {
    askedModels.value = [];
    comparesAnswers.value = sessionId.value;
  }
  if (isTaken) return;
  // A refused message comes back, unless the user has started another one; an edit is still an edit.
  if (text.value === shown.text && attachments.value === shown.attachments) {
    forgetUndelivered(message.key);
    if (message.edited) suspended = shown;
    showDraft({ ...before, key: randomKey() }, message.edited);
    focusComposer();
  } else import("../screens/deferred").then(({ giveBack }) => giveBack(message), () => undefined);
}

/** Return true once the server has stored the message. */
export function sendComposed({ key, session, text, attachments, mentioned, steer, models, edited }: ComposedMessage): Promise<boolean> {
  const files = mentioned.filter((path) => text.includes(`@${path}`));
  return send({ text: text.trim(), blocks: blocksOf(attachments), files, key, steer, ...(models.length > 1 ? { models } : {}), ...(edited ? { parent: edited.parent } : {}) }, session);
}

// Drafts ---------------------------------------------------------------------------------------------------------------

export interface StoredDraft {
  text: string;
  key: string;
  /** When it was saved; drafts of older versions have no time, and no keys. */
  at?: number;
  attachments: (Pick<Attachment, "name" | "bytes" | "block" | "pages"> & { key?: string })[];
}

export let loadedFor: string | null = null;
export const DRAFTS = "loom.draft.";
/** Where the drafts for new sessions are, one for each tab. */
export const NEW_DRAFTS = `${DRAFTS}new`;

export function storedAttachment({ key, name, bytes, block, pages }: StoredDraft["attachments"][number]): StoredDraft["attachments"][number] {
  return { key, name, bytes, block: block && storableAttachment(block), pages };
}

export function draftOf(session: string): string {
  return session ? DRAFTS + session : `${NEW_DRAFTS}.${tab}`;
}

export function keepDrafts(): void {
  effect(() => {
    const place = draftOf(sessionId.value);
    const list = attachments.value;
    const [words, isEdit] = [text.value, editing.value !== null];
    if (loadedFor === draftOf("") && sessionId.value && sessionId.value === createdSession.peek()) {
      localStorage.removeItem(loadedFor);
      createdSession.value = "";
      loadedFor = place;
      scheduledMessages.value = scheduledMessages.peek().map((one) => (one.session ? one : { ...one, session: sessionId.value }));
    }
    if (loadedFor !== place) {
      loadedFor = place;
      restore(place);
      return;
    }
    if (isEdit) return;
    if (!words && !list.length) localStorage.removeItem(place);
    else saveDraft(place, { text: words, key: draftKey.value, attachments: list.map(storedAttachment) });
  });
}

export function saveDraft(place: string, draft: StoredDraft): void {
  saveItem(place, JSON.stringify({ ...draft, at: Date.now() }));
}

export function storedDraft(place: string): StoredDraft | null {
  return JSON.parse(localStorage.getItem(place) ?? "null") as StoredDraft | null;
}

/** A message that was sent is no draft any more, wherever its draft is kept. */
export function forgetDraft(key: string, place: string): void {
  if (suspended?.key === key) suspended = emptyDraft();
  if (storedDraft(place)?.key === key) localStorage.removeItem(place);
}

export function restore(place: string): void {
  const draft = storedDraft(place);
  const listed = (draft?.attachments ?? []).map((one) => {
    const fresh = newAttachment(one.name, one.bytes);
    return { ...fresh, key: one.key ?? fresh.key, block: one.block, pages: one.pages, fraction: one.block ? null : 0 };
  });
  suspended = null;
  showDraft({ key: draft?.key ?? randomKey(), text: draft?.text ?? "", attachments: listed, mentioned: [] });
  const interrupted = listed.filter((one) => !one.block && !uploads.has(one.key));
  for (const one of interrupted) uploads.set(one.key, one);
  if (interrupted.length) uploadWith(interrupted, ({ resumeUploads }) => void resumeUploads(interrupted));
}
