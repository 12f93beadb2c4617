// Messages that wait for the running answer, and messages held after Stop. They can be edited or removed.
import { mediaUrl } from "../api/http";
import { attachmentName, type Block, isMedia, splitBlocks } from "../api/blocks";
import type { QueuedView } from "../api/types";
import { CloseIcon, EditIcon } from "../parts/icons";
import { sessionId } from "../state/app";
import { attachments, fillComposer, text } from "../state/composer";
import { type HeldMessage, release } from "../state/held";
import { sendHeld, unqueue } from "../state/session_actions";
import { plural } from "../state/format";

export function QueuedMessages({ queue }: { queue: QueuedView[] }) {
  return (
    <section class="queue" aria-label="Queued messages">
      <h2>Queued</h2>
      <ul>
        {queue.map((one) => (
          <Row key={one.message} blocks={one.blocks} place="queue" note={one.steers ? "read at the next step" : ""} onRemove={() => unqueue(one.message)} />
        ))}
      </ul>
    </section>
  );
}

/** Shown after Stop: the user decides what happens to the messages that were queued. */
export function HeldMessages({ held }: { held: HeldMessage[] }) {
  const remove = (key: string): Promise<boolean> => {
    release(sessionId.value, key);
    return Promise.resolve(true);
  };
  return (
    <section class="queue held" aria-label="Messages on hold">
      <h2>You stopped the answer. Send the queued {held.length === 1 ? "message" : "messages"}?</h2>
      <ul>
        {held.map((one) => (
          <Row key={one.key} blocks={one.blocks} place="list" note="" onRemove={() => remove(one.key)} />
        ))}
      </ul>
      <div class="buttons">
        <button type="button" class="primary" onClick={() => void sendHeld()}>Send {plural(held.length, "message")}</button>
        <button type="button" onClick={() => held.forEach((one) => void remove(one.key))}>Discard</button>
      </div>
    </section>
  );
}

function Row({ blocks, place, note, onRemove }: { blocks: Block[]; place: string; note: string; onRemove: () => Promise<boolean> }) {
  const parts = splitBlocks(blocks);
  const words = parts.text || parts.attachments.map(attachmentName).join(", ");
  const isComposing = text.value !== "" || attachments.value.length > 0;
  const edit = async (): Promise<void> => {
    if (await onRemove()) fillComposer(blocks);
  };
  return (
    <li>
      {blocks.filter(isMedia).map((block, index) => block.type === "image" && <img key={index} src={mediaUrl(block.media.digest, "thumb")} alt={block.media.name ?? ""} />)}
      <span class="clip">{words}</span>
      {note && <span class="dim">{note}</span>}
      <button type="button" class="icon" aria-label={`Edit “${words.slice(0, 40)}” before sending`} disabled={isComposing} title={isComposing ? "Send or clear the current draft first" : "Edit before sending"} onClick={() => void edit()}><EditIcon /></button>
      <button type="button" class="icon" aria-label={`Remove “${words.slice(0, 40)}” from the ${place}`} onClick={() => void onRemove()}><CloseIcon /></button>
    </li>
  );
}
