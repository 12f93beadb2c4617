"""An MCP server over streamable HTTP, made with the official SDK: `http_mcp.py PORT sse|json`. It wants a header."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import mcp_types as types
import pybase64
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from starlette.types import ASGIApp, Receive, Scope, Send

KEY = b"Bearer the-key"
names = ["noise", "slow", "whoami", "grow"]
bus = InMemorySubscriptionBus()


async def list_tools(_: ServerRequestContext[Any], __: Any) -> types.ListToolsResult:
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in names])


async def call_tool(context: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
    match asked.name:
        case "noise":
            data = pybase64.b64encode_as_string(bmp((asked.arguments or {})["size"]))
            return types.CallToolResult(content=[types.ImageContent(data=data, mime_type="image/bmp")])
        case "grow":
            names.append("grown")
            await bus.publish(ToolsListChanged())
        case "slow":
            await asyncio.sleep(600)
    return types.CallToolResult(content=[types.TextContent(text=str(os.getpid()))])


def bmp(side: int) -> bytes:
    """A picture that does not compress: three bytes a pixel."""
    pixels = bytes(range(256)) * (side * side * 3 // 256 + 1)
    size = side * side * 3
    header = b"BM" + (54 + size).to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little")
    facts = (40).to_bytes(4, "little") + side.to_bytes(4, "little") * 2 + b"\1\0\x18\0" + bytes(24)
    return header + facts + pixels[:size]


def guarded(app: ASGIApp) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != KEY:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    return serve


if __name__ == "__main__":
    listen = ListenHandler(bus)
    server = Server("over-http", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=listen)
    app = server.streamable_http_app(json_response=sys.argv[2] == "json")
    uvicorn.run(guarded(app), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
