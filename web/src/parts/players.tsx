// Players for audio files and videos in the conversation.
import type { AudioBlock, VideoBlock } from "../api/blocks";
import { mediaUrl } from "../api/http";
import { highlightedDigest } from "../state/app";
import { formatBytes } from "../state/format";
import { cellFor } from "../state/images";
import { CellBadge } from "./Badge";
import { FileIcon, SoundIcon } from "./icons";
import { facts } from "./MediaFigure";

export function VideoFigure({ block }: { block: VideoBlock }) {
  const { media } = block;
  const cell = cellFor(block);
  const measure = media.width && media.height ? `${media.width}×${media.height}` : "";
  return (
    <figure class={`document video${highlightedDigest.value === media.digest ? " lit" : ""}`} onPointerEnter={() => (highlightedDigest.value = media.digest)} onPointerLeave={() => (highlightedDigest.value = "")}>
      <video controls preload="none" poster={mediaUrl(media.digest, "thumb")} src={mediaUrl(media.digest, "full")} aria-label={media.name || "video"} />
      <figcaption>
        <FileIcon />
        <span class="clip">{facts([media.name || media.media_type, measure, media.duration_seconds != null && formatSeconds(media.duration_seconds), media.codec, formatBytes(media.size_bytes)])}</span>
        {cell && <CellBadge cell={cell} />}
      </figcaption>
      {block.transcript && <p class="dim">{block.transcript}</p>}
    </figure>
  );
}

/** "8 s", "12:30": as players show it. */
function formatSeconds(seconds: number): string {
  const whole = Math.round(seconds);
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

export function AudioFigure({ block }: { block: AudioBlock }) {
  const { media } = block;
  return (
    <figure class="document">
      <audio controls preload="none" src={mediaUrl(media.digest, "full")} aria-label={media.name || "audio"} />
      <figcaption>
        <SoundIcon />
        <span class="clip">{facts([media.name || media.media_type, media.duration_seconds != null && `${Math.round(media.duration_seconds)} s`, formatBytes(media.size_bytes)])}</span>
      </figcaption>
      {block.transcript && <p class="dim">{block.transcript}</p>}
    </figure>
  );
}
