import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { type EventConnection, openSocket } from "../src/state/event_socket";

const OPEN = '0{"sid":"s","upgrades":[],"pingInterval":25000,"pingTimeout":20000}';
const CONNECTED = '40/events,{"sid":"x"}';

/** A WebSocket of a browser, without a network. */
class BrowserSocket {
  sent: string[] = [];
  isClosed = false;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null;

  constructor(readonly address: string) {
    opened.push(this);
  }

  send(text: string): void {
    this.sent.push(text);
  }

  close(): void {
    this.isClosed = true;
  }

  receive(...packets: string[]): void {
    for (const data of packets) this.onmessage?.({ data });
  }
}

let opened: BrowserSocket[] = [];
let seen: string[] = [];
let goOffline = (): void => undefined;

beforeEach(() => {
  opened = [];
  seen = [];
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
  const addEventListener = (_: string, listener: () => void): void => void (goOffline = listener);
  Object.assign(globalThis, { WebSocket: BrowserSocket, location: { origin: "https://loom.test" }, addEventListener });
});

function connect(isUnsupported = false): EventConnection {
  const hooks = { open: () => seen.push("open"), lost: (refusal?: string) => seen.push(refusal?.startsWith("44") ? "refused" : "lost"), event: (name: string, payload: unknown) => seen.push(`${name} ${JSON.stringify(payload)}`) };
  return openSocket(hooks, () => (seen.push("unsupported"), Promise.resolve(isUnsupported)));
}

const newest = (): BrowserSocket => opened.at(-1) as BrowserSocket;

/** Return after how many milliseconds the next attempt to connect begins. */
async function waitForAttempt(): Promise<number> {
  const before = opened.length;
  for (let ms = 10; ms <= 20_000; ms += 10) {
    await Promise.resolve();
    mock.timers.tick(10);
    if (opened.length > before) return ms;
  }
  return Number.POSITIVE_INFINITY;
}

test("nothing is sent before the server has accepted the connection, and pings are answered", () => {
  const connection = connect();
  connection.emit("early", {});
  newest().receive(OPEN);
  connection.emit("early", {});
  newest().receive(CONNECTED, '42/events,["text",{"text":"[1]"}]', '42/events,7["session",{}]', "2");
  connection.emit("join", { session: "s" });
  assert.equal(newest().address, "wss://loom.test/socket.io/?EIO=4&transport=websocket");
  assert.deepEqual(newest().sent, ["40/events,", "3", '42/events,["join",{"session":"s"}]']);
  assert.deepEqual(seen, ["open", 'text {"text":"[1]"}', "session {}"]);
});

test("a connection that ends in any way is replaced, and the old one is not heard any more", async () => {
  const connection = connect();
  const ends = [() => newest().onclose?.(), () => newest().receive("41/events,"), () => newest().receive("1"), goOffline, () => mock.timers.tick(45_000)];
  for (const end of ends) {
    connection.emit("early", {});
    newest().receive(OPEN, CONNECTED);
    mock.timers.tick(44_990);
    assert.deepEqual([seen.at(-1), newest().sent], ["open", ["40/events,"]]);
    newest().receive("2");
    const old = newest();
    end();
    assert.equal(seen.at(-1), "lost");
    assert.equal(await waitForAttempt(), 250);
    const count = seen.length;
    old.receive('42/events,["text",{}]', "1");
    old.onclose?.();
    assert.deepEqual([old.isClosed, seen.length, opened.at(-1) !== old], [true, count, true]);
  }
  assert.ok(!seen.includes("unsupported"));
});

test("attempts that fail are further and further apart, up to a limit", async () => {
  connect();
  newest().receive(OPEN, CONNECTED);
  newest().onclose?.();
  const waits: number[] = [await waitForAttempt()];
  for (let attempt = 0; attempt < 5; attempt++) {
    newest().receive(OPEN, '44/events,{"message":"Sign in first."}');
    assert.equal(seen.at(-1), "refused");
    waits.push(await waitForAttempt());
  }
  assert.deepEqual(waits, [250, 500, 1000, 2000, 2000, 2000]);
});

test("a server that never accepts a connection is asked in another way after three attempts", async () => {
  for (const isUnsupported of [true, false]) {
    opened = [];
    seen = [];
    connect(isUnsupported);
    for (let attempt = 1; attempt <= 3; attempt++) {
      assert.ok(!seen.includes("unsupported"));
      if (attempt < 3) {
        newest().onclose?.();
        await waitForAttempt();
      } else mock.timers.tick(5_000); // no response at all
    }
    assert.equal(seen.at(-1), "unsupported");
    assert.equal((await waitForAttempt()) === Number.POSITIVE_INFINITY, isUnsupported);
  }
});
