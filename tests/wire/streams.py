"""Answers as the five protocols stream them, after their documented shapes, and ways to cut them up."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from loom.errors import ProviderError
from loom.events import DecoderEvent, Folded, MediaArrived, fold
from loom.models import Model

PICTURE = b"\x89PNG of a chart"


def sse(*events: Any, end: str = "\n") -> bytes:
    """Server-sent events: an object is its JSON (named after its `type`), a string stands as it is."""
    written = ""
    for event in events:
        if isinstance(event, str):
            written += event + end + end
            continue
        name = f"event: {event['type']}{end}" if isinstance(event.get("type"), str) else ""
        written += f"{name}data: {json.dumps(event, ensure_ascii=False)}{end}{end}"
    return written.encode()


def ndjson(*objects: dict[str, Any]) -> bytes:
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in objects).encode()


def decode(wire: ModuleType, model: Model, chunks: Iterable[bytes]) -> list[DecoderEvent | str]:
    """The events of a stream that ended cleanly; an error stands last, as its code and sentence."""
    decoder = wire.Decoder(model)
    events: list[DecoderEvent | str] = []
    try:
        for chunk in chunks:
            events.extend(decoder.feed(chunk))
        events.extend(decoder.finish())
    except ProviderError as error:
        events.append(f"{error.code}: {error}")
    return events


def told(wire: ModuleType, model: Model, data: bytes) -> Folded:
    """What a whole stream amounts to."""
    return fold(event for event in decode(wire, model, [data]) if not isinstance(event, str | MediaArrived))


def cut_everywhere(wire: ModuleType, model: Model, data: bytes) -> None:
    """Two chunks at every position, and one byte at a time: always the same events."""
    whole = decode(wire, model, [data])
    assert decode(wire, model, [data[at : at + 1] for at in range(len(data))]) == whole
    for at in range(1, len(data)):
        assert decode(wire, model, [data[:at], data[at:]]) == whole, f"cut at byte {at}"


# Anthropic -----------------------------------------------------------------------------------------------------------


def _begun(**usage: int) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage}
    return {"type": "message_start", "message": message}


def _block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def _tool_use(call_id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def _json(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


def _ended(reason: str, tokens: int, **details: Any) -> list[dict[str, Any]]:
    usage = {"output_tokens": tokens, **details}
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


_EMPTY_TEXT = {"type": "text", "text": ""}

ANTHROPIC = {
    "text": sse(
        _begun(input_tokens=12, cache_read_input_tokens=100, cache_creation_input_tokens=30, output_tokens=1),
        {"type": "ping"},
        *_block(0, _EMPTY_TEXT, _text("Grüße aus "), _text("Köln 🙂")),
        *_ended("end_turn", 9),
    ),
    "thinking": sse(
        _begun(input_tokens=5, output_tokens=1),
        *_block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "First the "},
            {"type": "thinking_delta", "thinking": "report."},
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        ),
        *_block(1, {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}),
        *_block(
            2,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "signature_delta", "signature": "b21pdA=="},
        ),
        *_block(3, _EMPTY_TEXT, _text("Done.")),
        *_ended("end_turn", 40, output_tokens_details={"thinking_tokens": 31}),
    ),
    "calls": sse(
        _begun(input_tokens=5, output_tokens=1),
        *_block(0, _EMPTY_TEXT, _text("I look.")),
        *_block(1, _tool_use("toolu_1", "look"), _json(""), _json('{"name": "Über'), _json('sicht.png", "dpi": 150}')),
        *_block(2, _tool_use("toolu_2", "now")),
        *_ended("tool_use", 20),
    ),
    "citations": sse(
        _begun(input_tokens=5, output_tokens=1),
        *_block(0, _EMPTY_TEXT, _text("It says that ")),
        *_block(
            1,
            {"type": "text", "text": "", "citations": []},
            {
                "type": "citations_delta",
                "citation": {
                    "type": "page_location",
                    "cited_text": "Sales rose by 4 %.",
                    "document_index": 0,
                    "document_title": "report.pdf",
                    "file_id": None,
                    "start_page_number": 3,
                    "end_page_number": 5,
                },
            },
            _text("sales rose"),
        ),
        *_block(2, _EMPTY_TEXT, _text(".")),
        *_ended("end_turn", 9),
    ),
    "error": sse(
        _begun(input_tokens=5, output_tokens=1),
        *_block(0, _EMPTY_TEXT, _text("Half a sen")),
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ),
    "cut": sse(_begun(input_tokens=5, output_tokens=1), *_block(0, _EMPTY_TEXT, _text("Half a sen"))),
    "cut call": sse(
        _begun(input_tokens=5, output_tokens=1),
        *_block(0, _tool_use("toolu_1", "look"), _json('{"name": "a.png"}')),
        *_block(1, _tool_use("toolu_2", "look")),
        *_ended("max_tokens", 20),
    ),
}

# OpenAI Chat Completions ----------------------------------------------------------------------------------------------

DONE = "data: [DONE]"


def _chunk(delta: dict[str, Any] | None = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices, **more}


def _call(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    fragment: dict[str, Any] = {} if index is None else {"index": index}
    if call_id is not None:
        fragment |= {"id": call_id, "type": "function"}
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"tool_calls": [fragment | {"function": function}]}


_USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 30,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 12},
}

OPENAI_CHAT = {
    "text": sse(
        _chunk({"role": "assistant", "content": "", "refusal": None}, obfuscation="xyz"),
        _chunk({"content": "Grüße aus "}),
        _chunk({"content": "Köln 🙂"}),
        _chunk({}, "stop", usage=None),
        _chunk(usage=_USAGE),
        DONE,
    ),
    "calls": sse(
        _chunk({"role": "assistant", "content": None}),
        _chunk({"content": "I look."}),
        _chunk(_call(0, "call_1", "look", "")),
        _chunk(_call(0, None, None, '{"name": "Über')),
        _chunk(_call(0, None, None, 'sicht.png", "dpi": 150}')),
        _chunk(_call(1, "call_2", "now", "")),
        _chunk({}, "tool_calls"),
        DONE,
    ),
    "interleaved calls": sse(
        _chunk(_call(0, "call_1", "look", "")),
        _chunk(_call(1, "call_2", "look", "")),
        _chunk(_call(1, None, None, '{"name": "b"}')),
        _chunk(_call(0, None, None, '{"name": "a"}')),
        _chunk({}, "tool_calls"),
        DONE,
    ),
    "repeated names": sse(
        _chunk(_call(0, "call_1", "look", '{"name"')),
        _chunk(_call(0, "call_1", "look", ': "a"}')),
        _chunk({}, "tool_calls"),
        DONE,
    ),
    "all numbered 0": sse(
        _chunk(_call(0, "call_1", "look", '{"name": "a"}')),
        _chunk(_call(0, "call_2", "look", '{"name": "b"}')),
        _chunk(_call(0, None, "look", '{"name": "c"}')),
        _chunk({}, "stop"),
        DONE,
    ),
    "without numbers or ids": sse(
        _chunk(
            {
                "tool_calls": [
                    *_call(None, None, "look", {"name": "a"})["tool_calls"],
                    *_call(None, None, "now", None)["tool_calls"],
                ]
            }
        ),
        _chunk({}, "stop"),
        DONE,
    ),
    "late name": sse(
        _chunk(_call(0, "call_1", "", "")),
        _chunk(_call(0, None, None, '{"na')),
        _chunk(_call(0, None, "look", 'me": "a"}')),
        _chunk({}, "tool_calls"),
        DONE,
    ),
    "thinking": sse(
        ": keep-alive",
        _chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
        _chunk({"content": None, "reasoning_content": "First the "}),
        _chunk({"content": None, "reasoning_content": "report."}),
        ": keep-alive",
        _chunk({"content": "I look.", "reasoning_content": None}),
        _chunk(_call(0, "call_1", "look", '{"name": "a"}')),
        _chunk(
            {"content": ""},
            "tool_calls",
            usage={
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "prompt_cache_hit_tokens": 4,
                "prompt_cache_miss_tokens": 5,
            },
        ),
        DONE,
        end="\r\n",
    ),
    "reasoning": sse(
        _chunk({"reasoning": "Hm."}), _chunk({"content": "Yes."}), _chunk({}, "stop"), _chunk(usage=_USAGE), DONE
    ),
    "tags": sse(
        _chunk({"content": "\n"}),
        _chunk({"content": "<th"}),
        _chunk({"content": "ink>First the "}),
        _chunk({"content": "report. a</b </thi"}),
        _chunk({"content": "nk>"}),
        _chunk({"content": "\n\nIt <think> says"}),
        _chunk({"content": " so."}),
        _chunk({}, "stop"),
        DONE,
    ),
    "chunks of content": sse(
        _chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
        _chunk({"content": [{"type": "text", "text": "Yes."}]}),
        _chunk({"content": ""}, "stop", usage=_USAGE),
        DONE,
    ),
    "annotations": sse(
        _chunk({"content": "Sales rose."}),
        _chunk(
            {
                "annotations": [
                    {
                        "type": "url_citation",
                        "url_citation": {
                            "start_index": 0,
                            "end_index": 10,
                            "title": "News",
                            "url": "https://example.org/",
                        },
                    }
                ]
            },
            "stop",
        ),
        DONE,
    ),
    "refusal": sse(_chunk({"refusal": "I cannot "}), _chunk({"refusal": "do that."}), _chunk({}, "stop"), DONE),
    "spoken": sse(_chunk({"audio": {"id": "a", "transcript": "Good day."}}), _chunk({}, "stop"), DONE),
    "cut call": sse(
        _chunk(_call(0, "call_1", "look", '{"name": "a"}')),
        _chunk(_call(1, "call_2", "look", "")),
        _chunk({}, "length"),
        DONE,
    ),
    "no DONE": sse(_chunk({"content": "Yes."}), _chunk({}, "stop"), _chunk(usage=_USAGE)),
    "no reason": sse(_chunk({"content": "Yes."}), DONE),
    "error": sse(
        _chunk({"content": "Half a sen"}), {"error": {"message": "slot was lost", "type": "server_error", "code": 500}}
    ),
    "gave up": sse(_chunk({"content": "Half a sen"}), _chunk({}, "insufficient_system_resource"), DONE),
    "cut": sse(_chunk({"content": "Half a sen"})),
    "cut in a tag": sse(_chunk({"content": "<thi"})),
}

# OpenAI Responses -----------------------------------------------------------------------------------------------------


def _typed(kind: str, **facts: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 1, **facts}


def _item(place: int, item: dict[str, Any], *between: dict[str, Any], **done: Any) -> list[dict[str, Any]]:
    return [
        _typed("output_item.added", output_index=place, item=item),
        *between,
        _typed("output_item.done", output_index=place, item=item | done),
    ]


def _said(place: int, text: str, part: int = 0) -> dict[str, Any]:
    return _typed("output_text.delta", item_id="msg_1", output_index=place, content_index=part, delta=text)


def _completed(status: str = "completed", **facts: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 120,
        "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 8},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 150,
    }
    return _typed(status, response={"id": "resp_1", "status": status, "usage": usage, **facts})


def _message(**facts: Any) -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": [], **facts}


def _output(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _function(number: int, name: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": "",
        "status": "in_progress",
    }


_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "half"}

OPENAI_RESPONSES = {
    "text": sse(
        _typed("created", response={"id": "resp_1"}),
        _typed("in_progress", response={"id": "resp_1"}),
        *_item(
            0,
            _message(phase="final_answer"),
            _typed("content_part.added", output_index=0, content_index=0, part=_output("")),
            _said(0, "Grüße aus "),
            _said(0, "Köln 🙂"),
            _typed("output_text.done", output_index=0, content_index=0, text="Grüße aus Köln 🙂"),
            status="completed",
            content=[_output("Grüße aus Köln 🙂")],
        ),
        _completed(),
    ),
    "thinking": sse(
        *_item(
            0,
            _REASONING,
            _typed("reasoning_summary_part.added", output_index=0, summary_index=0),
            _typed("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="First the "),
            _typed("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="report."),
            _typed("reasoning_summary_part.added", output_index=0, summary_index=1),
            _typed("reasoning_summary_text.delta", output_index=0, summary_index=1, delta="Then the photo."),
            summary=[
                {"type": "summary_text", "text": "First the report."},
                {"type": "summary_text", "text": "Then the photo."},
            ],
            encrypted_content="gAAAwhole",
        ),
        *_item(1, _message(phase="commentary"), _said(1, "I look."), status="completed", content=[_output("I look.")]),
        *_item(
            2,
            _function(1, "look"),
            _typed("function_call_arguments.delta", output_index=2, delta='{"name": "Über'),
            _typed("function_call_arguments.delta", output_index=2, delta='sicht.png"}'),
            _typed("function_call_arguments.done", output_index=2, arguments='{"name": "Übersicht.png"}'),
            status="completed",
            arguments='{"name": "Übersicht.png"}',
        ),
        *_item(3, _function(2, "now"), status="completed", arguments="{}"),
        _completed(),
    ),
    "thinking without words": sse(
        *_item(0, _REASONING, encrypted_content="gAAAwhole"),
        *_item(1, _message(), _said(1, "Yes."), content=[_output("Yes.")]),
        _completed(),
    ),
    "whole at once": sse(
        _typed(
            "output_item.done", output_index=0, item=_REASONING | {"summary": [{"type": "summary_text", "text": "Hm."}]}
        ),
        _typed("output_item.done", output_index=1, item=_message(content=[_output("One. "), _output("Two.")])),
        _typed("output_item.done", output_index=2, item=_function(1, "look") | {"arguments": '{"name": "a"}'}),
        _completed(),
        DONE,
    ),
    "citations": sse(
        *_item(
            0,
            _message(),
            _said(0, "Sales rose."),
            _typed(
                "output_text.annotation.added",
                output_index=0,
                content_index=0,
                annotation_index=0,
                annotation={
                    "type": "url_citation",
                    "start_index": 0,
                    "end_index": 10,
                    "title": "News",
                    "url": "https://example.org/",
                },
            ),
            _typed(
                "output_text.annotation.added",
                output_index=0,
                content_index=0,
                annotation_index=1,
                annotation={"type": "file_citation", "file_id": "file-1", "filename": "report.pdf", "index": 10},
            ),
            content=[_output("Sales rose.")],
        ),
        _completed(),
    ),
    "without numbers": sse(
        _typed("output_item.added", item=_REASONING),
        _typed("reasoning_text.delta", item_id="rs_1", delta="Hm."),
        _typed("output_item.done", item=_REASONING | {"content": [{"type": "reasoning_text", "text": "Hm."}]}),
        _typed("output_item.added", item=_message()),
        _typed("output_text.delta", item_id="msg_1", delta="Yes."),
        _typed("output_item.done", item=_message(content=[_output("Yes.")])),
        _completed(),
    ),
    "refusal": sse(
        *_item(
            0,
            _message(),
            _typed("refusal.delta", output_index=0, content_index=0, delta="I cannot do that."),
            content=[{"type": "refusal", "refusal": "I cannot do that."}],
        ),
        _completed(),
    ),
    "image": sse(
        *_item(
            0,
            {"type": "image_generation_call", "id": "ig_1", "status": "in_progress", "result": None},
            _typed(
                "image_generation_call.partial_image", output_index=0, partial_image_b64="AAAA", partial_image_index=0
            ),
            status="completed",
            output_format="webp",
            result=base64.b64encode(PICTURE).decode(),
        ),
        _completed(),
    ),
    "incomplete": sse(
        *_item(
            0,
            _function(1, "look"),
            _typed("function_call_arguments.delta", output_index=0, delta='{"na'),
            status="incomplete",
            arguments='{"na',
        ),
        _completed("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    ),
    "failed": sse(
        *_item(0, _message(), _said(0, "Half a sen")),
        _typed("failed", response={"status": "failed", "error": {"code": "server_error", "message": "try again"}}),
    ),
    "error": sse(
        _said(0, "Half a sen"),
        {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None, "sequence_number": 3},
    ),
    "cut": sse(_said(0, "Half a sen")),
}

# Gemini ---------------------------------------------------------------------------------------------------------------


def _answer(*parts: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    return {"candidates": [{**content, "index": 0, **candidate}], "modelVersion": "gemini-4-argon"}


def _counted(response: dict[str, Any], **counts: int) -> dict[str, Any]:
    return response | {"usageMetadata": counts}


GEMINI = {
    "text": sse(
        _counted(_answer({"text": "Grüße aus "}), promptTokenCount=120, totalTokenCount=120),
        _answer({"text": "Köln 🙂"}),
        _counted(
            _answer({"text": ""}, finishReason="STOP"),
            promptTokenCount=120,
            cachedContentTokenCount=100,
            candidatesTokenCount=18,
            thoughtsTokenCount=12,
        ),
        end="\r\n",
    ),
    "calls": sse(
        _answer({"text": "First the ", "thought": True}),
        _answer({"text": "report.", "thought": True}),
        _answer({"text": "I look."}),
        _answer(
            {
                "functionCall": {"id": "f1", "name": "look", "args": {"name": "Übersicht.png", "dpi": 150}},
                "thoughtSignature": "c2lnbmVk",
            },
            {"functionCall": {"id": "f2", "name": "now"}},
        ),
        _counted(_answer(finishReason="STOP"), promptTokenCount=9, candidatesTokenCount=7),
    ),
    "calls without ids": sse(
        _answer({"functionCall": {"name": "look", "args": {"name": "a"}}}, finishReason="STOP"),
    ),
    "signed text": sse(
        _answer({"text": "One "}),
        _answer({"text": "two", "thoughtSignature": "b24gdGV4dA=="}),
        _answer({"text": " three."}),
        _answer({"text": "", "thoughtSignature": "b24gbm90aGluZw=="}, finishReason="STOP"),
    ),
    "signed thought": sse(
        _answer({"text": "Hm.", "thought": True, "thoughtSignature": "dGhvdWdodA=="}),
        _answer({"text": "Yes."}, finishReason="STOP"),
    ),
    "grounding": sse(
        _answer({"text": "In Köln stiegen "}),
        _answer(
            {"text": "die Umsätze."},
            finishReason="STOP",
            groundingMetadata={
                "groundingChunks": [
                    {"web": {"uri": "https://example.org/a", "title": "A"}},
                    {"retrievedContext": {"uri": "b.pdf", "title": "B", "text": "um 4 %"}},
                ],
                "groundingSupports": [
                    {
                        "segment": {"startIndex": 9, "endIndex": 30, "text": "stiegen die Umsätze."},
                        "groundingChunkIndices": [0, 1],
                    },
                    {"segment": {"endIndex": 8}, "groundingChunkIndices": [0, 7]},
                    {"segment": {"startIndex": 500, "endIndex": 503, "text": "die"}, "groundingChunkIndices": [0]},
                    {"segment": {"startIndex": 1, "endIndex": 3, "text": "nowhere"}, "groundingChunkIndices": [0]},
                ],
            },
            citationMetadata={"citations": [{"startIndex": 3, "endIndex": 8, "uri": "https://example.org/c"}]},
        ),
    ),
    "image": sse(
        _answer({"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PICTURE).decode()}}),
        _answer({"text": "Here."}, finishReason="STOP"),
    ),
    "blocked": sse(
        _counted({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": "g"}, promptTokenCount=4),
    ),
    "malformed call": sse(
        _answer({"text": "I "}), _answer(finishReason="MALFORMED_FUNCTION_CALL", finishMessage="print(look())")
    ),
    "error": sse(
        _answer({"text": "Half a sen"}),
        {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}},
    ),
    "cut": sse(_answer({"text": "Half a sen"})),
}

# Ollama ---------------------------------------------------------------------------------------------------------------


def _line(**message: Any) -> dict[str, Any]:
    return {"model": "m", "created_at": "t", "message": {"role": "assistant", "content": "", **message}, "done": False}


def _last(reason: str) -> dict[str, Any]:
    counts = {"total_duration": 5, "prompt_eval_count": 120, "eval_count": 30}
    return _line() | {"done": True, "done_reason": reason} | counts


OLLAMA = {
    "text": ndjson(_line(content="Grüße aus "), _line(content="Köln 🙂"), _last("stop")),
    "calls": ndjson(
        _line(thinking="First the "),
        _line(thinking="report."),
        _line(content="I look."),
        _line(
            tool_calls=[
                {"id": "call_1", "function": {"index": 0, "name": "look", "arguments": {"name": "Übersicht.png"}}},
                {"function": {"name": "now", "arguments": {}}},
            ]
        ),
        _last("stop"),
    ),
    "tags": ndjson(_line(content="<think>Hm."), _line(content="</think>\n"), _line(content="Yes."), _last("stop")),
    "length": ndjson(_line(content="Half a sen"), _last("length")),
    "no line end": ndjson(_line(content="Yes."), _last("stop")).rstrip(b"\n"),
    "error": ndjson(_line(content="Half a sen"), {"error": "an error was encountered while running the model"}),
    "cut": ndjson(_line(content="Half a sen")),
    "cut in a line": ndjson(_line(content="Half a sen"), _line(content="tence"))[:-30],
}
