// A menu below its button. Arrow keys move; the popover closes itself on Escape and on a click elsewhere.
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Item {
  label: string;
  note?: string;
  icon?: ComponentChildren;
  isChosen?: boolean;
  isDanger?: boolean;
  act: () => unknown;
}

interface Props {
  label: string;
  class?: string;
  /** The items, or what loads them when the menu is opened. */
  items: Item[] | (() => Promise<Item[]>);
  children: ComponentChildren;
}

export function Menu({ label, class: kind = "icon", items, children }: Props) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const [shown, setShown] = useState<Item[]>([]);
  useLayoutEffect(() => {
    if (shown.length) place();
  }, [shown]);
  const open = async (isOpen: boolean): Promise<void> => setShown(!isOpen ? [] : Array.isArray(items) ? items : await items());
  const place = (): void => {
    const [anchor, menu] = [button.current, list.current];
    if (!anchor || !menu) return;
    const box = anchor.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = menu;
    menu.style.left = `${Math.max(8, Math.min(box.right - width, innerWidth - width - 8))}px`;
    const isBelow = box.bottom + height + 12 < innerHeight;
    menu.style.top = `${isBelow ? box.bottom + 4 : Math.max(8, box.top - height - 4)}px`;
    menu.querySelector("button")?.focus();
  };
  const walk = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const buttons = [...(list.current?.querySelectorAll("button") ?? [])];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    buttons.at((at + step + buttons.length) % buttons.length)?.focus();
  };
  const choose = (item: Item): void => {
    list.current?.hidePopover();
    button.current?.focus();
    item.act();
  };
  const hasIcons = shown.some((item) => item.isChosen || item.icon);
  return (
    <>
      <button ref={button} type="button" class={kind} aria-label={label} title={label} aria-haspopup="menu" popovertarget={id}>
        {children}
      </button>
      <div ref={list} id={id} class="menu" role="menu" aria-label={label} popover="auto" onKeyDown={walk} onToggle={(event) => void open(event.newState === "open")}>
        {shown.map((item) => (
          <button key={item.label} type="button" role="menuitem" class={item.isDanger ? "danger" : ""} onClick={() => choose(item)}>
            {hasIcons && <span class="menu-icon">{item.isChosen ? "✓" : item.icon}</span>}
            <span>
              {item.label}
              {item.note && <small>{item.note}</small>}
            </span>
          </button>
        ))}
      </div>
    </>
  );
}
