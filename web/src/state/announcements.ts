// What screen readers hear of a session. It is read off the view before and after, not off events: a snapshot that was loaded
// meanwhile brings the same news, and the events that it contains are not applied again.
import { announce } from "./app";
import type { View } from "./view";

export function announceChange(before: View, after: View): void {
  const texts = describeChange(before, after);
  // One text: a second one would replace the first before it is read.
  if (texts.length) announce(texts.join(", "));
}

/** Return what is new in a later view of the same session. */
export function describeChange(before: View, after: View): string[] {
  const known = new Set(before.approvals.map((one) => one.approval));
  const noted = (view: View): string[] => [...view.notices, ...view.asides.filter((one) => one.kind === "notice").map((one) => one.text)];
  return [
    ...(after.live?.turn && after.live.turn !== before.live?.turn ? [`${after.live.model} is answering`] : []),
    ...noted(after).filter((text) => !noted(before).includes(text)),
    ...after.approvals.filter((one) => !known.has(one.approval)).map((one) => `Approval pending: ${one.call.name}`),
    ...(after.live ? [] : describeEnd(before, after)),
  ];
}

function describeEnd(before: View, after: View): string[] {
  const last = after.messages.at(-1);
  // A turn that was never seen running has left an answer after the messages that were there.
  const continues = !before.messages.length || after.messages.some((one) => one.node === before.head);
  const hasGrown = continues && last?.role === "assistant" && last.node !== before.head;
  const hasFailed = after.failure !== null && after.failure !== before.failure;
  if (!before.live && !hasGrown && !hasFailed) return [];
  if (after.failure) return [after.failure.code === "turn.cancelled" ? "Answer stopped" : `Answer failed: ${after.failure.message}`];
  const words = last?.blocks.map((block) => (block.type === "text" ? block.text : "")).join(" ").split(/\s+/).filter(Boolean).length ?? 0;
  return [`Done, ${words} words`];
}
