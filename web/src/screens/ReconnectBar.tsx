// Connection status and errors, in one line.
import { connection, problem } from "../state/app";
import { CloseIcon } from "../parts/icons";

export function ReconnectBar() {
  return (
    <div class="bars" aria-live="polite">
      {connection.value === "offline" && (
        <p class="bar offline">
          <span class="pulse" aria-hidden="true" /> Reconnecting… Your work is saved.
        </p>
      )}
      {problem.value && (
        <p class="bar refused">
          <span>
            <strong>{problem.value.message}</strong> {problem.value.hint}
          </span>
          <button type="button" class="icon" aria-label="Dismiss" onClick={() => (problem.value = null)}>
            <CloseIcon />
          </button>
        </p>
      )}
    </div>
  );
}
