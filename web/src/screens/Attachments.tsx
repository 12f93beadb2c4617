// Attachments of the message: a chip with preview, upload progress and page range; failures with what to do about them.
import { useSignal } from "@preact/signals";
import { mediaUrl } from "../api/http";
import { CloseIcon, FileIcon, SoundIcon, WarnIcon } from "../parts/icons";
import { PageStrip } from "../parts/PageStrip";
import { detach, insertAsText, isTextFile, retry, wantsPassword } from "../state/attaching";
import { type Attachment, attachments, failed, update } from "../state/composer";
import { formatBytes } from "../state/format";

export function Attachments() {
  const openKey = useSignal("");
  const list = attachments.value;
  if (!list.length) return null;
  const open = list.find((one) => one.key === openKey.value);
  const document = open?.block?.type === "document" && open.block.media.pages ? open.block : null;
  return (
    <div class="attached">
      {failed.value.map((one) => <FailedAttachment key={one.key} attachment={one} />)}
      {failed.value.length > 0 && <p class="dim">To send the message, retry or remove {failed.value.length === 1 ? "this attachment" : "these attachments"}.</p>}
      <ul class="attachments" aria-label="Attachments">
        {list.map((one) => (
          <Chip key={one.key} attachment={one} isOpen={document !== null && open === one} onPages={() => (openKey.value = openKey.value === one.key ? "" : one.key)} />
        ))}
      </ul>
      {list.flatMap((one) => one.notices.map((words) => <p key={one.key + words} class="notice">{words}</p>))}
      {open && document && <PageStrip media={document.media} first={open.pages?.[0] ?? 1} last={open.pages?.[1] ?? document.media.pages ?? 1} onRange={(first, last) => update(open.key, { pages: [first, last] })} />}
    </div>
  );
}

function Chip({ attachment, isOpen, onPages }: { attachment: Attachment; isOpen: boolean; onPages: () => void }) {
  const { name, block, pages, fraction, problem } = attachment;
  const total = block?.type === "document" ? block.media.pages : undefined;
  const pixels = block?.type === "image" && block.media.width ? `${block.media.width}×${block.media.height}` : "";
  return (
    <li class={`attachment${problem ? " failed" : ""}`}>
      <span class="attachment-preview"><Preview attachment={attachment} /></span>
      <span class="attachment-text">
        <span class="clip">{name}</span>
        <span class="dim clip">
          {problem ? "Not attached" : fraction !== null ? (
            <progress value={fraction} aria-label={`Uploading ${name}`} />
          ) : total && pages ? (
            <button type="button" class="link" aria-expanded={isOpen} onClick={onPages}>
              pages {pages[0]}–{pages[1]} of {total}
            </button>
          ) : (
            [pixels, formatBytes(attachment.bytes)].filter(Boolean).join(" · ")
          )}
        </span>
      </span>
      <button type="button" class="icon" aria-label={fraction !== null ? `Cancel ${name}` : `Remove ${name}`} onClick={() => detach(attachment.key)}><CloseIcon /></button>
    </li>
  );
}

function FailedAttachment({ attachment }: { attachment: Attachment }) {
  const { key, name, problem, file } = attachment;
  const password = useSignal("");
  const unlock = () => password.value && retry(key, password.value);
  return (
    <div class="failed-attachment" role="alert">
      <p><strong>{name}</strong>{reasonWithout(name, problem?.message ?? "")} {wantsPassword(attachment) ? "Enter its password; an unlocked copy is stored, the password is not." : problem?.hint}</p>
      {wantsPassword(attachment) && (
        <div class="buttons">
          <input type="password" aria-label={`Password of ${name}`} autocomplete="off" value={password.value} onInput={(event) => (password.value = event.currentTarget.value)} onKeyDown={(event) => event.key === "Enter" && (event.preventDefault(), unlock())} />
          <button type="button" disabled={!password.value} onClick={unlock}>Unlock</button>
        </div>
      )}
      <div class="buttons">
        {file && <button type="button" onClick={() => retry(key)}>Retry</button>}
        {isTextFile(attachment) && <button type="button" onClick={() => void insertAsText(key)}>Insert as text</button>}
        <button type="button" onClick={() => detach(key)}>Remove</button>
      </div>
    </div>
  );
}

/** Most messages begin with the name of the file, which is shown already. */
function reasonWithout(name: string, message: string): string {
  return message.startsWith(`${name} `) ? message.slice(name.length) : `: ${message}`;
}

function Preview({ attachment }: { attachment: Attachment }) {
  const { block, preview, problem } = attachment;
  if (problem) return <WarnIcon />;
  if (preview) return <img src={preview} alt="" />;
  if (block?.type === "image" || block?.type === "video") return <img src={mediaUrl(block.media.digest, "thumb")} alt="" />;
  if (block?.type === "document" && block.media.media_type === "application/pdf") return <img src={mediaUrl(block.media.digest, "thumb:1")} alt="" />;
  return block?.type === "audio" ? <SoundIcon /> : <FileIcon />;
}
