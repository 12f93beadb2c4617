// node pictures.cjs URL TOKEN SESSION: the envelopes with pictures, without and with their bytes (then as base64).
const { io } = require("socket.io-client");

const [url, token, session] = process.argv.slice(2);

function asText(key, value) {
  return value?.type === "Buffer" ? Buffer.from(value.data).toString("base64") : value;
}

async function watched(inline) {
  const socket = io(`${url}/events`, { auth: { token }, forceNew: true, transports: ["websocket"] });
  const found = [];
  await new Promise((done) => {
    socket.onAny((name, envelope) => {
      if (name === "image" || name === "tool_call") found.push(envelope);
      if (name === "turn_finished") done();
    });
    socket.on("connect", () => socket.emit("join", { session, after: 0, inline }));
  });
  socket.close();
  return found;
}

async function main() {
  const found = { plain: await watched(false), inline: await watched(true) };
  process.stdout.write(JSON.stringify(found, asText), () => process.exit(0));
}

main();
