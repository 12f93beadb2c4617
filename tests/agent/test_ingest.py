"""What is said from what is there already: its bytes are kept, though another session is about to lose them."""

from __future__ import annotations

from datetime import UTC, datetime

from loom.agent.ingest import ingest
from loom.content.blocks import ImageBlock
from loom.runtime import Runtime
from loom.store.sweep import delete_unused
from loom.testing import ScriptedProvider, memory_runtime, sample_png

MODEL = "anthropic/claude-opus-5"


async def shown(runtime: Runtime) -> tuple[str, ImageBlock]:
    """A session that holds a picture, and the picture."""
    (block,) = (await runtime.library.ingest(sample_png(8, 8))).blocks
    assert isinstance(block, ImageBlock)
    session = await runtime.session(model=MODEL)
    await session.send("look", block)
    return session.id, block


async def test_a_block_that_is_said_again_has_its_bytes_made_young() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["a", "b"])}) as runtime:
        _, block = await shown(runtime)
        since = datetime.now(UTC)
        await ingest([block, block], runtime.stores.media)
        assert not await runtime.stores.media.delete(block.media.digest, unless_since=since)


async def test_a_picture_that_is_said_while_its_session_is_deleted_stays() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["a", "b"])}) as runtime:
        first, block = await shown(runtime)
        other = await runtime.session(model=MODEL)
        since = datetime.now(UTC)
        digests = await runtime.stores.sessions.delete(first)
        assert digests == (block.media.digest,)
        await other.send("look again", block)
        await delete_unused(
            runtime.stores.media,
            runtime.stores.derived,
            digests,
            runtime.stores.sessions.media_in_use,
            unless_since=since,
        )
        assert await runtime.stores.media.load(block.media.digest) == sample_png(8, 8)


async def test_a_picture_that_is_about_to_be_said_stays_though_nobody_refers_to_it_yet() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["a", "b"])}) as runtime:
        first, block = await shown(runtime)
        since = datetime.now(UTC)
        digests = await runtime.stores.sessions.delete(first)
        await runtime.library.ingest(block)
        await delete_unused(
            runtime.stores.media,
            runtime.stores.derived,
            digests,
            runtime.stores.sessions.media_in_use,
            unless_since=since,
        )
        assert await runtime.stores.media.exists(block.media.digest)
