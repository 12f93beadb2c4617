"""Prompt: exactly what one model will be shown. Receipt: what was changed or left out, and why.

The boundary between the two halves of Loom: everything before it is independent of providers, everything after it is
encoding. Every block of a prompt is one that the model accepts; media are references that become base64 at the socket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, Literal, TypeAlias, final

import msgspec

from loom.content.blocks import Detail, TextBlock, ThinkingBlock, ToolCall
from loom.content.media_kinds import MediaKindName
from loom.content.messages import Role
from loom.content.recipes import Recipe
from loom.content.wire_forms import BodyForm
from loom.estimates import Estimate
from loom.models import Model
from loom.sampling import Sampling

CONTINUE_ANSWER: Final = "[The answer above was cut off. Continue exactly where it stopped; repeat nothing.]"
"""Asks a model for the rest of an answer after it was interrupted by a lost connection or the end of a process."""

Rendition: TypeAlias = Literal["full", "low", "pages", "text", "omitted"]
Reason: TypeAlias = Literal[
    "",
    "age",
    "capability",
    "budget",
    "limit",
    "quarantine",
    "missing",
    "override",
    "other-model",
    "prefix",
    "repair",
]


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a tool for a model, with a JSON Schema object for its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class MediaRef(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to be written at the socket: the medium itself (`recipe` None) or the result of a recipe.

    `size_bytes` is exact once the prompt is settled; before that it may be the recipe's upper bound (`exact` False).
    """

    digest: str
    media_type: str
    size_bytes: int
    recipe: Recipe | None = None
    exact: bool = True
    width: int | None = None
    height: int | None = None
    pages: int | None = None
    file_id: str = ""
    """The provider's id of an earlier upload of these bytes; sent instead of them."""

    @property
    def encoded_bytes(self) -> int:
        return (self.size_bytes + 2) // 3 * 4


class ShownMedia(msgspec.Struct, frozen=True, kw_only=True, tag="media"):
    kind: MediaKindName
    ref: MediaRef
    name: str = ""
    detail: Detail = "auto"
    citations: bool = False


class ShownResult(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    call_id: str
    name: str
    blocks: tuple[TextBlock | ShownMedia, ...]
    is_error: bool = False


class ShownRaw(msgspec.Struct, frozen=True, kw_only=True, tag="raw"):
    """A provider-specific block (`Model.own_blocks`), such as a call of a tool that the platform runs, to be sent back
    unchanged. A prompt must keep calls and results of such tools together."""

    data: dict[str, Any]


ShownBlock: TypeAlias = TextBlock | ShownMedia | ThinkingBlock | ToolCall | ShownResult | ShownRaw


ShownRole: TypeAlias = Role | Literal["system"]


class ShownMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    role: ShownRole
    """`system` only for models that take system messages inside a conversation."""
    blocks: tuple[ShownBlock, ...]
    form: tuple[Any, ...] | None = None
    """The items of the original request, with `Embedded` media, to be written instead of the blocks. Empty if the items
    of the message before include this one."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly what a model receives: a request before it is written in the protocol of a provider."""

    model: Model
    messages: tuple[ShownMessage, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    tool_names: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """The own names of tools whose names this platform would refuse, by those that it is shown."""
    property_names: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict[str, Mapping[str, str]])
    """The same for the arguments of a tool, by the name of the tool that the platform is shown."""
    body: BodyForm | None = None
    """The fields of the original request, for this provider and protocol."""
    stable_messages: int = 0
    """How many leading messages the next prompt will repeat unchanged: the position at which a cache may end."""

    @property
    def is_as_it_came(self) -> bool:
        """Whether the request is exactly the one that a client wrote for this provider: its fields and all its
        messages."""
        is_repaired = self.body is None or self.property_names
        return not is_repaired and all(message.form is not None for message in self.messages)

    def media(self) -> tuple[MediaRef, ...]:
        """Return every reference, in wire order."""
        found: list[MediaRef] = []
        for message in self.messages:
            for block in message.blocks:
                match block:
                    case ShownMedia():
                        found.append(block.ref)
                    case ShownResult():
                        found.extend(inner.ref for inner in block.blocks if isinstance(inner, ShownMedia))
                    case _:
                        pass
        return tuple(found)


@final
class Embedded:
    """A position in a request's JSON for the base64 of a medium, after `prefix`. It is not a struct, so that a JSON
    encoder stops at it and calls its hook."""

    __slots__ = ("prefix", "ref")

    def __init__(self, ref: MediaRef, prefix: str = "") -> None:
        self.ref = ref
        self.prefix = prefix

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Embedded) and (self.ref, self.prefix) == (other.ref, other.prefix)

    def __hash__(self) -> int:
        return hash((self.ref, self.prefix))

    def __repr__(self) -> str:
        return f"Embedded({self.ref!r}, {self.prefix!r})"


class ReceiptRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One block of the path and its rendition. `message` and `block` are positions in the path."""

    message: int
    block: int
    inner: int | None = None
    kind: str
    label: str
    rendition: Rendition
    digest: str = ""
    reason: Reason = ""
    detail: str = ""
    tokens: int = 0
    wire_bytes: int = 0


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int = 0
    wire_bytes: int = 0
    images: int = 0
    pages: int = 0


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """For every block of the path: its rendition and the reason; and the totals against the four budgets."""

    model: str
    rows: tuple[ReceiptRow, ...]
    totals: Totals
    budgets: Totals
    notices: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    """The notices that a session shows once for a model, even if they apply to many requests."""
    unsent_options: tuple[str, ...] = ()
    """Requested options that the platform does not support."""
    cached_rows: int = 0
    """How many leading rows are the same as in the last request to this model: its provider may have them cached."""
    estimate: Estimate | None = None
    """What the request will cost; None in the receipt of a request that was sent."""

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows: the rendition and the cost of each block."""
        rows = [
            (f"{row.kind} {row.label}", row.rendition, "; ".join(filter(None, (row.reason, row.detail))), row.tokens)
            for row in self.rows
        ]
        head = f"<b>{escape(self.model)}</b>: {self.totals.tokens:,} of {self.budgets.tokens:,} tokens"
        listed = "".join(f"<li>{escape(notice)}</li>" for notice in self.notices)
        notices = f"<ul>{listed}</ul>" if listed else ""
        return f"<p>{head}</p>{html_table(('block', 'shown as', 'why', 'tokens'), rows)}{notices}"


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a plain HTML table, with everything escaped."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"
