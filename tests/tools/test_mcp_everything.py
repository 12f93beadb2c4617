"""The protocol's reference server, over stdio and through whole turns: its picture reaches the model."""

from __future__ import annotations

import base64
import os
import re
import signal

import pytest

from loom.content.blocks import ImageBlock, ToolCall
from loom.content.media import digest_of
from loom.content.messages import text_of
from loom.errors import ToolError
from loom.events import ToolProgressed, TurnFinished
from loom.prompt import ShownMedia, ShownResult
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.mcp import McpServers
from tools.mcp_world import EVERYTHING, Context, everything


def sent_picture() -> bytes:
    """What the server's own source says that it sends."""
    source = (EVERYTHING.parent / "tools" / "get-tiny-image.js").read_text()
    found = re.search(r'"([A-Za-z0-9+/=]{200,})"', source)
    assert found is not None
    return base64.b64decode(found[1])


async def test_the_picture_of_its_image_tool_is_stored_as_it_was_sent_and_shown_to_the_model() -> None:
    allow = {"approval.rules": [{"tool": "every__*", "action": "allow"}]}
    provider = ScriptedProvider([ToolCall("c1", "every__get-tiny-image"), "A logo."])
    async with (
        McpServers([everything()]) as servers,
        memory_runtime(allow, providers={"anthropic": provider}, mcp=servers) as runtime,
    ):
        await servers.wait_ready(30)
        session = await runtime.session(model="anthropic/claude-sonnet-4-5")
        assert (await session.send("show me")).text == "A logo."
        (result,) = (await session.path())[2].results
        (picture,) = [block for block in result.blocks if isinstance(block, ImageBlock)]
        assert picture.media.digest == digest_of(sent_picture())
        assert await runtime.stores.media.load(picture.media.digest) == sent_picture()
        shown = provider.prompts[1].messages[-1].blocks[0]
        assert isinstance(shown, ShownResult)
        assert [block.ref.digest for block in shown.blocks if isinstance(block, ShownMedia)] == [picture.media.digest]
        assert "every__echo" in [spec.name for spec in provider.prompts[0].tools]


async def test_text_links_resources_structure_and_progress_arrive_in_their_forms() -> None:
    async with McpServers([everything()]) as servers:
        await servers.wait_ready(30)
        context = Context()
        tools = servers.tools
        (echo,) = (await tools["every__echo"].run(context, {"message": "héllo"})).blocks
        assert text_of(echo) == "Echo: héllo"
        weather = await tools["every__get-structured-content"].run(context, {"location": "Chicago"})
        assert set(weather.data) == {"temperature", "conditions", "humidity"}
        links = (await tools["every__get-resource-links"].run(context, {"count": 2})).blocks
        assert all("not fetched" in text_of(link) for link in links[1:])
        blob = {"resourceType": "Blob", "resourceId": 1}
        resource = (await tools["every__get-resource-reference"].run(context, blob)).blocks
        assert any("Resource 1" in text_of(block) for block in resource)
        await tools["every__trigger-long-running-operation"].run(context, {"duration": 1, "steps": 4})
        assert context.told[-1] == ("4 of 4", 1.0)
        with pytest.raises(ToolError, match=r"message is missing\. Expected: \(message: string\)"):
            await tools["every__echo"].run(context, {})


async def test_killed_in_mid_call_it_is_an_error_result_and_the_next_call_works() -> None:
    allow = {"approval.rules": [{"tool": "every__*", "action": "allow"}]}
    slow = ToolCall("c1", "every__trigger-long-running-operation", {"duration": 60, "steps": 60})
    provider = ScriptedProvider([slow, ToolCall("c2", "every__echo", {"message": "again"}), "Done."])
    async with (
        McpServers([everything()]) as servers,
        memory_runtime(allow, providers={"anthropic": provider}, mcp=servers) as runtime,
    ):
        await servers.wait_ready(30)
        session = await runtime.session(model="anthropic/claude-sonnet-4-5")
        process_id = servers.status()[0].process_id
        assert process_id is not None
        async for event in session.stream("go"):
            if isinstance(event, ToolProgressed):
                os.kill(process_id, signal.SIGKILL)
        assert isinstance(event, TurnFinished)
        killed, works = [result for message in await session.path() for result in message.results]
        assert killed.is_error
        assert "MCP server 'every' is unavailable: signal 9" in text_of(killed)
        assert (works.is_error, text_of(works)) == (False, "Echo: again")
