// Extensions of the Markdown lexer: math in TeX ($…$, $$…$$, \(…\), \[…\]) and <details>. Pure.
import type { Lexer, Token, TokenizerThis } from "marked";

export interface MathToken {
  type: "math";
  raw: string;
  tex: string;
  isDisplay: boolean;
}

export interface DetailsToken {
  type: "details";
  raw: string;
  isOpen: boolean;
  summary: Token[];
  tokens: Token[];
}

const DISPLAY = /^(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])/;
// As in Pandoc: no space inside the dollars and no digit after them, so that prices stay prices.
const INLINE = /^(?:\$(?![\s$])((?:\\[^\n]|[^\\$\n])*?[^\\$\s])\$(?!\d)|\\\(([\s\S]+?)\\\))/;
const REST_OF_LINE = /^[ \t]*(?:\n|$)/;

function mathToken(source: string, pattern: RegExp, isDisplay: boolean): MathToken | undefined {
  const found = pattern.exec(source);
  const tex = found?.[1] ?? found?.[2];
  return found && tex?.trim() ? { type: "math", raw: found[0], tex: tex.trim(), isDisplay } : undefined;
}

function blockMath(source: string): MathToken | undefined {
  const token = mathToken(source, DISPLAY, true);
  const rest = token && REST_OF_LINE.exec(source.slice(token.raw.length));
  // Words behind it on the same line: it is part of a paragraph.
  return token && rest ? { ...token, raw: token.raw + rest[0] } : undefined;
}

function inlineMath(source: string): MathToken | undefined {
  return mathToken(source, DISPLAY, true) ?? mathToken(source, INLINE, false);
}

const DETAILS_OPEN = /^<details(\s[^>]*)?>/i;
const SUMMARY = /^\s*<summary(?:\s[^>]*)?>([\s\S]*?)<\/summary>/i;

/** `<details>` up to its own closing tag. Attributes other than `open` are ignored. */
function details(lexer: Lexer, source: string): DetailsToken | undefined {
  const open = DETAILS_OPEN.exec(source);
  if (!open) return undefined;
  let depth = 0;
  for (const tag of source.matchAll(/<(\/?)details\b[^>]*>/gi)) {
    depth += tag[1] ? -1 : 1;
    if (depth > 0) continue;
    const end = tag.index + tag[0].length;
    const inner = source.slice(open[0].length, tag.index);
    const head = SUMMARY.exec(inner);
    const body = head ? inner.slice(head[0].length) : inner;
    const rest = REST_OF_LINE.exec(source.slice(end))?.[0] ?? "";
    return { type: "details", raw: source.slice(0, end) + rest, isOpen: /\sopen\b/i.test(open[1] ?? ""), summary: lexer.inlineTokens(head?.[1]?.trim() || "Details"), tokens: lexer.blockTokens(`${body.trim()}\n`) };
  }
  return undefined;
}

function indexOf(source: string, pattern: RegExp): number | undefined {
  return pattern.exec(source)?.index;
}

/** For the `extensions` option of the lexer. */
export const EXTENSIONS = {
  block: [
    function (this: TokenizerThis, source: string) {
      return blockMath(source) ?? details(this.lexer as Lexer, source);
    },
  ],
  inline: [(source: string) => inlineMath(source)],
  startBlock: [(source: string) => indexOf(source, /\n(?=\$\$|\\\[|<details)/i)],
  startInline: [(source: string) => indexOf(source, /\$|\\\(|\\\[/)],
  childTokens: {},
  renderers: {},
};
