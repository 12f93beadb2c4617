// Return focus to the element that had it before, unless the user has moved it elsewhere.
import type { RefObject } from "preact";
import { useEffect } from "preact/hooks";

export function useFocusReturn(place: RefObject<HTMLElement | null>, isTaken = true): void {
  useEffect(() => {
    const before = document.activeElement;
    const element = place.current;
    if (isTaken) element?.focus();
    return () => {
      const now = document.activeElement;
      const isFree = now === document.body || now === null || element?.contains(now);
      if (isFree && before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
}
