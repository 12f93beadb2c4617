"""Use `async`: compare two images, and check the form in which each was sent."""

import asyncio

from loom import AsyncLoom, image
from loom.testing import sample_png


async def main() -> None:
    async with AsyncLoom(model="spark") as lm:
        session = await lm.session()
        first, second = image(sample_png(40, 30), name="a.png"), image(sample_png(40, 30, (200, 0, 0)), name="b.png")
        stream = session.stream("compare", first, second)
        async for words in stream.text():
            print(words, end="")
        shown = [row.rendition for row in stream.reply.receipt.rows if row.kind == "image"]
        assert shown == ["full", "full"]


asyncio.run(main())
