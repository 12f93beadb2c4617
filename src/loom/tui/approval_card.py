"""ApprovalCard: a tool call that needs an approval. It shows the exact command or diff, with invisible characters made
visible."""

from __future__ import annotations

import re
import time
from typing import ClassVar, Final, Literal, TypeAlias

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message as WidgetMessage
from textual.widgets import Input, Static

from loom.events import ApprovalRequested
from loom.tui.text_content import diff_content, is_diff, plain_text, visible_text

AnswerChoice: TypeAlias = Literal["once", "always", "deny"]
_REACH: Final = re.compile(
    r"\n\n\(((?:In the background, [^.\n]*\. )?(?:Sandboxed|Not sandboxed|Outside the sandbox)\b[^\n]*)\)\Z"
)
"""The note about network and file access that the sandbox puts at the end of an action."""
_SETTLE_SECONDS: Final = 0.3
"""How long keys are ignored after the card appears, so that keys typed before do not answer it."""


_TO_ANSWER: Final = "Tab: go to these keys"


class ApprovalCard(Vertical, can_focus=True):
    DEFAULT_CSS = """
    ApprovalCard {
        height: auto; max-height: 16; margin: 0 1; padding: 0 1; border: round $warning;
        border-title-color: $warning; border-title-style: bold; background: $surface;
    }
    ApprovalCard:focus { border: round $primary; border-title-color: $primary; }
    ApprovalCard > .action { height: auto; max-height: 10; scrollbar-size-vertical: 1; }
    ApprovalCard > .action > Static { height: auto; width: 100%; }
    ApprovalCard > .reach { height: auto; color: $success; }
    ApprovalCard > .reach.-open { color: $warning; }
    ApprovalCard > .choices { height: auto; color: $dim; }
    ApprovalCard > Input { border: none; height: 1; padding: 0; background: $panel; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "choose('once')", "Allow once"),
        Binding("a", "choose('always')", "Always"),
        Binding("n", "choose('deny')", "Deny"),
        Binding("r", "deny_with_reason", "Deny with a reason"),
    ]

    class Answered(WidgetMessage):
        def __init__(self, approval: str, answer: AnswerChoice, reason: str = "") -> None:
            super().__init__()
            self.approval = approval
            self.answer: AnswerChoice = answer
            self.reason = reason

    def __init__(self, request: ApprovalRequested) -> None:
        super().__init__()
        self.request = request
        self._since = time.monotonic()
        self.border_title = f"{'Approve' if request.values is None else 'Answer'} {visible_text(request.call.name)}?"
        self.border_subtitle = _TO_ANSWER
        self._writes_values = False

    def compose(self) -> ComposeResult:
        action, reach = visible_text(self.request.action), ""
        if found := _REACH.search(action):
            action, reach = action[: found.start()], found[1]
        with VerticalScroll(classes="action", can_focus=False):
            yield Static(diff_content(action) if is_diff(action) else plain_text(action, "bold"))
        if reach:
            yield Static(plain_text(reach), classes="reach" if "Sandboxed:" in reach else "reach -open")
        yield Static(self._choices(), classes="choices")
        yield Input(compact=True)

    def on_descendant_focus(self) -> None:
        self.border_subtitle = ""

    def on_focus(self) -> None:
        self.border_subtitle = ""

    def on_blur(self) -> None:
        self.border_subtitle = _TO_ANSWER

    def _choices(self) -> Content:
        if self.request.values is not None:
            keys = [("y", " answer with values"), ("n", " no"), ("r", " no, because …")]
            return _join_keys(keys)
        pattern = f" always: {visible_text(self.request.pattern)}" if self.request.pattern else " always here"
        keys = [("y", " once"), ("a", pattern), ("n", " no"), ("r", " no, because …")]
        return _join_keys(keys)

    def action_choose(self, answer: AnswerChoice) -> None:
        if time.monotonic() - self._since < _SETTLE_SECONDS:
            return
        if self.request.values is not None and answer != "deny":
            self._write("NAME=VALUE, NAME=VALUE … Enter sends them, Esc cancels", values=True)
        else:
            self.post_message(self.Answered(self.request.approval, answer))

    def action_deny_with_reason(self) -> None:
        self._write("Why not? Enter sends it to the model, Esc cancels", values=False)

    def _write(self, placeholder: str, *, values: bool) -> None:
        self._writes_values = values
        line = self.query_one(Input)
        line.placeholder = placeholder
        line.display = True
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        answer: AnswerChoice = "once" if self._writes_values else "deny"
        self.post_message(self.Answered(self.request.approval, answer, event.value.strip()))

    def on_key(self, event: events.Key) -> None:
        reason = self.query_one(Input)
        if event.key == "escape" and reason.display:
            event.stop()
            reason.display = False
            self.focus()


def _join_keys(keys: list[tuple[str, str]]) -> Content:
    return Content("   ").join(Content.styled(f"[{key}]", "bold $primary") + plain_text(text) for key, text in keys)
