// Requests to /v1. Whatever goes wrong becomes a ApiError that says what happened and what to do.
import type { Problem } from "./types";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint = "",
  ) {
    super(message);
  }

  /** True if the server could not be reached: the same request may be sent again. */
  get isOffline(): boolean {
    return this.status === 0 || this.status === 503;
  }
}

export const OFFLINE = "daemon.away";

interface RequestOptions {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export async function request<Answer>(path: string, options: RequestOptions = {}): Promise<Answer> {
  const headers: Record<string, string> = { "X-Loom": "1", ...options.headers };
  const isForm = options.body instanceof FormData || options.body instanceof Blob;
  if (options.body !== undefined && !isForm) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(`/v1${path}`, {
      method: options.method ?? (options.body === undefined ? "GET" : "POST"),
      headers,
      body: options.body === undefined ? undefined : isForm ? (options.body as BodyInit) : JSON.stringify(options.body),
      credentials: "same-origin",
      signal: options.signal ?? null,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, OFFLINE, "Cannot reach the Loom server.", "Try again when it is back.");
  }
  if (!response.ok) throw errorFrom(response.status, await response.text());
  if (response.status === 204) return undefined as Answer;
  return (await response.json()) as Answer;
}

export function errorFrom(status: number, text: string): ApiError {
  let problem: Problem = { code: `http.${status}`, message: `The server refused the request (${status}).` };
  try {
    problem = (JSON.parse(text) as { error?: Problem }).error ?? problem;
  } catch {
    // A proxy answered with HTML: the status is all there is.
  }
  return new ApiError(status, problem.code, problem.message, problem.hint ?? "");
}

export function wait(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

export function mediaUrl(digest: string, version: string): string {
  return `/v1/media/${encodeURIComponent(digest)}?v=${encodeURIComponent(version)}`;
}

/** Random, and good enough as an idempotency key where `crypto.randomUUID` is missing (plain HTTP in a LAN). */
export function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
