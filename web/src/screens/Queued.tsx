// Messages that wait for the running answer, and those paused by Stop. They can be edited or removed.
import { mediaUrl } from "../api/http";
import { attachmentName, type Block, isMedia, splitBlocks } from "../api/blocks";
import type { QueuedView } from "../api/types";
import { CloseIcon, EditIcon } from "../parts/icons";
import { attachments, fillComposer, text } from "../state/composer";
import { resumeQueue, unqueue } from "../state/session_actions";
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
export function PausedMessages({ paused }: { paused: QueuedView[] }) {
  const ids = paused.map((one) => one.message);
  return (
    <section class="queue paused" aria-label="Paused messages">
      <h2>The answer was stopped. Send the queued {paused.length === 1 ? "message" : "messages"}?</h2>
      <ul>
        {paused.map((one) => (
          <Row key={one.message} blocks={one.blocks} place="queue" note="" onRemove={() => unqueue(one.message)} />
        ))}
      </ul>
      <div class="buttons">
        <button type="button" class="primary" onClick={() => void resumeQueue(ids)}>Send {plural(paused.length, "message")}</button>
        <button type="button" onClick={() => ids.forEach((id) => void unqueue(id))}>Discard</button>
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
