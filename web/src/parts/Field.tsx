// A labeled form field with a hint below it.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Props {
  label: string;
  hint?: ComponentChildren;
  children: (facts: { id: string; "aria-describedby": string | undefined }) => ComponentChildren;
}

export function Field({ label, hint, children }: Props) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": hint ? `${id}-hint` : undefined })}
      {hint && <small id={`${id}-hint`} class="dim">{hint}</small>}
    </div>
  );
}
