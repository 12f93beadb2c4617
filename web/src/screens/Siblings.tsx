// ‹ 2/3 ›: switch between the versions of a message.
import type { MessageView } from "../api/types";
import { ColumnsIcon, LeftIcon, RightIcon } from "../parts/rare_icons";
import { compared, MAX_COMPARED } from "../state/app";
import { showSibling } from "../state/session_actions";

export function Siblings({ message }: { message: MessageView }) {
  const nodes = message.siblings ?? [];
  const at = nodes.indexOf(message.node);
  if (nodes.length < 2 || at < 0) return null;
  const step = (by: number): void => {
    const next = nodes[at + by];
    if (next) void showSibling(next);
  };
  return (
    <span class="siblings" role="group" aria-label={`Version ${at + 1} of ${nodes.length}`}>
      <button type="button" class="icon" aria-label="Previous version" disabled={at === 0} onClick={() => step(-1)}><LeftIcon /></button>
      <span>{at + 1}/{nodes.length}</span>
      <button type="button" class="icon" aria-label="Next version" disabled={at === nodes.length - 1} onClick={() => step(1)}><RightIcon /></button>
      <button type="button" class="icon" aria-label="Compare versions" title="Compare versions" onClick={() => (compared.value = nodes.slice(-MAX_COMPARED))}><ColumnsIcon /></button>
    </span>
  );
}
