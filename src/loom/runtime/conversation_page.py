"""A conversation as one HTML page for people to read: rendered Markdown, highlighted code, images inside.

The page contains no script and loads nothing from a server. Raw HTML in a message is shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from loom.content.blocks import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    VideoBlock,
)
from loom.content.messages import join_texts, sources_of, text_file_in, text_of
from loom.content.terminal_safe import safe_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

    from loom.store.nodes import Node

_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_HIGHLIGHTED_CHARS: Final = 50_000
_SUMMARY_CHARS: Final = 100
_UNFINISHED: Final = {
    "cancelled": "Stopped. This answer is incomplete.",
    "interrupted": "Interrupted. This answer is incomplete.",
    "incomplete": "This answer is incomplete.",
}
# As in Pandoc: no space inside the dollars and no digit after them, so that prices stay prices.
_MATH: Final = re.compile(
    r"\$\$.+?\$\$|\\\[.+?\\\]|\\\(.+?\\\)|\$(?![\s$])(?:\\[^\n]|[^\\$\n])*?(?<![\\\s])\$(?!\d)", re.DOTALL
)
_DETAILS: Final = re.compile(
    r"(?P<open><details(?:\s+open)?>)?\s*(?:<summary>(?P<summary>.*?)</summary>)?\s*(?P<close></details>)?",
    re.IGNORECASE,
)
_SUMMARY: Final = re.compile("<summary>(.*?)</summary>", re.IGNORECASE)
_OPEN: Final = "open details"
_STYLE: Final = """
:root { color-scheme: light dark; --ground: light-dark(#faf9f6, #131519); --shade: light-dark(#f2f0ea, #1e2127);
  --line: light-dark(#e4e0d7, #2b2f37); --ink: light-dark(#1c1b19, #eceae5); --dim: light-dark(#625e55, #a19f98);
  --accent: light-dark(#0b6b5d, #56cdb8); --warm: light-dark(#7a4d00, #f0bd68); --danger: light-dark(#a3271b, #ff9d8f);
  --mono: ui-monospace, "SF Mono", Menlo, "Liberation Mono", "DejaVu Sans Mono", monospace; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 48rem; padding: 2rem 1rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: break-word; }
header { border-bottom: 1px solid var(--line); margin-bottom: 1.5rem; padding-bottom: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; }
h2.author { font-size: .85rem; margin: 0 0 .4rem; display: flex; gap: .75rem; align-items: baseline; }
time, .facts, figcaption, .sources { color: var(--dim); font-size: .8rem; font-weight: normal; }
article { margin: 1.5rem 0; } article > :last-child { margin-bottom: 0; }
article.user { background: var(--shade); border-radius: 16px; padding: 1rem 1.1rem; }
.said { white-space: pre-wrap; margin: 0; }
:is(h2, h3, h4, h5, h6):not(.author) { line-height: 1.3; margin: 1.4em 0 .5em; font-size: 1.15rem; }
p, ul, ol, blockquote, pre, .table, figure, details { margin: .8rem 0; }
a { color: var(--accent); } img { max-width: 100%; height: auto; border-radius: 10px; border: 1px solid var(--line); }
figure { margin-inline: 0; } blockquote { border-inline-start: 3px solid var(--line); padding-inline-start: 1rem; }
blockquote, .thinking { color: var(--dim); } hr { border: 0; border-top: 1px solid var(--line); }
code, pre { font-family: var(--mono); font-size: .85em; }
:not(pre) > code { background: var(--shade); border-radius: 4px; padding: .1em .3em; }
pre { background: var(--shade); border: 1px solid var(--line); border-radius: 10px; padding: .8rem; overflow-x: auto;
  line-height: 1.5; } pre.plain { white-space: pre-wrap; overflow-wrap: anywhere; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { border-bottom: 1px solid var(--line); padding: .45rem .8rem; text-align: start; }
details { border: 1px solid var(--line); border-radius: 10px; padding: .5rem .8rem; } summary { cursor: pointer; }
.error summary { color: var(--danger); } .note { color: var(--warm); font-size: .85rem; }
pre span[class^=k], pre .ow { color: light-dark(#7a2f9b, #c9a0f0); }
pre span[class^=s] { color: light-dark(#17663c, #8ed8a8); } pre span[class^=m] { color: light-dark(#9a4a00, #f0bd68); }
pre span[class^=c] { color: var(--dim); font-style: italic; }
pre :is(.nf, .nc, .nb, .nt) { color: light-dark(#23568f, #8fc0f5); }
@media print { body { max-width: none; padding: 0; } details:not([open]) { display: none; } }
"""

Mask = Callable[[str], str]
"""Removes what must not leave this machine from a text."""


class PageImage(msgspec.Struct, frozen=True):
    """The source of an image as a data URL, or the problem that it could not be read."""

    source: str = ""
    problem: str = ""


def conversation_page(
    title: str, system: str, nodes: Sequence[Node], images: Mapping[str, PageImage], mask: Mask
) -> str:
    """Return the page. `images` has an entry for the digest of every image. Every text goes through `mask` before it is
    rendered, because markup may split what `mask` looks for."""
    page = _Page(images, mask)
    name = page.escape(" ".join(title.split()) or "Conversation")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{name}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f'<header><h1 dir="auto">{name}</h1><p class="facts">{page.escape(_facts(nodes))}</p></header><main>',
    ]
    if system:
        parts.append(
            f'<details><summary>System prompt</summary><pre class="plain">{page.escape(system)}</pre></details>'
        )
    parts += [page.article(group) for group in _speakers(nodes)]
    return "\n".join([*parts, "</main></body></html>\n"])


def _facts(nodes: Sequence[Node]) -> str:
    written = [node for node in nodes if node.message is not None and node.message.role != "tool"]
    models = dict.fromkeys(str(node.meta["model"]) for node in nodes if node.meta.get("model"))
    count = f"{len(written)} message{'' if len(written) == 1 else 's'}"
    begun = written[0].created_at if written else 0.0
    day = [f"{datetime.fromtimestamp(begun, UTC):%Y-%m-%d}"] if begun > 0 else []
    return " · ".join([*day, count, *models])


def _time(seconds: float) -> str:
    if seconds <= 0:
        return ""
    moment = datetime.fromtimestamp(seconds, UTC)
    return f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}">{moment:%Y-%m-%d %H:%M} UTC</time>'


def _speakers(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Yield the nodes of each speaker: an answer with its tool results is one group."""
    group: list[Node] = []
    for node in nodes:
        if node.message is None:
            continue
        if group and (node.message.role == "user" or _is_user(group[0])):
            yield group
            group = []
        group.append(node)
    if group:
        yield group


def _is_user(node: Node) -> bool:
    return node.message is not None and node.message.role == "user"


class _Page:
    def __init__(self, images: Mapping[str, PageImage], mask: Mask) -> None:
        self._images = images
        self._mask = mask

    def escape(self, text: str) -> str:
        return escape(safe_text(self._mask(text)))

    def article(self, nodes: Sequence[Node]) -> str:
        first = nodes[0]
        is_user = _is_user(first)
        name = (
            "You" if is_user else str(next((node.meta["model"] for node in nodes if node.meta.get("model")), "Answer"))
        )
        blocks = [block for node in nodes if node.message is not None for block in node.message.blocks]
        if is_user and first.source == "system":
            inner = "".join(f'<pre class="plain">{self.escape(text_of(block))}</pre>' for block in blocks)
            return f"<details><summary>Note to the model</summary>{inner}</details>"
        results = {block.call_id: block for block in blocks if isinstance(block, ToolResult)}
        calls = {block.id for block in blocks if isinstance(block, ToolCall)}
        shown = [block for block in blocks if not (isinstance(block, ToolResult) and block.call_id in calls)]
        shown = shown if is_user else join_texts(shown)
        body = "".join(self._block(block, results, is_user=is_user) for block in shown)
        if sources := [source for node in nodes if node.message is not None for source in sources_of(node.message)]:
            body += f'<p class="sources">Sources: {self.escape(", ".join(dict.fromkeys(sources)))}</p>'
        if note := _UNFINISHED.get(str(nodes[-1].meta.get("finish_reason", ""))):
            body += f'<p class="note">{note}</p>'
        heading = f'<h2 class="author">{self.escape(name)} {_time(first.created_at)}</h2>'
        return f'<article class="{"user" if is_user else "answer"}">{heading}{body}</article>'

    def _block(self, block: Block, results: Mapping[str, ToolResult], *, is_user: bool) -> str:
        match block:
            case TextBlock():
                return self._text(block.text, is_user=is_user)
            case ThinkingBlock():
                inner = f'<p class="said thinking">{self.escape(text_of(block))}</p>'
                return f"<details><summary>Thinking</summary>{inner}</details>"
            case ImageBlock():
                return self._figure(block)
            case ToolCall():
                return self._call(block, results.get(block.id))
            case ToolResult():
                return self._details(block.name or "Result", self._result(block), is_error=block.is_error)
            case DocumentBlock() | AudioBlock() | VideoBlock() | UnknownBlock():
                return f'<p class="facts">{self.escape(text_of(block))}</p>'
            case _:
                assert_never(block)

    def _text(self, text: str, *, is_user: bool) -> str:
        if file := text_file_in(text):
            name, content = file
            return self._details(name, f'<pre class="plain">{self.escape(content)}</pre>')
        if is_user:
            return f'<p class="said" dir="auto">{self.escape(text)}</p>'
        open_details: dict[str, int] = {}
        html = _markdown().render(safe_text(self._mask(text)), open_details)
        return html + "</details>" * open_details.get(_OPEN, 0)

    def _call(self, call: ToolCall, result: ToolResult | None) -> str:
        arguments = msgspec.json.format(msgspec.json.encode(call.arguments), indent=2).decode()
        inner = f'<pre class="plain">{self.escape(arguments)}</pre>' if call.arguments else ""
        values = " ".join(str(value) for value in call.arguments.values())
        brief = " ".join(values.split())[:_SUMMARY_CHARS]
        is_error = result is not None and result.is_error
        inner += self._result(result) if result is not None else ""
        return self._details(call.name, inner, brief, is_error=is_error)

    def _result(self, result: ToolResult) -> str:
        return "".join(
            self._figure(block)
            if isinstance(block, ImageBlock)
            else f'<pre class="plain">{self.escape(text_of(block))}</pre>'
            for block in result.blocks
        )

    def _details(self, name: str, inner: str, brief: str = "", *, is_error: bool = False) -> str:
        code = f" <code>{self.escape(brief)}</code>" if brief else ""
        failed = " (failed)" if is_error else ""
        kind = ' class="error"' if is_error else ""
        return f"<details{kind}><summary>{self.escape(name)}{code}{failed}</summary>{inner}</details>"

    def _figure(self, block: ImageBlock) -> str:
        label = self.escape(text_of(block))
        image = self._images[block.media.digest]
        if not image.source:
            return f'<p class="facts">{label} ({self.escape(image.problem)})</p>'
        caption = f"<figcaption>{self.escape(block.media.name)}</figcaption>" if block.media.name else ""
        return f'<figure><img alt="{label}" src="{image.source}">{caption}</figure>'


# Markdown -------------------------------------------------------------------------------------------------------------


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "linkify": True, "highlight": _highlight})
    made.enable(["table", "strikethrough", "linkify"])
    made.disable("image")  # a remote image would be a request to its server
    made.inline.ruler.before("escape", "math", _take_math)
    made.block.ruler.before("paragraph", "details", _take_details, {"alt": ["paragraph"]})
    for name, rule in _RENDER_RULES.items():
        made.add_render_rule(name, rule)
    return made


def _render_math(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    return f"<code>{escape(tokens[at].content)}</code>"


def _open_heading(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    return f'<h{_level(tokens[at])} dir="auto">'


def _close_heading(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    return f"</h{_level(tokens[at])}>\n"


def _level(token: Token) -> int:
    """Headings of an answer are below the title of the page and the names of the speakers."""
    return min(6, int(token.tag[1]) + 2)


def _open_paragraph(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    return "" if tokens[at].hidden else '<p dir="auto">'


def _open_link(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    return f'<a href="{escape(str(tokens[at].attrs["href"]))}" rel="noreferrer nofollow">'


def _open_table(*_: object) -> str:
    return '<div class="table"><table>\n'


def _close_table(*_: object) -> str:
    return "</table></div>\n"


def _take_math(state: StateInline, silent: bool) -> bool:
    """Take TeX as it is: a backslash before a parenthesis is no escape there."""
    if state.src[state.pos] not in "$\\" or not (found := _MATH.match(state.src, state.pos)):
        return False
    if not silent:
        state.push("math", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _take_details(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take a line of `<details>` or `</details>`, and the summary behind or below it. An end without a beginning stays
    text."""
    found = _DETAILS.fullmatch(_line(state, start)) if state.level == 0 else None
    depth = state.env.get(_OPEN, 0)
    if found is None or not (found["open"] or (found["close"] and depth)):
        return False
    if silent:
        return True
    state.line = start + 1
    summary = found["summary"]
    if found["open"] and summary is None and start + 1 < end and (below := _SUMMARY.fullmatch(_line(state, start + 1))):
        summary = below[1]
        state.line += 1
    opened = f"<details><summary>{escape(summary or 'Details')}</summary>\n" if found["open"] else ""
    state.push("details", "", 0).content = opened + ("</details>\n" if found["close"] else "")
    state.env[_OPEN] = depth + bool(found["open"]) - bool(found["close"])
    return True


def _line(state: StateBlock, at: int) -> str:
    return state.src[state.bMarks[at] + state.tShift[at] : state.eMarks[at]].strip()


def _render_details(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    return tokens[at].content


def _highlight(code: str, language: str, _: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType] - its options are untyped
    from pygments.util import ClassNotFound

    if not language or len(code) > _HIGHLIGHTED_CHARS:
        return ""
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return ""
    return highlight(code, lexer, HtmlFormatter(nowrap=True))


_RENDER_RULES: Final[dict[str, Callable[..., str]]] = {
    "math": _render_math,
    "details": _render_details,
    "heading_open": _open_heading,
    "heading_close": _close_heading,
    "paragraph_open": _open_paragraph,
    "link_open": _open_link,
    "table_open": _open_table,
    "table_close": _close_table,
}
