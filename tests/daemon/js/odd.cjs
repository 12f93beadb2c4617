// node odd.cjs URL TOKEN: joins in ways that no client should, and prints the answers as JSON.
const { io } = require("socket.io-client");

const [url, token] = process.argv.slice(2);
const asked = [
  ["join", {}],
  ["join", { session: "../../etc" }],
  ["join", { session: "01ARZ3NDEKTSV4RRFFQ69G5FAV" }],
  ["join", { session: 7 }],
  ["join", { session: "01ARZ3NDEKTSV4RRFFQ69G5FAV", after: -5 }],
  ["join", { session: "01ARZ3NDEKTSV4RRFFQ69G5FAV", after: 1e300 }],
  ["join", null],
  ["join", [1, 2, 3]],
  ["join"],
  ["join", { __proto__: null, constructor: { prototype: { session: "x" } } }],
  ["leave", { session: "nothing" }],
  ["leave", 5],
  ["join", { sessions: true }],
];

async function main() {
  const socket = io(`${url}/events`, { auth: { token }, transports: ["websocket"], reconnection: false });
  await new Promise((done, failed) => socket.on("connect", done).on("connect_error", failed));
  const answers = [];
  for (const [name, ...rest] of asked) answers.push(await socket.timeout(5000).emitWithAck(name, ...rest));
  const stranger = io(`${url}/events`, { auth: { token: "wrong" }, transports: ["websocket"], reconnection: false });
  const refusal = await new Promise((done) => stranger.on("connect_error", (error) => done(error.data)));
  const elsewhere = io(`${url}/admin`, { auth: { token }, transports: ["websocket"], reconnection: false, forceNew: true });
  const unknown = await new Promise((done) => elsewhere.on("connect_error", () => done("refused")));
  console.log(JSON.stringify({ answers, refusal, unknown, connected: socket.connected }));
  process.exit(0);
}

main();
