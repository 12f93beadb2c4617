"""Renderers of a turn: text, JSON or a terminal with Markdown and images; and the lines below an answer."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TextIO

import click
import msgspec

from loom.agent.output import read_output
from loom.cli.shared import terminal_images
from loom.cli.shared.rich_stream import RichStream, draw_dim, draw_markdown
from loom.cli.shared.terminal import (
    GLYPHS,
    Colors,
    has_color,
    is_plain,
    money_label,
    one_line,
    print_line,
    safe_text,
    tokens_label,
    width,
)
from loom.content.blocks import ContentBlock, DocumentBlock, ImageBlock, TextBlock, ToolCall
from loom.content.messages import failure_of_command, text_of
from loom.content.recipes import Fit
from loom.errors import LoomError, OutputInvalid
from loom.estimates import discard_label
from loom.events import (
    Cited,
    Event,
    ImageAdded,
    NoticeRaised,
    StepStarted,
    TextDelta,
    TextSealed,
    ThinkingDelta,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    UsageReported,
)
from loom.formats import ocr, render
from loom.models import Usage
from loom.prompt import Receipt, ReceiptRow
from loom.runtime import FIRST_CHOICES, Runtime, key_for
from loom.sampling import OutputSchema

_ARGUMENTS_WIDTH: Final = 100
_UNSEEN: Final = " gets "


class TurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a turn. `error` is set if it failed; its partial answer is stored all the same."""

    session: str
    model: str
    text: str = ""
    reasoning: str = ""
    node: str = ""
    stop: str | None = None
    usage: Usage = Usage()
    estimated_tokens: int = 0
    """The estimated tokens of the turn's requests, from before they were sent."""
    usd: float | None = None
    seconds: float = 0.0
    tool_calls: int = 0
    receipt: Receipt | None = None
    notices: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    """Hints about media that the model received only as text."""
    error: LoomError | None = None


class TurnRenderer(Protocol):
    async def begin(self, session: str, model: str, said: str) -> None: ...

    async def event(self, event: Event) -> None: ...

    async def finish(self, outcome: TurnOutcome) -> None: ...


class TextRenderer:
    """Writes plain text to stdout, tool calls to stderr. With `streams` False, the text is written when it is complete;
    with `shows_reasoning`, thinking is written to stderr."""

    def __init__(self, *, streams: bool = True, shows_reasoning: bool = True) -> None:
        self.out: TextIO = sys.stdout
        self._streams = streams
        self._shows_reasoning = shows_reasoning
        self._ink = Colors(sys.stderr)
        self._whole: list[str] = []
        self._at_line_start = True
        self._thinking = False
        self._thoughts = RichStream(draw_dim, width()) if has_color(sys.stderr) else None
        self._unseen: list[str] = []
        """Notices about media that the model did not receive; printed at the end, where hints may replace them."""

    async def begin(self, session: str, model: str, said: str) -> None:
        """Write nothing: output starts with the first event."""

    async def event(self, event: Event) -> None:
        if not isinstance(event, ThinkingDelta):
            self._end_thinking()
        match event:
            case TextDelta():
                self._text(event.text)
            case ThinkingDelta() if self._shows_reasoning:
                self._think(event.text)
            case StepStarted() if event.step > 1:
                self.end_line()
            case ImageAdded():
                self.end_line()
                await self.picture(event.image)
            case ToolStarted():
                self.end_line()
                self._write_progress(f"⚒ {call_label(event.call)}")
            case ToolProgressed():
                self._write_progress(f"  {one_line(event.text)}")
            case ToolFinished():
                has_failed = event.result.is_error or failure_of_command(event.result)
                self._write_progress(f"{'✖' if has_failed else '✔'} {result_label(event)}")
                for block in event.result.blocks:
                    if isinstance(block, ImageBlock):
                        await self.picture(block)
            case NoticeRaised(code="receipt") if _UNSEEN in event.text:
                self._unseen.append(event.text)
            case NoticeRaised():
                self.end_line()
                print_line(event.text)
            case _:
                pass

    async def finish(self, outcome: TurnOutcome) -> None:
        self._end_thinking()
        if self._whole:
            self.write("".join(self._whole))
            self._whole.clear()
        self.end_line()
        for hint in outcome.advice or self._unseen:
            print_line(hint)
        self._unseen.clear()

    def write(self, text: str) -> None:
        if text:
            self.out.write(text)
            self.out.flush()
            self._at_line_start = text.endswith("\n")

    def end_line(self) -> None:
        if not self._at_line_start:
            self.write("\n")

    def render_text(self, text: str) -> str:
        return safe_text(text)

    async def picture(self, block: ImageBlock) -> None:
        """Write the label of an image; the bytes are in the store."""
        self.write(safe_text(text_of(block)) + "\n")

    def _text(self, text: str) -> None:
        if self._streams:
            self.write(self.render_text(text))
        else:
            self._whole.append(self.render_text(text))

    def _think(self, text: str) -> None:
        if not self._thinking:
            self.end_line()
            self._thinking = True
        sys.stderr.write(safe_text(text) if self._thoughts is None else self._thoughts.feed(text))
        sys.stderr.flush()
        self._thought_ends_line = text.endswith("\n")

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            if self._thoughts is None:
                sys.stderr.write("\n" if self._thought_ends_line else "\n\n")
            else:
                sys.stderr.write(self._thoughts.finish() + "\n")
            sys.stderr.flush()

    def _write_progress(self, line: str) -> None:
        sys.stderr.write(self._ink.dim(line) + "\n")
        sys.stderr.flush()


class TerminalRenderer(TextRenderer):
    """Renders Markdown and images, for a terminal with colors. `load` returns the bytes of an image."""

    def __init__(
        self, load: Callable[[str], Awaitable[bytes]], *, streams: bool = True, shows_reasoning: bool = True
    ) -> None:
        super().__init__(streams=streams, shows_reasoning=shows_reasoning)
        self._load = load
        self._markdown = RichStream(draw_markdown, width(), is_live=streams)
        self._protocol: terminal_images.ImageProtocol = terminal_images.choose_protocol()
        self._sources: dict[str, None] = {}

    async def event(self, event: Event) -> None:
        if not isinstance(event, TextDelta | TextSealed | Cited | UsageReported):
            self._text_ended()
        if isinstance(event, Cited) and event.citation.source:
            self._sources[event.citation.source] = None
        await super().event(event)

    async def finish(self, outcome: TurnOutcome) -> None:
        self._text_ended()
        await super().finish(outcome)
        if self._sources:
            self.write(Colors(self.out).dim(f"sources: {one_line(', '.join(self._sources), 200)}") + "\n")
            self._sources.clear()

    def render_text(self, text: str) -> str:
        return self._markdown.feed(text)

    def _text_ended(self) -> None:
        rest = self._markdown.finish()
        if rest and self._streams:
            self.write(rest)
        elif rest:
            self._whole.append(rest)

    async def picture(self, block: ImageBlock) -> None:
        drawn = ""
        if self._protocol != "off":
            try:
                data = await self._load(block.media.digest)
                fit = Fit(max_side_px=terminal_images.side_px(self._protocol), formats=("image/png",))
                made = await asyncio.to_thread(render, data, block.media, fit)
                drawn = terminal_images.draw_image(made.data, made.width or 1, made.height or 1, self._protocol)
            except LoomError as error:
                print_line(f"{block.media.name or 'the image'} cannot be shown: {error.message}")
        self.write(drawn)
        await super().picture(block)


class JsonRenderer:
    """Writes one JSON object when the turn has ended, even if it failed."""

    async def begin(self, session: str, model: str, said: str) -> None:
        """Write nothing: the object is written at the end."""

    async def event(self, event: Event) -> None:
        """Write nothing: the outcome contains everything."""

    async def finish(self, outcome: TurnOutcome) -> None:
        rows = outcome.receipt.rows if outcome.receipt is not None else ()
        _print(
            {
                "session": outcome.session,
                "node": outcome.node,
                "model": outcome.model,
                "text": outcome.text,
                "reasoning": outcome.reasoning,
                "stop": outcome.stop,
                "usage": outcome.usage,
                "usd": outcome.usd,
                "seconds": round(outcome.seconds, 3),
                "tool_calls": outcome.tool_calls,
                "media": [
                    {
                        "label": row.label,
                        "digest": row.digest,
                        "rendition": row.rendition,
                        "reason": row.reason,
                        "tokens": row.tokens,
                    }
                    for row in rows
                    if row.digest
                ],
                "notices": outcome.notices,
                "error": _error(outcome.error),
            }
        )


class StreamJsonRenderer:
    """Writes a line of JSON for each event: init, message, tool_use, tool_result, error, result."""

    async def begin(self, session: str, model: str, said: str) -> None:
        _print({"type": "init", "session_id": session, "model": model})
        _print({"type": "message", "role": "user", "content": said})

    async def event(self, event: Event) -> None:
        match event:
            case TextDelta():
                _print({"type": "message", "role": "assistant", "content": event.text, "delta": True})
            case ImageAdded():
                content = text_of(event.image)
                _print({"type": "message", "role": "assistant", "content": content, "digest": event.image.media.digest})
            case ToolStarted():
                call = event.call
                _print({"type": "tool_use", "tool_name": call.name, "tool_id": call.id, "parameters": call.arguments})
            case ToolFinished():
                words = [
                    block.text if isinstance(block, TextBlock) else text_of(block) for block in event.result.blocks
                ]
                _print(
                    {
                        "type": "tool_result",
                        "tool_id": event.result.call_id,
                        "status": "error" if event.result.is_error else "success",
                        "output": "\n".join(words),
                    }
                )
            case NoticeRaised():
                _print({"type": "error", "severity": "warning", "code": event.code, "message": event.text})
            case _:
                pass

    async def finish(self, outcome: TurnOutcome) -> None:
        if outcome.error is not None:
            _print({"type": "error", "severity": "error", **(_error(outcome.error) or {})})
        usage = outcome.usage
        _print(
            {
                "type": "result",
                "status": "error" if outcome.error else "success",
                "session_id": outcome.session,
                "node": outcome.node,
                "stats": {
                    "input_tokens": usage.input_tokens,
                    "output_tokens": usage.output_tokens,
                    "total_tokens": usage.input_tokens + usage.output_tokens,
                    "cached_tokens": usage.cache_read_tokens,
                    "tool_calls": outcome.tool_calls,
                    "usd": outcome.usd,
                    "duration_ms": round(outcome.seconds * 1000),
                },
            }
        )


def _print(value: dict[str, Any]) -> None:
    """Write JSON as bytes: it is UTF-8 in any locale."""
    click.echo(msgspec.json.encode(value))


def _error(error: LoomError | None) -> dict[str, str] | None:
    from loom.cli.shared.exit_codes import error_code

    return None if error is None else {"code": error_code(error), "message": error.message, "hint": error.hint}


def call_label(call: ToolCall) -> str:
    """Return `read_file path="a.png"`."""
    given = " ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in call.arguments.items())
    return one_line(f"{call.name} {given}", _ARGUMENTS_WIDTH)


def result_label(event: ToolFinished) -> str:
    """Return `read_file 12 lines 0.1 s`, or the error in one line."""
    result = event.result
    if result.is_error:
        what = one_line(" ".join(text_of(block) for block in result.blocks), _ARGUMENTS_WIDTH)
    else:
        media = [text_of(block) for block in result.blocks if not isinstance(block, TextBlock)]
        lines = sum(block.text.count("\n") + 1 for block in result.blocks if isinstance(block, TextBlock))
        what = one_line(" ".join(media)) if media else "1 line" if lines == 1 else f"{lines} lines"
    what = ", ".join(filter(None, (failure_of_command(result), what)))
    return f"{one_line(result.name)} {what} {event.seconds:.1f} s"


_FENCE: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<code>.*?)^[ \t]*(?P=fence)[`~]*[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


def code_of(text: str, *, last: bool) -> str | None:
    """Return the content of the first or the last fenced code block; None if there is none. If no fence is closed, an
    unclosed one counts."""
    found = [match["code"] for match in _FENCE.finditer(text)]
    if found:
        return found[-1 if last else 0]
    _, opened, rest = text.partition("```")
    return rest.partition("\n")[2] if opened and "\n" in rest else None


class OutputRenderer(TextRenderer):
    """Writes nothing while the answer streams; at the end, the JSON that matches the schema."""

    def __init__(self, schema: OutputSchema, *, shows_reasoning: bool = True) -> None:
        super().__init__(streams=False, shows_reasoning=shows_reasoning)
        self._schema = schema

    async def event(self, event: Event) -> None:
        if isinstance(event, NoticeRaised) and event.code == OutputInvalid.code:
            return  # `finish` raises it as an error
        await super().event(event)

    async def finish(self, outcome: TurnOutcome) -> None:
        self._whole.clear()
        await super().finish(outcome)
        if outcome.error is not None:
            return
        value = await read_output(outcome.text, self._schema)
        self.write(json.dumps(value, indent=2, ensure_ascii=False))
        self.end_line()


class CodeRenderer(TextRenderer):
    """Writes nothing while the answer streams; at the end, only the code."""

    def __init__(self, *, last: bool, shows_reasoning: bool = True) -> None:
        super().__init__(streams=False, shows_reasoning=shows_reasoning)
        self._last = last

    async def finish(self, outcome: TurnOutcome) -> None:
        self._whole.clear()
        await super().finish(outcome)
        code = code_of(outcome.text, last=self._last)
        if code is None and outcome.text:
            print_line("the answer has no code block; printing all of it")
        self.write(safe_text(outcome.text if code is None else code))
        self.end_line()


_MOST_NAMED: Final = 3
_LEAST_PARTS: Final = 3
"""The parts that always stay: model, cost, time."""
_RULES: Final = 6


def footer(outcome: TurnOutcome, *, hint: str = "") -> str:
    """Return the line below an answer. If it is too long for the terminal, omit media first, then the tokens."""
    parts = [outcome.model.removeprefix("loom/")]
    if outcome.receipt is not None:
        parts += media_parts(outcome.receipt)
    usage = outcome.usage
    if usage.input_tokens or usage.output_tokens:
        parts.append(f"{tokens_label(usage.input_tokens)} in · {tokens_label(usage.output_tokens)} out")
    parts += [money_label(outcome.usd), f"{outcome.seconds:.1f} s"]
    if is_plain():
        return f"({', '.join(parts)}{f'; {hint}' if hint else ''})"
    while len(" · ".join(parts)) > width() - _RULES and len(parts) > _LEAST_PARTS:
        del parts[-4 if len(parts) > _LEAST_PARTS + 1 else 1]
    line = f"── {one_line(' · '.join(parts), 200)} "
    room = width() - len(line) - len(hint) - 1
    return f"{line}{'─' * room} {hint}" if hint and room >= 2 else line.rstrip() + " ──"


def usage_line(outcome: TurnOutcome) -> str:
    """Return the line of `-u`: the tokens, cost and duration of an answer."""
    usage = outcome.usage
    cached = f" ({tokens_label(usage.cache_read_tokens)} from the cache)" if usage.cache_read_tokens else ""
    estimated = f" (estimated {tokens_label(outcome.estimated_tokens)})" if outcome.estimated_tokens else ""
    size = f"{tokens_label(usage.input_tokens)} in{estimated}{cached}, {tokens_label(usage.output_tokens)} out"
    return f"usage: {outcome.model}, {size}, {money_label(outcome.usd)}, {outcome.seconds:.1f} s"


def switch_preview(receipt: Receipt) -> str:
    """Return a preview before a switch of models: the renditions of the history, its size and price, what is left out,
    and the cached tokens that the switch discards."""
    counts: dict[str, int] = {}
    for row in receipt.rows:
        if row.digest:
            counts[GLYPHS[row.rendition]] = counts.get(GLYPHS[row.rendition], 0) + 1
    unsaid = sum(row.rendition == "omitted" and not row.digest for row in receipt.rows)
    media = "media " + " ".join(f"{count}{glyph}" for glyph, count in counts.items()) if counts else ""
    left_out = f"{unsaid} thinking blocks of another model left out" if unsaid else ""
    found = receipt.estimate
    size = f"{tokens_label(receipt.totals.tokens)} tok ≈ {money_label(found.usd if found is not None else None)}"
    line = f"[{' · '.join(part for part in (receipt.model, media, left_out, size) if part)}]"
    return f"{line}\n{discard_label(found.discards)}" if found is not None and found.discards is not None else line


def media_parts(receipt: Receipt) -> list[str]:
    """Return the media of the newest message with media one by one, and counts of earlier ones."""
    last = max((row.message for row in receipt.rows if row.kind != "thinking"), default=0)
    newest = max((row.message for row in receipt.rows if row.digest and row.message <= last), default=-1)
    named: list[str] = []
    earlier: dict[str, int] = {}
    pictures = 0
    for row in receipt.rows:
        if not row.digest:
            continue
        pictures += row.kind == "image"
        if row.message == newest and len(named) < _MOST_NAMED:
            mark = "" if is_plain() else f"{GLYPHS[row.rendition]} "
            tokens = f" {tokens_label(row.tokens)}" if row.kind != "image" and row.tokens else ""
            named.append(f"{chip(row, pictures)} {mark}{row.rendition}{tokens}")
        else:
            earlier[row.rendition] = earlier.get(row.rendition, 0) + 1
    if earlier:
        counts = (f"{n} {name}" if is_plain() else f"{n}{GLYPHS[name]}" for name, n in earlier.items())
        named.append("media before " + " ".join(counts))
    return named


def chip(row: ReceiptRow, number: int) -> str:
    """Return `[Image #1]` or `[report.pdf]`."""
    return f"[Image #{number}]" if row.kind == "image" else f"[{row.label.split(', ')[0]}]"


async def media_hints(runtime: Runtime, blocks: Sequence[ContentBlock], outcome: TurnOutcome) -> list[str]:
    """Return hints about media of this message that the model received only as text; hints about earlier ones were
    printed before."""
    if outcome.receipt is None or outcome.error is not None:
        return []
    as_text = {
        row.digest: row
        for row in outcome.receipt.rows
        if row.rendition == "text" and row.reason == "capability" and "description by" not in row.detail
    }
    model = outcome.model.rpartition("/")[2]
    sentences: list[str] = []
    for block in blocks:
        if isinstance(block, ImageBlock) and block.media.digest in as_text and not sentences:
            sentences.append(
                f'{model} is a text-only model; image sent as text: "{text_of(block)}".'
                f" To have images described: --describe-with {_vision_model(runtime)}"
            )
        if isinstance(block, DocumentBlock) and block.media.digest in as_text and await _is_scan(runtime, block):
            name = block.media.name or "the document"
            sentences.append(
                f"{name} has no text layer and {model} is text-only."
                " pip install 'loom-runtime[ocr]', or choose a model that supports images"
            )
    return sentences


def _vision_model(runtime: Runtime) -> str:
    """Return the name of an available model that supports images, or `MODEL` if there is none."""
    config = runtime.config
    services = [f"{platform}/{name}" for platform, name in FIRST_CHOICES.items() if key_for(platform, config)]
    known = (runtime.models.resolve(name) for name in (*config.models, *services))
    return next((found.alias or found.reference for found in known if found.capabilities.vision), "MODEL")


async def _is_scan(runtime: Runtime, block: DocumentBlock) -> bool:
    """Return whether the document has no readable text: no page has a text layer, and no OCR engine is installed."""
    if ocr.is_available():
        return False
    return await runtime.library.is_scan(block)
