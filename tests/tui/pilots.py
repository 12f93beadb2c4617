"""The terminal UI without a terminal: the real app on a real store, driven key by key."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from textual import events
from textual.pilot import Pilot

from loom.config import load_config
from loom.runtime import Runtime
from loom.sampling import Sampling
from loom.testing import FakeModel, ScriptedAnswer
from loom.tui.app import AskTrust, LoomApp, OpenedLibrary
from loom.tui.approval_card import ApprovalCard
from loom.tui.chat_library import ChatLibrary
from loom.tui.chat_screen import ChatScreen
from loom.tui.glyphs import UNICODE, Glyphs
from loom.tui.image_protocol import ImageProtocol

PATIENCE_SECONDS = 120.0
NO_OPTIONS = Sampling()


class Driven:
    """The app, its first screen, and what a person does with them."""

    def __init__(
        self, app: LoomApp, pilot: Pilot[Any], library: ChatLibrary, runtime: Runtime, model: FakeModel | None
    ) -> None:
        self.app = app
        self.pilot = pilot
        self.library = library
        self.runtime = runtime
        self.model = model

    @property
    def chat(self) -> ChatScreen:
        return next(screen for screen in self.app.screen_stack if isinstance(screen, ChatScreen))

    @property
    def text(self) -> str:
        """What the screen shows, as text."""
        width, height = self.app.size
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in line)[:width] for line in lines[:height])

    async def wait(self, is_true: Callable[[], object], what: str = "") -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_true():
            assert time.monotonic() < deadline, f"{what or 'it'} never came true; the screen shows:\n{self.text}"
            await self.pilot.pause(0.02)

    async def wait_for(self, words: str) -> None:
        await self.wait(lambda: words in self.text, repr(words))

    async def wait_until_idle(self, turns: int = 1) -> None:
        await self.wait(lambda: len(self.chat.usage_log.turns) >= turns and not self.chat.is_busy, f"turn {turns}")

    async def type(self, text: str) -> None:
        await self.pilot.press(*("enter" if key == "\n" else key for key in text))

    async def paste(self, text: str) -> None:
        self.chat.composer.post_message(events.Paste(text))
        await self.pilot.pause()

    async def say(self, text: str, turns: int = 1) -> None:
        """Send a message, whatever lines it has, and wait for the answer."""
        await self.paste(text)
        await self.pilot.press("enter")
        await self.wait_until_idle(turns)

    async def wait_for_approval(self) -> None:
        """Wait until the approval has the keys: a key that is pressed before goes to the composer."""
        await self.wait(lambda: isinstance(self.chat.focused, ApprovalCard), "the approval")

    async def approve(self) -> None:
        await self.wait_for_approval()
        card = self.chat.query_one(ApprovalCard)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while card.is_attached:  # a key that comes too early is ignored
            assert time.monotonic() < deadline, f"the approval stays; the screen shows:\n{self.text}"
            await self.press("y")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()


@asynccontextmanager
async def driven(
    folder: Path,
    *,
    answers: Sequence[ScriptedAnswer] | None = None,
    session: str = "",
    size: tuple[int, int] = (100, 34),
    protocol: ImageProtocol = "off",
    glyphs: Glyphs = UNICODE,
    model: str = "",
    permission: str = "ask",
    sampling: Sampling = NO_OPTIONS,
) -> AsyncGenerator[Driven]:
    """`answers` are those of a scripted model; without them the built-in model answers. The workspace is `folder`, or
    the folder below it in which the test is."""
    with contextlib.chdir(Path.cwd() if Path.cwd().is_relative_to(folder) else folder):
        async with _driven(
            folder,
            answers=answers,
            session=session,
            size=size,
            protocol=protocol,
            glyphs=glyphs,
            model=model,
            permission=permission,
            sampling=sampling,
        ) as found:
            yield found


@asynccontextmanager
async def _driven(
    folder: Path,
    *,
    answers: Sequence[ScriptedAnswer] | None,
    session: str,
    size: tuple[int, int],
    protocol: ImageProtocol,
    glyphs: Glyphs,
    model: str,
    permission: str,
    sampling: Sampling,
) -> AsyncGenerator[Driven]:
    config = load_config(cwd=folder, environ={"LOOM_HOME": str(folder / "home"), "LOOM_OFFLINE": "1"})
    fake = FakeModel(answers) if answers is not None else None
    stack = AsyncExitStack()
    providers = {"fake": fake} if fake is not None else None
    opening = Runtime.open(config, tools="all", instructions=False, providers=providers)
    runtime = await stack.enter_async_context(opening)
    library = ChatLibrary(runtime.library, config, workspace=str(Path.cwd()), close=stack.aclose)

    async def connect(_: AskTrust) -> OpenedLibrary:
        chosen = model or ("fake" if fake is not None else "loom/spark")
        history_file = folder / "history.jsonl"
        return OpenedLibrary(
            library=library,
            session=session,
            model=chosen,
            permission=permission,
            sampling=sampling,
            history_file=history_file,
        )

    app = LoomApp(connect, glyphs=glyphs, protocol=protocol)
    async with app.run_test(size=size, notifications=True) as pilot:
        found = Driven(app, pilot, library, runtime, fake)
        await found.wait(
            lambda: found.chat.library is not None and found.chat.query("TranscriptView"), "the first screen"
        )
        yield found
