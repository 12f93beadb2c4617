// A row of a list: its name, a note below it, and its buttons beside both.
import type { ComponentChildren } from "preact";

interface Props {
  name: ComponentChildren;
  note?: ComponentChildren;
  children?: ComponentChildren;
}

export function Row({ name, note, children }: Props) {
  return (
    <div class="row">
      <span class="row-text">
        <strong>{name}</strong>
        {note && <span class="dim">{note}</span>}
      </span>
      {children}
    </div>
  );
}
