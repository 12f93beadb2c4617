// All images of the open session, in order, for the lightbox.
import { computed, signal } from "@preact/signals";
import type { Block, Media } from "../api/blocks";
import type { PlanCell } from "../api/types";
import { model, view } from "./app";
import { plan } from "./plan";

export interface LightboxImage {
  digest: string;
  name: string;
  alt: string;
  media: Media;
  /** A page of a document, counted from one. */
  page: number | null;
}

export const images = computed<LightboxImage[]>(() => (view.value?.messages ?? []).flatMap((message) => imagesIn(message.blocks)));
export const lightbox = signal<{ list: LightboxImage[]; at: number } | null>(null);

export function imagesIn(blocks: Block[]): LightboxImage[] {
  return blocks.flatMap((block): LightboxImage[] => {
    if (block.type === "tool_result") return imagesIn(block.blocks);
    if (block.type !== "image") return [];
    return [{ digest: block.media.digest, name: block.media.name ?? "image", alt: block.alt ?? block.description ?? "", media: block.media, page: null }];
  });
}

export function openImage(digest: string, fallback: LightboxImage): void {
  const at = images.value.findIndex((one) => one.digest === digest);
  lightbox.value = at < 0 ? { list: [fallback], at: 0 } : { list: images.value, at };
}

/** The rendition of a media block in the next request. */
export function cellFor(digest: string): PlanCell | null {
  const row = plan.value?.rows.find((one) => one.digest === digest);
  return row?.by_model[model.value] ?? null;
}
