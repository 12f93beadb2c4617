// Messages on their way and notices: not part of the stored conversation.
import { deferred } from "../parts/components";
import { MessageContent } from "../parts/MediaFigure";
import type { Sent } from "../state/view";

const Refused = deferred((found) => found.Refused);

export function SentMessages({ sent }: { sent: Sent[] }) {
  return (
    <>
      {sent.map((one) => (
        <article key={one.key} class={`user-message ${one.state}`} aria-label="Your message, sending">
          <MessageContent blocks={one.message.blocks} />
          {one.state === "sending" && <p class="dim user-message-state">Sending…</p>}
          {one.problem && <Refused id={one.key} problem={one.problem} />}
        </article>
      ))}
    </>
  );
}

export function Notices({ notices }: { notices: string[] }) {
  if (!notices.length) return null;
  return (
    <div class="notices">
      {notices.map((text) => (
        <p key={text} class="notice">{text}</p>
      ))}
    </div>
  );
}
