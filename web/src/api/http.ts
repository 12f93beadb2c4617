// One door to /v1. Whatever goes wrong becomes a Refused that says what happened and what to do.
import type { Problem } from "./shapes";

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint = "",
  ) {
    super(message);
  }

  /** The daemon did not answer at all: the same request may be sent again. */
  get isAway(): boolean {
    return this.status === 0 || this.status === 503;
  }
}

export const AWAY = "daemon.away";

interface Asked {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export async function ask<Answer>(path: string, asked: Asked = {}): Promise<Answer> {
  const headers: Record<string, string> = { "X-Loom": "1", ...asked.headers };
  const isForm = asked.body instanceof FormData || asked.body instanceof Blob;
  if (asked.body !== undefined && !isForm) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(`/v1${path}`, {
      method: asked.method ?? (asked.body === undefined ? "GET" : "POST"),
      headers,
      body: asked.body === undefined ? undefined : isForm ? (asked.body as BodyInit) : JSON.stringify(asked.body),
      credentials: "same-origin",
      signal: asked.signal ?? null,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refused(0, AWAY, "The daemon does not answer.", "It is asked again as soon as it is back.");
  }
  if (!response.ok) throw refusal(response.status, await response.text());
  if (response.status === 204) return undefined as Answer;
  return (await response.json()) as Answer;
}

export function refusal(status: number, text: string): Refused {
  let problem: Problem = { code: `http.${status}`, message: `The daemon refused this (${status}).` };
  try {
    problem = (JSON.parse(text) as { error?: Problem }).error ?? problem;
  } catch {
    // A proxy in between speaks HTML: the status says enough.
  }
  return new Refused(status, problem.code, problem.message, problem.hint ?? "");
}

export function mediaUrl(digest: string, version: string): string {
  return `/v1/media/${encodeURIComponent(digest)}?v=${encodeURIComponent(version)}`;
}

/** Random, and good enough as an idempotency key where `crypto.randomUUID` is missing (plain HTTP in a LAN). */
export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
