// A one-time link leads to the start page. The address that was opened before it is kept in this browser, and opened after it.
import { OPENED_ADDRESS } from "./app";
import { saveItem } from "./storage";

/** Longer ago, the start page is what somebody wants who opens it. */
const KEPT_MS = 3_600_000;
/** An address inside the page, and nothing that leads out of it. */
const ADDRESS = /^#\/s\/[\w-]+(\/[\w%.:-]+)?$/;

export function rememberAddress(): void {
  if (ADDRESS.test(location.hash)) saveItem(OPENED_ADDRESS, JSON.stringify([location.hash, Date.now()]));
}

/** After a login: go to the address that was opened before, unless another one is open. */
export function returnToAddress(): void {
  const [address, at] = JSON.parse(localStorage.getItem(OPENED_ADDRESS) ?? "[]") as [string?, number?];
  localStorage.removeItem(OPENED_ADDRESS);
  if (address && ADDRESS.test(address) && !location.hash && Date.now() - (at ?? 0) < KEPT_MS) history.replaceState(null, "", address);
}
