// Icons of the parts that are loaded when needed: the first load does not carry them.
import { path } from "./icons";

export const UndoIcon = /* @__PURE__ */ path("M9 6L5 10l4 4M5 10h9a5 5 0 0 1 0 10h-3");
export const ShareIcon = /* @__PURE__ */ path("M12 15V4M8 7.500L12 4l4 3.500M6 11v9h12v-9");
export const TrashIcon = /* @__PURE__ */ path("M5 7h14M10 7V4.500h4V7M7 7l1 13h8l1-13");
export const ToolIcon = /* @__PURE__ */ path("M14 6.500a4 4 0 0 1 5-1l-2.500 2.500 1.500 1.500L20.500 7a4 4 0 0 1-5.500 5L8 19a2 2 0 0 1-3-3l7-7a4 4 0 0 1 2-2.500z");
export const ShieldIcon = /* @__PURE__ */ path("M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6z");
export const DownloadIcon = /* @__PURE__ */ path("M12 4v11M7 11l5 5 5-5M5 20h14");
export const EyeIcon = /* @__PURE__ */ path("M2.500 12S6 5.500 12 5.500 21.500 12 21.500 12 18 18.500 12 18.500 2.500 12 2.500 12zM12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6z");
export const PinIcon = /* @__PURE__ */ path("M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v6");
export const LeftIcon = /* @__PURE__ */ path("M14 7l-5 5 5 5");
export const RightIcon = /* @__PURE__ */ path("M10 7l5 5-5 5");
export const ColumnsIcon = /* @__PURE__ */ path("M4 5h16v14H4zM12 5v14");
