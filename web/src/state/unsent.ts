// Messages that an earlier page did not deliver, and messages that go back to a draft. Loaded when there are any.
import { view } from "./app";
import { deliver } from "./actions";
import { attachmentOf, type ComposedMessage, draftOf, loadedFor, NEW_DRAFTS, restore, saveDraft, storedAttachment, storedDraft, type StoredDraft } from "./composer";
import { randomKey, wait } from "../api/http";
import { moveHeldMessages } from "./old_drafts";
import { forgetUndelivered, keepUndelivered, OUTBOX, type Undelivered, undelivered, withReopened, withUndelivered } from "./outbox";
import { saveItem } from "./storage";
import { isNewTab, TABS, WHO } from "./tab";

/** Put something that was not sent in front of a draft, whether or not it is shown. */
export function addToDraft(place: string, words: string, attachments: StoredDraft["attachments"]): void {
  const stored = storedDraft(place);
  const text = [words, stored?.text].filter(Boolean).join("\n\n");
  saveDraft(place, { text, key: stored?.key ?? randomKey(), attachments: [...attachments.map(storedAttachment), ...(stored?.attachments ?? [])] });
  if (place === loadedFor) restore(place);
}

/** A message that was refused while the user wrote another one: its session shows it; without a session it becomes part of the draft. */
export function giveBack({ key, session, attachments }: ComposedMessage): void {
  const found = undelivered.get(key);
  if (found?.id === "") {
    forgetUndelivered(key);
    addToDraft(draftOf(session), found.outgoing.text, attachments);
  } else if (view.value) view.value = withUndelivered(view.value);
}

/** How long open tabs have to answer. */
const ANSWER_MS = 500;

/** A tab that was just opened takes the newest draft of a tab that was closed before its message was sent. */
async function adoptDraft(): Promise<void> {
  const own = draftOf("");
  const isOrphan = (place: string): boolean => place.startsWith(NEW_DRAFTS) && place !== own;
  if (!isNewTab || localStorage.getItem(own) || !Object.keys(localStorage).some(isOrphan)) return;
  const open = new Set<unknown>();
  const channel = new BroadcastChannel(TABS);
  channel.onmessage = ({ data }) => open.add(`${NEW_DRAFTS}.${data as string}`);
  channel.postMessage(WHO);
  await wait(ANSWER_MS);
  channel.close();
  const left = Object.keys(localStorage).filter((place) => isOrphan(place) && !open.has(place));
  const [newest] = left.sort((a, b) => (storedDraft(b)?.at ?? 0) - (storedDraft(a)?.at ?? 0));
  const draft = newest && localStorage.getItem(newest);
  if (!draft || localStorage.getItem(own)) return;
  localStorage.removeItem(newest);
  saveItem(own, draft);
  if (own === loadedFor) restore(own);
}

/** Send what was not delivered before the page was closed; the key prevents duplicates. Messages without a session become a draft. */
export function resendOutbox(): void {
  moveHeldMessages();
  void adoptDraft();
  const names = Object.keys(localStorage).filter((one) => one.startsWith(OUTBOX));
  const found = names.map((name) => JSON.parse(localStorage.getItem(name) ?? "{}") as Undelivered).sort((a, b) => (a.at ?? 0) - (b.at ?? 0));
  const unsent = found.filter((one) => !one.id).map((one) => one.outgoing);
  for (const one of unsent) forgetUndelivered(one.key);
  for (const one of unsent.reverse()) addToDraft(draftOf(""), one.text, one.blocks.map(attachmentOf));
  for (const one of found) if (one.id) void (one.problem ? keepUndelivered(one) : deliver(one));
  if (view.value) view.value = withReopened(view.value);
}
