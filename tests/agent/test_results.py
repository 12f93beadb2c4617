"""Rows 10, 67, 68: a tool returns what is easiest to return, and it means what one would expect."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from loom.content.blocks import ContentBlock, DocumentBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from loom.content.messages import text_of
from loom.testing import ScriptedProvider, memory_runtime, sample_pdf, sample_png
from loom.tools.base import text_result, tool

PNG = sample_png(40, 30)
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


class Figure:
    """As plotting libraries have them."""

    def savefig(self, file: Any, format: str) -> None:  # noqa: A002  their word
        assert format == "PNG"
        file.write(PNG)


class Record:
    """Something with a `save` that has nothing to do with pictures."""

    def save(self) -> None:
        raise AssertionError("nobody may save it")

    def __str__(self) -> str:
        return "a record"


async def shown(value: Any, workspace: Path) -> ToolResult:
    @tool(name="give")
    def give() -> Any:
        """Give it."""
        return value

    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([ToolCall("a", "give"), "Seen."])}, tools=[give]
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5", workspace=str(workspace))
        await session.send("go")
        return (await session.path())[2].results[0]


def kinds(result: ToolResult) -> list[str]:
    return [type(block).__name__ for block in result.blocks]


@pytest.mark.parametrize(
    ("value", "blocks", "text"),
    [
        ("plain words", ["TextBlock"], "plain words"),
        ("", ["TextBlock"], "(no output)"),
        (None, ["TextBlock"], "(no output)"),
        ({}, ["TextBlock"], "(no output)"),
        (0, ["TextBlock"], "0"),
        (False, ["TextBlock"], "false"),
        ({"a": [1, 2.5, None, True]}, ["TextBlock"], '{"a":[1,2.5,null,true]}'),
        ([1, 2], ["TextBlock"], "[1,2]"),
        (["a", "b"], ["TextBlock"], '["a","b"]'),
        (datetime.date(2026, 2, 14), ["TextBlock"], '"2026-02-14"'),
        (Record(), ["TextBlock"], "a record"),
        (PNG, ["ImageBlock"], "[image: give, 40×30"),
        ([PNG, "below"], ["ImageBlock", "TextBlock"], "below"),
        (Image.new("RGB", (9, 8)), ["ImageBlock"], "9×8"),
        (Image.new("CMYK", (9, 8)), ["ImageBlock"], "9×8"),
        (Image.new("F", (9, 8)), ["ImageBlock"], "9×8"),
        (Figure(), ["ImageBlock"], "40×30"),
        ([Figure(), Figure()], ["ImageBlock", "ImageBlock"], "40×30"),
        (sample_pdf("one"), ["DocumentBlock"], "[document: give, 1 page"),
        ([Path("shot.png"), Path("notes.txt")], ["ImageBlock", "TextBlock"], "some notes"),
        (Path("missing.png"), ["TextBlock"], "File not found: missing.png"),
        (b"\x89PNG\r\n\x1a\nbroken", ["TextBlock"], "[not shown: "),
        (b"\0\1\2\3", ["TextBlock"], "[not shown: "),
        ({"title": "a", "image": URL}, ["TextBlock", "ImageBlock"], "[shown below: 1]"),
        ({"list": [{"deep": URL}, URL]}, ["TextBlock", "ImageBlock", "ImageBlock"], "[shown below: 2]"),
        ({"image": "data:image/png;base64,bm90IGEgcGljdHVyZQ=="}, None, ""),
        (TextBlock("a block"), ["TextBlock"], "a block"),
        ("\ud800 half", ["TextBlock"], "half"),
    ],
)
async def test_what_a_tool_returns_becomes_blocks(
    value: Any, blocks: list[str] | None, text: str, tmp_path: Path
) -> None:
    (tmp_path / "shot.png").write_bytes(PNG)
    (tmp_path / "notes.txt").write_text("some notes")
    result = await shown(value, tmp_path)
    assert blocks is None or kinds(result) == blocks
    assert text in text_of(result)
    assert not result.is_error


async def test_data_is_for_faces_and_never_for_the_model() -> None:
    @tool
    def give() -> ToolResult:
        """Give it."""
        return text_result("for the model", data={"for": "faces"})

    provider = ScriptedProvider([ToolCall("a", "give"), "Seen."])
    async with memory_runtime(providers={"anthropic": provider}, tools=[give]) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        await session.send("go")
        (result,) = (await session.path())[2].results
        assert result.data == {"for": "faces"}
        assert "faces" not in repr(provider.prompts[1].messages)


async def test_what_the_store_says_about_a_file_is_said_to_the_model(tmp_path: Path) -> None:
    """A picture with the wrong suffix is shown, and the difference is told."""
    (tmp_path / "photo.jpg").write_bytes(PNG)
    result = await shown(Path("photo.jpg"), tmp_path)
    blocks: tuple[ContentBlock, ...] = result.blocks
    assert isinstance(blocks[0], ImageBlock)
    assert not any(isinstance(block, DocumentBlock) for block in blocks)
    assert "PNG" in text_of(result)
