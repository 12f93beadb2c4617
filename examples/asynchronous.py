"""The same with `await`: compare two pictures, and see in which form each was shown."""

import asyncio

from loom import Runtime, image
from loom.testing import sample_png


async def main() -> None:
    async with Runtime.open() as runtime:
        session = await runtime.session(model="spark")
        first, second = image(sample_png(40, 30), name="a.png"), image(sample_png(40, 30, (200, 0, 0)), name="b.png")
        reply = await session.send("compare", first, second)
        print(reply.text)
        shown = [row.rendition for row in reply.receipt.rows if row.kind == "image"]
        assert shown == ["full", "full"]


asyncio.run(main())
