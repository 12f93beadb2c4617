// An image, a document, an audio file or a video in the conversation. The badge with the model's version is below it, never over it.
import { mediaUrl } from "../api/http";
import { type Block, type DocumentBlock, fileIn, type ImageBlock, isMedia, type MediaBlock, pageRange } from "../api/blocks";
import { highlightedDigest } from "../state/app";
import { cellFor, openImage } from "../state/images";
import { plural, formatBytes } from "../state/format";
import { CellBadge } from "./Badge";
import { FileIcon } from "./icons";
import { deferred } from "./components";

const SHOWN_CHARS = 20_000;
const PageStrip = deferred((found) => found.PageStrip);
const AudioFigure = deferred((found) => found.AudioFigure);
const VideoFigure = deferred((found) => found.VideoFigure);

/** The content of a user message: typed text, then files and media. */
export function MessageContent({ blocks }: { blocks: Block[] }) {
  const media = blocks.filter(isMedia);
  const files = blocks.flatMap((block) => fileIn(block) ?? []);
  return (
    <>
      {blocks.map((block, index) => (block.type === "text" && !fileIn(block) ? <p key={index} class="message-text">{block.text}</p> : null))}
      {files.map((file, index) => <TextFileFigure key={index} name={file.name} content={file.content} />)}
      {media.length > 0 && <MediaGrid blocks={media} />}
    </>
  );
}

/** Several media blocks in a grid of equal cells; a single one keeps its size. */
export function MediaGrid({ blocks, previews = [] }: { blocks: MediaBlock[]; previews?: string[] }) {
  return (
    <div class={`media-grid${blocks.length > 1 ? " many" : ""}`}>
      {blocks.map((block, index) => <MediaFigure key={`${block.media.digest}.${index}`} block={block} preview={previews[index] ?? ""} />)}
    </div>
  );
}

function TextFileFigure({ name, content }: { name: string; content: string }) {
  return (
    <details class="fold text-file">
      <summary>
        <FileIcon />
        <span class="fold-title">{name}</span>
        <span class="clip dim fold-peek">{content.slice(0, 200).trim().split("\n")[0]}</span>
        <span class="dim fold-end">{plural(content.replace(/\n$/, "").split("\n").length, "line")} · {formatBytes(new Blob([content]).size)}</span>
      </summary>
      <pre class="plain" tabIndex={0}>{content.length > SHOWN_CHARS ? `${content.slice(0, SHOWN_CHARS)}\n…` : content}</pre>
    </details>
  );
}

export function MediaFigure({ block, preview = "" }: { block: MediaBlock; preview?: string }) {
  if (block.type === "image") return <ImageFigure block={block} preview={preview} />;
  if (block.type === "document") return <DocumentView block={block} />;
  if (block.type === "video") return <VideoFigure block={block} />;
  return <AudioFigure block={block} />;
}

export function facts(parts: (string | undefined | null | false)[]): string {
  return parts.filter(Boolean).join(" · ");
}

export function ImageFigure({ block, preview = "" }: { block: ImageBlock; preview?: string }) {
  const { media } = block;
  const cell = cellFor(block);
  const name = media.name || "image";
  const words = block.alt || block.description || "";
  const measure = media.width && media.height ? `${media.width}×${media.height}` : "";
  const open = (): void => openImage({ digest: media.digest, name, alt: words, media, block, page: null });
  return (
    <figure class={`image-figure${highlightedDigest.value === media.digest ? " lit" : ""}`} onPointerEnter={() => (highlightedDigest.value = media.digest)} onPointerLeave={() => (highlightedDigest.value = "")}>
      <button type="button" class="image-open" aria-label={`Open ${name}${measure ? `, ${measure}` : ""}`} onClick={open}>
        <img
          src={mediaUrl(media.digest, "low")}
          alt={words || name}
          width={media.width ?? undefined}
          height={media.height ?? undefined}
          loading="lazy"
          decoding="async"
          style={preview ? { backgroundImage: `url("${preview}")` } : undefined}
        />
      </button>
      <figcaption>
        <span class="clip">{facts([name, measure, media.size_bytes > 0 && formatBytes(media.size_bytes)])}</span>
        {cell && <CellBadge cell={cell} />}
      </figcaption>
    </figure>
  );
}

function DocumentView({ block }: { block: DocumentBlock }) {
  const { media } = block;
  const cell = cellFor(block);
  const [first, last] = pageRange(block);
  const isPaged = media.media_type === "application/pdf" && (media.pages ?? 0) > 0;
  const range = block.pages && media.pages ? `pages ${first}–${last} of ${media.pages}` : media.pages ? plural(media.pages, "page") : "";
  return (
    <figure class={`document${highlightedDigest.value === media.digest ? " lit" : ""}`} onPointerEnter={() => (highlightedDigest.value = media.digest)} onPointerLeave={() => (highlightedDigest.value = "")}>
      {isPaged && <PageStrip media={media} first={first} last={last} />}
      <figcaption>
        <FileIcon />
        <span class="clip">{facts([media.name || block.title || media.media_type, range, formatBytes(media.size_bytes)])}</span>
        {cell && <CellBadge cell={cell} />}
      </figcaption>
    </figure>
  );
}
