// Envelopes: what the daemon tells while a session lives. `seq` counts within the session.
import type { EventData } from "../api/generated";

export type Facts = { [Type in keyof EventData]: Omit<EventData[Type], "type"> };
export type Fact = { [Type in keyof Facts]: { type: Type; data: Facts[Type] } }[keyof Facts];
export type Envelope = Fact & { seq: number; session: string };

/** What a snapshot carries of the running turn, as envelopes; whether they have numbers does not matter here. */
export function factOf(raw: unknown): Fact {
  return raw as Fact;
}
