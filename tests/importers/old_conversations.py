"""Hypothesis strategies for conversations of older and foreign shapes, broken ones too, with what must not get lost."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from content.tiny_media import GIF, PDF, PNG, WAV
from loom.content.blocks import clean_text
from strategies import OBJECTS


@dataclass
class Said:
    """A conversation and what it says: texts, calls as (id, name, arguments as given), ids of results."""

    items: list[Any] = field(default_factory=list[Any])
    texts: list[str] = field(default_factory=list[str])
    calls: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    result_ids: list[str] = field(default_factory=list[str])


# Surrogates, odd spaces and things that look like structure; short, so that collisions happen.
TEXTS = (
    st.text(st.characters(), max_size=12)
    | st.text(st.characters(categories=["Cs", "Lu"]), max_size=4)
    | st.sampled_from(["", " \n", "{", "[1]", "null", "data:", '{"type":"image"}', '{"success":1}'])
)
IDS = st.sampled_from(["a", "b", "call_1", "", "functions.f:0", "a~2", "\ud800"]) | st.none() | st.integers(0, 3)
NAMES = st.sampled_from(["f", "g", "read_file", ""]) | st.none()
RAW = st.sampled_from(
    ["", " ", "null", "{}", '{"x": 1}', "[1]", '{"x": ', "NaN", '{"n": 123456789012345678901234567890}']
)
ARGUMENTS = RAW | OBJECTS | OBJECTS.map(json.dumps) | st.none() | st.just([1])
BASE64 = st.sampled_from([base64.b64encode(data).decode() for data in (PNG, GIF, WAV, PDF, b"garbage", b"")]) | st.just(
    "?!"
)
BLOBS = st.builds(
    lambda data, shape: {
        "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        "chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        "responses": {"type": "input_file", "filename": "x.pdf", "file_data": f"data:application/pdf;base64,{data}"},
        "gemini": {"inlineData": {"mimeType": "image/png", "data": data}},
        "bedrock": {"document": {"format": "pdf", "name": "r", "source": {"bytes": data}}},
        "audio": {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        "path": {"type": "image", "source_path": "shots/photo.png"},
        "gone": {"type": "document", "source_path": "/gone"},
        "link": {"type": "image", "source": {"type": "url", "url": "https://example.com/x.png"}},
        "file": {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        "new": {"type": "hologram", "depth": 3},
        "none": {"type": "image"},
    }[shape],
    BASE64,
    st.sampled_from(
        ["anthropic", "chat", "responses", "gemini", "bedrock", "audio", "path", "gone", "link", "file", "new", "none"]
    ),
)


class Writer:
    """Draws one message after another and remembers what it said."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.said = Said()

    def text(self) -> str:
        text = self.draw(TEXTS)
        self.said.texts.append(text)
        return text

    def call(self) -> tuple[Any, Any, Any]:
        call_id, name, arguments = self.draw(IDS), self.draw(NAMES), self.draw(ARGUMENTS)
        self.said.calls.append(("" if call_id is None else str(call_id), name or "unknown", arguments))
        return call_id, name, arguments

    def result_id(self) -> Any:
        call_id = self.draw(IDS)
        self.said.result_ids.append("" if call_id is None else str(call_id))
        return call_id

    def some(self, *makers: Any) -> list[Any]:
        return [self.draw(st.sampled_from(makers))() for _ in range(self.draw(st.integers(0, 3)))]

    def blob(self) -> Any:
        return self.draw(BLOBS)

    def typed_text(self) -> Any:
        return {"type": self.draw(st.sampled_from(["text", "input_text", "output_text"])), "text": self.text()}

    def chat_call(self) -> Any:
        call_id, name, arguments = self.call()
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def tool_use(self) -> Any:
        call_id, name, arguments = self.call()
        return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}

    def function_call(self) -> Any:
        call_id, name, arguments = self.call()
        return {"functionCall": {"id": call_id, "name": name, "args": arguments}}

    def thinking(self) -> Any:
        return {"type": "thinking", "thinking": self.text(), "signature": self.draw(st.sampled_from(["", "sig"]))}

    def tool_result(self) -> Any:
        content = self.some(self.typed_text, self.blob) if self.draw(st.booleans()) else self.text()
        return {"type": "tool_result", "tool_use_id": self.result_id(), "content": content}

    def old_result(self) -> str:
        """Loom's old result object. Its texts do not look like results themselves."""
        output, error = (self.draw(st.text("abc é", max_size=5)) for _ in range(2))
        self.said.texts += [output, error]
        success = self.draw(st.booleans())
        blocks = self.some(self.blob)
        return json.dumps({"success": success, "output": output, "error": error, "content_blocks": blocks})

    def message(self) -> Any:
        shape = self.draw(st.sampled_from(SHAPES))
        role = self.draw(st.sampled_from(["user", "assistant", "system", "developer", "human", "critic"]))
        return shape(self, role)

    def chat(self, role: str) -> Any:
        content = self.draw(
            st.sampled_from([self.text, lambda: None, lambda: self.some(self.typed_text, self.blob, self.text)])
        )
        return {"role": role, "content": content(), "tool_calls": self.some(self.chat_call), "thinking": self.text()}

    def anthropic(self, role: str) -> Any:
        makers = (self.typed_text, self.blob, self.tool_use, self.tool_result, self.thinking)
        return {"role": role, "content": self.some(*makers)}

    def gemini(self, role: str) -> Any:
        parts = self.some(lambda: {"text": self.text()}, self.function_call, self.blob)
        return {"role": "model" if role == "assistant" else "user", "parts": parts}

    def tool(self, _: str) -> Any:
        content = self.draw(
            st.sampled_from([self.text, self.old_result, lambda: self.some(self.typed_text, self.blob)])
        )()
        return {"role": "tool", "tool_call_id": self.result_id(), "name": self.draw(NAMES), "content": content}

    def ollama(self, role: str) -> Any:
        return {"role": role, "content": self.text(), "images": [self.draw(BASE64)]}

    def item(self, _: str) -> Any:
        call_id, name, arguments = self.call()
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}

    def output_item(self, _: str) -> Any:
        return {"type": "function_call_output", "call_id": self.result_id(), "output": self.text()}

    def reasoning(self, _: str) -> Any:
        return {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": self.text()}],
            "encrypted_content": "x",
        }


SHAPES = [
    Writer.chat, Writer.chat, Writer.anthropic, Writer.anthropic, Writer.gemini, Writer.tool, Writer.tool,
    Writer.ollama, Writer.item, Writer.output_item, Writer.reasoning,
]  # fmt: skip


@st.composite
def old_conversations(draw: st.DrawFn) -> Said:
    writer = Writer(draw)
    writer.said.items = [{"role": "user", "content": "go"}] + [writer.message() for _ in range(draw(st.integers(0, 6)))]
    return writer.said


def non_blank(texts: list[str]) -> list[str]:
    return [cleaned for text in texts if (cleaned := clean_text(text)).strip()]
