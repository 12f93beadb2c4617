// Every picture of the open session in order, for the lightbox to walk through.
import { computed, signal } from "@preact/signals";
import type { Block, Media } from "../api/blocks";
import type { PlanCell } from "../api/shapes";
import { model, view } from "./app";
import { plan } from "./plan";

export interface Picture {
  digest: string;
  name: string;
  alt: string;
  media: Media;
  /** A page of a document, counted from one. */
  page: number | null;
}

export const pictures = computed<Picture[]>(() => (view.value?.messages ?? []).flatMap((message) => picturesIn(message.blocks)));
export const opened = signal<{ list: Picture[]; at: number } | null>(null);

export function picturesIn(blocks: Block[]): Picture[] {
  return blocks.flatMap((block): Picture[] => {
    if (block.type === "tool_result") return picturesIn(block.blocks);
    if (block.type !== "image") return [];
    return [{ digest: block.media.digest, name: block.media.name ?? "picture", alt: block.alt ?? block.description ?? "", media: block.media, page: null }];
  });
}

export function openPicture(digest: string, fallback: Picture): void {
  const at = pictures.value.findIndex((one) => one.digest === digest);
  opened.value = at < 0 ? { list: [fallback], at: 0 } : { list: pictures.value, at };
}

/** How the next request would show a medium to the model that is asked. */
export function cellFor(digest: string): PlanCell | null {
  const row = plan.value?.rows.find((one) => one.digest === digest);
  return row?.by_model[model.value] ?? null;
}
