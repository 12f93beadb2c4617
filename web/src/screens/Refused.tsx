// Why the server refused a message, below it.
import { CloseIcon, WarnIcon } from "../parts/icons";
import { view } from "../state/app";
import { forgetUndelivered } from "../state/outbox";
import type { Problem } from "../api/types";

export function Refused({ id, problem }: { id: string; problem: Problem }) {
  const dismiss = (): void => {
    forgetUndelivered(id);
    if (view.value) view.value = { ...view.value, sent: view.value.sent.filter((one) => one.key !== id) };
  };
  return (
    <p class="danger user-message-state">
      <WarnIcon /> <span>{problem.message} {problem.hint}</span>
      <button type="button" class="icon" aria-label="Dismiss" onClick={dismiss}><CloseIcon /></button>
    </p>
  );
}
