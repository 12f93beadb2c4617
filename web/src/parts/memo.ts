// Two small things that preact/compat would bring with 5 KB more: a part that is drawn again only when its props change,
// and a part that is fetched when it is first shown.
import { type ComponentChild, type ComponentType, Component, createElement, type VNode } from "preact";
import { useEffect, useState } from "preact/hooks";

export function memo<Props extends object>(Inner: (props: Props) => VNode | null): ComponentType<Props> {
  return class extends Component<Props> {
    override shouldComponentUpdate(next: Props): boolean {
      const keys = new Set([...Object.keys(next), ...Object.keys(this.props)]) as Set<keyof Props>;
      for (const key of keys) if (next[key] !== this.props[key]) return true;
      return false;
    }
    override render(props: Props): ComponentChild {
      return createElement(Inner, props);
    }
  };
}

export function later<Props extends object>(load: () => Promise<ComponentType<Props>>): ComponentType<Props> {
  let Loaded: ComponentType<Props> | null = null;
  return function Later(props: Props) {
    const [state, setState] = useState<"" | "here" | "lost">("");
    useEffect(() => {
      if (Loaded) return;
      load().then(
        (found) => {
          Loaded = found;
          setState("here");
        },
        // The daemon is away, or has another build by now: only a new page knows the names of its parts.
        () => setState("lost"),
      );
    }, []);
    if (Loaded) return createElement(Loaded, props);
    return state === "lost" ? createElement("button", { type: "button", class: "chip lost", onClick: () => location.reload() }, "This part did not arrive. Load the page again") : null;
  };
}
