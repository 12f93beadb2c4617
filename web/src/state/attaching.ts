// Attachments: upload with progress, failures that stay, retries, messages that wait for uploads. Loaded with the first attachment.
import { effect, untracked } from "@preact/signals";
import { ApiError } from "../api/http";
import { type Attachable, asTextFile, isMedia } from "../api/blocks";
import type { MediaView } from "../api/types";
import { announce, config, problem, sessions } from "./app";
import { type Attachment, attachments, type ComposedMessage, draftKey, draftOf, focusComposer, forgetDraft, notUploaded, scheduledMessages, sendComposed, submit, text, unschedule, update, uploads } from "./composer";
import { formatBytes } from "./format";
import { dropFile, keepFile, keptFile } from "./pending_files";
import { addToDraft, giveBack } from "./unsent";
import { upload } from "./uploads";

async function uploadAttachment(at: string, file: File, name: string, password = ""): Promise<void> {
  const limit = config.value?.upload.max_bytes ?? Number.POSITIVE_INFINITY;
  if (file.size > limit) {
    const message = `${name} is ${formatBytes(file.size)}. The limit is ${formatBytes(limit)}.`;
    return update(at, { fraction: null, problem: { code: "media.too_large", message, hint: "Attach a smaller file." } });
  }
  void keepFile(at, file);
  const stop = new AbortController();
  update(at, { fraction: 0, problem: null, cancel: () => stop.abort() });
  try {
    setUploaded(at, await upload(file, name, (fraction) => update(at, { fraction }), stop.signal, password));
    announce(`${name} attached`);
  } catch (error) {
    if (stop.signal.aborted) return detach(at);
    const problem = error instanceof ApiError ? { code: error.code, message: error.message, hint: error.hint } : { code: "file.unreadable", message: `The browser could not read ${name}.`, hint: "It may have been moved or changed. Attach it again." };
    announce(`${name} could not be attached`);
    update(at, { fraction: null, problem });
  }
}

/** Upload the files of a draft that were not uploaded before a reload. */
export async function resumeUploads(interrupted: Attachment[]): Promise<void> {
  for (const { key, name } of interrupted) {
    const file = await keptFile(key);
    if (!uploads.has(key)) continue;
    if (file) void uploadAttachment(key, file, name);
    update(key, file ? { file } : { fraction: null, problem: notUploaded(name) });
  }
}

/** Upload a file that is listed, for the first time or again. */
export function retry(at: string, password = ""): void {
  const found = uploads.get(at);
  if (found?.file) void uploadAttachment(at, found.file, found.name, password);
}

/** Whether a password would let the file in: those of PDFs are taken. */
export function wantsPassword(one: Attachment): boolean {
  return one.problem?.code === "media.encrypted" && (one.file?.type === "application/pdf" || one.name.toLowerCase().endsWith(".pdf"));
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

export function detach(at: string): void {
  const gone = uploads.get(at) ?? attachments.value.find((one) => one.key === at);
  attachments.value = attachments.value.filter((one) => one.key !== at);
  uploads.delete(at);
  gone?.cancel();
  void dropFile(at);
  if (gone?.preview) URL.revokeObjectURL(gone.preview);
}

/** A file is kept until the draft that it belongs to has been shown with its block, and saved. */
effect(() => {
  for (const { key, block } of attachments.value) if (block && uploads.delete(key)) void dropFile(key);
});

/** Send scheduled messages when their uploads have ended. A failed upload cancels that, and so does a change by the user: it would be sent half written. */
effect(() => {
  for (const message of scheduledMessages.value) {
    const isShown = message.key === draftKey.value;
    const isChanged = isShown && (message.text !== text.value || keysOf(message.attachments) !== keysOf(attachments.value));
    const failed = message.attachments.find((one) => one.problem);
    if (!isChanged && !failed && message.attachments.some((one) => one.fraction !== null)) continue;
    untracked(() => {
      unschedule(message.key);
      if (isChanged) announce("Sending cancelled: the message was changed");
      else if (failed) reportFailed(message, failed, isShown);
      else if (isShown) void submit(message.steer);
      else void sendElsewhere(message);
    });
  }
});

function keysOf(list: Attachment[]): string {
  return list.map((one) => one.key).join();
}

/** Send a message whose draft is not shown. */
async function sendElsewhere(message: ComposedMessage): Promise<void> {
  const sending = sendComposed(message);
  forgetDraft(message.key, draftOf(message.session));
  for (const { key } of message.attachments) if (uploads.delete(key)) void dropFile(key);
  if (!(await sending)) giveBack(message);
}

/** The draft that holds the message shows what failed; an edit has no draft elsewhere, and becomes one. */
function reportFailed(message: ComposedMessage, failed: Attachment, isShown: boolean): void {
  if (isShown) return announce("The message was not sent. Retry or remove the failed attachment");
  if (message.edited) addToDraft(draftOf(message.session), message.text, message.attachments);
  const title = sessions.value.find((one) => one.id === message.session)?.title;
  problem.value = { message: `A message was not sent: ${failed.name} could not be attached.`, hint: `To retry or remove it, open ${title ? `“${title}”` : "its draft"}.` };
}
