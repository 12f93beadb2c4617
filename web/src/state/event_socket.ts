// Socket.IO over a WebSocket, and nothing else of it: one namespace, JSON, reconnects. Its library, which can also poll, is
// loaded only where WebSockets fail.
export interface SocketHooks {
  open: () => void;
  /** `refusal`: what the server sent if it refused the connection. */
  lost: (refusal?: string) => void;
  event: (name: string, payload: unknown) => void;
}

export interface EventConnection {
  /** Does nothing while the connection is lost. */
  emit: (name: string, payload: object) => void;
}

export const NAMESPACE = "/events";
export const FIRST_DELAY_MS = 250;
export const MAX_DELAY_MS = 2_000;
export const CONNECT_MS = 5_000;
/** Failures in a row, without any success before, that suggest that WebSockets are not let through. */
const MAX_FAILURES = 3;

/** Connect, and again whenever the connection is lost. `onUnsupported` is called instead if no connection was ever made. */
export function openSocket(hooks: SocketHooks, onUnsupported: () => Promise<boolean>): EventConnection {
  let socket: WebSocket | null = null;
  let isConnected = false;
  let hasWorked = false;
  let failures = 0;
  let silentMs = CONNECT_MS;
  let watchdog: ReturnType<typeof setTimeout> | undefined;

  function open(): void {
    const opened = new WebSocket(`${location.origin.replace("http", "ws")}/socket.io/?EIO=4&transport=websocket`);
    socket = opened;
    silentMs = CONNECT_MS;
    opened.onmessage = ({ data }) => opened === socket && receive(opened, String(data));
    opened.onclose = () => opened === socket && void reconnect();
    expectMessage();
  }

  function expectMessage(): void {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => void reconnect(), silentMs);
  }

  /** The packets of Engine.IO (first character) and of Socket.IO (second). */
  function receive(from: WebSocket, packet: string): void {
    expectMessage();
    if (packet[0] === "0") {
      const { pingInterval, pingTimeout } = JSON.parse(packet.slice(1)) as { pingInterval: number; pingTimeout: number };
      silentMs = pingInterval + pingTimeout;
      from.send(`40${NAMESPACE},`);
    } else if (packet[0] === "2") from.send("3");
    else if (packet.startsWith("40")) {
      isConnected = hasWorked = true;
      failures = 0;
      hooks.open();
    } else if (packet.startsWith("42")) {
      const [name, payload] = JSON.parse(packet.slice(packet.indexOf("["))) as [string, unknown];
      hooks.event(name, payload);
    } else void reconnect(packet);
  }

  /** The end of a dead connection may never be confirmed: do not wait for it. */
  async function reconnect(packet = ""): Promise<void> {
    clearTimeout(watchdog);
    const old = socket;
    socket = null;
    isConnected = false;
    old?.close();
    hooks.lost(packet);
    failures += 1;
    if (!hasWorked && failures >= MAX_FAILURES && (await onUnsupported())) return;
    setTimeout(open, Math.min(FIRST_DELAY_MS * 2 ** (failures - 1), MAX_DELAY_MS));
  }

  addEventListener("offline", () => socket && void reconnect());
  open();
  return { emit: (name, payload) => isConnected && socket?.send(`42${NAMESPACE},${JSON.stringify([name, payload])}`) };
}
