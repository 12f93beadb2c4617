// What a message will do beyond being sent: wait for uploads, create a branch, go to several models, lose its images.
import { CloseIcon } from "../parts/icons";
import { askedModels, dialog, model, modelInfo } from "../state/app";
import { attachments, cancelScheduled, editing, scheduled, stopEditing } from "../state/composer";
import { discardText } from "../state/estimate_text";
import { shortModel } from "../state/format";
import { plan } from "../state/plan";

export function ComposerNotes({ isTextOnly }: { isTextOnly: boolean }) {
  const uploads = attachments.value.filter((one) => one.fraction !== null).length;
  return (
    <>
      {scheduled.value && (
        <p class="editing">
          Sends when {uploads === 1 ? "the upload has" : `${uploads} uploads have`} finished.
          <button type="button" class="link" title="Do not send yet (Esc)" onClick={cancelScheduled}>Cancel</button>
        </p>
      )}
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
