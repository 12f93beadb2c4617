"""The inputs of `prepare` besides the path and the model: overrides, budgets, the stored watermark, known facts. Plain
values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

import msgspec

from loom.content.messages import Message
from loom.content.recipes import Recipe, recipe_key
from loom.content.wire_forms import BodyForm, WireForm
from loom.prompt import ToolSpec
from loom.sampling import Sampling

Aging: TypeAlias = Literal["stepped", "every-turn", "off"]
Override: TypeAlias = Literal["full", "low", "text", "omitted"]
_ALT: Final = "alt/"
LOOK: Final = "look"
"""The tool that shows reduced media and truncated texts again; texts name it if the model has it."""


class Placed(Protocol):
    """A message with its position: a node of the forest."""

    @property
    def id(self) -> str: ...

    @property
    def message(self) -> Message: ...

    @property
    def is_blind(self) -> bool:
        """Whether a text-only model wrote the answer after images that it could not see."""
        ...

    @property
    def form(self) -> WireForm | None:
        """The message as it was received, together with the messages after it that the form counts; None if that is not
        known."""
        ...


class DetachedMessage(msgspec.Struct, frozen=True):
    """A message outside the forest (a file, a test) with an id of its own."""

    id: str
    message: Message
    is_blind: bool = False
    form: WireForm | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The user's settings for old and large content. A budget of None means the model's own limit."""

    aging: Aging = "stepped"
    full_turns: int = 1
    low_turns: int = 2
    keep_turns: int = 2
    low_side_px: int = 512
    max_side_px: int = 2048
    max_images_per_message: int = 10
    max_images_per_session: int = 100
    page_images: int = 20
    video_frames: int = 12
    frame_side_px: int = 1024
    max_tokens: int | None = None
    max_bytes: int | None = None
    max_images: int | None = None
    max_pages: int | None = None


class Watermark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the path has been rewritten, in positions of messages. It is stored with the session for each model. On a
    path its borders only rise, so between two moves every prompt extends the last one."""

    low_before: int = 0
    text_before: int = 0
    """Age sets these two borders; budgets set the others."""
    result_media_before: int = 0
    """Media in tool results before this position are sent as text."""
    media_before: int = 0
    media_low_before: int = 0
    tool_text_before: int = 0
    dropped_before: int = 0
    text_cap: int = 0
    capped_before: int = 0
    """Texts before this position that are longer than the cap lose their middle."""
    page_cap: int = 0
    paged_before: int = 0
    """Documents before this position show at most `page_cap` pages each."""
    unpinned_before: int = 0
    """Before this position even pinned blocks are reduced, because nothing else was left to reduce."""
    thinking_from: int = 0
    """Thinking before this position was produced after a different prefix."""
    sent_blocks: int = 0
    sent_hash: str = ""
    """The number of blocks in the last prompt and their hash, if the platform binds thinking to them."""
    sent_messages: int = 0
    sent_path: str = ""
    """How many messages of the path the last request was made of, and a hash that identifies them."""
    sent_node: str = ""
    sent_wishes: str = ""
    """The last message of that request, and the session's overrides at the time, as JSON."""
    sent_options: str = ""
    """The options of that request as JSON; empty if none was set."""
    estimated_tokens: int = 0
    billed_tokens: int = 0
    cached_tokens: int = 0
    billed_at: float = 0.0
    """The input of that request: the tokens as estimated, as billed, and how many of them the provider read from its
    cache or wrote to it; and when, in seconds since the epoch."""
    told: tuple[str, ...] = ()
    """Hashes of notices that the session has shown for this model and does not repeat."""


class DerivedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about derived bytes that exist."""

    media_type: str
    size_bytes: int
    width: int | None = None
    height: int | None = None


class Description(msgspec.Struct, frozen=True):
    """A description of an image, written by the model `by`."""

    text: str
    by: str


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about derived bytes and texts, by (digest, recipe key). What is missing here is requested in `needs`."""

    derived: Mapping[tuple[str, str], DerivedFacts] = msgspec.field(default_factory=dict[tuple[str, str], DerivedFacts])
    texts: Mapping[tuple[str, str], str] = msgspec.field(default_factory=dict[tuple[str, str], str])
    descriptions: Mapping[str, Description] = msgspec.field(default_factory=dict[str, Description])
    """The descriptions by digest."""
    describes: bool = False
    """Whether images are described on demand; those without a description are listed in `Prepared.undescribed`."""
    indescribable: frozenset[str] = frozenset()
    """Digests of images whose description failed."""
    failed: Mapping[tuple[str, str], str] = msgspec.field(default_factory=dict[tuple[str, str], str])
    """Recipes that failed, with the reason."""
    missing: frozenset[str] = frozenset()
    """Digests whose bytes are gone."""

    def may_be_described(self, digest: str) -> bool:
        return self.describes and digest not in self.indescribable and digest not in self.descriptions

    def facts(self, digest: str, recipe: Recipe) -> DerivedFacts | None:
        return self.derived.get((digest, recipe_key(recipe)))

    def text(self, digest: str, recipe: Recipe) -> str | None:
        return self.texts.get((digest, recipe_key(recipe)))

    def failure(self, digest: str, recipe: Recipe) -> str | None:
        return self.failed.get((digest, recipe_key(recipe)))


class Need(msgspec.Struct, frozen=True):
    """Derived bytes or text that would improve the prompt."""

    digest: str
    media_type: str
    recipe: Recipe
    is_for_cost: bool = False
    """Whether only the token estimate uses it: no request waits for OCR because of it, or fails without it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a request besides the messages: the system prompt, the tools, the sampling options."""

    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    ends_with_assistant: bool = False
    """Whether the last message may be the assistant's, because its provider paused the answer."""
    body: BodyForm | None = None
    """The body of a client's request in its original form."""
    takes_forms: bool = True
    """Whether messages may be sent exactly as they were received."""
    calls_as_text_before: int = 0
    """Calls of the messages before this position, and their results, are sent as text."""


def override_key(node_id: str, block: int, inner: int | None = None) -> str:
    """Return the key of a block in a session's overrides."""
    return f"{node_id}/{block}" if inner is None else f"{node_id}/{block}/{inner}"


def all_media_key(node_id: str) -> str:
    """Return the name of all media of a message in a session's overrides; one for a single block wins over it."""
    return f"{node_id}/*"


def alt_key(digest: str) -> str:
    """Return the key, in a session's overrides, of the user's text alternative for a medium."""
    return f"{_ALT}{digest}"


def overrides_of(kept: Mapping[str, Any]) -> tuple[dict[str, Override], dict[str, str]]:
    """Split a session's stored overrides into renditions by block, and the user's text alternatives by digest."""
    alts = {key.removeprefix(_ALT): cast("str", words) for key, words in kept.items() if key.startswith(_ALT)}
    return {key: value for key, value in kept.items() if not key.startswith(_ALT)} if alts else dict(kept), alts
