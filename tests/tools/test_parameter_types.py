"""The parameters of a tool: JSON types, dataclasses, TypedDicts, msgspec structs and Pydantic models alike."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from loom.errors import ContentError, ToolError
from loom.tools.base import Tool, tool


class Point(pydantic.BaseModel):
    x: int
    y: int = pydantic.Field(default=0, ge=0, description="upwards")


class Area(pydantic.BaseModel):
    name: str
    corners: list[Point]


@dataclasses.dataclass
class Size:
    width: int
    height: int = 3


class Color(msgspec.Struct):
    red: int
    kind: Literal["ink", "light"] = "ink"


class Label(TypedDict):
    text: str


@tool
def draw(
    area: Area,
    size: Size,
    color: Color,
    labels: list[Label],
    extra: Point | None = None,
    origin: Point = Point(x=1),  # noqa: B008  a default as users write it
) -> str:
    """Draw it.

    area: what is drawn
    """
    return f"{area!r} {size!r} {color!r} {labels!r} {extra!r} {origin!r}"


ARGUMENTS: dict[str, Any] = {
    "area": {"name": "field", "corners": [{"x": 1}, {"x": 2, "y": 3}]},
    "size": {"width": 2},
    "color": {"red": 9, "kind": "light"},
    "labels": [{"text": "a"}],
    "extra": {"x": 5},
}


async def test_each_kind_of_type_reaches_the_function_as_that_type() -> None:
    values = draw.check_arguments(ARGUMENTS)
    assert values["area"] == Area(name="field", corners=[Point(x=1), Point(x=2, y=3)])
    assert values["size"] == Size(2) and values["color"] == Color(9, "light")
    assert values["labels"] == [{"text": "a"}] and values["extra"] == Point(x=5) and values["origin"] == Point(x=1)


def test_the_schema_has_all_fields_and_no_references() -> None:
    schema = draw.spec.parameters
    assert "$ref" not in str(schema) and "$defs" not in str(schema)
    assert schema["required"] == ["area", "size", "color", "labels"]
    corner = schema["properties"]["area"]["properties"]["corners"]["items"]["properties"]
    assert corner["y"] == {"default": 0, "description": "upwards", "minimum": 0, "title": "Y", "type": "integer"}
    assert schema["properties"]["area"]["description"] == "what is drawn"
    assert set(schema["properties"]["size"]["properties"]) == {"width", "height"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"area": {"name": "field", "corners": [{"x": "left"}]}}, "corners.0.x"),
        ({"area": {"corners": []}}, "name Field required"),
        ({"color": {"red": 1, "kind": "paint"}}, "kind"),
    ],
)
def test_what_is_wrong_is_an_answer_that_says_where(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        draw.check_arguments({**ARGUMENTS, **wrong})


def test_a_type_that_no_schema_describes_is_refused_where_the_tool_is_made() -> None:
    class Handle:
        pass

    def use(handle: Handle) -> str:
        return str(handle)

    use.__annotations__["handle"] = Handle
    with pytest.raises(ContentError, match="Handle"):
        Tool(use)
