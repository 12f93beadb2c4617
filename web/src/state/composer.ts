// The message being written: text, attachments, the message it edits. Saved per session across reloads.
import { computed, effect, signal } from "@preact/signals";
import { ApiError, randomKey } from "../api/http";
import { type Attachable, asTextFile, attachmentName, type Block, isMedia, splitBlocks, storableAttachment } from "../api/blocks";
import type { MediaView, MessageView, Problem } from "../api/types";
import { announce, config, sessionId } from "./app";
import { formatBytes } from "./format";
import { send } from "./actions";
import { upload } from "./uploads";

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
  /** Kept for a retry; null after a reload. */
  file: File | null;
  cancel: () => void;
}

export const text = signal("");
export const attachments = signal<Attachment[]>([]);
/** Workspace files mentioned with `@`. */
export const mentioned = signal<string[]>([]);
/** The message being edited; sending creates a sibling. */
export const editing = signal<MessageView | null>(null);
export const isSending = signal(false);
export const isUploading = computed(() => attachments.value.some((one) => one.fraction !== null));
/** Attachments that failed: they stay until the user retries or removes them, and nothing is sent without them. */
export const failed = computed(() => attachments.value.filter((one) => one.problem !== null));
export const blocks = computed<Attachable[]>(() => attachments.value.flatMap((one) => (one.block ? [withPages(one, one.block)] : [])));
export const canSend = computed(() => !isSending.value && !isUploading.value && !failed.value.length && (text.value.trim() !== "" || blocks.value.length > 0));

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

function newAttachment(name: string, bytes: number): Attachment {
  return { key: randomKey(), name, bytes, preview: "", fraction: null, block: null, pages: null, problem: null, notices: [], file: null, cancel: () => undefined };
}

function attachmentOf(block: Attachable): Attachment {
  const bytes = block.type === "text" ? block.text.length : block.media.size_bytes;
  const pages = block.type === "document" && block.pages ? (block.pages.split("-").map(Number) as [number, number]) : null;
  return { ...newAttachment(attachmentName(block), bytes), block, pages };
}

export function attach(files: Iterable<File>): void {
  for (const file of files) {
    const name = (file as File & { loomPath?: string }).loomPath ?? (file.name || "pasted");
    const isImage = file.type.startsWith("image/") && file.type !== "image/svg+xml";
    const fresh = { ...newAttachment(name, file.size), file, preview: isImage ? URL.createObjectURL(file) : "" };
    attachments.value = [...attachments.value, fresh];
    void uploadAttachment(fresh.key, file, name);
  }
}

const PASTED = /^pasted(-\d+)?\.txt$/;

/** Attach a long paste as a text file with a name of its own. */
export function attachPaste(words: string): void {
  const count = attachments.value.filter((one) => PASTED.test(one.name)).length;
  attach([new File([words], count ? `pasted-${count + 1}.txt` : "pasted.txt", { type: "text/plain" })]);
}

async function uploadAttachment(at: string, file: File, name: string): Promise<void> {
  const limit = config.value?.upload.max_bytes ?? Number.POSITIVE_INFINITY;
  if (file.size > limit) {
    const message = `${name} is ${formatBytes(file.size)}. The limit is ${formatBytes(limit)}.`;
    return update(at, { fraction: null, problem: { code: "media.too_large", message, hint: "Attach a smaller file." } });
  }
  const stop = new AbortController();
  update(at, { fraction: 0, problem: null, cancel: () => stop.abort() });
  try {
    setUploaded(at, await upload(file, name, (fraction) => update(at, { fraction }), stop.signal));
    announce(`${name} attached`);
  } catch (error) {
    if (stop.signal.aborted) return detach(at);
    const problem = error instanceof ApiError ? { code: error.code, message: error.message, hint: error.hint } : { code: "file.unreadable", message: `The browser could not read ${name}.`, hint: "It may have been moved or changed. Attach it again." };
    update(at, { fraction: null, problem });
    announce(`${name} could not be attached`);
  }
}

export function retry(at: string): void {
  const found = attachments.value.find((one) => one.key === at);
  if (found?.file) void uploadAttachment(at, found.file, found.name);
}

/** Put the text of a failed paste into the message box instead. */
export async function insertAsText(at: string): Promise<void> {
  const found = attachments.value.find((one) => one.key === at);
  if (!found?.file) return;
  const words = await found.file.text();
  text.value = text.value ? `${text.value}\n\n${words}` : words;
  detach(at);
  focusComposer();
}

export function isTextFile(one: Attachment): boolean {
  return one.file?.type.startsWith("text/") ?? false;
}

function setUploaded(at: string, info: MediaView): void {
  const block: Attachable | null = isMedia(info.block) ? info.block : info.block.type === "text" ? asTextFile(info.block, info.name, info.digest) : null;
  const most = config.value?.documents.pages_per_read ?? 20;
  const pages: [number, number] | null = info.pages && block?.type === "document" ? [1, Math.min(info.pages, most)] : null;
  const problem = block ? null : { code: "media.unsupported", message: `${info.name} cannot be attached.`, hint: "Convert it to PDF or text." };
  update(at, { fraction: null, block, pages, problem, notices: info.notices, bytes: info.bytes });
}

export function update(at: string, change: Partial<Attachment>): void {
  attachments.value = attachments.value.map((one) => (one.key === at ? { ...one, ...change } : one));
}

export function detach(at: string): void {
  const gone = attachments.value.find((one) => one.key === at);
  attachments.value = attachments.value.filter((one) => one.key !== at);
  gone?.cancel();
  if (gone?.preview) URL.revokeObjectURL(gone.preview);
}

export function edit(message: MessageView): void {
  editing.value = message;
  fillComposer(message.blocks);
}

/** Put the blocks of a message back into the composer. */
export function fillComposer(message: Block[]): void {
  const parts = splitBlocks(message);
  text.value = parts.text;
  attachments.value = parts.attachments.map(attachmentOf);
  key = randomKey();
  focusComposer();
}

export function stopEditing(): void {
  editing.value = null;
  clear();
}

function clear(): void {
  text.value = "";
  attachments.value = [];
  mentioned.value = [];
  key = randomKey();
  focusComposer();
}

export async function submit(): Promise<void> {
  if (failed.value.length) announce("Retry or remove the failed attachment to send");
  if (!canSend.value) return;
  const files = mentioned.value.filter((path) => text.value.includes(`@${path}`));
  const outgoing = { text: text.value.trim(), blocks: blocks.value, files, key, ...(editing.value ? { parent: editing.value.parent } : {}) };
  const before = { text: text.value, attachments: attachments.value };
  isSending.value = true;
  editing.value = null;
  clear();
  isSending.value = false;
  const isTaken = await send(outgoing);
  // A refused message comes back, unless the user has started another one.
  if (!isTaken && !text.value && !attachments.value.length) {
    text.value = before.text;
    attachments.value = before.attachments;
  }
}

// Drafts ---------------------------------------------------------------------------------------------------------------

interface StoredDraft {
  text: string;
  key: string;
  attachments: Pick<Attachment, "name" | "bytes" | "block" | "pages">[];
}

let loadedFor: string | null = null;

export function keepDrafts(): void {
  effect(() => {
    const place = `loom.draft.${sessionId.value || "new"}`;
    const list = attachments.value;
    const [words, isEdit] = [text.value, editing.value !== null];
    if (loadedFor !== place) {
      loadedFor = place;
      restore(place);
      return;
    }
    if (isEdit) return;
    if (!words && !list.length) localStorage.removeItem(place);
    else {
      const draft: StoredDraft = { text: words, key, attachments: list.map(({ name, bytes, block, pages }) => ({ name, bytes, block: block && storableAttachment(block), pages })) };
      localStorage.setItem(place, JSON.stringify(draft));
    }
  });
}

function restore(place: string): void {
  const raw = localStorage.getItem(place);
  const draft = raw ? (JSON.parse(raw) as StoredDraft) : null;
  editing.value = null;
  text.value = draft?.text ?? "";
  key = draft?.key ?? randomKey();
  attachments.value = (draft?.attachments ?? []).map((one) => {
    const problem = one.block ? null : { code: "upload.interrupted", message: `${one.name} was not uploaded.`, hint: "Attach it again." };
    return { ...newAttachment(one.name, one.bytes), block: one.block, pages: one.pages, problem };
  });
}
