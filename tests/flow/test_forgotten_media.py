"""Media that were deleted are gone from memory, too: nothing that a runtime holds names them or has their text."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loom.config import load_config
from loom.content.media import digest_of
from loom.formats.worker import WorkerPool
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_pdf, sample_png

SEEING, BLIND = "anthropic/claude-opus-5", "deepseek/deepseek-v4-pro"
SECRET = "the word of this document is heliotrope"
_CODE = (type, types.ModuleType, types.FunctionType, types.CodeType, types.FrameType, types.BuiltinFunctionType)
_NOT_ENTERED = (*_CODE, WorkerPool)


def reachable(root: Any) -> Iterator[Any]:
    """Everything that `root` holds, directly or not. Code, classes and modules are left out, and so is the pool of
    reader processes: each of them holds the last few documents, whichever they are."""
    seen: set[int] = set()
    left: list[Any] = [root]
    while left:
        found = left.pop()
        if id(found) in seen or isinstance(found, _NOT_ENTERED):
            continue
        seen.add(id(found))
        yield found
        left += gc.get_referents(found)


def mentions(root: Any, *words: str) -> list[str]:
    texts = (found.decode(errors="ignore") if isinstance(found, bytes) else found for found in reachable(root))
    return [text[:200] for text in texts if isinstance(text, str) and any(word in text for word in words)]


async def test_nothing_in_memory_names_media_that_were_deleted(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})
    document, picture = sample_pdf(SECRET), sample_png(700, 500)
    digests = [digest_of(document), digest_of(picture)]
    provider = ScriptedProvider(["read", "read", "read", "read"])
    async with Runtime.open(config, providers={"anthropic": provider, "deepseek": provider}) as runtime:
        session = await runtime.session(model=SEEING)
        await session.send("read this", document, picture)
        await session.send("once more", model=BLIND)
        await session.plan([SEEING, BLIND])
        assert mentions(runtime, *digests, SECRET)
        provider.prompts.clear()
        await runtime.library.delete(session.id)
        del session
        gc.collect()
        assert mentions(runtime, *digests, SECRET) == []
