// Messages taken out of the queue when the user stopped an answer. They wait in this browser for a decision.
import { computed, signal } from "@preact/signals";
import type { Block } from "../api/blocks";
import { sessionId } from "./app";
import { saveItem } from "./storage";

export interface HeldMessage {
  key: string;
  blocks: Block[];
}

const changes = signal(0);

function storageKey(session: string): string {
  return `loom.held.${session}`;
}

export function heldFor(session: string): HeldMessage[] {
  return JSON.parse(localStorage.getItem(storageKey(session)) ?? "[]") as HeldMessage[];
}

export const held = computed(() => {
  void changes.value;
  return sessionId.value ? heldFor(sessionId.value) : [];
});

function save(session: string, list: HeldMessage[]): void {
  if (list.length) saveItem(storageKey(session), JSON.stringify(list));
  else localStorage.removeItem(storageKey(session));
  changes.value += 1;
}

export function hold(session: string, message: HeldMessage): void {
  save(session, [...heldFor(session), message]);
}

export function release(session: string, key: string): void {
  save(session, heldFor(session).filter((one) => one.key !== key));
}
