// What screen readers hear of the events of a session.
import { announce, view } from "./app";
import type { Envelope } from "./envelopes";

export function announceEvent(envelope: Envelope): void {
  if (envelope.type === "turn_started") announce(`${envelope.data.model} is answering`);
  if (envelope.type === "approval_requested") announce(`Approval pending: ${envelope.data.call.name}`);
  if (envelope.type === "turn_failed") announce(envelope.data.code === "turn.cancelled" ? "Answer stopped" : `Answer failed: ${envelope.data.text}`);
  if (envelope.type === "notice") announce(envelope.data.text);
  if (envelope.type === "turn_finished") {
    const last = view.value?.messages.at(-1);
    const words = last?.blocks.map((block) => (block.type === "text" ? block.text : "")).join(" ").split(/\s+/).filter(Boolean).length ?? 0;
    announce(`Done, ${words} words`);
  }
}
