// The message in the making: words, attachments, whom it answers. Kept per session across reloads.
import { computed, effect, signal } from "@preact/signals";
import { freshKey, Refused } from "../api/http";
import { type Block, isMedia, type MediaBlock } from "../api/blocks";
import type { MediaView, MessageView, Problem } from "../api/shapes";
import { announce, config, sessionId } from "./app";
import { size } from "./words";
import { send } from "./turn";
import { upload } from "./uploads";

export interface Attachment {
  key: string;
  name: string;
  bytes: number;
  preview: string;
  fraction: number | null;
  block: MediaBlock | null;
  /** A chosen page range of a document, counted from one. */
  pages: [number, number] | null;
  problem: Problem | null;
  notices: string[];
  cancel: () => void;
}

export const text = signal("");
export const attachments = signal<Attachment[]>([]);
/** Files of the workspace that the message names with `@`. */
export const mentioned = signal<string[]>([]);
/** The message that is edited: its answer becomes a sibling. */
export const editing = signal<MessageView | null>(null);
export const isSending = signal(false);
export const isUploading = computed(() => attachments.value.some((one) => one.fraction !== null));
export const blocks = computed<MediaBlock[]>(() => attachments.value.flatMap((one) => (one.block ? [withPages(one)] : [])));
export const canSend = computed(() => !isSending.value && !isUploading.value && (text.value.trim() !== "" || blocks.value.length > 0));

let key = freshKey();
const focusers: (() => void)[] = [];

export function onFocusWanted(focus: () => void): () => void {
  focusers.push(focus);
  return () => focusers.splice(focusers.indexOf(focus), 1);
}

export function focusComposer(): void {
  for (const focus of focusers) focus();
}

function withPages(one: Attachment): MediaBlock {
  const block = one.block as MediaBlock;
  if (block.type !== "document" || !one.pages) return block;
  const [first, last] = one.pages;
  const isAll = first === 1 && last === block.media.pages;
  return isAll ? { ...block, pages: "" } : { ...block, pages: first === last ? `${first}` : `${first}-${last}` };
}

export function attach(files: Iterable<File>): void {
  for (const file of files) void attachOne(file);
}

async function attachOne(file: File): Promise<void> {
  const name = (file as File & { loomPath?: string }).loomPath ?? (file.name || "pasted");
  const limit = config.value?.upload.max_bytes ?? Number.POSITIVE_INFINITY;
  const isPicture = file.type.startsWith("image/") && file.type !== "image/svg+xml";
  const fresh: Attachment = {
    key: freshKey(), name, bytes: file.size, preview: isPicture ? URL.createObjectURL(file) : "", fraction: 0, block: null,
    pages: null, problem: null, notices: [], cancel: () => undefined,
  };
  if (file.size > limit) {
    const problem = { code: "media.too_large", message: `${name} has ${size(file.size)}; at most ${size(limit)} are taken.`, hint: "Send a smaller file." };
    attachments.value = [...attachments.value, { ...fresh, fraction: null, problem }];
    return;
  }
  const stop = new AbortController();
  attachments.value = [...attachments.value, { ...fresh, cancel: () => stop.abort() }];
  try {
    ready(fresh.key, await upload(file, name, (fraction) => update(fresh.key, { fraction }), stop.signal));
    announce(`${name} attached`);
  } catch (error) {
    if (error instanceof Refused) update(fresh.key, { fraction: null, problem: { code: error.code, message: error.message, hint: error.hint } });
    else if (stop.signal.aborted) detach(fresh.key);
    else throw error;
  }
}

function ready(at: string, info: MediaView): void {
  const block = isMedia(info.block) ? info.block : null;
  const most = config.value?.documents.pages_per_read ?? 20;
  const pages: [number, number] | null = info.pages && block?.type === "document" ? [1, Math.min(info.pages, most)] : null;
  const problem = block ? null : { code: "media.unsupported", message: `${info.name} cannot be attached.`, hint: "Paste its text instead." };
  update(at, { fraction: null, block, pages, problem, notices: info.notices, bytes: info.bytes });
}

export function attachKnown(info: MediaView): void {
  const at = freshKey();
  attachments.value = [...attachments.value, {
    key: at, name: info.name, bytes: info.bytes, preview: "", fraction: null, block: null, pages: null, problem: null, notices: [], cancel: () => undefined,
  }];
  ready(at, info);
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
  refill(message.blocks);
}

/** What was said stands in the box again. */
export function refill(said: Block[]): void {
  text.value = said.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n\n");
  attachments.value = said.filter(isMedia).map((block) => ({
    key: freshKey(), name: block.media.name ?? block.type, bytes: block.media.size_bytes, preview: "", fraction: null, block,
    pages: block.type === "document" && block.pages ? (block.pages.split("-").map(Number) as [number, number]) : null,
    problem: null, notices: [], cancel: () => undefined,
  }));
  key = freshKey();
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
  key = freshKey();
  focusComposer();
}

export async function submit(): Promise<void> {
  if (!canSend.value) return;
  const files = mentioned.value.filter((path) => text.value.includes(`@${path}`));
  const outgoing = { text: text.value.trim(), blocks: blocks.value, files, key, ...(editing.value ? { parent: editing.value.parent } : {}) };
  const before = { text: text.value, attachments: attachments.value };
  isSending.value = true;
  editing.value = null;
  clear();
  isSending.value = false;
  const isTaken = await send(outgoing);
  // What was refused comes back, unless something new was begun meanwhile.
  if (!isTaken && !text.value && !attachments.value.length) {
    text.value = before.text;
    attachments.value = before.attachments;
  }
}

// Drafts ---------------------------------------------------------------------------------------------------------------

interface Kept {
  text: string;
  key: string;
  attachments: Pick<Attachment, "name" | "bytes" | "block" | "pages">[];
}

let loadedFor: string | null = null;

export function keepDrafts(): void {
  effect(() => {
    const place = `loom.draft.${sessionId.value || "new"}`;
    const ready = attachments.value.filter((one) => one.block);
    const [words, isEdit] = [text.value, editing.value !== null];
    if (loadedFor !== place) {
      loadedFor = place;
      restore(place);
      return;
    }
    if (isEdit) return;
    if (!words && !ready.length) localStorage.removeItem(place);
    else {
      const kept: Kept = { text: words, key, attachments: ready.map(({ name, bytes, block, pages }) => ({ name, bytes, block, pages })) };
      localStorage.setItem(place, JSON.stringify(kept));
    }
  });
}

function restore(place: string): void {
  const raw = localStorage.getItem(place);
  const kept = raw ? (JSON.parse(raw) as Kept) : null;
  editing.value = null;
  text.value = kept?.text ?? "";
  key = kept?.key ?? freshKey();
  attachments.value = (kept?.attachments ?? []).map((one) => ({
    ...one, key: freshKey(), preview: "", fraction: null, problem: null, notices: [], cancel: () => undefined,
  }));
}
