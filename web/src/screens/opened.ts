// What a person opens or must decide: fetched together, when the first of it is wanted.
export { Approval } from "../parts/Approval";
export { PageStrip } from "../parts/PageStrip";
export { Compare } from "./Compare";
export { Failure } from "./Failure";
export { Forest } from "./Forest";
export { Inspector } from "./Inspector";
export { Lightbox } from "./Lightbox";
export { LockedOut } from "./LockedOut";
export { ModelSwitcher } from "./ModelSwitcher";
export { Palette } from "./Palette";
export { QueuedMessages } from "./Queued";
export { Doomed, Rename, Results } from "./SessionRows";
export { Settings } from "./Settings";
export { Shortcuts } from "./Shortcuts";
export { Words } from "./Words";
