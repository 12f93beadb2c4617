// What is not (yet) part of the conversation: sent, noticed.
import { CloseIcon, WarnIcon } from "../parts/icons";
import { Medium } from "../parts/Medium";
import { isMedia } from "../api/blocks";
import { forget } from "../state/turn";
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

export function Notices({ notices }: { notices: Notice[] }) {
  return (
    <>
      {notices.map((one) => (
        <p key={one.id} class="notice">{one.text}</p>
      ))}
    </>
  );
}
