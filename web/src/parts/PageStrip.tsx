// The pages of a document in a row. With `onRange`, two sliders choose the pages that are sent.
import { useRef } from "preact/hooks";
import { mediaUrl } from "../api/http";
import type { Media } from "../api/blocks";
import { lightbox } from "../state/images";

const SHOWN = 60;

interface Props {
  media: Media;
  first: number;
  last: number;
  onRange?: (first: number, last: number) => void;
}

export function PageStrip({ media, first, last, onRange }: Props) {
  const total = media.pages ?? 1;
  const from = onRange ? 1 : first;
  const shown = Math.min(onRange ? total : last - first + 1, SHOWN);
  const numbers = Array.from({ length: shown }, (_, index) => from + index);
  const hidden = (onRange ? total : last - first + 1) - shown;
  const open = (page: number): void => {
    const list = numbers.map((number) => ({ digest: media.digest, name: `${media.name ?? "document"} p. ${number}`, alt: `Page ${number}`, media, page: number }));
    lightbox.value = { list, at: list.findIndex((one) => one.page === page) };
  };
  return (
    <div class="pages">
      <ol class="page-row" aria-label={`Pages of ${media.name ?? "the document"}`}>
        {numbers.map((number) => (
          <li key={number} class={number >= first && number <= last ? "in" : "out"}>
            <button type="button" aria-label={`Open page ${number}`} onClick={() => open(number)}>
              <img src={mediaUrl(media.digest, `thumb:${number}`)} alt="" loading="lazy" decoding="async" />
              <span>{number}</span>
            </button>
          </li>
        ))}
        {hidden > 0 && <li class="more">+{hidden}</li>}
      </ol>
      {onRange && total > 1 && <Range total={total} first={first} last={last} onRange={onRange} />}
    </div>
  );
}

/** Two native sliders on one track: arrow keys, touch and screen readers work as everywhere. */
function Range({ total, first, last, onRange }: { total: number; first: number; last: number; onRange: (first: number, last: number) => void }) {
  const track = useRef<HTMLDivElement>(null);
  const percent = (page: number): string => `${((page - 1) / Math.max(total - 1, 1)) * 100}%`;
  return (
    <div class="range" ref={track}>
      <div class="range-track" style={{ "--from": percent(first), "--to": percent(last) }} />
      <input type="range" aria-label="First page" min={1} max={total} value={first} aria-valuetext={`page ${first}`} onInput={(event) => onRange(Math.min(Number(event.currentTarget.value), last), last)} />
      <input type="range" aria-label="Last page" min={1} max={total} value={last} aria-valuetext={`page ${last}`} onInput={(event) => onRange(first, Math.max(Number(event.currentTarget.value), first))} />
    </div>
  );
}
