// Files that are not uploaded yet, kept in the browser's database: after a reload their uploads start again.
interface PendingFile {
  file: File;
  kept: number;
}

const DATABASE = "loom";
const STORE = "pending_files";
/** Files of abandoned drafts are removed after this time. */
const KEPT_MS = 7 * 24 * 3600 * 1000;

/** Keep a file until `dropFile`. */
export async function keepFile(key: string, file: File): Promise<void> {
  await inStore("readwrite", (store) => {
    removeOldFiles(store);
    return store.put({ file, kept: Date.now() } satisfies PendingFile, key);
  });
}

export async function dropFile(key: string): Promise<void> {
  await inStore("readwrite", (store) => store.delete(key));
}

export async function dropAllFiles(): Promise<void> {
  await inStore("readwrite", (store) => store.clear());
}

export async function keptFile(key: string): Promise<File | null> {
  const found = await inStore<PendingFile | undefined>("readonly", (store) => store.get(key));
  return found?.file ?? null;
}

function removeOldFiles(store: IDBObjectStore): void {
  const cursors = store.openCursor();
  cursors.onsuccess = () => {
    const cursor = cursors.result;
    if (!cursor) return;
    if ((cursor.value as PendingFile).kept < Date.now() - KEPT_MS) cursor.delete();
    cursor.continue();
  };
}

/** Run `work` in a transaction; return the result of its request. Without room, or where the browser has no database, nothing is kept:
 * files then live as long as the page, and the draft says after a reload which one is missing. */
async function inStore<T>(mode: IDBTransactionMode, work: (store: IDBObjectStore) => IDBRequest<T>): Promise<T | undefined> {
  let database: IDBDatabase | undefined;
  try {
    database = await openDatabase();
    const transaction = database.transaction(STORE, mode);
    const ended = new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error ?? new DOMException("aborted", "AbortError"));
    });
    const request = work(transaction.objectStore(STORE));
    await ended;
    return request.result;
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    return undefined;
  } finally {
    database?.close();
  }
}

function openDatabase(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}
