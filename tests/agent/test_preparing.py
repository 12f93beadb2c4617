"""Where a path is prepared: a short one at once, a long one beside the loop, which goes on meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from loom.compile import request
from loom.compile.policy import DetachedMessage
from loom.compile.prepare import Prepared
from loom.compile.renditions import Renditions
from loom.compile.request import RequestInput
from loom.compile.settle import Settler
from loom.content.blocks import Block, DocumentBlock, TextBlock, ToolCall, ToolResult
from loom.content.media import Media
from loom.content.messages import Message
from loom.formats.facts import IntakeLimits
from loom.formats.renderer import FormatRenderer
from loom.providers.catalog import model
from loom.store.derived import DerivedCache
from loom.store.media import open_media


def request_for(*messages: Message) -> RequestInput:
    path = tuple(DetachedMessage(str(at), message) for at, message in enumerate(messages))
    return RequestInput(path=path, model=model("anthropic/claude-opus-5"))


def document(media_type: str, size_bytes: int, pages: int | None) -> DocumentBlock:
    return DocumentBlock(Media(digest=f"sha256:{'0' * 64}", media_type=media_type, size_bytes=size_bytes, pages=pages))


@pytest.mark.parametrize(
    ("blocks", "count", "is_short"),
    [
        ([TextBlock("What is this?")], 80, True),
        ([TextBlock("What is this?")], 2_000, False),
        ([TextBlock("ä" * 600_000)], 1, False),
        ([document("application/pdf", 9_000_000, 60)], 1, True),
        ([document("application/pdf", 9_000_000, 600)], 1, False),
        ([document("text/csv", 9_000_000, None)], 1, False),
    ],
)
def test_a_path_is_prepared_at_once_only_where_that_takes_no_time(
    blocks: list[Block], count: int, is_short: bool
) -> None:
    path = [Message("user" if at % 2 == 0 else "assistant", tuple(blocks)) for at in range(count)]
    assert request_for(*path).is_short is is_short


def test_what_tools_were_given_and_gave_counts_too() -> None:
    call = ToolCall(id="1", name="write", arguments={"text": "x" * 300_000})
    result = ToolResult(call_id="1", blocks=(TextBlock("y" * 300_000),))
    said = Message("user", (TextBlock("Write it."),))
    assert request_for(said, Message("assistant", (call,))).is_short
    assert not request_for(said, Message("assistant", (call,)), Message("tool", (result,))).is_short


@pytest.mark.parametrize("words", [3, 300_000])
async def test_a_long_path_is_prepared_beside_the_loop(
    words: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    media = open_media(tmp_path)
    settler = Settler(Renditions(media, DerivedCache(media.place), FormatRenderer(IntakeLimits())))
    threads: list[threading.Thread] = []
    compiled = request.prepare

    def prepare(*given: Any, **options: Any) -> Prepared:
        threads.append(threading.current_thread())
        return compiled(*given, **options)

    monkeypatch.setattr(request, "prepare", prepare)
    await settler.settle(request_for(Message("user", (TextBlock("word " * words),))))
    assert (threads == [threading.current_thread()]) is (words == 3)
