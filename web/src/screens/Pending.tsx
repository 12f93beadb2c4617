// What is not (yet) part of the conversation: sent, queued, noticed.
import type { QueuedView } from "../api/shapes";
import { CloseIcon, WarnIcon } from "../parts/icons";
import { Medium } from "../parts/Medium";
import { isMedia } from "../api/blocks";
import { forget, unqueue } from "../state/turn";
import type { Notice, Sent } from "../state/view";

export function SentMessages({ sent }: { sent: Sent[] }) {
  return (
    <>
      {sent.map((one) => (
        <article key={one.key} class={`said ${one.state}`} aria-label="Your message, on its way">
          {one.message.blocks.map((block, index) => (block.type === "text" ? <p key={index} class="words">{block.text}</p> : isMedia(block) ? <Medium key={index} block={block} /> : null))}
          {one.state === "sending" && <p class="dim said-state">sending…</p>}
          {one.problem && (
            <p class="grave said-state">
              <WarnIcon /> <span>{one.problem.message} {one.problem.hint}</span>
              <button type="button" class="icon" aria-label="Dismiss" onClick={() => forget(one.key)}><CloseIcon /></button>
            </p>
          )}
        </article>
      ))}
    </>
  );
}

export function QueuedMessages({ queue }: { queue: QueuedView[] }) {
  if (!queue.length) return null;
  return (
    <section class="queue" aria-label="Queued messages">
      <h2>Next in line</h2>
      <ul>
        {queue.map((one) => (
          <li key={one.message}>
            <span class="clip">{one.text || one.blocks.map((block) => (isMedia(block) ? (block.media.name ?? block.type) : "")).join(", ")}</span>
            {one.blocks.filter(isMedia).length > 0 && <span class="count">{one.blocks.filter(isMedia).length}</span>}
            <button type="button" class="icon" aria-label={`Take “${one.text.slice(0, 40)}” out of the queue`} onClick={() => void unqueue(one.message)}><CloseIcon /></button>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Notices({ notices }: { notices: Notice[] }) {
  return (
    <>
      {notices.map((one) => (
        <p key={one.id} class="notice">{one.text}</p>
      ))}
    </>
  );
}
