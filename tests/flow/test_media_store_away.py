"""A media store that is away ends no turn: its media go as text, the user reads why, and they come back later."""

from __future__ import annotations

from typing import Any

import pytest

from flow.far_models import far_model
from loom.errors import BlobsUnavailable
from loom.events import NoticeRaised, TurnFinished
from loom.testing import sample_png


async def test_a_turn_goes_on_while_the_media_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with far_model("anthropic", "Seen.") as far:
        session = await far.runtime.session(model="far")
        await session.send("look", sample_png(99, 77))
        (digest,) = far.pictures(0)

        async def away(*given: Any, **named: Any) -> Any:
            raise BlobsUnavailable("The bucket does not answer.")

        async def blocks_away(*given: Any, **named: Any) -> Any:
            raise BlobsUnavailable("The bucket does not answer.")
            yield b""

        with monkeypatch.context() as patched:
            patched.setattr(far.runtime.stores.media, "load", away)
            patched.setattr(far.runtime.stores.media, "open_local", away)
            patched.setattr(far.runtime.stores.media, "read_blocks", blocks_away)
            events = [event async for event in session.stream("and now?")]
            assert isinstance(events[-1], TurnFinished), events[-1]
            assert any("could not be read" in event.text for event in events if isinstance(event, NoticeRaised))
            assert digest not in far.pictures(len(far.requests) - 1)
            assert "99×77" in far.texts(len(far.requests) - 1)
        monkeypatch.setattr(far.runtime.settler, "_away_until", 0.0)
        await session.send("and now again?")
        assert digest in far.pictures(len(far.requests) - 1)
