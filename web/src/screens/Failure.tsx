// A turn that failed: the provider's words, our sentence, and what can be done next.
import type { Override, Problem } from "../api/shapes";
import { AgainIcon, WarnIcon } from "../parts/icons";
import { dialog } from "../state/app";
import { plan, setOverrides } from "../state/plan";
import { report } from "../state/sessions";
import { again } from "../state/turn";

export function Failure({ failure }: { failure: Problem }) {
  const pictures = plan.value?.rows.filter((row) => row.kind === "image" && row.node !== "draft") ?? [];
  const asText = (): void => {
    const wishes = Object.fromEntries(pictures.map((row): [string, Override] => [row.key, "text"]));
    setOverrides(wishes).then(() => again(), report);
  };
  return (
    <section class="failure" role="alert" aria-label="The turn failed">
      <p><WarnIcon /> <strong>{failure.message}</strong></p>
      {failure.hint && <p>{failure.hint}</p>}
      <p class="dim"><code>{failure.code}</code></p>
      <div class="buttons">
        <button type="button" class="primary" onClick={() => void again()}><AgainIcon /> Try again</button>
        {pictures.length > 0 && <button type="button" onClick={asText}>Try again with pictures as text</button>}
        <button type="button" onClick={() => (dialog.value = "models")}>Another model</button>
      </div>
    </section>
  );
}
