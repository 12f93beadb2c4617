"""What Gemini and Ollama refuse."""

from __future__ import annotations

import re

from loom.prompt import Embedded
from wire.rules_common import (
    JSON,
    PDF,
    Found,
    blank,
    counted,
    embedded,
    refs,
    sized,
)

_GEMINI_AUDIO = ("audio/wav", "audio/mpeg", "audio/flac", "audio/ogg", "audio/aac")
_GEMINI_VIDEO = (
    "video/mp4",
    "video/webm",
    "video/mpeg",
    "video/3gpp",
    "video/x-flv",
    "video/quicktime",
    "video/x-msvideo",
)
_GEMINI_IMAGES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")


def gemini(provider: str, name: str, request: JSON) -> Found:
    contents = request["contents"]
    old = name.startswith("gemini-2.5")
    roles = [content["role"] for content in contents]
    if not roles or roles[-1] != "user" or roles[0] != "user":
        yield "the conversation does not begin and end with the user"
    if set(roles) - {"user", "model"}:
        yield "a role is neither user nor model"
    for content in contents:
        yield from _gemini_parts(content, old)
    yield from _gemini_pairs(contents)
    for ref in (found.ref for found in embedded(request)):
        if ref.media_type not in (*_GEMINI_IMAGES, *_GEMINI_AUDIO, *_GEMINI_VIDEO, PDF):
            yield f"{ref.media_type} is not taken"
        if ref.media_type == PDF and ref.size_bytes > 50_000_000:
            yield "a PDF has more than 50 MB"
    yield from counted("pages", sum(ref.pages or 1 for ref in refs(request, PDF)), 1_000)
    yield from counted("pictures", len(refs(request, "image/")), 3_000)
    yield from sized(request, 100_000_000)
    wish = request.get("generationConfig", {}).get("thinkingConfig", {})
    if ("thinkingLevel" in wish and old) or ("thinkingBudget" in wish and not old):
        yield "thinking is asked for in another generation's words"


def _gemini_parts(content: JSON, old: bool) -> Found:
    if not content["parts"]:
        yield "parts are empty"
    for part in content["parts"]:
        fields = [key for key in part if key in ("text", "inlineData", "fileData", "functionCall", "functionResponse")]
        if len(fields) != 1:
            yield f"a part has the fields {fields}"
        signed = bool(part.get("thoughtSignature"))
        if part.get("text") is not None and blank(part["text"]) and not signed:
            yield "a text is blank"
        if part.get("thought") and not signed:
            yield "a summary of thoughts is sent back"
        if "inlineData" in part and content["role"] == "model":
            yield "a medium stands on the model's side"
        if "functionResponse" in part:
            yield from _gemini_response(part["functionResponse"], content["role"], old)
    calls = [part for part in content["parts"] if "functionCall" in part]
    if calls and not calls[0].get("thoughtSignature") and not old:
        yield "Function call is missing a thought_signature"
    for part in calls:
        if content["role"] != "model" or not isinstance(part["functionCall"]["args"], dict):
            yield "a call is not the model's, or its args are not an object"
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", part["functionCall"]["name"]):
            yield f"the name {part['functionCall']['name']!r} is not legal"


def _gemini_response(response: JSON, role: str, old: bool) -> Found:
    if role != "user" or not isinstance(response["response"], dict):
        yield "a response is not the user's, or is not an object"
    if response.get("parts") and old:
        yield "Multimodal function responses are not supported for this model"
    if any(ref.media_type not in ("image/png", "image/jpeg", "image/webp", PDF) for ref in refs(response, "")):
        yield "a response holds a medium that only a user may send"


def _gemini_pairs(contents: list[JSON]) -> Found:
    asked: list[tuple[str, str | None]] = []
    for before, content in zip([None, *contents], contents, strict=False):
        responses = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if [(found["name"], found.get("id")) for found in responses] != asked:
            yield f"calls {asked} are answered by {[(found['name'], found.get('id')) for found in responses]}"
        if any("functionResponse" in part for part in content["parts"][len(responses) :]):
            yield "a response stands behind other parts"
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        asked = [(call["name"], call.get("id")) for call in calls]
        if asked and (before is None or before["role"] != "user"):
            yield "a call does not follow the user"
    if asked:
        yield f"calls {asked} are not answered"


# Ollama ----------------------------------------------------------------------------------------------------


def ollama(provider: str, name: str, request: JSON) -> Found:
    messages = request["messages"]
    if messages[-1]["role"] == "assistant":
        yield "the last message is the assistant's"
    waiting: list[str] = []
    for message in messages:
        yield from _ollama_message(message)
        if message["role"] == "tool":
            if not waiting or message["tool_name"] != waiting.pop(0):
                yield "a result does not answer the next call"
            continue
        if waiting:
            yield f"calls {waiting} are not answered"
        waiting = [call["function"]["name"] for call in message.get("tool_calls", [])]
    if waiting:
        yield f"calls {waiting} are not answered"
    for ref in (found.ref for found in embedded(request)):
        if ref.media_type not in ("image/png", "image/jpeg"):
            yield f"{ref.media_type} is not taken"
    if request.get("truncate") is not False or "num_ctx" not in request["options"]:
        yield "the server may drop the oldest messages in silence"


def _ollama_message(message: JSON) -> Found:
    if message["role"] not in ("system", "user", "assistant", "tool"):
        yield f"the role {message['role']}"
    if not isinstance(message["content"], str):
        yield "content is not a string"
    if any(not isinstance(image, Embedded) or image.prefix for image in message.get("images", [])):
        yield "a picture is not plain base64"
    if message.get("images") and message["role"] != "user":
        yield "pictures stand where only some templates show them"
    if message["role"] == "user" and blank(message["content"]) and not message.get("images"):
        yield "a message is empty"
    if any(not isinstance(call["function"]["arguments"], dict) for call in message.get("tool_calls", [])):
        yield "a call's arguments are not an object"
