// Drafts, files and undelivered messages in this browser belong to the user who is signed in: nobody else sees or sends them.
import { request } from "../api/http";
import type { UserView } from "../api/types";
import { clearDrafts, DRAFTS, OLD_HELD } from "./composer";
import { OUTBOX } from "./outbox";
import { saveItem } from "./storage";

const OWNER = "loom.user";

/** Forget what another user left in this browser. */
export async function checkOwner(): Promise<void> {
  const { name } = await request<UserView>("/me");
  const before = localStorage.getItem(OWNER);
  if (before !== null && before !== name) await forgetWork();
  saveItem(OWNER, name);
}

export async function forgetWork(): Promise<void> {
  for (const name of Object.keys(localStorage)) if ([DRAFTS, OLD_HELD, OUTBOX].some((one) => name.startsWith(one))) localStorage.removeItem(name);
  clearDrafts();
  const { dropAllFiles } = await import("../screens/deferred");
  await dropAllFiles();
}
