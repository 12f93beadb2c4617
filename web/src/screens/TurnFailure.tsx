// A failed turn: the provider's message, an explanation and the next steps.
import type { Override, Problem } from "../api/types";
import { AgainIcon, WarnIcon } from "../parts/icons";
import { dialog } from "../state/app";
import { plan } from "../state/plan";
import { setOverrides } from "../state/plan_changes";
import { report } from "../state/sessions";
import { regenerate } from "../state/actions";

export function TurnFailure({ failure }: { failure: Problem }) {
  const images = plan.value?.rows.filter((row) => row.kind === "image" && row.node !== "draft") ?? [];
  const asText = (): void => {
    const wishes = Object.fromEntries(images.map((row): [string, Override] => [row.key, "text"]));
    setOverrides(wishes).then(() => regenerate(), report);
  };
  return (
    <section class="failure" role="alert" aria-label="Answer failed">
      <p><WarnIcon /> <strong>{failure.message}</strong></p>
      {failure.hint && <p>{failure.hint}</p>}
      <p class="dim"><code>{failure.code}</code></p>
      <div class="buttons">
        <button type="button" class="primary" onClick={() => void regenerate()}><AgainIcon /> Try again</button>
        {images.length > 0 && <button type="button" onClick={asText}>Try again with images as text</button>}
        <button type="button" onClick={() => (dialog.value = "models")}>Choose a model</button>
      </div>
    </section>
  );
}
