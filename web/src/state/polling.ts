// Long polling, behind proxies that let no WebSockets through: the library of Socket.IO, loaded for it. It changes to a WebSocket
// as soon as one works.
import { Manager } from "socket.io-client";
import { CONNECT_MS, type EventConnection, FIRST_DELAY_MS, MAX_DELAY_MS, NAMESPACE, type SocketHooks } from "./event_socket";

export function openPolling(hooks: SocketHooks): EventConnection {
  const socket = new Manager(location.origin, { transports: ["polling", "websocket"], reconnectionDelay: FIRST_DELAY_MS, reconnectionDelayMax: MAX_DELAY_MS, timeout: CONNECT_MS }).socket(NAMESPACE);
  socket.on("connect", hooks.open);
  socket.on("connect_error", (error: Error & { data?: object }) => hooks.lost(JSON.stringify(error.data)));
  socket.on("disconnect", (reason) => {
    hooks.lost();
    // The server closed the connection (slow client, rotated token). Socket.IO reconnects by itself only after network errors.
    if (reason === "io server disconnect") socket.connect();
  });
  socket.onAny(hooks.event);
  return { emit: (name, payload) => socket.connected && socket.emit(name, payload) };
}
