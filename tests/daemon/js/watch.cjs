// The official client watches a session and loses its connection again and again; it prints what it saw as JSON.
// With RESTARTS the daemon may be away for a while.
// node watch.cjs URL TOKEN SESSION TRANSPORT DROPS [RESTARTS]
const { io } = require("socket.io-client");

const [url, token, session, transport, drops, restarts] = process.argv.slice(2);
const seen = [];
const problems = [];
let last = 0;
let lost = 0;
let isAcknowledged = false;
let isLosing = false;

const socket = io(`${url}/events`, {
  auth: { token },
  transports: transport === "both" ? ["polling", "websocket"] : [transport],
  reconnectionDelay: 5,
  reconnectionDelayMax: 20,
});

function lose() {
  lost += 1;
  isLosing = true; // what still arrives on this connection is lost, too
  const engine = socket.io.engine;
  const wire = engine.transport.ws?._socket;
  if (wire && lost % 2) wire.destroy();
  else engine.close();
}

socket.on("connect", () => {
  isLosing = false;
  if (last === 0) process.stderr.write("connected\n");
  socket.emit("join", { session, after: last }, (answer) => {
    if (!answer.ok) problems.push(answer);
    isAcknowledged = true;
  });
});
socket.on("disconnect", () => (isAcknowledged = false));
socket.on("connect_error", (error) => restarts || problems.push(String(error)));
socket.onAny((name, envelope) => {
  if (isLosing) return;
  if (!isAcknowledged) problems.push(`${name} came before the answer to join`);
  if (name !== envelope.type || envelope.session !== session) problems.push(envelope);
  seen.push(envelope);
  last = envelope.seq;
  if (name === "turn_finished" && lost >= Number(drops)) finish();
  else if (name === "text" && lost < Number(drops)) lose();
});

function finish() {
  socket.close();
  process.stdout.write(JSON.stringify({ seen, problems, lost }), () => process.exit(0));
}
