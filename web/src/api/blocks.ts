// Blocks as the store writes them (content/codec.py): fields that have their default are left out.
import type { AudioBlock, DocumentBlock, ImageBlock, Message } from "./generated";

export type { AudioBlock, Citation, DocumentBlock, ImageBlock, Media, Message, TextBlock, ThinkingBlock, ToolCall, ToolResult } from "./generated";

export type Block = Message["blocks"][number];
export type MediaBlock = ImageBlock | DocumentBlock | AudioBlock;

export function isMedia(block: Block): block is MediaBlock {
  return block.type === "image" || block.type === "document" || block.type === "audio";
}

/** "21-40" → [21, 40]; nothing → the whole. */
export function pageRange(block: DocumentBlock): [number, number] {
  const total = block.media.pages ?? 1;
  if (!block.pages) return [1, total];
  const [first, last] = block.pages.split("-").map(Number);
  return [first ?? 1, last ?? first ?? total];
}
