// File uploads. The hash is sent first: a file that the server already has is not uploaded again.
import { request, OFFLINE, ApiError, errorFrom } from "../api/http";
import type { MediaView } from "../api/types";

const HASHED_BYTES = 256_000_000;

export async function upload(file: File, name: string, onProgress: (fraction: number) => void, signal: AbortSignal, password = ""): Promise<MediaView> {
  const digest = password ? "" : await digestOf(file);
  if (digest) {
    try {
      return await request<MediaView>("/media", { body: { digest, name }, signal });
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 401 || error.isOffline) throw error;
    }
  }
  return post(file, name, onProgress, signal, password);
}

async function digestOf(file: File): Promise<string> {
  // `subtle` is missing on plain HTTP in a LAN: upload without the check.
  if (!crypto.subtle || file.size > HASHED_BYTES) return "";
  const hash = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return `sha256:${Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Upload with XMLHttpRequest, which reports progress; fetch() does not. */
function post(file: File, name: string, onProgress: (fraction: number) => void, signal: AbortSignal, password: string): Promise<MediaView> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/v1/media?name=${encodeURIComponent(name)}`);
    request.setRequestHeader("X-Loom", "1");
    // A file is bytes whatever its type: JSON is a command to this route.
    request.setRequestHeader("Content-Type", "application/octet-stream");
    if (password) request.setRequestHeader("X-Loom-Password", encodeURIComponent(password));
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () => {
      if (request.status < 300) resolve(JSON.parse(request.responseText) as MediaView);
      else reject(errorFrom(request.status, request.responseText));
    };
    request.onerror = () => reject(new ApiError(0, OFFLINE, "The upload was interrupted.", "Retry when the server is reachable."));
    request.onabort = () => reject(new DOMException("cancelled", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}
