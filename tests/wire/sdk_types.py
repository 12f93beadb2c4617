"""The strict oracle: does a request have the shape that an official SDK's types describe?

Walks TypedDicts and pydantic models alike, down to the last element. Stricter than the SDKs themselves: extra keys are
refused everywhere, iterables are really walked, integers are not booleans, strings are not numbers.
"""

from __future__ import annotations

import base64
import binascii
import collections.abc
import enum
import re
import types
import typing
from typing import Any, Literal, NotRequired, Required, Union, cast

import pydantic
import typing_extensions
from typing_extensions import ReadOnly


class Mismatch(Exception):
    """Where a value leaves its type, and how."""

    def __init__(self, path: str, complaint: str) -> None:
        super().__init__(f"{path}: {complaint}")
        self.path = path


_SEQUENCES = (list, tuple, collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_MARKS = (Required, NotRequired, ReadOnly, typing.Required, typing.NotRequired)


def check(value: Any, expected: Any, path: str = "$") -> None:
    """Raise a Mismatch that names the place, or return."""
    expected = _bare(expected)
    if expected in (Any, object):
        return
    if expected is None or expected is type(None):
        _demand(value is None, path, f"{value!r} is not null")
        return
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (Union, types.UnionType):
        _check_union(value, arguments, path)
    elif origin is Literal:
        _demand(
            any(value == word and type(value) is type(word) for word in arguments),
            path,
            f"{value!r} not in {arguments}",
        )
    elif typing_extensions.is_typeddict(expected):
        _check_typed_dict(value, expected, path)
    elif _is_sequence(origin or expected):
        _demand(isinstance(value, list), path, f"{type(value).__name__} is not a list")
        for position, item in enumerate(value):
            check(item, arguments[0] if arguments else Any, f"{path}[{position}]")
    elif (origin or expected) in _MAPPINGS:
        _demand(isinstance(value, dict), path, f"{type(value).__name__} is not an object")
        for key, item in value.items():
            check(item, arguments[1] if arguments else Any, f"{path}.{key}")
    elif isinstance(expected, type):
        _check_class(value, expected, path)
    else:
        raise Mismatch(path, f"the oracle does not know the type {expected!r}")


def _bare(expected: Any) -> Any:
    """Without Annotated, Required, aliases and the like."""
    while True:
        if isinstance(expected, typing_extensions.TypeAliasType):
            expected = expected.__value__
        elif isinstance(typing.get_origin(expected), typing_extensions.TypeAliasType):
            expected = typing.get_origin(expected).__value__[typing.get_args(expected)]
        elif typing.get_origin(expected) in (typing.Annotated, *_MARKS):
            expected = typing.get_args(expected)[0]
        else:
            return expected


def _is_sequence(kind: Any) -> bool:
    return kind in _SEQUENCES or getattr(kind, "__name__", "") == "SequenceNotStr"


def _check_union(value: Any, members: tuple[Any, ...], path: str) -> None:
    """The complaint is that of the member that was meant: by its `type` or `role`, else the one that got furthest."""
    complaints: list[tuple[bool, int, Mismatch]] = []
    for member in members:
        try:
            check(value, member, path)
        except Mismatch as mismatch:
            complaints.append((_is_meant(value, _bare(member)), len(mismatch.path), mismatch))
        else:
            return
    raise max(complaints, key=lambda complaint: complaint[:2])[2]


def _is_meant(value: Any, member: Any) -> bool:
    if not isinstance(value, dict) or not typing_extensions.is_typeddict(member):
        return False
    hints, found = _hints(member), cast("dict[str, Any]", value)
    tags = [key for key in ("type", "role") if key in hints and key in found]
    return bool(tags) and all(found[key] in typing.get_args(_bare(hints[key])) for key in tags)


def _hints(kind: Any) -> dict[str, Any]:
    return typing_extensions.get_type_hints(kind, include_extras=True)


def _check_typed_dict(value: Any, kind: Any, path: str) -> None:
    _demand(isinstance(value, dict), path, f"{type(value).__name__} is not a {kind.__name__}")
    hints = _hints(kind)
    for key in value:
        _demand(key in hints, path, f"{kind.__name__} has no {key!r}")
    for key, hint in hints.items():
        if key in value:
            check(value[key], hint, f"{path}.{key}")
        else:
            _demand(not _is_required(kind, key, hint), path, f"{kind.__name__} needs {key!r}")


def _is_required(kind: Any, key: str, hint: Any) -> bool:
    """A mark decides; `__required_keys__` alone is wrong where annotations are strings."""
    origin = typing.get_origin(hint)
    if origin in (Required, typing.Required):
        return True
    return origin not in (NotRequired, typing.NotRequired) and key in kind.__required_keys__


def _check_class(value: Any, kind: type, path: str) -> None:
    if issubclass(kind, pydantic.BaseModel):
        _check_model(value, kind, path)
    elif issubclass(kind, enum.Enum):
        _demand(value in [member.value for member in kind], path, f"{value!r} is no {kind.__name__}")
    elif kind is bytes:
        _demand(isinstance(value, str) and _is_base64(value), path, f"{value!r} is not base64")
    elif kind is float:
        _demand(isinstance(value, int | float) and not isinstance(value, bool), path, f"{value!r} is not a number")
    elif kind in (str, int, bool):
        _demand(type(value) is kind, path, f"{value!r} is not a {kind.__name__}")
    else:
        raise Mismatch(path, f"{value!r} is not a {kind.__name__}")


def _check_model(value: Any, kind: type[pydantic.BaseModel], path: str) -> None:
    _demand(isinstance(value, dict), path, f"{type(value).__name__} is not a {kind.__name__}")
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    for key in value:
        _demand(key in fields, path, f"{kind.__name__} has no {key!r}")
    for key, field in fields.items():
        if key in value:
            check(value[key], field.annotation, f"{path}.{key}")
        else:
            _demand(not field.is_required(), path, f"{kind.__name__} needs {key!r}")


def _is_base64(text: str) -> bool:
    """Either alphabet: protocol buffers read both from JSON."""
    try:
        base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except binascii.Error:
        return False
    return True


def _demand(holds: bool, path: str, otherwise: str) -> None:
    if not holds:
        raise Mismatch(path, otherwise)


# What each SDK calls a request ---------------------------------------------------------------------------------------


def check_anthropic(body: dict[str, Any]) -> None:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    check(body, MessageCreateParamsStreaming)


def check_openai_chat(body: dict[str, Any], *, beyond: tuple[str, ...] = ()) -> None:
    """`beyond` names the keys that a compatible server documents and OpenAI's own type lacks."""
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    check(without(body, beyond), CompletionCreateParamsStreaming)


def check_openai_responses(body: dict[str, Any]) -> None:
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    check(body, ResponseCreateParamsStreaming)


def check_mistral(body: dict[str, Any]) -> None:
    from mistralai.client.models import ChatCompletionStreamRequestTypedDict

    form = body.get("response_format", {})
    if "json_schema" in form:  # the SDK's name for what it writes as `schema`
        schema = {
            ("schema_definition" if key == "schema" else key): value for key, value in form["json_schema"].items()
        }
        body = {**body, "response_format": {**form, "json_schema": schema}}
    check(body, ChatCompletionStreamRequestTypedDict)


def check_gemini(body: dict[str, Any]) -> None:
    from google.genai import types as genai

    expected: dict[str, Any] = {
        "contents": list[genai.Content],
        "systemInstruction": genai.Content,
        "tools": list[genai.Tool],
        "toolConfig": genai.ToolConfig,
        "generationConfig": genai.GenerationConfig,
        "serviceTier": str,
    }
    for key, value in body.items():
        _demand(key in expected, "$", f"a request has no {key!r}")
        check(value, expected[key], f"$.{key}")
        _parse_all(value, expected[key])


def _parse_all(value: Any, expected: Any) -> None:
    """The SDK's own reading of it, on top of the walk."""
    pydantic.TypeAdapter(expected).validate_python(value)


def check_ollama(body: dict[str, Any]) -> None:
    """The Python client lacks `truncate`, which the server's own request type has, and writes an `Image` as base64."""
    from ollama import Message, Options
    from ollama._types import ChatRequest

    body = {key: value for key, value in body.items() if key != "truncate"}
    check(body, ChatRequest)
    for position, message in enumerate(body["messages"]):
        for image in message.get("images", []):
            check(image, bytes, f"$.messages[{position}].images")
        images = {"images": [{"value": image} for image in message["images"]]} if "images" in message else {}
        check(message | images, Message, f"$.messages[{position}]")
    check(body["options"], Options, "$.options")


def without(value: Any, keys: tuple[str, ...]) -> Any:
    match value:
        case dict():
            return {key: without(item, keys) for key, item in value.items() if key not in keys}
        case list():
            return [without(item, keys) for item in value]
        case _:
            return value


def check_converse(body: dict[str, Any]) -> None:
    """botocore's own model of the service, and what it does not check: unions, enumerations, patterns and lengths."""
    import botocore.session
    from botocore.validate import ParamValidator

    shape = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("ConverseStream")
    request = {"modelId": "x", **_with_bytes(body)}
    report = ParamValidator().validate(request, shape.input_shape)
    _demand(not report.has_errors(), "$", report.generate_report())
    _check_service_shape(request, shape.input_shape, "$")


def _with_bytes(value: Any) -> Any:
    """Blobs are bytes here, base64 on the wire."""
    match value:
        case dict():
            return {key: b"x" if key == "bytes" else _with_bytes(item) for key, item in value.items()}
        case list():
            return [_with_bytes(item) for item in value]
        case _:
            return value


def _check_service_shape(value: Any, shape: Any, path: str) -> None:
    match shape.type_name:
        case "structure":
            if getattr(shape, "is_document_type", False):
                return
            _demand(set(value) <= set(shape.members), path, f"{sorted(set(value) - set(shape.members))} are unknown")
            _demand(not getattr(shape, "is_tagged_union", False) or len(value) == 1, path, "a union has one member")
            for name, item in value.items():
                _check_service_shape(item, shape.members[name], f"{path}.{name}")
        case "list":
            least, most = shape.metadata.get("min", 0), shape.metadata.get("max", 10**9)
            _demand(least <= len(value) <= most, path, f"{len(value)} elements")
            for position, item in enumerate(value):
                _check_service_shape(item, shape.member, f"{path}[{position}]")
        case "string":
            _demand(not shape.enum or value in shape.enum, path, f"{value!r} not in {shape.enum}")
            least, most = shape.metadata.get("min", 0), shape.metadata.get("max", 10**9)
            _demand(least <= len(value) <= most, path, f"{len(value)} characters")
            pattern = shape.metadata.get("pattern")
            _demand(not pattern or re.fullmatch(pattern, value) is not None, path, f"{value!r} against {pattern}")
        case _:
            pass
