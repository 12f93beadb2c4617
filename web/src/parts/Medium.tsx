// A picture, a document, a sound in the conversation. What the model would get stands under it, never over it.
import { mediaUrl } from "../api/http";
import { type AudioBlock, type DocumentBlock, type ImageBlock, type MediaBlock, pageRange } from "../api/blocks";
import { litDigest } from "../state/app";
import { cellFor, openPicture } from "../state/pictures";
import { plural, size } from "../state/words";
import { CellBadge } from "./Badge";
import { FileIcon, SoundIcon } from "./icons";
import { later } from "./memo";

const PageStrip = later(() => import("../screens/opened").then((found) => found.PageStrip));

export function Medium({ block, preview = "" }: { block: MediaBlock; preview?: string }) {
  if (block.type === "image") return <PictureView block={block} preview={preview} />;
  if (block.type === "document") return <DocumentView block={block} />;
  return <AudioView block={block} />;
}

function facts(parts: (string | undefined | null | false)[]): string {
  return parts.filter(Boolean).join(" · ");
}

export function PictureView({ block, preview = "" }: { block: ImageBlock; preview?: string }) {
  const { media } = block;
  const cell = cellFor(media.digest);
  const name = media.name || "picture";
  const words = block.alt || block.description || "";
  const measure = media.width && media.height ? `${media.width}×${media.height}` : "";
  const open = (): void => openPicture(media.digest, { digest: media.digest, name, alt: words, media, page: null });
  return (
    <figure class={`picture${litDigest.value === media.digest ? " lit" : ""}`} onPointerEnter={() => (litDigest.value = media.digest)} onPointerLeave={() => (litDigest.value = "")}>
      <button type="button" class="picture-open" aria-label={`Open ${name}${measure ? `, ${measure}` : ""}`} onClick={open}>
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
        <span class="clip">{facts([name, measure, media.size_bytes > 0 && size(media.size_bytes)])}</span>
        {cell && <CellBadge cell={cell} />}
      </figcaption>
    </figure>
  );
}

function DocumentView({ block }: { block: DocumentBlock }) {
  const { media } = block;
  const cell = cellFor(media.digest);
  const [first, last] = pageRange(block);
  const isPaged = media.media_type === "application/pdf" && (media.pages ?? 0) > 0;
  const range = block.pages && media.pages ? `pages ${first}–${last} of ${media.pages}` : media.pages ? plural(media.pages, "page") : "";
  return (
    <figure class={`document${litDigest.value === media.digest ? " lit" : ""}`} onPointerEnter={() => (litDigest.value = media.digest)} onPointerLeave={() => (litDigest.value = "")}>
      {isPaged && <PageStrip media={media} first={first} last={last} />}
      <figcaption>
        <FileIcon />
        <span class="clip">{facts([media.name || block.title || media.media_type, range, size(media.size_bytes)])}</span>
        {cell && <CellBadge cell={cell} />}
      </figcaption>
    </figure>
  );
}

function AudioView({ block }: { block: AudioBlock }) {
  const { media } = block;
  return (
    <figure class="document">
      <audio controls preload="none" src={mediaUrl(media.digest, "full")} aria-label={media.name || "sound"} />
      <figcaption>
        <SoundIcon />
        <span class="clip">{facts([media.name || media.media_type, media.duration_seconds != null && `${Math.round(media.duration_seconds)} s`, size(media.size_bytes)])}</span>
      </figcaption>
      {block.transcript && <p class="dim">{block.transcript}</p>}
    </figure>
  );
}
