// Shared state of the page: signals only. The other modules in this folder change them.
import { computed, signal } from "@preact/signals";
import type { ConfigView, FolderTrustView, ModelView, NewSession, SampleView, SessionView } from "../api/types";
import { TurnList } from "./turns";
import type { View } from "./view";

export type Connection = "connecting" | "online" | "offline";
export type Panel = "" | "inspector" | "branches" | "activity";
export type Dialog = "" | "models" | "settings" | "palette" | "shortcuts" | "session" | "usage" | "prompts" | "import" | "compact";

/** Which sessions the list shows; `next` is the cursor of the page that follows. */
export interface ListFilter {
  label: string;
  query: string;
  matches: (one: SessionView) => boolean;
  next: string | null;
}

export const connection = signal<Connection>("connecting");
/** The server refused the login: show the sign-in page. */
export const isUnauthorized = signal(false);

export const sessions = signal<SessionView[]>([]);
export const sessionsLoaded = signal(false);
export const moreSessions = signal<string | null>(null);
/** Null: all sessions that are not archived. */
export const listFilter = signal<ListFilter | null>(null);
/** The dialog about one session of the list. */
export const sessionDialog = signal<{ kind: "delete" | "share" | "organize"; session: SessionView } | null>(null);
export const sessionId = signal("");
/** The session that this page created for a message: what was typed meanwhile goes along. */
export const createdSession = signal("");
export const info = computed<SessionView | null>(() => sessions.value.find((one) => one.id === sessionId.value) ?? null);

export const view = signal<View | null>(null);
/** `isOffline`: it is about the connection, and over when that is back. */
export const problem = signal<{ message: string; hint: string; isOffline?: boolean } | null>(null);
const turnsOf = new TurnList();
export const turns = computed(() => (view.value ? turnsOf.of(view.value) : []));
export const isBusy = computed(() => view.value?.live != null);

export const models = signal<ModelView[]>([]);
export const defaultModel = signal("");
export const config = signal<ConfigView | null>(null);
export const samples = signal<SampleView[]>([]);
/** The model of the next request: the session's, else the one chosen before the session exists, else the default. */
export const chosenModel = signal("");
/** What the next session starts with, besides its model: set before it exists. */
export const sessionDraft = signal<Partial<Pick<NewSession, "thinking" | "options" | "agent" | "system" | "tools" | "plan_mode">>>({});
/** Models that answer the next message side by side; empty: the session's model alone. */
export const askedModels = signal<string[]>([]);
/** The page asked several models: show their answers side by side when all have ended. */
export const comparesAnswers = signal("");
export const model = computed(() => info.value?.model || chosenModel.value || defaultModel.value);
export const modelInfo = computed<ModelView | null>(() => models.value.find((one) => one.reference === model.value) ?? null);

export const panel = signal<Panel>("");
/** Messages whose branches are compared. */
export const compared = signal<string[]>([]);
export const MAX_COMPARED = 4;
/** The message that a link names, until it is in view. */
export const linkedMessage = signal("");
export const dialog = signal<Dialog>("");
/** Typed after the search was opened and before its code was loaded. */
export const typedAhead = signal("");
export const showsSessions = signal(false);
/** The media block under the pointer: highlighted in the inspector and in the chat. */
export const highlightedDigest = signal("");
/** Announced to screen readers. */
export const announcement = signal("");
/** Where this browser keeps the address that was opened without a login. */
export const OPENED_ADDRESS = "loom.opened";
/** Where this browser keeps a light or dark appearance; the system's is used without it. */
export const THEME_CHOICE = "loom.theme";
/** Where this browser keeps whether it notifies. */
export const NOTIFY_CHOICE = "loom.notify";
export const isDragging = signal(false);
/** The folder that the dialog asks about. */
export const folderTrust = signal<FolderTrustView | null>(null);
export const isListening = signal(false);
/** The answer that is read aloud; empty for none. */
export const spokenText = signal("");

export function announce(text: string): void {
  // Screen readers repeat a text only if it differs.
  announcement.value = announcement.value === text ? `${text}\u00a0` : text;
}
