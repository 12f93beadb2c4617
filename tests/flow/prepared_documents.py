"""Documents that are prepared for a model that reads only text, and deleted again with their session."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable

from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_pdf

MODEL = "deepseek/deepseek-v4-pro"
LINES = 300


def numbered_document(number: int) -> bytes:
    """A PDF whose text no other one has."""
    return sample_pdf("\n".join(f"Document {number}, line {line}: nothing else is in it." for line in range(LINES)))


async def prepare_and_delete(
    runtime: Runtime, count: int, measure: Callable[[], int], *, every: int
) -> AsyncIterator[tuple[int, int]]:
    """Send `count` different documents, each in a session that is then deleted; yield what `measure` says now and then,
    with the number of documents so far."""
    for number in range(1, count + 1):
        session = await runtime.session(model=MODEL)
        provider = runtime.models.given_providers["deepseek"]
        assert isinstance(provider, ScriptedProvider)
        provider.add("I have read it.")
        await session.send("read this", numbered_document(number))
        assert f"Document {number}, line" in str(provider.prompts.pop())
        await runtime.library.delete(session.id)
        if number % every == 0:
            gc.collect()
            yield number, measure()
