// Drafts, files and undelivered messages in this browser belong to the user who is signed in: another user neither sees nor sends them.
import { request } from "../api/http";
import type { UserView } from "../api/types";
import { saveItem } from "./storage";

const OWNER = "loom.user";

/** Forget what another user left in this browser. */
export async function checkOwner(): Promise<void> {
  const { name } = await request<UserView>("/me");
  const before = localStorage.getItem(OWNER);
  if (before !== null && before !== name) await (await import("../screens/deferred")).forgetWork();
  saveItem(OWNER, name);
}
