// Away and back again, told in one thin line.
import { link, problem } from "../state/app";
import { CloseIcon } from "../parts/icons";

export function ReconnectBar() {
  return (
    <div class="bars" aria-live="polite">
      {link.value === "away" && (
        <p class="bar away">
          <span class="pulse" aria-hidden="true" /> Reconnecting… nothing is lost
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
