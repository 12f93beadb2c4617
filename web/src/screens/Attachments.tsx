// What goes along with the message: chips with a picture, progress, and the pages of a document.
import { useSignal } from "@preact/signals";
import { mediaUrl } from "../api/http";
import { CloseIcon, FileIcon, SoundIcon, WarnIcon } from "../parts/icons";
import { later } from "../parts/memo";
import { type Attachment, attachments, detach, update } from "../state/composer";
import { size } from "../state/words";

const PageStrip = later(() => import("./opened").then((found) => found.PageStrip));

export function Attachments() {
  const openKey = useSignal("");
  const list = attachments.value;
  if (!list.length) return null;
  const open = list.find((one) => one.key === openKey.value && one.block?.type === "document" && one.block.media.pages);
  return (
    <>
      <ul class="attachments" aria-label="Attachments">
        {list.map((one) => (
          <Chip key={one.key} attachment={one} isOpen={open?.key === one.key} onPages={() => (openKey.value = openKey.value === one.key ? "" : one.key)} />
        ))}
      </ul>
      {list.flatMap((one) => one.notices.map((words) => <p key={one.key + words} class="notice">{words}</p>))}
      {open?.block && <PageStrip media={open.block.media} first={open.pages?.[0] ?? 1} last={open.pages?.[1] ?? open.block.media.pages ?? 1} onRange={(first, last) => update(open.key, { pages: [first, last] })} />}
    </>
  );
}

function Chip({ attachment, isOpen, onPages }: { attachment: Attachment; isOpen: boolean; onPages: () => void }) {
  const { name, block, pages, fraction, problem } = attachment;
  const total = block?.type === "document" ? block.media.pages : undefined;
  return (
    <li class={`attachment${problem ? " failed" : ""}`}>
      <span class="attachment-face"><Face attachment={attachment} /></span>
      <span class="attachment-words">
        <span class="clip">{name}</span>
        <span class="dim clip">
          {problem ? problem.message : fraction !== null ? (
            <progress value={fraction} aria-label={`Uploading ${name}`} />
          ) : total && pages ? (
            <button type="button" class="link" aria-expanded={isOpen} onClick={onPages}>
              pages {pages[0]}–{pages[1]} of {total}
            </button>
          ) : (
            [block && "width" in block.media && block.media.width ? `${block.media.width}×${block.media.height}` : "", size(attachment.bytes)].filter(Boolean).join(" · ")
          )}
        </span>
      </span>
      <button type="button" class="icon" aria-label={fraction !== null ? `Cancel ${name}` : `Remove ${name}`} onClick={() => detach(attachment.key)}><CloseIcon /></button>
    </li>
  );
}

function Face({ attachment }: { attachment: Attachment }) {
  const { block, preview, problem } = attachment;
  if (problem) return <WarnIcon />;
  if (preview) return <img src={preview} alt="" />;
  if (block?.type === "image") return <img src={mediaUrl(block.media.digest, "thumb")} alt="" />;
  if (block?.type === "document" && block.media.media_type === "application/pdf") return <img src={mediaUrl(block.media.digest, "thumb:1")} alt="" />;
  return block?.type === "audio" ? <SoundIcon /> : <FileIcon />;
}
