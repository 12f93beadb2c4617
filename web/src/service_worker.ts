// Offline shell: the page and its parts come from the cache when the server cannot be reached. Data is never cached.
declare const SHELL: string[];
declare const VERSION: string;

// `lib.dom` and `lib.webworker` cannot be used together: the few names that are needed.
interface LifetimeEvent extends Event {
  waitUntil: (work: Promise<unknown>) => void;
}
interface RequestEvent extends LifetimeEvent {
  request: Request;
  respondWith: (response: Promise<Response>) => void;
}
const worker = self as unknown as { skipWaiting: () => Promise<void>; clients: { claim: () => Promise<void> }; addEventListener: (type: string, listener: (event: never) => void) => void };

const CACHE = `loom-${VERSION}`;

worker.addEventListener("install", (event: LifetimeEvent) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(SHELL)).then(() => worker.skipWaiting()));
});

worker.addEventListener("activate", (event: LifetimeEvent) => {
  const dropOld = async (): Promise<void> => {
    for (const name of await caches.keys()) if (name.startsWith("loom-") && name !== CACHE) await caches.delete(name);
    await worker.clients.claim();
  };
  event.waitUntil(dropOld());
});

worker.addEventListener("fetch", (event: RequestEvent) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== location.origin) return;
  if (url.pathname.startsWith("/assets/")) event.respondWith(fromCache(request));
  // A login link must reach the server.
  else if (url.pathname === "/" && !url.search) event.respondWith(fetch(request).catch(() => fromCache(request)));
  else if (SHELL.includes(url.pathname) && !url.search) event.respondWith(fetch(request).catch(() => fromCache(request)));
});

async function fromCache(request: Request): Promise<Response> {
  return (await caches.match(request, { ignoreSearch: true, ignoreVary: true })) ?? fetch(request);
}
