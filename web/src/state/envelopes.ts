// Event envelopes of a session. `seq` counts within the session.
import type { EventData } from "../api/generated";

export type EventsByType = { [Type in keyof EventData]: Omit<EventData[Type], "type"> };
export type SessionEvent = { [Type in keyof EventsByType]: { type: Type; data: EventsByType[Type] } }[keyof EventsByType];
export type Envelope = SessionEvent & { seq: number; session: string };

/** What a snapshot carries of the running turn, as envelopes; whether they have numbers does not matter here. */
export function asEvent(raw: unknown): SessionEvent {
  return raw as SessionEvent;
}
