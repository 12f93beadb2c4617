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
    const [, redraw] = useState(0);
    useEffect(() => {
      if (Loaded) return;
      void load().then((found) => {
        Loaded = found;
        redraw(1);
      });
    }, []);
    return Loaded ? createElement(Loaded, props) : null;
  };
}
