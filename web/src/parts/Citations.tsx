// Sources of an answer.
import { mediaUrl } from "../api/http";
import type { Citation } from "../api/blocks";
import { lightbox } from "../state/images";

export function Citations({ citations }: { citations: Citation[] }) {
  if (!citations.length) return null;
  return (
    <ol class="citations" aria-label="Sources">
      {citations.map((one, index) => (
        <li key={index}>
          <Source citation={one} />
          {one.quote && <q>{one.quote.length > 220 ? `${one.quote.slice(0, 220)}…` : one.quote}</q>}
        </li>
      ))}
    </ol>
  );
}

function Source({ citation }: { citation: Citation }) {
  const { title, url, digest, locator, first, last } = citation;
  const place = locator === "page" ? ` p. ${first}${last !== first ? `–${last}` : ""}` : "";
  const name = title || url || "source";
  if (digest && locator === "page" && first) {
    const media = { digest, media_type: "application/pdf", size_bytes: 0, name };
    const open = (): void => {
      lightbox.value = { list: [{ digest, name: `${name} p. ${first}`, alt: `Page ${first}`, media, page: first }], at: 0 };
    };
    return <button type="button" class="link" onClick={open}>{name}{place}</button>;
  }
  if (url && /^https?:/.test(url)) return <a href={url} target="_blank" rel="noopener noreferrer nofollow">{name}{place}</a>;
  return digest ? <a href={mediaUrl(digest, "full")} download>{name}{place}</a> : <span>{name}{place}</span>;
}
