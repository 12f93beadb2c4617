"""`@file` in a message, however an interface hands it over."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom.content.blocks import TextBlock
from loom.testing import ScriptedProvider, memory_runtime

MODEL = "anthropic/claude-opus-5"


@pytest.mark.parametrize("as_block", [False, True])
async def test_a_mentioned_file_is_tracked_from_text_and_from_blocks(tmp_path: Path, as_block: bool) -> None:
    file = tmp_path / "a.txt"
    file.write_text("alpha\n")
    provider = ScriptedProvider(["One.", "Two."])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        words = "what is in @a.txt?"
        await session.send(TextBlock(words) if as_block else words)
        file.write_text("beta\n")
        await session.send("and now?")
        told = [
            [block.text for message in prompt.messages for block in message.blocks if isinstance(block, TextBlock)]
            for prompt in provider.prompts
        ]
        assert any("alpha" in text for text in told[0])
        assert any("+beta" in text for text in told[1])
