// TeX to MathML, loaded with the first formula.
import temml from "temml";

/** Render a formula into an element. A formula that cannot be read is shown as its source. */
export function renderMath(tex: string, element: HTMLElement, isDisplay: boolean): void {
  temml.render(tex, element, { displayMode: isDisplay, throwOnError: false, trust: false, maxSize: [40, 40], maxExpand: 500 });
}
