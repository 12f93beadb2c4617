// The id of this tab: each tab has a draft of its own for a new session. The id survives a reload, and a copy of the tab gets
// another one: it is stored only while no page is shown.
import { randomKey } from "../api/http";

const TAB = "loom.tab";
/** Tabs that are open answer `WHO` here with their id. */
export const TABS = "loom.tabs";
export const WHO = "who";

const stored = sessionStorage.getItem(TAB);
/** Whether this tab was just opened. */
export const isNewTab = stored === null;
export const tab = stored ?? randomKey();

export function keepTab(): void {
  addEventListener("pageshow", () => sessionStorage.removeItem(TAB));
  addEventListener("pagehide", () => sessionStorage.setItem(TAB, tab));
  const channel = new BroadcastChannel(TABS);
  channel.onmessage = ({ data }) => {
    if (data === WHO) channel.postMessage(tab);
  };
}
