// A modal <dialog>: the browser traps focus, Escape closes, and focus returns to the element that opened it.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useFocusReturn } from "./focus";
import { CloseIcon } from "./icons";

interface Props {
  title: string;
  kind?: string;
  isPlain?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, kind = "", isPlain = false, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useFocusReturn(dialog, false);
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`dialog ${kind}`}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      {isPlain ? (
        children
      ) : (
        <div class="sheet">
          <header class="sheet-head">
            <h2>{title}</h2>
            <button type="button" class="icon" aria-label="Close" onClick={onClose}>
              <CloseIcon />
            </button>
          </header>
          {children}
        </div>
      )}
    </dialog>
  );
}
