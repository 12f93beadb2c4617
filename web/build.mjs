// Builds the client into ../src/loom/daemon/web (or the reducers' tests into build/test with --test).
// The same sources give the same bytes: names carry a hash of the content, nothing carries a date.
import { build, context } from "esbuild";
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import path from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.join(here, "../src/loom/daemon/web");

/**
 * marked's reader without its writer: nothing here turns Markdown into HTML text, so that part (a quarter) stays out.
 * Its one file builds an instance of the writer when it is loaded, which keeps a bundler from seeing that nobody uses it.
 */
const readerOnly = {
  name: "reader-only",
  setup(set) {
    set.onLoad({ filter: /marked\.esm\.js$/ }, async ({ path: file }) => {
      const text = await readFile(file, "utf8");
      const names = /(\w+) as Lexer,(\w+) as Marked,/.exec(text);
      const end = names ? text.search(new RegExp(`var \\w+=new ${names[2]};`)) : -1;
      if (!names || end < 0) throw new Error("marked has changed its shape: see readerOnly in build.mjs");
      return { contents: `${text.slice(0, end)}export{${names[1]} as Lexer}`, loader: "js" };
    });
  },
};

/** What speaks WebTransport stays out: the daemon speaks WebSocket, and long polling behind proxies that do not. */
const noWebTransport = {
  name: "no-web-transport",
  setup(set) {
    set.onLoad({ filter: /engine\.io-client\/build\/esm\/transports\/webtransport\.js$/ }, () => ({ contents: "export class WT {}", loader: "js" }));
  },
};

/** The diagram frame is one page with its script inside: a frame without an origin may load nothing. */
async function diagramFrame() {
  const { outputFiles } = await build({ absWorkingDir: here, entryPoints: ["src/frames/diagram.ts"], bundle: true, format: "iife", minify: true, write: false, target: browser.target });
  const library = await readFile(path.join(here, "node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js"), "utf8");
  const script = `${library}\n${outputFiles[0].text}`.replaceAll("</script", "<\\/script");
  const html = `<!doctype html><meta charset="utf-8"><style>body{margin:0;padding:12px;overflow:auto}svg{display:block;margin:auto}</style><body><script>${script}</script>`;
  const name = `diagram-${createHash("sha256").update(html).digest("hex").slice(0, 8).toUpperCase()}.html`;
  return { name, html };
}

/** Envelopes are JSON: the code for binary attachments stays out. */
const noBinary = {
  name: "no-binary",
  setup(set) {
    set.onLoad({ filter: /socket\.io-parser\/build\/esm\/is-binary\.js$/ }, () => ({ contents: "export const isBinary = () => false; export const hasBinary = isBinary;", loader: "js" }));
    set.onLoad({ filter: /socket\.io-parser\/build\/esm\/binary\.js$/ }, () => ({ contents: "const refuse = () => { throw new Error('binary packet'); }; export const deconstructPacket = refuse, reconstructPacket = refuse;", loader: "js" }));
  },
};

/** The page makes its one connection itself: the lookup of shared ones stays out. */
const managerOnly = {
  name: "manager-only",
  setup(set) {
    set.onLoad({ filter: /socket\.io-client\/build\/esm\/index\.js$/ }, () => ({ contents: 'export { Manager } from "./manager.js";', loader: "js" }));
  },
};

const browser = {
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx", style: "src/styles/index.css" },
  bundle: true,
  format: "esm",
  splitting: true,
  minify: true,
  target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: path.join(out, "assets"),
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  legalComments: "none",
  charset: "utf8",
  metafile: true,
  logLevel: "warning",
  plugins: [readerOnly, noWebTransport, noBinary, managerOnly],
};

async function tests() {
  const files = (await readdir(path.join(here, "test"))).filter((name) => name.endsWith(".test.ts"));
  await rm(path.join(here, "build"), { recursive: true, force: true });
  await build({
    absWorkingDir: here,
    entryPoints: files.map((name) => `test/${name}`),
    bundle: true,
    format: "esm",
    platform: "node",
    outdir: "build/test",
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
  });
}

/** Every package whose code is in the bundle, with its licence in full. */
async function licences(metafile) {
  const names = new Set(["@mermaid-js/tiny"]);
  for (const input of Object.keys(metafile.inputs)) {
    const match = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (match) names.add(match[1]);
  }
  const parts = [];
  for (const name of [...names].sort()) {
    const folder = path.join(here, "node_modules", name);
    const facts = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file ? (await readFile(path.join(folder, file), "utf8")).trim() : "(see the package)";
    parts.push(`${name} ${facts.version} (${facts.license})\n\n${text}\n`);
  }
  return parts.join(`\n${"-".repeat(80)}\n\n`);
}

/** index.html names the hashed files, and asks for the chunks that the entry needs at once. */
async function page(metafile) {
  const outputs = Object.entries(metafile.outputs);
  const url = (file) => `/assets/${path.basename(file)}`;
  const [script, facts] = outputs.find(([, output]) => output.entryPoint === "src/main.tsx");
  const [style] = outputs.find(([, output]) => output.entryPoint === "src/styles/index.css");
  const eager = facts.imports.filter((found) => found.kind === "import-statement").map((found) => url(found.path));
  const preload = eager.map((found) => `<link rel="modulepreload" href="${found}">`).join("\n");
  const html = await readFile(path.join(here, "index.html"), "utf8");
  return html.replace("{{style}}", url(style)).replace("{{script}}", url(script)).replace("{{preload}}\n", preload ? `${preload}\n` : "");
}

const COMPRESSED_FROM_BYTES = 1_000;
/** Brotli at its best takes seconds for the diagram frame: keep results by content. */
const cache = path.join(here, "node_modules/.cache/loom-web");

/** Write a brotli and a gzip copy beside each file that is worth it. Very large files get brotli only: the wheel carries them. */
async function compress(folder) {
  await mkdir(cache, { recursive: true });
  for (const name of (await readdir(folder, { recursive: true })).sort()) {
    if (!/\.(js|css|html|svg|txt|webmanifest)$/.test(name)) continue;
    const file = path.join(folder, name);
    const data = await readFile(file);
    if (data.length < COMPRESSED_FROM_BYTES) continue;
    const brotli = (bytes) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_LGWIN]: 22, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } });
    const ways = data.length > 1_000_000 ? { br: brotli } : { br: brotli, gz: (bytes) => gzipSync(bytes, { level: 9 }) };
    for (const [suffix, run] of Object.entries(ways)) {
      const kept = path.join(cache, `${createHash("sha256").update(data).digest("hex")}.${suffix}`);
      if (!existsSync(kept)) await writeFile(kept, run(data));
      await copyFile(kept, `${file}.${suffix}`);
    }
  }
}

/** The service worker lists the files of the offline shell; its version is a hash of them. */
async function serviceWorker(metafile, html) {
  const files = Object.keys(metafile.outputs).map((file) => `/assets/${path.basename(file)}`).filter((file) => /\/(app|chunk|style|ChatPane|Start|deferred)-/.test(file)).sort();
  const shell = ["/", "/icon.svg", "/manifest.webmanifest", ...files];
  const version = createHash("sha256").update(html).update(shell.join()).digest("hex").slice(0, 12);
  await build({ absWorkingDir: here, entryPoints: ["src/service_worker.ts"], bundle: true, format: "iife", minify: true, target: browser.target, outfile: path.join(browser.outdir, "sw.js"), define: { SHELL: JSON.stringify(shell), VERSION: JSON.stringify(version) }, logLevel: "warning" });
}

async function client() {
  await rm(out, { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  const frame = await diagramFrame();
  browser.define = { DIAGRAM_URL: JSON.stringify(`/assets/${frame.name}`) };
  const { metafile } = await build(browser);
  await writeFile(path.join(browser.outdir, frame.name), frame.html);
  const html = await page(metafile);
  await writeFile(path.join(out, "index.html"), html);
  await serviceWorker(metafile, html);
  await writeFile(path.join(out, "licences.txt"), await licences(metafile));
  for (const name of await readdir(path.join(here, "public"))) {
    await copyFile(path.join(here, "public", name), path.join(out, name));
  }
  await compress(out);
}

if (process.argv.includes("--test")) {
  await tests();
} else {
  await client();
  if (process.argv.includes("--watch")) {
    // Compressed copies would hide what is built again.
    for (const name of await readdir(out, { recursive: true })) if (/\.(br|gz)$/.test(name)) await rm(path.join(out, name));
    const rebuild = { name: "page", setup: (set) => set.onEnd((done) => done.metafile && page(done.metafile).then((html) => writeFile(path.join(out, "index.html"), html))) };
    await (await context({ ...browser, plugins: [...browser.plugins, rebuild] })).watch();
  }
}
