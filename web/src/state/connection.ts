// The connection for events. After a lost connection the page joins again after the last envelope that it has, and the server
// sends the rest from its store.
import type { Listed } from "../api/types";
import { isUnauthorized, connection, view } from "./app";
import type { Envelope } from "./envelopes";
import { type EventConnection, openSocket, type SocketHooks } from "./event_socket";

interface Hooks {
  envelope: (envelope: Envelope) => void;
  session: (change: Listed) => void;
  back: () => void;
}

let socket: EventConnection | null = null;
let joinedSession = "";

export function connect(hooks: Hooks): void {
  let wasOffline = false;
  const socketHooks: SocketHooks = {
    open: () => {
      connection.value = "online";
      socket?.emit("join", { sessions: true });
      if (joinedSession) join(joinedSession);
      if (wasOffline) hooks.back();
      wasOffline = false;
    },
    lost: (refusal) => {
      wasOffline = true;
      if (refusal?.includes("auth.required")) isUnauthorized.value = true;
      if (!isUnauthorized.value) connection.value = "offline";
    },
    event: (name, payload) => {
      if (name === "session") hooks.session(payload as Listed);
      else if (typeof (payload as Envelope | null)?.seq === "number") hooks.envelope(payload as Envelope);
    },
  };
  const poll = ({ openPolling }: typeof import("./polling")): boolean => {
    socket = openPolling(socketHooks);
    return true;
  };
  // Without its code, the server cannot be reached at all.
  socket = openSocket(socketHooks, () => import("./polling").then(poll, () => false));
}

/** Subscribe to a session from the end of its view. */
export function join(session: string): void {
  joinedSession = session;
  if (view.value?.session === session) socket?.emit("join", { session, after: view.value.seq });
}

export function leave(session: string): void {
  if (joinedSession === session) joinedSession = "";
  socket?.emit("leave", { session });
}
