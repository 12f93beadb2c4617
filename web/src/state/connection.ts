// The live line: Socket.IO, namespace /events. A lost connection costs nothing: the page joins again behind the last
// envelope that it saw, and the daemon reads the rest from its store.
import { io, type Socket } from "socket.io-client";
import type { Listed } from "../api/shapes";
import { isLockedOut, link, view } from "./app";
import type { Envelope } from "./envelopes";

interface Hooks {
  envelope: (envelope: Envelope) => void;
  session: (change: Listed) => void;
  back: () => void;
}

let socket: Socket | null = null;
let joined = "";

export function connect(hooks: Hooks): void {
  socket = io("/events", { transports: ["websocket", "polling"], reconnectionDelay: 250, reconnectionDelayMax: 2000, timeout: 5000 });
  let wasAway = false;
  socket.on("connect", () => {
    link.value = "online";
    socket?.emit("join", { sessions: true });
    if (joined) join(joined);
    if (wasAway) hooks.back();
    wasAway = false;
  });
  const away = (): void => {
    wasAway = true;
    if (!isLockedOut.value) link.value = "away";
  };
  socket.on("disconnect", (reason) => {
    away();
    // The daemon hung up (a slow client, a rotated token): ask again; socket.io does so only for lost lines.
    if (reason === "io server disconnect") socket?.connect();
  });
  socket.on("connect_error", away);
  socket.onAny((name: string, told: unknown) => {
    if (name === "session") hooks.session(told as Listed);
    else if (typeof (told as Envelope | null)?.seq === "number") hooks.envelope(told as Envelope);
  });
}

/** Continue a session exactly where its view ends. */
export function join(session: string): void {
  joined = session;
  const seen = view.value;
  if (!seen || seen.session !== session || !socket?.connected) return;
  socket.emit("join", { session, after: seen.seq });
}

export function leave(session: string): void {
  if (joined === session) joined = "";
  if (socket?.connected) socket.emit("leave", { session });
}
