"""Add your own model. Loom sends text in place of content that it does not support."""

from collections.abc import AsyncIterator

import loom
from loom.testing import sample_png


class Echo:
    name = "echo"
    capabilities = loom.Capabilities()  # text-only: images arrive as text

    async def stream(self, prompt: loom.Prompt) -> AsyncIterator[str]:
        for block in prompt.messages[-1].blocks:
            if isinstance(block, loom.TextBlock):
                yield f"{block.text.upper()} "


loom.register_provider(Echo())
reply = loom.ask("what is this?", loom.image(sample_png(64, 48), name="logo.png"), model="echo")
print(reply)
assert "WHAT IS THIS?" in reply.text
assert "LOGO.PNG" in reply.text
