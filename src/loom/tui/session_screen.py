"""SessionScreen: conversations, newest first, with a search in messages, documents and images."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from textual.content import Content
from textual.widgets import Input

from loom.api_types import SessionView
from loom.tui.chat_library import ChatLibrary
from loom.tui.labels import age_label, short_model
from loom.tui.picker import Picker
from loom.tui.text_content import one_line, plain_text

_NEW: Final = ""
_DELAY_SECONDS: Final = 0.15


class SessionScreen(Picker):
    """Dismissed with a session's id; an empty string means a new one."""

    def __init__(self, library: ChatLibrary, query: str) -> None:
        super().__init__(
            "Conversations",
            placeholder="Search titles, messages, and text inside images and documents",
            query=query,
            keys="Enter: open   Esc: close",
        )
        self._library = library
        self._here = str(Path.cwd())

    def on_mount(self) -> None:
        self._search(self.query_one(Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.set_timer(_DELAY_SECONDS, lambda: self._search_if_current(event.value))

    def _search_if_current(self, query: str) -> None:
        if self.is_mounted and self.query_one(Input).value == query:
            self._search(query)

    def _search(self, query: str) -> None:
        self.run_worker(partial(self._load, query.strip()), exclusive=True)

    async def _load(self, query: str) -> None:
        found = await self._library.sessions(query)
        rows = [(entry.id, self._row(entry)) for entry in found]
        new = [] if query else [(_NEW, Content.styled("+ new conversation", "$primary"))]
        self.show_rows([*new, *rows])
        if query:
            self.show_detail(plain_text(f"{len(found)} found" if found else f"Nothing found for {query!r}"))

    def _row(self, entry: SessionView) -> Content:
        width = max(self.option_list.size.width - 44, 20)
        title = one_line(entry.title or "(untitled)", width)
        state = {"running": "running", "waiting": "approval", "queued": "queued"}.get(entry.state, "")
        folder = "" if entry.workspace == self._here else one_line(Path(entry.workspace).name, 14)
        line = plain_text(f"{title:<{width}} ", "bold") + plain_text(f"{age_label(entry.updated_at):>9}  ")
        line += plain_text(f"{short_model(entry.model)[:14]:<14} ", "$dim") + plain_text(folder, "$secondary")
        if state:
            line += plain_text(f" {state}", "$warning")
        if entry.snippet:
            line += plain_text(f"\n  {one_line(entry.snippet, width + 30)}", "$dim")
        return line
