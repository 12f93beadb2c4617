// Markdown that grows: the text is cut into blocks, and only the tail is read again while an answer streams; blocks before
// it keep their identity and are not drawn again. Pure.
import { Lexer, type Token, type TokensList } from "marked";

export interface Piece {
  key: number;
  raw: string;
  token: Token;
}

export class Reader {
  private text = "";
  private pieces: Piece[] = [];
  private links: TokensList["links"] = {};

  read(text: string): Piece[] {
    if (text === this.text && this.pieces.length) return this.pieces;
    if (!text.startsWith(this.text)) {
      this.pieces = [];
      this.links = {};
    }
    // The last two may still change: a table or a list goes on, a paragraph becomes a heading.
    const kept = this.pieces.slice(0, -2);
    const from = kept.reduce((sum, piece) => sum + piece.raw.length, 0);
    const lexer = new Lexer({ gfm: true });
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
    // marked makes line ends its own: where lengths differ, the whole is read again next time.
    this.pieces = at === text.length ? [...kept, ...fresh] : [];
    return [...kept, ...fresh];
  }
}

/** The host of an address that may be followed; nothing for any other. */
export function followable(href: string): string {
  try {
    const url = new URL(href);
    if (url.protocol === "mailto:") return url.pathname;
    return url.protocol === "https:" || url.protocol === "http:" ? url.host : "";
  } catch {
    return "";
  }
}
