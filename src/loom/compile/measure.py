"""The measure of a block: its content as one rendition, and how much of the four budgets that uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from loom.compile import cost
from loom.compile.assemble_ids import tool_name
from loom.compile.policy import LOOK, Known, Need, Policy, Request
from loom.compile.property_names import rename_keys
from loom.content.blocks import Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.models import Model
from loom.prompt import Reason, Rendition, ShownMedia, ShownRaw

BlockPosition: TypeAlias = Literal["user", "assistant", "result"]
ShownContent: TypeAlias = TextBlock | ShownMedia | ThinkingBlock | ToolCall | ShownRaw

BLOCK_BYTES: Final = 220
"""The bytes of JSON around a block and its share of the message around it: keys, quotes, brackets, ids."""
_CUT_CHARS: Final = 60
"""The length of the note in a truncated text: a text that exceeds its cap by less is not truncated."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    rendition: Rendition
    shown: tuple[ShownContent, ...]
    reason: Reason = ""
    detail: str = ""
    tokens: int = 0
    wire_bytes: int = 0
    images: int = 0
    pages: int = 0
    hoisted: bool = False
    needs: tuple[Need, ...] = ()


class RenderTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The model, the policy and the known facts."""

    model: Model
    policy: Policy
    known: Known
    request: Request
    quarantine: frozenset[str] = frozenset()
    alts: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """A person's words for a medium, by digest: they stand before all others."""
    names: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Declared tools by their own names, as the platform takes them."""
    properties: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict[str, Mapping[str, str]])
    """The arguments of declared tools whose own names the platform refuses, with legal ones."""

    def tool_name(self, name: str) -> str:
        return self.names.get(name) or tool_name(name, self.model)

    def call_arguments(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call under the names that the model is shown."""
        legal = self.properties.get(tool)
        return arguments if legal is None or legal.keys().isdisjoint(arguments) else rename_keys(arguments, legal)

    @property
    def has_look(self) -> bool:
        """Whether the model has the tool that shows reduced media again."""
        return any(tool.name == LOOK for tool in self.request.tools)

    def accepts_in_results(self, media_type: str) -> bool:
        return media_type in self.model.capabilities.result_accepts

    def owns(self, opaque: Opaque | None) -> bool:
        """Return whether the opaque data belongs to this model."""
        return opaque is not None and (opaque.provider, opaque.model) == (self.model.opaque_owner, self.model.name)


def measure_shown(shown: ShownContent, text: str, target: RenderTarget) -> Measure:
    return Measure(
        rendition="full",
        shown=(shown,),
        tokens=cost.text_tokens(text, target.model.tokens),
        wire_bytes=json_bytes(text) + BLOCK_BYTES,
    )


def as_text(
    text: str, reason: Reason, detail: str, target: RenderTarget, cap: int = 0, *, needs: tuple[Need, ...] = ()
) -> Measure:
    """Return a measure of text that is sent instead of a block."""
    text = elide_middle(text, cap)
    return Measure(
        rendition="text",
        shown=(TextBlock(text),),
        reason=reason,
        detail=detail,
        tokens=cost.text_tokens(text, target.model.tokens),
        wire_bytes=json_bytes(text) + BLOCK_BYTES,
        needs=needs,
    )


def omit(reason: Reason, detail: str) -> Measure:
    return Measure(rendition="omitted", shown=(), reason=reason, detail=detail)


def json_bytes(text: str) -> int:
    """Return the length of the text as JSON: UTF-8, including escapes."""
    return len(msgspec.json.encode(text))


def is_cut(text: str, cap: int) -> bool:
    return bool(cap) and len(text) > cap + _CUT_CHARS


def elide_middle(text: str, cap: int) -> str:
    """Remove the middle of a text that is longer than `cap`, because its beginning and its end tell most."""
    if not is_cut(text, cap):
        return text
    head, tail = text[: cap * 2 // 3], text[-(cap // 3) :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters are left out here …]\n{tail}"
