// The message being written: text, attachments, the message it edits. Saved per session across reloads.
import { batch, computed, effect, signal } from "@preact/signals";
import { randomKey } from "../api/http";
import { type Attachable, attachmentName, type Block, splitBlocks, storableAttachment } from "../api/blocks";
import type { MessageView, Problem } from "../api/types";
import { announce, askedModels, comparesAnswers, createdSession, sessionId } from "./app";
import { forgetUndelivered } from "./outbox";
import { saveItem } from "./storage";
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
export const blocks = computed<Attachable[]>(() => attachments.value.flatMap((one) => (one.block ? [withPages(one, one.block)] : [])));
/** Whether Send does something: while files are uploaded, it schedules the message. */
export const canSend = computed(() => !failed.value.length && (isUploading.value || text.value.trim() !== "" || blocks.value.length > 0));

/** The message as it was when the user sent it, until its uploads have ended. */
interface ScheduledSend {
  text: string;
  attachments: string;
  steer: boolean;
}

export const scheduled = signal<ScheduledSend | null>(null);

interface Draft {
  text: string;
  attachments: Attachment[];
  mentioned: string[];
}

const EMPTY: Draft = { text: "", attachments: [], mentioned: [] };
/** Attachments whose draft does not have their block yet. The draft need not be shown meanwhile: their uploads go on. */
export const uploads = new Map<string, Attachment>();
/** The draft that was there before a message was edited; it comes back afterwards. */
let suspended: Draft | null = null;
let key = randomKey();
const focusers: (() => void)[] = [];

export function onFocusWanted(focus: () => void): () => void {
  focusers.push(focus);
  return () => focusers.splice(focusers.indexOf(focus), 1);
}

export function focusComposer(): void {
  for (const focus of focusers) focus();
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
    scheduled.value = null;
    for (const { key, name } of listed) update(key, { fraction: null, problem: notUploaded(name) });
  });
}

export function update(at: string, change: Partial<Attachment>): void {
  const changed = (one: Attachment): Attachment => (one.key === at ? { ...one, ...change } : one);
  const kept = uploads.get(at);
  if (kept) uploads.set(at, changed(kept));
  attachments.value = attachments.value.map(changed);
}

const PASTED = /^pasted(-\d+)?\.txt$/;

/** Attach a long paste as a text file with a name of its own. */
export function attachPaste(words: string): void {
  const count = attachments.value.filter((one) => PASTED.test(one.name)).length;
  attach([new File([words], count ? `pasted-${count + 1}.txt` : "pasted.txt", { type: "text/plain" })]);
}

export function edit(message: MessageView): void {
  suspended ??= currentDraft();
  editing.value = message;
  fillComposer(message.blocks);
}

function currentDraft(): Draft {
  return { text: text.value, attachments: attachments.value, mentioned: mentioned.value };
}

function showDraft(draft: Draft): void {
  text.value = draft.text;
  attachments.value = draft.attachments.map((one) => uploads.get(one.key) ?? one);
  mentioned.value = draft.mentioned;
  key = randomKey();
  focusComposer();
}

/** End the edit, or clear what was sent; the draft from before the edit comes back. */
function resumeDraft(): void {
  batch(() => {
    editing.value = null;
    showDraft(suspended ?? EMPTY);
  });
  suspended = null;
}

/** Put the blocks of a message back into the composer. */
export function fillComposer(message: Block[]): void {
  const parts = splitBlocks(message);
  text.value = parts.text;
  attachments.value = parts.attachments.map(attachmentOf);
  key = randomKey();
  focusComposer();
}

export const stopEditing = resumeDraft;

/** The name of a command, and nothing else. */
export const COMMAND = /^\/([\w:.-]*)$/;

export function attachmentKeys(): string {
  return attachments.value.map((one) => one.key).join();
}

export function cancelScheduled(): void {
  scheduled.value = null;
  announce("Sending cancelled");
  focusComposer();
}

/** `steer`: the running turn reads the message at its next step. */
export async function submit(steer = false): Promise<void> {
  if (failed.value.length) announce("Retry or remove the failed attachment to send");
  if (!canSend.value) return;
  if (isUploading.value) {
    scheduled.value = { text: text.value, attachments: attachmentKeys(), steer };
    announce("The message is sent when the upload has finished");
    return;
  }
  const files = mentioned.value.filter((path) => text.value.includes(`@${path}`));
  const models = askedModels.value.length > 1 ? { models: askedModels.value } : {};
  const outgoing = { text: text.value.trim(), blocks: blocks.value, files, key, steer, ...models, ...(editing.value ? { parent: editing.value.parent } : {}) };
  const [before, edited, place] = [currentDraft(), editing.value, draftOf(sessionId.value)];
  resumeDraft();
  const shown = currentDraft();
  const isTaken = await send(outgoing);
  if (isTaken && models.models) {
    askedModels.value = [];
    comparesAnswers.value = sessionId.value;
  }
  if (isTaken) return;
  // A refused message comes back, unless the user has started another one; an edit is still an edit.
  if (text.value === shown.text && attachments.value === shown.attachments) {
    forgetUndelivered(outgoing.key);
    batch(() => {
      if (edited) suspended = shown;
      editing.value = edited;
      showDraft(before);
    });
  } else import("../screens/deferred").then(({ giveBack }) => giveBack(outgoing.key, place, before.attachments), () => undefined);
}

// Drafts ---------------------------------------------------------------------------------------------------------------

export interface StoredDraft {
  text: string;
  key: string;
  /** Drafts of older versions have no keys. */
  attachments: (Pick<Attachment, "name" | "bytes" | "block" | "pages"> & { key?: string })[];
}

export let loadedFor: string | null = null;
export const DRAFTS = "loom.draft.";

export function storedAttachment({ key, name, bytes, block, pages }: StoredDraft["attachments"][number]): StoredDraft["attachments"][number] {
  return { key, name, bytes, block: block && storableAttachment(block), pages };
}

const NEW = draftOf("");

export function draftOf(session: string): string {
  return `${DRAFTS}${session || "new"}`;
}

export function keepDrafts(): void {
  effect(() => {
    const place = draftOf(sessionId.value);
    const list = attachments.value;
    const [words, isEdit] = [text.value, editing.value !== null];
    if (loadedFor === NEW && sessionId.value && sessionId.value === createdSession.peek()) {
      localStorage.removeItem(NEW);
      createdSession.value = "";
      loadedFor = place;
    }
    if (loadedFor !== place) {
      loadedFor = place;
      restore(place);
      return;
    }
    if (isEdit) return;
    if (!words && !list.length) localStorage.removeItem(place);
    else saveDraft(place, { text: words, key, attachments: list.map(storedAttachment) });
  });
}

export function saveDraft(place: string, draft: StoredDraft): void {
  saveItem(place, JSON.stringify(draft));
}

export function restore(place: string): void {
  const raw = localStorage.getItem(place);
  const draft = raw ? (JSON.parse(raw) as StoredDraft) : null;
  editing.value = suspended = null;
  text.value = draft?.text ?? "";
  key = draft?.key ?? randomKey();
  attachments.value = (draft?.attachments ?? []).map((one) => {
    const listed = newAttachment(one.name, one.bytes);
    return (one.key && uploads.get(one.key)) || { ...listed, key: one.key ?? listed.key, block: one.block, pages: one.pages, fraction: one.block ? null : 0 };
  });
  const interrupted = attachments.value.filter((one) => !one.block && !uploads.has(one.key));
  for (const one of interrupted) uploads.set(one.key, one);
  if (interrupted.length) uploadWith(interrupted, ({ resumeUploads }) => void resumeUploads(interrupted));
}
