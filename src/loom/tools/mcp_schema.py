"""A server's tools as models see them: legal names, and a fingerprint that changes with anything that a user or
a model saw."""

from __future__ import annotations

import hashlib
from collections.abc import Container
from typing import TYPE_CHECKING, Final

import msgspec

from loom.content.blocks import clean_text
from loom.content.json_values import sanitize_json
from loom.prompt import ToolSpec
from loom.tools.mcp_input_schema import ILLEGAL, MAX_NAME, InputSchema

if TYPE_CHECKING:
    from mcp_types import Tool

MAX_DESCRIPTION: Final = 4_000


def tool_name(server: str, tool: str, taken: Container[str]) -> str:
    """`server__tool` in the characters that every platform takes; a hash keeps long and colliding ones apart."""
    plain = f"{ILLEGAL.sub('_', server)}__{ILLEGAL.sub('_', tool)}"
    plain = plain if plain[0].isalpha() else f"m{plain}"
    if len(plain) <= MAX_NAME and plain not in taken:
        return plain
    mark = hashlib.sha256(f"{server}\0{tool}".encode(errors="replace")).hexdigest()[:8]
    return f"{plain[: MAX_NAME - 9]}_{mark}"


def tool_spec(name: str, tool: Tool, form: InputSchema) -> ToolSpec:
    description = clean_text(tool.description or tool.title or "")
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]}…"
    return ToolSpec(name=name, description=description, parameters=form.told)


def fingerprint(tool: Tool) -> str:
    """Of all that a user approves: the name, the words, the parameters, the promises."""
    told = tool.model_dump(mode="json", include={"name", "title", "description", "input_schema", "annotations"})
    return hashlib.sha256(msgspec.json.encode(sanitize_json(told), order="sorted")).hexdigest()
