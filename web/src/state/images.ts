// All images of the open session, in order, for the lightbox.
import { computed, signal } from "@preact/signals";
import type { Block, Media, ToolResult } from "../api/blocks";
import type { PlanCell, PlanRow } from "../api/types";
import { model, view } from "./app";
import { plan } from "./plan";

export interface LightboxImage {
  digest: string;
  name: string;
  alt: string;
  media: Media;
  /** Its place in the conversation; the same image may be in several. */
  block?: Block;
  /** A page of a document, counted from one. */
  page: number | null;
}

export const images = computed<LightboxImage[]>(() => (view.value?.messages ?? []).flatMap((message) => imagesIn(message.blocks)));
export const lightbox = signal<{ list: LightboxImage[]; at: number } | null>(null);

export function imagesIn(blocks: Block[]): LightboxImage[] {
  return blocks.flatMap((block): LightboxImage[] => {
    if (block.type === "tool_result") return imagesIn(block.blocks);
    if (block.type !== "image") return [];
    return [{ digest: block.media.digest, name: block.media.name ?? "image", alt: block.alt ?? block.description ?? "", media: block.media, block, page: null }];
  });
}

export function openImage(image: LightboxImage): void {
  const at = images.value.findIndex((one) => one.block === image.block);
  lightbox.value = at < 0 ? { list: [image], at: 0 } : { list: images.value, at };
}

/** The rendition of a media block in the next request: at its place, because the same file may be sent differently at another one. */
export function cellFor(block: Block | undefined): PlanCell | undefined {
  return plan.value?.rows.find((row) => row.digest && blockOf(row) === block)?.by_model[model.value];
}

export function blockOf({ node, block, inner }: PlanRow): Block | undefined {
  const outer = view.value?.messages.find((one) => one.node === node)?.blocks[block];
  return inner === null ? outer : (outer as ToolResult | undefined)?.blocks[inner];
}
