"""Docstrings of tools: three styles and the plain one say the same, and no other line is lost."""

from __future__ import annotations

import pytest

from loom.content.blocks import ImageBlock, ToolCall
from loom.testing import ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import SyncToolContext, tool
from loom.tools.docstrings import parse_docstring

PLAIN = """Draw a column.

Warning: it is slow.
csv: the path of
    the file
column: which one
"""
GOOGLE = """Draw a column.

Warning: it is slow.

Args:
    csv (str): the path of
        the file
    column (int, optional): which one

Returns:
    A picture.
"""
NUMPY = """Draw a column.

Warning: it is slow.

Parameters
----------
csv : str
    the path of
    the file
column : int, optional
    which one

Returns
-------
A picture.
"""
SPHINX = """Draw a column.

Warning: it is slow.

:param csv: the path of
    the file
:param int column: which one
:type csv: str
"""


@pytest.mark.parametrize("text", [PLAIN, GOOGLE, NUMPY, SPHINX], ids=["plain", "google", "numpy", "sphinx"])
def test_every_style_says_the_same_of_the_parameters_and_keeps_the_rest(text: str) -> None:
    found = parse_docstring(text, ("csv", "column"))
    assert found.parameters == {"csv": "the path of the file", "column": "which one"}
    assert found.summary.startswith("Draw a column.\n\nWarning: it is slow.")
    assert ("A picture." in found.summary) == ("A picture." in text)
    assert "csv" not in found.summary


def test_lines_that_name_no_parameter_stay() -> None:
    text = "Do it.\n\nNote: read this.\nExample: one\nhttp://example.org: an address"
    assert parse_docstring(text, ("path",)).summary == text


async def test_a_plain_function_attaches_and_injects_from_its_thread() -> None:
    @tool
    def draw(context: SyncToolContext) -> str:
        """Draw."""
        context.inject("on the wall:", *context.attach(sample_png(31, 17), name="wall.png"))
        context.emit("half", fraction=0.5)
        return "drawn"

    provider = ScriptedProvider([ToolCall("a", "draw"), "Seen."])
    async with memory_runtime(providers={"anthropic": provider}, tools=[draw]) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        await session.send("go")
        path = await session.path()
        assert path[3].text == "on the wall:"
        assert isinstance(path[3].blocks[1], ImageBlock)
        assert provider.prompts[1].media()[0].width == 31
