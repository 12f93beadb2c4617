// Messages on their way and notices: not part of the stored conversation.
import { CloseIcon, WarnIcon } from "../parts/icons";
import { MessageContent } from "../parts/MediaFigure";
import { dismissSent } from "../state/actions";
import type { Notice, Sent } from "../state/view";

export function SentMessages({ sent }: { sent: Sent[] }) {
  return (
    <>
      {sent.map((one) => (
        <article key={one.key} class={`user-message ${one.state}`} aria-label="Your message, sending">
          <MessageContent blocks={one.message.blocks} />
          {one.state === "sending" && <p class="dim user-message-state">Sending…</p>}
          {one.problem && (
            <p class="danger user-message-state">
              <WarnIcon /> <span>{one.problem.message} {one.problem.hint}</span>
              <button type="button" class="icon" aria-label="Dismiss" onClick={() => dismissSent(one.key)}><CloseIcon /></button>
            </p>
          )}
        </article>
      ))}
    </>
  );
}

export function Notices({ notices }: { notices: Notice[] }) {
  if (!notices.length) return null;
  return (
    <div class="notices">
      {notices.map((one) => (
        <p key={one.id} class="notice">{one.text}</p>
      ))}
    </div>
  );
}
