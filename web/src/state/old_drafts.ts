// Earlier versions kept messages that Stop took out of the queue in the browser. They become part of the session's draft.
import { type Block, splitBlocks } from "../api/blocks";
import { randomKey } from "../api/http";
import { sessionId } from "./app";
import { attachmentOf, restore, type StoredDraft, storedAttachment } from "./composer";
import { saveItem } from "./storage";

export function moveHeldMessages(prefix: string): void {
  for (const name of Object.keys(localStorage).filter((one) => one.startsWith(prefix))) {
    const session = name.slice(prefix.length);
    const place = `loom.draft.${session}`;
    const held = (JSON.parse(localStorage.getItem(name) ?? "[]") as { blocks: Block[] }[]).map((one) => splitBlocks(one.blocks));
    const draft = JSON.parse(localStorage.getItem(place) ?? "null") as StoredDraft | null;
    const text = [draft?.text, ...held.map((one) => one.text)].filter(Boolean).join("\n\n");
    const attachments = [...(draft?.attachments ?? []), ...held.flatMap((one) => one.attachments).map(attachmentOf)];
    saveItem(place, JSON.stringify({ text, key: randomKey(), attachments: attachments.map(storedAttachment) } satisfies StoredDraft));
    localStorage.removeItem(name);
    if (session === sessionId.value) restore(place);
  }
}
