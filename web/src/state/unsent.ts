// Messages that an earlier page did not deliver, and messages that go back to a draft. Loaded when there are any.
import { view } from "./app";
import { deliver } from "./actions";
import { type Attachment, attachmentOf, type ComposedMessage, draftOf, loadedFor, restore, saveDraft, storedAttachment, storedDraft } from "./composer";
import { randomKey } from "../api/http";
import { moveHeldMessages } from "./old_drafts";
import { forgetUndelivered, keepUndelivered, OUTBOX, type Undelivered, undelivered, withReopened, withUndelivered } from "./outbox";

/** Put something that was not sent in front of a draft, whether or not it is shown. */
export function addToDraft(place: string, words: string, attachments: Attachment[]): void {
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

/** Send what was not delivered before the page was closed; the key prevents duplicates. Messages without a session become a draft. */
export function resendOutbox(): void {
  moveHeldMessages();
  const names = Object.keys(localStorage).filter((one) => one.startsWith(OUTBOX));
  const found = names.map((name) => JSON.parse(localStorage.getItem(name) ?? "{}") as Undelivered).sort((a, b) => (a.at ?? 0) - (b.at ?? 0));
  const unsent = found.filter((one) => !one.id).map((one) => one.outgoing);
  for (const one of unsent) forgetUndelivered(one.key);
  for (const one of unsent.reverse()) addToDraft(draftOf(""), one.text, one.blocks.map(attachmentOf));
  for (const one of found) if (one.id) void (one.problem ? keepUndelivered(one) : deliver(one));
  if (view.value) view.value = withReopened(view.value);
}
