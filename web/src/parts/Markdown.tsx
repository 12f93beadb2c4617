// The text of an answer. Markdown becomes elements directly, never an HTML string. HTML written by a model is shown as text,
// only http, https and mailto addresses become links, and no image is loaded from another host.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Token, Tokens } from "marked";
import { CopyButton } from "./CopyButton";
import { deferred, memo } from "./components";
import type { DetailsToken, MathToken } from "./markdown_extensions";
import { linkHost, type MarkdownBlock, BlockReader } from "./markdown_blocks";

const Diagram = deferred((found) => found.Diagram);

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const reader = useMemo(() => new BlockReader(), []);
  const pieces = reader.read(text);
  const depths = pieces.flatMap(({ token }) => (token.type === "heading" ? [(token as Tokens.Heading).depth] : []));
  // A string, so that blocks are rendered again only when a new depth appears.
  const levels = [...new Set(depths)].sort().join("");
  return (
    <div class="prose">
      {pieces.map((piece) => (
        <BlockView key={piece.key} piece={piece} levels={piece.token.type === "heading" ? levels : ""} />
      ))}
    </div>
  );
});

const BlockView = memo(function BlockView({ piece, levels }: { piece: MarkdownBlock; levels: string }) {
  return <>{blockElement(piece.token, levels)}</>;
});

/** The heading of a turn is an h2. Below it no level is skipped, whatever depth an answer starts with. */
function headingLevel(depth: number, levels: string): number {
  const at = levels.indexOf(String(depth));
  return Math.min(6, 3 + (at < 0 ? depth - 1 : at));
}

// Tokens of an unknown type are shown as their source text.
type Any = Tokens.Generic;

function blockElement(given: Token, levels = ""): ComponentChildren {
  const token = given as Any;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const Heading = `h${headingLevel(token["depth"] as number, levels)}` as "h3";
      return <Heading class={`h${token["depth"]}`}>{inlineElements(token.tokens)}</Heading>;
    }
    case "paragraph":
      return <p>{inlineElements(token.tokens)}</p>;
    case "text":
      return token.tokens ? inlineElements(token.tokens) : decodeEntities(token["text"] as string);
    case "code":
      return <Code text={token["text"] as string} language={(token["lang"] as string | undefined) ?? ""} />;
    case "blockquote":
      return <blockquote>{blockElements(token.tokens)}</blockquote>;
    case "list":
      return <List list={token as Tokens.List} />;
    case "table":
      return <Table table={token as Tokens.Table} />;
    case "math":
      return <Formula {...(given as unknown as MathToken)} />;
    case "details": {
      const found = given as unknown as DetailsToken;
      return (
        <details class="fold" open={found.isOpen}>
          <summary>{inlineElements(found.summary)}</summary>
          <div class="fold-body prose">{blockElements(found.tokens)}</div>
        </details>
      );
    }
    case "hr":
      return <hr />;
    case "html":
      return <p>{token.raw.trim()}</p>;
    default:
      return inlineElements([given]);
  }
}

function blockElements(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token, index) => <Keyed key={index}>{blockElement(token)}</Keyed>);
}

function Keyed({ children }: { children: ComponentChildren }) {
  return <>{children}</>;
}

function List({ list }: { list: Tokens.List }) {
  const items = list.items.map((item, index) => (
    <li key={index} class={item.task ? "task" : undefined}>
      {item.task && <input type="checkbox" disabled checked={item.checked ?? false} aria-label={item.checked ? "Done" : "Not done"} />}
      {blockElements(item.tokens.filter((token) => token.type !== "checkbox"))}
    </li>
  ));
  return list.ordered ? <ol dir="auto" start={list.start === "" ? 1 : list.start}>{items}</ol> : <ul dir="auto">{items}</ul>;
}

/** Characters of a cell that stays in one line, and of one that needs room: a column with sentences is not narrow. */
const SHORT_CELL = 16;
const LONG_CELL = 40;

function Table({ table }: { table: Tokens.Table }) {
  const cell = (one: Tokens.TableCell, index: number): ComponentChildren => {
    const Cell = one.header ? "th" : "td";
    return <Cell key={index} class={one.text.length > LONG_CELL ? "long" : one.text.length <= SHORT_CELL ? "short" : ""} style={one.align ? { textAlign: one.align } : undefined}>{inlineElements(one.tokens)}</Cell>;
  };
  return (
    <div class="wide" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead><tr>{table.header.map(cell)}</tr></thead>
        <tbody>{table.rows.map((row, index) => <tr key={index}>{row.map(cell)}</tr>)}</tbody>
      </table>
    </div>
  );
}

function inlineElements(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token, index) => <Keyed key={index}>{inlineElement(token as Any)}</Keyed>);
}

function inlineElement(token: Any): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong>{inlineElements(token.tokens)}</strong>;
    case "em":
      return <em>{inlineElements(token.tokens)}</em>;
    case "del":
      return <del>{inlineElements(token.tokens)}</del>;
    case "codespan":
      return <code>{token["text"]}</code>;
    case "math":
      return <Formula {...(token as unknown as MathToken)} />;
    case "br":
      return <br />;
    case "link":
      return <Link href={token["href"] as string}>{inlineElements(token.tokens)}</Link>;
    case "image":
      return <RemoteImage href={token["href"] as string} name={(token["text"] as string) || "image"} />;
    case "html":
      return /^<br\s*\/?>$/i.test(token.raw) ? <br /> : token.raw;
    case "escape":
      return token["text"];
    case "text":
      return token.tokens ? inlineElements(token.tokens) : decodeEntities(token["text"] as string);
    default:
      return token.raw;
  }
}

/** A formula. Its source is shown until the renderer is loaded, and stays if it cannot be loaded. */
function Formula({ tex, raw, isDisplay }: MathToken) {
  const place = useRef<HTMLElement>(null);
  useEffect(() => {
    let isCurrent = true;
    import("./math").then(
      ({ renderMath }) => isCurrent && place.current && renderMath(tex, place.current, isDisplay),
      () => undefined, // offline: the source stays
    );
    return () => {
      isCurrent = false;
    };
  }, [tex, isDisplay]);
  const source = raw.trim();
  return isDisplay ? <div class="formula" tabIndex={0} role="group" aria-label="Formula" ref={place as never}>{source}</div> : <span class="formula-inline" ref={place as never}>{source}</span>;
}

function Link({ href, children }: { href: string; children: ComponentChildren }) {
  if (!linkHost(href)) return <>{children}</>;
  return <a href={href} target="_blank" rel="noopener noreferrer nofollow">{children}</a>;
}

/** An image in an answer could be on any host: show its name and a link instead of loading it. */
function RemoteImage({ href, name }: { href: string; name: string }) {
  const place = linkHost(href);
  return <span class="remote-image"><Link href={href}>{name}{place && ` · ${place}`}</Link></span>;
}

let decoder: HTMLTextAreaElement | undefined;

/** Decode `&amp;` and other entities. A textarea holds text only: nothing in it can become an element. */
function decodeEntities(text: string): string {
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
  if (name === "mermaid") return <Diagram source={text} />;
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
