// What sending an edited message discards.
import { model } from "../state/app";
import { discardText } from "../state/estimate_text";
import { plan } from "../state/plan";

export function EditWarning() {
  return <>{discardText(plan.value?.models[model.value]?.estimate)}</>;
}
