"""A model of your own: it is asked like any other, and what it cannot take it is told in words."""

from collections.abc import AsyncIterator

import loom
from loom.testing import sample_png


class Echo:
    name = "echo"
    capabilities = loom.Capabilities()  # no eyes: images come as text

    async def stream(self, prompt: loom.Prompt) -> AsyncIterator[str]:
        for block in prompt.messages[-1].blocks:
            if isinstance(block, loom.TextBlock):
                yield f"{block.text.upper()} "


loom.register_provider(Echo())
reply = loom.ask("what is this?", loom.image(sample_png(64, 48), name="logo.png"), model="echo")
print(reply)
assert "WHAT IS THIS?" in reply.text
assert "LOGO.PNG" in reply.text
