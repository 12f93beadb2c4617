// An answer's words. Markdown becomes elements directly, never HTML text: what a model writes as HTML is shown as it stands,
// addresses other than web and mail are not links, and no picture is fetched from elsewhere.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Token, Tokens } from "marked";
import { CheckIcon, CopyIcon } from "./icons";
import { memo } from "./memo";
import { followable, type Piece, Reader } from "./reading";

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const reader = useMemo(() => new Reader(), []);
  return (
    <div class="prose">
      {reader.read(text).map((piece) => (
        <PieceView key={piece.key} piece={piece} />
      ))}
    </div>
  );
});

const PieceView = memo(function PieceView({ piece }: { piece: Piece }) {
  return <>{block(piece.token)}</>;
});

// Unknown tokens come from no extension of ours: their own words are shown.
type Any = Tokens.Generic;

function block(given: Token): ComponentChildren {
  const token = given as Any;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      // A turn's own heading is an h2.
      const Heading = `h${Math.min(6, (token["depth"] as number) + 2)}` as "h3";
      return <Heading class={`h${token["depth"]}`}>{inline(token.tokens)}</Heading>;
    }
    case "paragraph":
      return <p>{inline(token.tokens)}</p>;
    case "text":
      return token.tokens ? inline(token.tokens) : plain(token["text"] as string);
    case "code":
      return <Code text={token["text"] as string} language={(token["lang"] as string | undefined) ?? ""} />;
    case "blockquote":
      return <blockquote>{blocks(token.tokens)}</blockquote>;
    case "list":
      return <List list={token as Tokens.List} />;
    case "table":
      return <Table table={token as Tokens.Table} />;
    case "hr":
      return <hr />;
    case "html":
      return <p>{token.raw.trim()}</p>;
    default:
      return inline([given]);
  }
}

function blocks(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token, index) => <Keyed key={index}>{block(token)}</Keyed>);
}

function Keyed({ children }: { children: ComponentChildren }) {
  return <>{children}</>;
}

function List({ list }: { list: Tokens.List }) {
  const items = list.items.map((item, index) => (
    <li key={index} class={item.task ? "task" : undefined}>
      {item.task && <input type="checkbox" disabled checked={item.checked ?? false} aria-label={item.checked ? "done" : "open"} />}
      {blocks(item.tokens.filter((token) => token.type !== "checkbox"))}
    </li>
  ));
  return list.ordered ? <ol dir="auto" start={list.start === "" ? 1 : list.start}>{items}</ol> : <ul dir="auto">{items}</ul>;
}

function Table({ table }: { table: Tokens.Table }) {
  const cell = (one: Tokens.TableCell, index: number): ComponentChildren => {
    const Cell = one.header ? "th" : "td";
    return <Cell key={index} style={one.align ? { textAlign: one.align } : undefined}>{inline(one.tokens)}</Cell>;
  };
  return (
    <div class="wide" tabIndex={0} role="group" aria-label="table">
      <table>
        <thead><tr>{table.header.map(cell)}</tr></thead>
        <tbody>{table.rows.map((row, index) => <tr key={index}>{row.map(cell)}</tr>)}</tbody>
      </table>
    </div>
  );
}

function inline(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token, index) => <Keyed key={index}>{span(token as Any)}</Keyed>);
}

function span(token: Any): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong>{inline(token.tokens)}</strong>;
    case "em":
      return <em>{inline(token.tokens)}</em>;
    case "del":
      return <del>{inline(token.tokens)}</del>;
    case "codespan":
      return <code>{token["text"]}</code>;
    case "br":
      return <br />;
    case "link":
      return <Link href={token["href"] as string}>{inline(token.tokens)}</Link>;
    case "image":
      return <Far href={token["href"] as string} name={(token["text"] as string) || "picture"} />;
    case "html":
      return /^<br\s*\/?>$/i.test(token.raw) ? <br /> : token.raw;
    case "escape":
      return token["text"];
    case "text":
      return token.tokens ? inline(token.tokens) : plain(token["text"] as string);
    default:
      return token.raw;
  }
}

function Link({ href, children }: { href: string; children: ComponentChildren }) {
  if (!followable(href)) return <>{children}</>;
  return <a href={href} target="_blank" rel="noopener noreferrer nofollow">{children}</a>;
}

/** A picture in an answer would be fetched from wherever its author likes: it is named, and a click opens it. */
function Far({ href, name }: { href: string; name: string }) {
  const place = followable(href);
  return <span class="far"><Link href={href}>{name}{place && ` · ${place}`}</Link></span>;
}

let decoder: HTMLTextAreaElement | undefined;

/** `&amp;` and its like. A textarea holds text only: nothing in it can become an element. */
function plain(text: string): string {
  if (!/&[#\w]+;/.test(text)) return text;
  decoder ??= document.createElement("textarea");
  decoder.innerHTML = text;
  return decoder.value;
}

export function Code({ text, language }: { text: string; language: string }) {
  const code = useRef<HTMLElement>(null);
  const name = /^[\w+#-]+/.exec(language)?.[0] ?? "";
  useEffect(() => {
    const element = code.current;
    if (!element) return;
    element.textContent = text;
    if (!name) return;
    let isCurrent = true;
    void import("./highlight").then(({ highlight }) => {
      const html = highlight(text, name);
      if (isCurrent && html !== null) element.innerHTML = html;
    });
    return () => {
      isCurrent = false;
    };
  }, [text, name]);
  return (
    <figure class="code">
      <figcaption>
        <span>{name || "text"}</span>
        <CopyButton text={text} label="Copy code" />
      </figcaption>
      <pre tabIndex={0}>
        <code ref={code} />
      </pre>
    </figure>
  );
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="icon" aria-label={isDone ? "Copied" : label} title={label} onClick={() => void copy()}>
      {isDone ? <CheckIcon /> : <CopyIcon />}
    </button>
  );
}
