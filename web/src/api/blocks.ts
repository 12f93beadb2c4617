// Blocks as the store writes them (content/codec.py): fields with their default value are left out.
import type { AudioBlock, DocumentBlock, ImageBlock, Message, TextBlock, VideoBlock } from "./generated";

export type { AudioBlock, Citation, DocumentBlock, ImageBlock, Media, Message, TextBlock, ThinkingBlock, ToolCall, ToolResult, VideoBlock } from "./generated";

export type Block = Message["blocks"][number];
export type MediaBlock = ImageBlock | DocumentBlock | AudioBlock | VideoBlock;

/** A text file: its text with a header line. `digest` is known for uploads and replaces the text where it would be long. */
export interface TextFile extends TextBlock {
  name: string;
  digest?: string;
}

export type Attachable = MediaBlock | TextFile;

export function isMedia(block: Block): block is MediaBlock {
  return block.type === "image" || block.type === "document" || block.type === "audio" || block.type === "video";
}

const FILE_HEADER = /^\[file: ([^\n]{1,300})\]\n/;

/** The name and content of a text block that holds a file, or null for typed text. */
export function fileIn(block: Block): { name: string; content: string } | null {
  const found = block.type === "text" ? FILE_HEADER.exec(block.text) : null;
  if (!found || block.type !== "text") return null;
  return { name: found[1] ?? "", content: block.text.slice(found[0].length) };
}

export function asTextFile(block: TextBlock, name: string, digest?: string): TextFile {
  const content = fileIn(block)?.content ?? block.text;
  return { type: "text", text: `[file: ${name}]\n${content}`, name, ...(digest ? { digest } : {}) };
}

/** Split the blocks of a message into typed text and attachments. */
export function splitBlocks(blocks: Block[]): { text: string; attachments: Attachable[] } {
  const words: string[] = [];
  const attachments: Attachable[] = [];
  for (const block of blocks) {
    const file = fileIn(block);
    if (isMedia(block)) attachments.push(block);
    else if (file && block.type === "text") attachments.push(asTextFile(block, file.name));
    else if (block.type === "text") words.push(block.text);
  }
  return { text: words.join("\n\n"), attachments };
}

export function attachmentName(block: Attachable): string {
  return block.type === "text" ? block.name : (block.media.name ?? block.type);
}

/** How a message names an attachment: by digest where the server has it, else by content. */
export function attachmentReference(block: Attachable): object {
  if (block.type === "text") return block.digest ? { type: "media", digest: block.digest, name: block.name } : { type: "text", text: block.text };
  const { digest, name } = block.media;
  return { type: "media", digest, ...(name ? { name } : {}), ...(block.type === "document" && block.pages ? { pages: block.pages } : {}) };
}

const STORED_CHARS = 50_000;

/** The attachment for browser storage, which is small: long text is left to the server. */
export function storableAttachment(block: Attachable): Attachable {
  return block.type === "text" && block.digest && block.text.length > STORED_CHARS ? { ...block, text: `[file: ${block.name}]\n` } : block;
}

/** "21-40" → [21, 40]; nothing → the whole document. */
export function pageRange(block: DocumentBlock): [number, number] {
  const total = block.media.pages ?? 1;
  if (!block.pages) return [1, total];
  const [first, last] = block.pages.split("-").map(Number);
  return [first ?? 1, last ?? first ?? total];
}
