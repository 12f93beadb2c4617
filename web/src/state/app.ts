// What the whole page knows: signals only. Who changes them is in the modules beside this one.
import { computed, signal } from "@preact/signals";
import type { ConfigView, ModelView, SampleView, SessionView } from "../api/shapes";
import { Turns } from "./turns";
import type { View } from "./view";

export type Link = "connecting" | "online" | "away";
export type Panel = "" | "inspector" | "forest";
export type Dialog = "" | "models" | "settings" | "palette" | "shortcuts";

export const link = signal<Link>("connecting");
/** Why the page may not read anything: it shows how to get in. */
export const isLockedOut = signal(false);

export const sessions = signal<SessionView[]>([]);
export const sessionsLoaded = signal(false);
export const moreSessions = signal<string | null>(null);
export const sessionId = signal("");
export const info = computed<SessionView | null>(() => sessions.value.find((one) => one.id === sessionId.value) ?? null);

export const view = signal<View | null>(null);
export const problem = signal<{ message: string; hint: string } | null>(null);
const turnsOf = new Turns();
export const turns = computed(() => (view.value ? turnsOf.of(view.value) : []));
export const isBusy = computed(() => view.value?.live != null);

export const models = signal<ModelView[]>([]);
export const defaultModel = signal("");
export const config = signal<ConfigView | null>(null);
export const samples = signal<SampleView[]>([]);
/** The model that is asked next: the session's own, else the default. A new session may choose before it exists. */
export const chosenModel = signal("");
export const model = computed(() => info.value?.model || chosenModel.value || defaultModel.value);
export const modelInfo = computed<ModelView | null>(() => models.value.find((one) => one.reference === model.value) ?? null);

export const panel = signal<Panel>("");
/** Nodes whose branches are looked at side by side. */
export const compared = signal<string[]>([]);
/** The message that a link leads to, until it is in sight. */
export const sought = signal("");
export const dialog = signal<Dialog>("");
export const showsSessions = signal(false);
/** The block that the pointer or the keyboard is on in the inspector: lit in the chat, and the other way round. */
export const litDigest = signal("");
/** Said to screen readers, apart from what is drawn. */
export const announcement = signal("");
export const isDragging = signal(false);

export function announce(text: string): void {
  // The same words twice are only spoken when the text differs.
  announcement.value = announcement.value === text ? `${text}\u00a0` : text;
}
