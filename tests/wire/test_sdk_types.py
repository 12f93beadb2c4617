"""The oracle itself: what it lets through, and what it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Optional, Required, Union

import pytest
from typing_extensions import TypedDict

from wire.sdk_types import (
    Mismatch,
    check,
    check_anthropic,
    check_gemini,
    check_mistral,
    check_ollama,
    check_openai_chat,
    check_openai_responses,
)


class Point(TypedDict, total=False):
    type: Required[Literal["point"]]
    x: Required[int]
    label: Optional[str]  # noqa: UP045 - the SDKs are written like this


class Line(TypedDict, total=False):
    type: Required[Literal["line"]]
    points: Required[Iterable[Point]]
    meta: dict[str, object]


Shape = Union[Point, Line]  # noqa: UP007 - the SDKs are written like this


@pytest.mark.parametrize(
    "value",
    [
        {"type": "point", "x": 1},
        {"type": "point", "x": 1, "label": None},
        {"type": "line", "points": [], "meta": {"anything": [1]}},
        {"type": "line", "points": [{"type": "point", "x": 1, "label": "a"}]},
    ],
)
def test_what_fits_passes(value: Any) -> None:
    check(value, Shape)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"type": "point", "x": 1, "y": 2}, r"\$: Point has no 'y'"),
        ({"type": "point"}, r"\$: Point needs 'x'"),
        ({"type": "point", "x": "1"}, r"\$\.x: '1' is not a int"),
        ({"type": "point", "x": True}, r"\$\.x: True is not a int"),
        ({"type": "circle"}, r"\$\.type: 'circle' not in"),
        ({"type": "line", "points": [{"type": "point", "x": 1}, {"type": "point", "x": 1.5}]}, r"\$\.points\[1\]\.x"),
        ({"type": "line", "points": {"type": "point", "x": 1}}, r"\$\.points: dict is not a list"),
        ({"type": "line", "points": "point"}, r"\$\.points: str is not a list"),
        ("point", "str is not a"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_stands(value: Any, complaint: str) -> None:
    with pytest.raises(Mismatch, match=complaint):
        check(value, Shape)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, str),
        ("1", int),
        (1, bool),
        (None, str),
        ("x", float),
        ("*", bytes),
        ([1], Sequence[str]),
        ({"a": 1}, dict[str, str]),
    ],
)
def test_plain_types_are_not_confused(value: Any, expected: Any) -> None:
    with pytest.raises(Mismatch):
        check(value, expected)


def test_types_of_the_anthropic_sdk_are_walked() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    body = {
        "model": "m",
        "max_tokens": 1,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}],
    }
    check_anthropic(body)
    source["media_type"] = "image/tiff"
    with pytest.raises(Mismatch, match=r"messages\[0\]\.content\[0\]\.source\.media_type"):
        check_anthropic(body)


def test_types_of_the_openai_sdk_are_walked() -> None:
    image: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:"}}
    check_openai_chat({"model": "m", "stream": True, "messages": [{"role": "user", "content": [image]}]})
    with pytest.raises(Mismatch, match="image_url"):
        check_openai_chat(
            {"model": "m", "stream": True, "messages": [{"role": "user", "content": [image | {"image_url": "data:"}]}]}
        )
    with pytest.raises(Mismatch):
        check_openai_chat(
            {"model": "m", "stream": True, "messages": [{"role": "tool", "tool_call_id": "1", "content": [image]}]}
        )
    check_openai_responses(
        {"model": "m", "stream": True, "input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}
    )
    with pytest.raises(Mismatch, match="summary"):
        check_openai_responses({"model": "m", "stream": True, "input": [{"type": "reasoning", "id": "rs_1"}]})


def test_types_of_the_mistral_sdk_are_walked() -> None:
    image = {"type": "image_url", "image_url": "data:image/png;base64,AAAA"}
    results = {"role": "tool", "tool_call_id": "abcdefghi", "name": "shot", "content": [image]}
    check_mistral({"model": "m", "stream": True, "messages": [{"role": "user", "content": "a"}, results]})
    with pytest.raises(Mismatch, match="max_completion_tokens"):
        check_mistral({"model": "m", "messages": [], "max_completion_tokens": 5})
    with pytest.raises(Mismatch, match="has no 'file'"):
        check_mistral({"model": "m", "messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]})


def test_types_of_the_gemini_and_ollama_sdks_are_walked() -> None:
    check_gemini({"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]}]})
    with pytest.raises(Mismatch, match="has no 'mime'"):
        check_gemini({"contents": [{"role": "user", "parts": [{"inlineData": {"mime": "image/png"}}]}]})
    with pytest.raises(Mismatch, match="ThinkingLevel"):
        check_gemini({"generationConfig": {"thinkingConfig": {"thinkingLevel": "EXTREME"}}})
    check_ollama({"model": "m", "messages": [{"role": "user", "content": "", "images": ["AAAA"]}], "options": {}})
    with pytest.raises(Mismatch, match="num_context"):
        check_ollama({"model": "m", "messages": [], "options": {"num_context": 1}})
    with pytest.raises(Mismatch, match="base64"):
        check_ollama(
            {"model": "m", "messages": [{"role": "user", "images": ["data:image/png;base64,AAAA"]}], "options": {}}
        )
