// The Socket.IO connection, namespace /events. After a lost connection the page joins again after the last envelope that it
// has, and the server sends the rest from its store.
import { Manager, type Socket } from "socket.io-client";
import type { Listed } from "../api/types";
import { isUnauthorized, connection, view } from "./app";
import type { Envelope } from "./envelopes";

interface Hooks {
  envelope: (envelope: Envelope) => void;
  session: (change: Listed) => void;
  back: () => void;
}

let socket: Socket | null = null;
let joinedSession = "";

export function connect(hooks: Hooks): void {
  socket = new Manager(location.origin, { transports: ["websocket", "polling"], reconnectionDelay: 250, reconnectionDelayMax: 2000, timeout: 5000 }).socket("/events");
  let wasOffline = false;
  socket.on("connect", () => {
    connection.value = "online";
    socket?.emit("join", { sessions: true });
    if (joinedSession) join(joinedSession);
    if (wasOffline) hooks.back();
    wasOffline = false;
  });
  const onLost = (): void => {
    wasOffline = true;
    if (!isUnauthorized.value) connection.value = "offline";
  };
  socket.on("disconnect", (reason) => {
    onLost();
    // The server closed the connection (slow client, rotated token). Socket.IO reconnects by itself only after network errors.
    if (reason === "io server disconnect") socket?.connect();
  });
  socket.on("connect_error", onLost);
  socket.onAny((name: string, payload: unknown) => {
    if (name === "session") hooks.session(payload as Listed);
    else if (typeof (payload as Envelope | null)?.seq === "number") hooks.envelope(payload as Envelope);
  });
}

/** Subscribe to a session from the end of its view. */
export function join(session: string): void {
  joinedSession = session;
  const seen = view.value;
  if (!seen || seen.session !== session || !socket?.connected) return;
  socket.emit("join", { session, after: seen.seq });
}

export function leave(session: string): void {
  if (joinedSession === session) joinedSession = "";
  if (socket?.connected) socket.emit("leave", { session });
}
