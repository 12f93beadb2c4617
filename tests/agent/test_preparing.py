"""Where a path is prepared: a short one at once, a long one beside the loop, which goes on meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from loom.agent.mend import Asking
from loom.agent.renditions import AtOnce, Renditions
from loom.content.blocks import Block, DocumentBlock, TextBlock, ToolCall, ToolResult
from loom.content.media import Media
from loom.content.messages import Message
from loom.context.cost import Calibration
from loom.context.policy import Known, Policy, Request, Said, Watermark
from loom.context.prepare import Prepared
from loom.formats.facts import Limits
from loom.providers.catalog import model
from loom.store.derived import DerivedCache
from loom.store.media import open_media


def asking(*messages: Message) -> Asking:
    return Asking(
        path=tuple(Said(str(at), message) for at, message in enumerate(messages)),
        model=model("anthropic/claude-opus-5"),
        policy=Policy(),
        request=Request(),
        overrides={},
        watermark=Watermark(),
        calibration=Calibration(),
        quarantine=frozenset(),
    )


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
    assert isinstance(asking(*path).prepared, AtOnce) is is_short


def test_what_tools_were_given_and_gave_counts_too() -> None:
    call = ToolCall(id="1", name="write", arguments={"text": "x" * 300_000})
    result = ToolResult(call_id="1", blocks=(TextBlock("y" * 300_000),))
    said = Message("user", (TextBlock("Write it."),))
    assert isinstance(asking(said, Message("assistant", (call,))).prepared, AtOnce)
    assert not isinstance(asking(said, Message("assistant", (call,)), Message("tool", (result,))).prepared, AtOnce)


@pytest.mark.parametrize("is_short", [True, False])
async def test_a_long_path_is_prepared_beside_the_loop(is_short: bool, tmp_path: Path) -> None:
    media = open_media(tmp_path)
    renditions = Renditions(media, DerivedCache(media.place), limits=Limits())
    prepared = asking(Message("user", (TextBlock("What is this?"),))).prepared(Known())
    threads: list[threading.Thread] = []

    def prepare(known: Known) -> Prepared:
        threads.append(threading.current_thread())
        return prepared

    await renditions.settle(AtOnce(prepare) if is_short else prepare)
    assert (threads == [threading.current_thread()]) is is_short
