// What a message will do beyond being sent: create a branch, go to several models, lose its images.
import { CloseIcon } from "../parts/icons";
import { askedModels, dialog, model, modelInfo } from "../state/app";
import { editing, stopEditing } from "../state/composer";
import { discardText } from "../state/estimate_text";
import { shortModel } from "../state/format";
import { plan } from "../state/plan";

export function ComposerNotes({ isTextOnly }: { isTextOnly: boolean }) {
  return (
    <>
      {editing.value && (
        <p class="editing">
          Editing creates a new branch. The original message is kept. {discardText(plan.value?.models[model.value]?.estimate)}
          <button type="button" class="icon" aria-label="Cancel editing" onClick={stopEditing}><CloseIcon /></button>
        </p>
      )}
      {askedModels.value.length > 1 && (
        <p class="editing">
          Asks {askedModels.value.map(shortModel).join(", ")} side by side.
          <button type="button" class="icon" aria-label="Ask one model only" onClick={() => (askedModels.value = [])}><CloseIcon /></button>
        </p>
      )}
      {isTextOnly && (
        <p class="notice">
          {shortModel(modelInfo.value?.reference ?? "")} is a text-only model: images are sent as text.{" "}
          <button type="button" class="link" onClick={() => (dialog.value = "models")}>Choose a model</button>
        </p>
      )}
    </>
  );
}
