// What this browser keeps of a user's work is forgotten when they sign out, or when another user has signed in.
import { DRAFTS, loadedFor, restore, scheduledMessages, uploads } from "./composer";
import { OLD_HELD } from "./old_drafts";
import { OUTBOX } from "./outbox";
import { dropAllFiles } from "./pending_files";

export async function forgetWork(): Promise<void> {
  for (const name of Object.keys(localStorage)) if ([DRAFTS, OLD_HELD, OUTBOX].some((one) => name.startsWith(one))) localStorage.removeItem(name);
  scheduledMessages.value = [];
  for (const one of uploads.values()) one.cancel();
  uploads.clear();
  if (loadedFor) restore(loadedFor);
  await dropAllFiles();
}
