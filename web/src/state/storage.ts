// What the browser keeps across reloads. It is small: what does not fit lives as long as the page.
import { announce } from "./app";

let isFull = false;

export function saveItem(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
    isFull = false;
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    localStorage.removeItem(name);
    // Said once, and not inside the effect that saves.
    if (!isFull) queueMicrotask(() => announce("Browser storage is full: this draft will not survive a reload"));
    isFull = true;
  }
}
