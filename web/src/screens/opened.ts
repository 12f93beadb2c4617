// The screens that a person opens: fetched together, when the first of them is wanted.
export { Forest } from "./Forest";
export { Inspector } from "./Inspector";
export { Lightbox } from "./Lightbox";
export { ModelSwitcher } from "./ModelSwitcher";
export { Palette } from "./Palette";
export { Settings } from "./Settings";
export { Shortcuts } from "./Shortcuts";
export { LockedOut } from "./LockedOut";
