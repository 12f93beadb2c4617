"""Sessions on disk whose providers bill by the size of a prompt and cache it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from loom.compile.cost import text_tokens
from loom.config import load_config
from loom.content.blocks import TextBlock
from loom.events import DecoderEvent, Stopped, TextDelta, UsageReported
from loom.models import TokenRule, Usage
from loom.prompt import Prompt
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.testing import sample_png
from runtime.libraries import write_note

OPUS: Final = "anthropic/claude-opus-5"
SONNET: Final = "anthropic/claude-sonnet-5"
GPT: Final = "openai/gpt-5.5"
CACHING: Final = (OPUS, GPT)
CHEAP: Final = """
[prompt]
default = false
[keys]
anthropic = "sk-ant-0123456789"
openai = "sk-0123456789"
[models.blind]
provider = "compatible"
model = "blind"
base_url = "http://127.0.0.1:9/v1"
price = { input = 0.001, output = 0.001 }
capabilities = { vision = false, tools = false }
[models.small]
provider = "compatible"
model = "small"
base_url = "http://127.0.0.1:9/v1"
price = { input = 0.01, output = 0.01 }
capabilities = { vision = true }
[models.unpriced]
provider = "compatible"
model = "nowhere"
base_url = "https://example.test/v1"
"""


class Biller:
    """A provider that caches every prompt, and bills a read for what the last one already contained."""

    def __init__(self) -> None:
        self.billed: list[Usage] = []

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        texts = [block.text for message in prompt.messages for block in message.blocks if isinstance(block, TextBlock)]
        tokens = text_tokens(prompt.system, TokenRule()) + sum(text_tokens(text, TokenRule()) + 4 for text in texts)
        read = self.billed[-1].input_tokens if self.billed else 0
        write = tokens - read if prompt.model.cache.mode == "explicit" else 0
        usage = Usage(input_tokens=tokens, output_tokens=3, cache_read_tokens=read, cache_write_tokens=write)
        self.billed.append(usage)
        yield TextDelta(index=0, text="Yes, it is.")
        yield UsageReported(usage=usage)
        yield Stopped(reason="end")


@asynccontextmanager
async def billed_session(
    home: Path, model: str, words: random.Random, *, turns: int = 2, image: bool = False
) -> AsyncGenerator[tuple[Runtime, LocalSession, Biller]]:
    """Open a session on disk whose model has answered `turns` long messages."""
    await asyncio.to_thread((home / "loom.toml").write_text, CHEAP)
    biller = Biller()
    config = load_config(cwd=home, environ={"LOOM_HOME": str(home)})
    providers: dict[str, Any] = dict.fromkeys(("anthropic", "openai-responses"), biller)
    async with Runtime.open(config, providers=providers, tools=[write_note], instructions=False) as runtime:
        session = await runtime.session(model=model, system="Answer briefly.")
        await session.change(tools=())
        for _ in range(turns):
            said = " ".join(words.choice(("kettle", "stove", "harbour", "a", "of")) for _ in range(6_000))
            await session.send(said, *([sample_png()] if image else []))
        yield runtime, session, biller
