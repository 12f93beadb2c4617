"""The conversation that `benchmarks.requests` sends, and ways to build it: with Loom, by hand, with other libraries.

The Python of the other libraries has no Loom, so everything is imported where it is used.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

TURNS, IMAGES, PDFS = 40, 30, 3
NAME = "claude-sonnet-4-5"
KEY = "sk-bench-0123456789"

Send = Callable[[], Awaitable[None]]


# The conversation ---------------------------------------------------------------------------------------------------


def make(folder: Path) -> None:
    """Write screenshots of 1.0–1.5 MB that can be decoded, and PDFs, to `folder`."""
    from PIL import Image

    from loom.testing import sample_pdf

    for number in range(IMAGES):
        image = Image.new("RGB", (1920, 1080), (240, 240, 244))
        height = 175 + 5 * number // 2
        image.paste(Image.frombytes("RGB", (1920, height), os.urandom(1920 * height * 3)), (0, 100))
        image.save(folder / f"{number:02}.png", compress_level=1)
    for number in range(PDFS):
        pages = [f"Paper {number}, page {page}" for page in range(20)]
        data = sample_pdf(*pages)
        (folder / f"{IMAGES + number:02}.pdf").write_bytes(data + b"\n%" + os.urandom(900_000).hex().encode())


def turns(folder: Path) -> list[tuple[str, Path | None, str]]:
    """Return question, file and answer of each turn. PDFs come first and images last, as in a typical session."""
    found = sorted(folder.glob("*.pdf")) + sorted(folder.glob("*.png"))
    files: list[Path | None] = [*[None] * (TURNS - len(found)), *found]
    return [(f"Question {at}: what does it say? " + "words " * 40, file, "It says: " + "answer " * 60)
            for at, file in enumerate(files)]  # fmt: skip


# The ways -----------------------------------------------------------------------------------------------------------


def blocks(folder: Path) -> list[dict[str, Any]]:
    """Return the messages for Anthropic with media as base64, the usual way."""
    messages: list[dict[str, Any]] = []
    for question, file, answer in turns(folder):
        content: list[dict[str, Any]] = []
        if file is not None:
            data = base64.b64encode(file.read_bytes()).decode()
            kind, media = ("image", "image/png") if file.suffix == ".png" else ("document", "application/pdf")
            content.append({"type": kind, "source": {"type": "base64", "media_type": media, "data": data}})
        messages.append({"role": "user", "content": [*content, {"type": "text", "text": question}]})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    return [*messages, {"role": "user", "content": "And now?"}]


async def plain_json(folder: Path, url: str) -> Send:
    import httpx2

    client = httpx2.AsyncClient(timeout=60)

    async def send() -> None:
        body = json.dumps({"model": NAME, "max_tokens": 100, "messages": blocks(folder)})
        headers = {"content-type": "application/json"}
        (await client.post(f"{url}/json/v1/messages", content=body, headers=headers)).raise_for_status()

    return send


async def anthropic(folder: Path, url: str) -> Send:
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(api_key=KEY, base_url=f"{url}/sse", max_retries=0)

    async def send() -> None:
        messages: Any = blocks(folder)
        async for _ in await client.messages.create(model=NAME, max_tokens=100, messages=messages, stream=True):
            pass

    return send


async def pydantic_ai(folder: Path, url: str) -> Send:
    from pydantic_ai import BinaryContent
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    model = AnthropicModel(NAME, provider=AnthropicProvider(api_key=KEY, base_url=f"{url}/sse"))

    async def send() -> None:
        messages: list[Any] = []
        for question, file, answer in turns(folder):
            media = "image/png" if file is not None and file.suffix == ".png" else "application/pdf"
            content: list[Any] = [] if file is None else [BinaryContent(data=file.read_bytes(), media_type=media)]
            messages.append(ModelRequest(parts=[UserPromptPart(content=[*content, question])]))
            messages.append(ModelResponse(parts=[TextPart(content=answer)]))
        await model_request(model, [*messages, ModelRequest(parts=[UserPromptPart(content="And now?")])])

    return send


async def langchain(folder: Path, url: str) -> Send:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import AIMessage, HumanMessage

    model = ChatAnthropic(model=NAME, api_key=KEY, base_url=f"{url}/json", max_tokens=100, max_retries=0)

    async def send() -> None:
        kinds = {"user": HumanMessage, "assistant": AIMessage}
        await model.ainvoke([kinds[message["role"]](content=message["content"]) for message in blocks(folder)])

    return send


async def litellm(folder: Path, url: str) -> Send:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm as library

    async def send() -> None:
        messages: list[dict[str, Any]] = []
        for question, file, answer in turns(folder):
            content: list[dict[str, Any]] = [{"type": "text", "text": question}]
            if file is not None:
                media = "image/png" if file.suffix == ".png" else "application/pdf"
                address = f"data:{media};base64,{base64.b64encode(file.read_bytes()).decode()}"
                content.append(
                    {"type": "image_url", "image_url": {"url": address}}
                    if media == "image/png"
                    else {"type": "file", "file": {"file_data": address}}
                )
            messages += [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
        messages.append({"role": "user", "content": "And now?"})
        api = f"{url}/json/v1/messages"
        await library.acompletion(model=f"anthropic/{NAME}", messages=messages, api_key=KEY, api_base=api)

    return send


async def loom(folder: Path, url: str) -> Send:
    return (await Loom.open(folder, url)).send


class Loom:
    """The conversation in a store, as in a session; each request starts from its path."""

    @classmethod
    async def open(cls, folder: Path, url: str, aging: Any = "off") -> Loom:
        import msgspec

        from loom.agent.ingest import ingest
        from loom.compile.policy import DetachedMessage, Policy
        from loom.compile.renditions import Renditions
        from loom.compile.request import RequestInput
        from loom.compile.settle import Settler
        from loom.content.messages import assistant, user
        from loom.formats.facts import IntakeLimits
        from loom.formats.renderer import FormatRenderer
        from loom.providers.catalog import ModelOverrides, model
        from loom.providers.http import HttpProvider
        from loom.store.derived import DerivedCache
        from loom.store.media import open_media

        self = cls()
        media = open_media(folder / f"store-{os.getpid()}")
        limits = IntakeLimits()
        self.renditions = Renditions(media, DerivedCache(media.place), FormatRenderer(limits))
        self.settler = Settler(self.renditions)
        found = model("anthropic/claude-opus-5", ModelOverrides(base_url=f"{url}/sse"))
        if aging == "off":
            room = msgspec.structs.replace(found.limits, max_request_bytes=None, context_tokens=100_000_000)
            found = msgspec.structs.replace(found, limits=room)
        messages = []
        for question, file, answer in turns(folder):
            content = [] if file is None else (await ingest([file], media, limits=limits)).blocks
            messages += [user(*content, question), assistant(answer)]
        self.request = RequestInput(
            path=tuple(DetachedMessage(f"n{at}", message) for at, message in enumerate([*messages, user("And now?")])),
            model=found,
            policy=Policy(aging=aging),
        )
        self.provider = HttpProvider(self.renditions, lambda _: KEY)
        return self

    async def prompt(self) -> Any:
        import msgspec

        prepared = await self.settler.settle(self.request)
        self.request = msgspec.structs.replace(self.request, watermark=prepared.watermark)
        return prepared.prompt

    async def settle(self) -> None:
        """Compile until the watermark has moved and all renditions are cached."""
        for _ in range(3):
            await self.prompt()

    async def send(self) -> None:
        async for _ in self.provider.stream(await self.prompt()):
            pass


CASES: dict[str, Callable[[Path, str], Awaitable[Send]]] = {
    "loom": loom,
    "anthropic SDK": anthropic,
    "plain base64 + json": plain_json,
    "pydantic-ai": pydantic_ai,
    "LangChain": langchain,
    "LiteLLM": litellm,
}
