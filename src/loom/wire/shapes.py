"""Parts that several protocols share: text as one string, data URLs, file names, function tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast, final

from loom.content.blocks import NO_OUTPUT, Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.models import Model
from loom.prompt import Embedded, MediaRef, ShownBlock, ShownMedia, ShownResult, ToolSpec

WireContent = TextBlock | ShownMedia

_SUFFIXES: Final = {"application/pdf": ".pdf", "text/plain": ".txt", "text/csv": ".csv", "text/html": ".html"}


@final
class UploadedPart(dict[str, Any]):
    """A part of a request that refers to an upload instead of containing bytes. It is ordinary JSON with the reference
    to its medium, so that a provider's error at this path can be assigned to that medium."""

    def __init__(self, ref: MediaRef, part: dict[str, Any]) -> None:
        super().__init__(part)
        self.ref = ref


def opaque_of(model: Model, data: dict[str, Any]) -> Opaque:
    return Opaque(provider=model.opaque_owner, model=model.name, data=data)


def opaque_data(block: TextBlock | ThinkingBlock | ToolCall) -> dict[str, Any]:
    return block.opaque.data if block.opaque is not None else {}


def opaque_text(data: dict[str, Any], key: str) -> str:
    """Return a text of opaque data; empty if there is none. A foreign file may have something else in its place."""
    found = data.get(key)
    return found if isinstance(found, str) else ""


def contents(blocks: Iterable[ShownBlock]) -> list[WireContent]:
    """Return the text and media blocks of a message, in order."""
    return [block for block in blocks if isinstance(block, TextBlock | ShownMedia)]


def media_among(blocks: Iterable[ShownBlock]) -> list[ShownMedia]:
    return [block for block in blocks if isinstance(block, ShownMedia)]


def paragraphs(blocks: Iterable[ShownBlock]) -> str:
    """Return the text of a user message or result; each text block is a paragraph."""
    return "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def joined_text(blocks: Iterable[ShownBlock]) -> str:
    """Return the text of an assistant message. Adjacent text blocks are pieces of one text, split at citations; others
    are paragraphs."""
    pieces: list[str] = []
    follows = False
    for block in blocks:
        if isinstance(block, TextBlock):
            pieces += [block.text] if follows or not pieces else ["\n\n", block.text]
        follows = isinstance(block, TextBlock)
    return "".join(pieces)


def result_with_error_prefix(result: ShownResult) -> tuple[WireContent, ...]:
    """Return a result's content for protocols without an error flag: the text of an error starts with "Error"."""
    if not result.is_error:
        return result.blocks
    for position, block in enumerate(result.blocks):
        if isinstance(block, TextBlock):
            said = block.text if block.text.lower().startswith("error") else f"Error: {block.text}"
            return (*result.blocks[:position], TextBlock(said), *result.blocks[position + 1 :])
    return (TextBlock("Error:"), *result.blocks)


def answer_text(result: ShownResult) -> str:
    return paragraphs(result_with_error_prefix(result)) or NO_OUTPUT


def present(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def without_key(value: Any, name: str) -> Any:
    """Return JSON without a field at any depth, except inside the arguments of a call (`input`)."""
    if isinstance(value, list):
        return [without_key(item, name) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {key: item if key == "input" else without_key(item, name) for key, item in fields.items() if key != name}


def media_data_url(block: ShownMedia) -> Embedded:
    return Embedded(block.ref, f"data:{block.ref.media_type};base64,")


def filename(block: ShownMedia) -> str:
    """Return a file name with the suffix of the bytes: a sheet that was converted to PDF must not be called .xlsx."""
    suffix = _SUFFIXES.get(block.ref.media_type, "")
    name = block.name or "document"
    return name if name.lower().endswith(suffix) else name + suffix


def function_tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }
