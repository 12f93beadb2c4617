"""Measure: what a block becomes under one wish, and what that takes of the four budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from loom.content.blocks import Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.context import cost
from loom.context.policy import Known, Need, Policy, Request
from loom.models import Model
from loom.prompt import Reason, Rendition, ShownMedia

Place: TypeAlias = Literal["user", "assistant", "result"]
Shown: TypeAlias = TextBlock | ShownMedia | ThinkingBlock | ToolCall

BLOCK_BYTES: Final = 220
"""JSON around a block and its share of the message around it: keys, quotes, brackets, ids."""
_CUT_CHARS: Final = 60
"""What the note about a cut takes: a text that is longer than its cap by less is left alone."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    rendition: Rendition
    shown: tuple[Shown, ...]
    reason: Reason = ""
    detail: str = ""
    tokens: int = 0
    wire_bytes: int = 0
    images: int = 0
    pages: int = 0
    hoisted: bool = False
    needs: tuple[Need, ...] = ()


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """For whom, by whose wishes, with what knowledge."""

    model: Model
    policy: Policy
    known: Known
    request: Request
    quarantine: frozenset[str] = frozenset()
    alts: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """A person's words for a medium, by digest: they stand before all others."""

    @property
    def has_look(self) -> bool:
        """Whether the model can call back what was reduced."""
        return any(tool.name == self.request.look_tool for tool in self.request.tools)

    def nested(self, media_type: str) -> bool:
        return media_type in self.model.capabilities.result_accepts

    def made(self, opaque: Opaque | None) -> bool:
        """Whether opaque data are this model's own."""
        return opaque is not None and (opaque.provider, opaque.model) == (self.model.producer, self.model.name)


def measured(rendition: Rendition, shown: Shown, text: str, target: Target) -> Measure:
    return Measure(
        rendition=rendition,
        shown=(shown,),
        tokens=cost.text_tokens(text, target.model.tokens),
        wire_bytes=json_bytes(text) + BLOCK_BYTES,
    )


def spoken(
    text: str, reason: Reason, detail: str, target: Target, cap: int = 0, *, needs: tuple[Need, ...] = ()
) -> Measure:
    """Words that stand for something else."""
    text = cut(text, cap)
    return Measure(
        rendition="text",
        shown=(TextBlock(text),),
        reason=reason,
        detail=detail,
        tokens=cost.text_tokens(text, target.model.tokens),
        wire_bytes=json_bytes(text) + BLOCK_BYTES,
        needs=needs,
    )


def omitted(reason: Reason, detail: str) -> Measure:
    return Measure(rendition="omitted", shown=(), reason=reason, detail=detail)


def json_bytes(text: str) -> int:
    """The length of text as JSON: UTF-8 and what must be escaped."""
    return len(msgspec.json.encode(text))


def is_cut(text: str, cap: int) -> bool:
    return bool(cap) and len(text) > cap + _CUT_CHARS


def cut(text: str, cap: int) -> str:
    """A text too long for its cap loses its middle: what it begins and ends with says most."""
    if not is_cut(text, cap):
        return text
    head, tail = text[: cap * 2 // 3], text[-(cap // 3) :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters are left out here …]\n{tail}"
