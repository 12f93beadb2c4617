// node list.cjs URL TOKEN: prints the changes of the list of sessions until one is deleted.
const { io } = require("socket.io-client");

const [url, token] = process.argv.slice(2);
const lines = [];
const socket = io(`${url}/events`, { auth: { token } });
socket.on("connect", () => socket.emit("join", { sessions: true }, () => process.stdout.write("joined\n")));
socket.on("session", (line) => {
  lines.push(line);
  if (line.deleted) process.stdout.write(JSON.stringify(lines), () => process.exit(0));
});
