"""The content checks of `python -m benchmarks.gateway.proxy`: what gateways keep of a request, and conversations that
a gateway can make unusable (bricks)."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from daemon.hostile import LARGE, call, image, looped, pdf, spell, text, thinking
from loom.testing import sample_pdf, sample_png
from providers.far_side import Request

if TYPE_CHECKING:
    from benchmarks.gateway.proxy import Gateway

# Rows ----------------------------------------------------------------------------------------------------------------

IMAGE_DATA = base64.b64encode(sample_png(64, 48)).decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE_DATA}}
PDF = {
    "type": "document",
    "source": {
        "type": "base64",
        "media_type": "application/pdf",
        "data": base64.b64encode(sample_pdf("The answer is 42.")).decode(),
    },
}
LOOK = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}


def _loop(*content: Any, **more: Any) -> list[Any]:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": list(content), **more}
    answer = [{"type": "text", "text": "Looking first."}, LOOK]
    return [
        {"role": "user", "content": "see"},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": [result]},
    ]


def user_message(*content: Any) -> list[Any]:
    return [{"role": "user", "content": [*content, {"type": "text", "text": "what is it?"}]}]


SEARCHED = [
    {"role": "user", "content": "search"},
    {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "loom prices"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": "https://loom.example/prices",
                        "title": "Prices",
                        "encrypted_content": "eA",
                    }
                ],
            },
            {"type": "text", "text": "It costs 5."},
        ],
    },
    {"role": "user", "content": "sure?"},
]
THOUGHT = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "SECRET THOUGHT", "signature": "c2ln"},
            {"type": "text", "text": "Hello."},
        ],
    },
    {"role": "user", "content": "go on"},
]
Check = Callable[[dict[str, Any], str], bool]


def _has(*words: str) -> Check:
    return lambda _, sent: all(word in sent for word in words)


def _is_system(body: dict[str, Any], _: str) -> bool:
    """Return whether the text is a system or developer message; for other protocols than OpenAI's also marked text."""
    items = body.get("input") or body["messages"]
    found = [item for item in items if "BE SHORT" in str(item.get("content"))]
    is_marked = "input" not in body and any("[system]" in str(item) for item in found)
    return bool(found) and (is_marked or all(item.get("role") in ("developer", "system") for item in found))


def _keeps_order(_: dict[str, Any], sent: str) -> bool:
    return -1 < sent.find("Looking first.") < sent.find('"look"', sent.find("Looking first."))


def _is_in_result(body: dict[str, Any], sent: str) -> bool:
    """Return whether the image is in the tool result; a Chat server accepts it only in a user message."""
    if "input" not in body:
        return IMAGE_DATA in sent
    results = [item for item in body["input"] if item.get("type") == "function_call_output"]
    return any(IMAGE_DATA in json.dumps(item) for item in results)


def _is_pdf_readable(body: dict[str, Any], sent: str) -> bool:
    is_native = "input" in body and "application/pdf" in sent
    is_shown = "42" in sent or "data:image/" in sent
    return (is_native or is_shown) and '"image_url": {"url": "data:application/pdf' not in sent


ROWS: dict[str, tuple[dict[str, Any], Check]] = {
    "image in a tool result": ({"messages": _loop(IMAGE)}, _is_in_result),
    "PDF in a message": ({"messages": user_message(PDF)}, _is_pdf_readable),
    "PDF in a tool result": ({"messages": _loop(PDF)}, _is_pdf_readable),
    "document of plain text": (
        {
            "messages": user_message(
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "PLAIN WORDS"}}
            )
        },
        _has("PLAIN WORDS"),
    ),
    "search_result": (
        {
            "messages": user_message(
                {
                    "type": "search_result",
                    "source": "s",
                    "title": "t",
                    "content": [{"type": "text", "text": "FOUND WORDS"}],
                }
            )
        },
        _has("FOUND WORDS"),
    ),
    "is_error": (
        {"messages": _loop({"type": "text", "text": "no such file"}, is_error=True)},
        lambda _, sent: "rror" in sent.replace("no such file", ""),
    ),
    "server-tool calls and results": ({"messages": SEARCHED}, _has("loom prices", "loom.example/prices")),
    "thinking of another model": ({"messages": THOUGHT}, lambda _, sent: "SECRET THOUGHT" not in sent),
    "order of text and calls": ({"messages": _loop({"type": "text", "text": "x"})}, _keeps_order),
    "changing first line in system": (
        {
            "messages": user_message(),
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cch=12ab"},
                {"type": "text", "text": "You code."},
            ],
        },
        lambda _, sent: "billing-header" not in sent and "You code." in sent,
    ),
    "system message in the middle": (
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "system", "content": "BE SHORT"},
                {"role": "user", "content": "c"},
            ]
        },
        _is_system,
    ),
}


async def compare_rows(gateways: list[Gateway], requests: list[Request]) -> None:
    print("\nContent of an Anthropic request that arrives (Responses server, Chat server)")
    print(f"{'':34}" + "".join(f"{gateway.name:>22}" for gateway in gateways))
    for title, (fields, check) in ROWS.items():
        cells: list[str] = []
        for gateway in gateways:
            found: list[str] = []
            for model in ("responses", "chat"):
                requests.clear()
                tools = [
                    {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
                ]
                body = {"model": model, "max_tokens": 99, "tools": tools, **fields}
                async with httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
                    answer = await http.post(f"{gateway.url}/v1/messages", json=body)
                sent = [request for request in requests if request.method == "POST" and b"{" in request.body[:1]]
                if not sent or answer.status_code != 200:
                    found.append(f"{answer.status_code}")
                    continue
                last = sent[-1].json
                found.append("kept" if check(last, json.dumps(last)) else "lost")
            cells.append(" / ".join(found))
        print(f"{title:34}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


# Bricks --------------------------------------------------------------------------------------------------------------

BRICKS = {
    "a too large image in a tool result, to Claude": ("opus", looped(image(LARGE))),
    "a PDF, to a chat server": (
        "local",
        [("user", [pdf(sample_pdf("42")), text("read")]), ("assistant", [text("42.")]), ("user", [text("?")])],
    ),
    "a foreign signature, to Claude": (
        "opus",
        [
            ("user", [text("hi")]),
            ("assistant", [thinking("Hm.", "bm90LW1pbmU="), text("Hello.")]),
            ("user", [text("?")]),
        ],
    ),
    "a call without a result, to Claude": (
        "opus",
        [("user", [text("hi")]), ("assistant", [call("toolu_9")]), ("user", [text("?")])],
    ),
    "an empty text block, to Claude": ("opus", [("user", [text(""), text("hi")])]),
}


async def compare_bricks(gateways: list[Gateway]) -> None:
    print("\nConversations of three turns; the servers enforce their rules")
    print(f"{'':50}" + "".join(f"{gateway.name:>22}" for gateway in gateways))
    own = {"opus": "claude", "local": "chat"}
    for title, (name, conversation) in BRICKS.items():
        cells: list[str] = []
        for gateway in gateways:
            history = spell("anthropic", conversation)["messages"]
            good = 0
            async with httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
                for turn in range(3):
                    body = {"model": own[name], "max_tokens": 99, "messages": history}
                    answer = await http.post(f"{gateway.url}/v1/messages", json=body)
                    if answer.status_code != 200:
                        break
                    good += 1
                    history += [{"role": "assistant", "content": "fine"}, {"role": "user", "content": f"and {turn}?"}]
            cells.append("continues" if good == 3 else f"fails at turn {good + 1}")
        print(f"{title:50}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
