"""ToolCard: a tool call in one line that expands to its arguments, its progress, and its result or diff."""

from __future__ import annotations

import time
from typing import Any, Final, Literal, TypeAlias, cast

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from loom.content.blocks import DocumentBlock, ImageBlock, ToolCall, ToolResult
from loom.content.json_values import json_text
from loom.content.media import size_label
from loom.content.messages import failure_of_command, text_of
from loom.events import ToolProgressed
from loom.tui.fold import Foldable
from loom.tui.glyphs import Glyphs
from loom.tui.text_content import diff_content, is_diff, one_line, plain_text, visible_text

_ARGUMENT_WIDTH: Final = 60
_MAX_LINES: Final = 40
_BAR_CELLS: Final = 16
_SUBJECTS: Final = ("path", "file", "command", "url", "pattern", "query", "media", "name")
"""Arguments that summarize a call best, in this order."""
CardState: TypeAlias = Literal["stored", "writing", "waiting", "running", "finished", "interrupted"]
"""`stored`: read with the conversation. `writing`: the model has not written all arguments. `waiting`: for earlier
calls."""


class ToolCard(Foldable):
    """A tool call, shown from the moment its name is known."""

    DEFAULT_CSS = """
    ToolCard .arguments { color: $dim; height: auto; }
    ToolCard .result { height: auto; border-left: wide $line; padding: 0 0 0 1; }
    ToolCard.-error > FoldTitle { color: $error; }
    """

    def __init__(self, glyphs: Glyphs, name: str, call: ToolCall | None = None) -> None:
        super().__init__(glyphs)
        self._tool = name
        self._call = call
        self._result: ToolResult | None = None
        self._seconds: float | None = None
        self._began = time.monotonic()
        self._progress: ToolProgressed | None = None
        self._approvals: set[str] = set()
        """The ids of pending approvals of this call."""
        self._state: CardState = "stored" if call is not None else "writing"
        self._frame = 0

    @property
    def result(self) -> ToolResult | None:
        return self._result

    def wait(self, call: ToolCall) -> None:
        """Note that the model has written the call."""
        self._call, self._state = call, "waiting"
        self.refresh_title()

    def start(self, call: ToolCall) -> None:
        self._call, self._state, self._began = call, "running", time.monotonic()
        self.refresh_title()

    def show_progress(self, event: ToolProgressed) -> None:
        self._progress = event
        self.refresh_title()

    def wait_for_approval(self, approval: str) -> None:
        self._approvals.add(approval)
        self.refresh_title()

    def end_approval(self, approval: str) -> None:
        """Note that an approval was answered, here or in another client."""
        if approval in self._approvals:
            self._approvals.discard(approval)
            self._began = time.monotonic()
            self.refresh_title()

    def finish(self, result: ToolResult, seconds: float | None = None) -> None:
        self._result, self._seconds, self._state = result, seconds, "finished"
        self._approvals.clear()
        self.set_class(result.is_error, "-error")
        self.refresh_title()
        if result.is_error:
            self.is_open = True
        self.refresh_body()

    def interrupt(self) -> None:
        """Note that the turn ended before the call did."""
        if self._state in ("writing", "waiting", "running"):
            self._state = "interrupted"
            self.refresh_title()

    def tick(self) -> None:
        if self._is_busy:
            self._frame += 1
            self.refresh_title()

    @property
    def _is_busy(self) -> bool:
        return self._state in ("writing", "running") and not self._approvals

    def title(self) -> Content:
        parts = [Content(f"{self._sign()} "), Content.styled(self._tool, "bold")]
        if self._call is not None:
            parts.append(plain_text(f"  {subject_of(self._call)}"))
        if self._state == "interrupted" or self._approvals:
            note = "interrupted" if self._state == "interrupted" else "approval needed"
            parts.append(Content.styled(f"  {note}", "$warning"))
        elif self._result is not None:
            parts.append(plain_text(f"  {summary_of(self._result)}"))
            if self._seconds is not None:
                parts.append(Content(f"  {self._seconds:.1f} s"))
        elif self._progress is not None:
            parts.append(plain_text(f"  {self._progress_text(self._progress)}"))
        elif self._state == "waiting":
            parts.append(Content("  waiting"))
        elif self._is_busy and (seconds := time.monotonic() - self._began) >= 1:
            parts.append(Content(f"  {seconds:.0f} s"))
        return Content("").join(parts)

    def _sign(self) -> str:
        if self._result is not None:
            has_failed = self._result.is_error or failure_of_command(self._result)
            return self.glyphs.failed if has_failed else self.glyphs.succeeded
        if self._is_busy:
            return self.glyphs.running[self._frame % len(self.glyphs.running)]
        return self.glyphs.tool

    def _progress_text(self, event: ToolProgressed) -> str:
        if event.fraction is None:
            return one_line(event.text, 60)
        fraction = max(0.0, min(event.fraction, 1.0))
        done = round(fraction * _BAR_CELLS)
        bar = self.glyphs.full_cell * done + self.glyphs.empty_cell * (_BAR_CELLS - done)
        return f"{bar} {fraction:.0%} {one_line(event.text, 40)}"

    def body(self) -> list[Widget]:
        found: list[Widget] = []
        if self._call is not None and self._call.arguments:
            found.append(Static(_arguments(self._call.arguments), classes="arguments"))
        if self._result is not None:
            text = result_text(self._result)
            if text:
                found.append(Static(diff_content(text) if is_diff(text) else plain_text(text), classes="result"))
        return found


def subject_of(call: ToolCall) -> str:
    """Return the subject of a call: the path, the command, else its first argument."""
    arguments = call.arguments
    name = next((key for key in _SUBJECTS if isinstance(arguments.get(key), str)), None)
    value = arguments.get(name) if name else next(iter(arguments.values()), "")
    if isinstance(value, list):
        return f"{len(cast('list[Any]', value))} {next(iter(arguments))}"
    return one_line(visible_text(value if isinstance(value, str) else json_text(value)), _ARGUMENT_WIDTH)


def summary_of(result: ToolResult) -> str:
    """Return the outcome in a few words: `12 lines`, `+2 -1`, `login.png, 900×500`, or the error."""
    if result.is_error:
        return one_line(" ".join(text_of(block) for block in result.blocks), _ARGUMENT_WIDTH)
    if isinstance(result.data, dict) and result.data.get("kind") == "diff":  # pyright: ignore[reportUnknownMemberType]
        return f"+{result.data.get('added', 0)} -{result.data.get('removed', 0)}"  # pyright: ignore[reportUnknownMemberType]
    media = [block.media for block in result.blocks if isinstance(block, ImageBlock | DocumentBlock)]
    if media:
        return one_line(", ".join(item.label for item in media), _ARGUMENT_WIDTH)
    text = "\n".join(text_of(block) for block in result.blocks)
    lines = text.count("\n") + 1
    size = size_label(len(text.encode())) if lines == 1 else f"{lines} lines"
    return ", ".join(filter(None, (failure_of_command(result), size)))


def result_text(result: ToolResult) -> str:
    """Return the text of a result, with the middle of a long one elided."""
    text = "\n".join(text_of(block) for block in result.blocks)
    lines = text.rstrip().split("\n")
    if len(lines) <= _MAX_LINES:
        return "\n".join(lines)
    half = _MAX_LINES // 2
    return "\n".join([*lines[:half], f"… {len(lines) - 2 * half} lines …", *lines[-half:]])


def _arguments(arguments: dict[str, Any]) -> Content:
    lines = [
        Content.styled(f"{one_line(name, 24)} ", "bold") + plain_text(_argument_text(value))
        for name, value in arguments.items()
    ]
    return Content("\n").join(lines)


def _argument_text(value: Any) -> str:
    text = visible_text(value) if isinstance(value, str) else visible_text(json_text(value))
    lines = text.split("\n")
    cut = lines[:12] + ([f"… {len(lines) - 12} lines"] if len(lines) > 12 else [])
    return "\n".join(line if len(line) <= 400 else f"{line[:399]}…" for line in cut)
