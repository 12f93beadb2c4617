// Bytes on their way to the daemon. What it already holds is not sent again: the hash goes first.
import { ask, AWAY, Refused, refusal } from "../api/http";
import type { MediaView } from "../api/shapes";

const HASHED_BYTES = 256_000_000;

export async function upload(file: File, name: string, onProgress: (fraction: number) => void, signal: AbortSignal): Promise<MediaView> {
  const digest = await digestOf(file);
  if (digest) {
    try {
      return await ask<MediaView>("/media", { body: { digest, name }, signal });
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401 || error.isAway) throw error;
    }
  }
  return post(file, name, onProgress, signal);
}

async function digestOf(file: File): Promise<string> {
  // `subtle` is missing on plain HTTP in a LAN: the bytes are sent then.
  if (!crypto.subtle || file.size > HASHED_BYTES) return "";
  const hash = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return `sha256:${Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** fetch() cannot tell how far an upload is; XMLHttpRequest can. */
function post(file: File, name: string, onProgress: (fraction: number) => void, signal: AbortSignal): Promise<MediaView> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/v1/media?name=${encodeURIComponent(name)}`);
    request.setRequestHeader("X-Loom", "1");
    request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () => {
      if (request.status < 300) resolve(JSON.parse(request.responseText) as MediaView);
      else reject(refusal(request.status, request.responseText));
    };
    request.onerror = () => reject(new Refused(0, AWAY, "The upload was cut off.", "Try again when the daemon is back."));
    request.onabort = () => reject(new DOMException("cancelled", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}
