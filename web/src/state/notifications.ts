// Notifications while the page is hidden. Loaded when they are turned on.
import { signal } from "@preact/signals";
import type { SessionView } from "../api/types";
import { NOTIFY_CHOICE } from "./app";

export const canNotify = "Notification" in window && isSecureContext;
export const notifies = signal(canNotify && localStorage.getItem(NOTIFY_CHOICE) === "on" && Notification.permission === "granted");

/** Turn notifications on or off. Return false if the browser denies them. */
export async function setNotifies(isOn: boolean): Promise<boolean> {
  const isGranted = isOn && canNotify && (await Notification.requestPermission()) === "granted";
  notifies.value = isGranted;
  if (isGranted) localStorage.setItem(NOTIFY_CHOICE, "on");
  else localStorage.removeItem(NOTIFY_CHOICE);
  return isGranted || !isOn;
}

/** Notify about a session that changed its state. */
export function notifyOf(session: SessionView, state: SessionView["state"]): void {
  const words = { waiting: "Approval pending", idle: "Answer finished", running: "", queued: "" }[state];
  if (words) void notify(session.id, words, session.title || "Untitled");
}

/** Notify about a session, if the user wants it and does not look at the page. */
async function notify(session: string, title: string, body: string): Promise<void> {
  if (!notifies.value || !document.hidden) return;
  const options = { body, tag: `loom-${session}`, icon: "/icon.svg" };
  try {
    const shown = new Notification(title, options);
    shown.onclick = () => {
      focus();
      location.hash = `#/s/${session}`;
      shown.close();
    };
  } catch {
    // Phones allow notifications from a service worker only.
    await (await navigator.serviceWorker?.getRegistration())?.showNotification(title, options);
  }
}
