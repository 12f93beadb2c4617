"""WorkPane: the todo list of the agent, and its background processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as WidgetMessage
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from loom.tui.glyphs import Glyphs
from loom.tui.text_content import one_line, plain_text

if TYPE_CHECKING:
    from loom.work_types import ProcessView, Todo


class WorkPane(Vertical):
    """The todo list and the processes. `x` on a process stops it."""

    DEFAULT_CSS = """
    WorkPane { width: 44; height: 100%; background: $surface; border-left: solid $line; padding: 0 1; }
    WorkPane > .heading { height: 1; text-style: bold; color: $primary; }
    WorkPane > .todos { height: auto; max-height: 60%; margin: 0 0 1 0; }
    WorkPane > .keys { height: auto; color: $dim; dock: bottom; }
    WorkPane > OptionList { height: 1fr; border: none; padding: 0; background: $surface; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("x,delete", "stop", "Stop the process", show=False)]

    class StopWanted(WidgetMessage):
        """The user stops this background process."""

        def __init__(self, process: str) -> None:
            super().__init__()
            self.process = process

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._todos: tuple[Todo, ...] = ()
        self._processes: tuple[ProcessView, ...] = ()

    def compose(self) -> ComposeResult:
        yield Static("Todo", classes="heading")
        yield Static(classes="todos")
        yield Static("Background processes", classes="heading")
        yield OptionList()
        yield Static("x: stop the process   F2: close", classes="keys")

    def focus(self, scroll_visible: bool = True) -> WorkPane:
        self.query_one(OptionList).focus(scroll_visible)
        return self

    def on_mount(self) -> None:
        self._draw()

    def show(self, todos: Sequence[Todo], processes: Sequence[ProcessView]) -> None:
        self._todos, self._processes = tuple(todos), tuple(processes)
        if self.is_mounted:
            self._draw()

    def _draw(self) -> None:
        nothing = Content.styled("no todos", "$dim")
        self.query_one(".todos", Static).update(Content("\n").join(map(self._todo, self._todos)) or nothing)
        shown = self.query_one(OptionList)
        at = shown.highlighted
        shown.clear_options()
        rows = [Option(self._process(it)) for it in self._processes]
        shown.add_options(rows or [Option(Content.styled("none", "$dim"), disabled=True)])
        if rows:
            shown.highlighted = min(at or 0, len(rows) - 1)

    def _todo(self, todo: Todo) -> Content:
        glyphs = self._glyphs
        match todo.state:
            case "done":
                return plain_text(f"{glyphs.succeeded} {todo.text}", "$dim")
            case "in_progress":
                return plain_text(f"{glyphs.folded} {todo.text}", "bold")
            case "pending":
                return plain_text(f"{glyphs.off_path} {todo.text}")

    def _process(self, it: ProcessView) -> Content:
        sign = self._glyphs.video if it.is_running else self._glyphs.off_path
        state = f"{it.seconds:.0f} s" if it.is_running else f"exit {it.exit_code}"
        ports = "".join(f"  http://localhost:{port}/" for port in it.ports)
        head = plain_text(f"{sign} {it.process}  {state}{ports}", "bold" if it.is_running else "$dim")
        return head + plain_text(f"\n  {one_line(it.command, 60)}", "$dim")

    def action_stop(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None and at < len(self._processes) and self._processes[at].is_running:
            self.post_message(self.StopWanted(self._processes[at].process))


class WorkScreen(ModalScreen[None]):
    """The pane as an overlay in a narrow terminal."""

    DEFAULT_CSS = """
    WorkScreen { align: center middle; background: $background 60%; }
    WorkScreen > WorkPane { width: 96%; height: 80%; border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f2", "dismiss", "Close", show=False, priority=True)]

    def __init__(self, glyphs: Glyphs, stop: Callable[[str], Awaitable[None]]) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._stop = stop

    def compose(self) -> ComposeResult:
        yield WorkPane(self._glyphs)

    def on_mount(self) -> None:
        self.query_one(WorkPane).focus()

    async def on_work_pane_stop_wanted(self, event: WorkPane.StopWanted) -> None:
        event.stop()
        await self._stop(event.process)
