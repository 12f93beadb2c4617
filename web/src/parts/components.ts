// `memo` and `lazy` without preact/compat (5 KB): render again only when props change; load a component when it is first shown.
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

export function lazy<Props extends object>(load: () => Promise<ComponentType<Props>>): ComponentType<Props> {
  let Loaded: ComponentType<Props> | null = null;
  return function Lazy(props: Props) {
    const [state, setState] = useState<"" | "loaded" | "failed">("");
    const isShown = Loaded !== null;
    useEffect(() => {
      if (isShown) return;
      // In a task of its own: running the code of a part and rendering it at once would block the page for longer.
      const show = (): unknown => setTimeout(() => setState("loaded"));
      // Another place may have loaded it between the rendering of this one and its effect.
      if (Loaded) return void show();
      load().then(
        (found) => {
          Loaded = found;
          show();
        },
        // The server is offline or has a newer build: only a reload knows the new file names.
        () => setState("failed"),
      );
    }, []);
    if (Loaded) return createElement(Loaded, props);
    return state === "failed" ? createElement("button", { type: "button", class: "chip load-failed", onClick: () => location.reload() }, "This part could not be loaded. Reload the page") : null;
  };
}

/** A part of `screens/deferred`, which is loaded when the first of its parts is shown. */
export function deferred<Props extends object>(choose: (found: typeof import("../screens/deferred")) => ComponentType<Props>): ComponentType<Props> {
  return lazy(() => import("../screens/deferred").then(choose));
}
