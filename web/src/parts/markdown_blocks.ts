// Incremental Markdown: the text is split into blocks, and only the last two are parsed again while an answer streams.
// Earlier blocks keep their identity and are not rendered again. Pure.
import { Lexer, type MarkedOptions, type Token, type TokensList } from "marked";
import { EXTENSIONS } from "./markdown_extensions";

const OPTIONS = { gfm: true, extensions: EXTENSIONS } as unknown as MarkedOptions;

export interface MarkdownBlock {
  key: number;
  raw: string;
  token: Token;
}

export class BlockReader {
  private text = "";
  private pieces: MarkdownBlock[] = [];
  private links: TokensList["links"] = {};

  read(text: string): MarkdownBlock[] {
    if (text === this.text && this.pieces.length) return this.pieces;
    if (!text.startsWith(this.text)) {
      this.pieces = [];
      this.links = {};
    }
    // The last two may still change: a table or a list continues, a paragraph becomes a heading.
    const kept = this.pieces.slice(0, -2);
    const from = kept.reduce((sum, piece) => sum + piece.raw.length, 0);
    const lexer = new Lexer(OPTIONS);
    lexer.tokens.links = { ...this.links };
    const tokens = lexer.lex(text.slice(from));
    this.links = { ...this.links, ...tokens.links };
    const old = new Map(this.pieces.map((piece) => [piece.key, piece]));
    let at = from;
    const fresh = tokens.map((token) => {
      const known = old.get(at);
      const piece = known?.raw === token.raw ? known : { key: at, raw: token.raw, token };
      at += token.raw.length;
      return piece;
    });
    this.text = text;
    // marked normalises line ends: if lengths differ, parse everything again next time.
    this.pieces = at === text.length ? [...kept, ...fresh] : [];
    return [...kept, ...fresh];
  }
}

/** Return the host of a web or mail address, or an empty string for any other. */
export function linkHost(href: string): string {
  try {
    const url = new URL(href);
    if (url.protocol === "mailto:") return url.pathname;
    return url.protocol === "https:" || url.protocol === "http:" ? url.host : "";
  } catch {
    return "";
  }
}
