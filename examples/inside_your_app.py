"""Mount the daemon in your own application: sessions, media and events under /loom, with your tools."""

import asyncio

import httpx2
from starlette.applications import Starlette
from starlette.routing import Mount

import loom


@loom.tool
def opening_hours() -> str:
    """When the shop is open."""
    return "from nine to five"


lm = loom.Loom(model="spark", tools=[opening_hours])  # also store="postgresql://…", media="s3://bucket/prefix"
daemon = loom.asgi(lm)
app = Starlette(routes=[Mount("/loom", daemon)])


async def main() -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        print((await client.get("/loom/v1/health")).json())
        assert (await client.get("/loom/v1/sessions")).status_code == 401  # no token was sent
    await daemon.close()


asyncio.run(main())
lm.close()
