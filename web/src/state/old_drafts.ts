// Earlier versions kept messages that Stop took out of the queue in the browser. They become part of the session's draft.
import { type Block, splitBlocks } from "../api/blocks";
import { attachmentOf, draftOf } from "./composer";
import { addToDraft } from "./unsent";

export const OLD_HELD = "loom.held.";

export function moveHeldMessages(): void {
  for (const name of Object.keys(localStorage).filter((one) => one.startsWith(OLD_HELD))) {
    const held = (JSON.parse(localStorage.getItem(name) ?? "[]") as { blocks: Block[] }[]).map((one) => splitBlocks(one.blocks));
    const text = held.map((one) => one.text).filter(Boolean).join("\n\n");
    addToDraft(draftOf(name.slice(OLD_HELD.length)), text, held.flatMap((one) => one.attachments).map(attachmentOf));
    localStorage.removeItem(name);
  }
}
