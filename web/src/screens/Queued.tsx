// What was said while an answer runs: it waits in line, and can be taken out or said differently.
import { mediaUrl } from "../api/http";
import { isMedia } from "../api/blocks";
import type { QueuedView } from "../api/shapes";
import { CloseIcon, EditIcon } from "../parts/icons";
import { attachments, refill, text } from "../state/composer";
import { unqueue } from "../state/turn";

export function QueuedMessages({ queue }: { queue: QueuedView[] }) {
  if (!queue.length) return null;
  return (
    <section class="queue" aria-label="Queued messages">
      <h2>Next in line</h2>
      <ul>
        {queue.map((one) => (
          <Row key={one.message} queued={one} />
        ))}
      </ul>
    </section>
  );
}

function Row({ queued }: { queued: QueuedView }) {
  const media = queued.blocks.filter(isMedia);
  const words = queued.text || media.map((block) => block.media.name ?? block.type).join(", ");
  const isTaken = text.value !== "" || attachments.value.length > 0;
  const edit = async (): Promise<void> => {
    if (await unqueue(queued.message)) refill(queued.blocks);
  };
  return (
    <li>
      {media.map((block, index) => block.type === "image" && <img key={index} src={mediaUrl(block.media.digest, "thumb")} alt={block.media.name ?? ""} />)}
      <span class="clip">{words}</span>
      <button type="button" class="icon" aria-label={`Edit “${words.slice(0, 40)}” before it is sent`} disabled={isTaken} title={isTaken ? "Something else is being written" : "Edit before it is sent"} onClick={() => void edit()}><EditIcon /></button>
      <button type="button" class="icon" aria-label={`Take “${words.slice(0, 40)}” out of the queue`} onClick={() => void unqueue(queued.message)}><CloseIcon /></button>
    </li>
  );
}
