"""What `prepare` gets besides the path and the model: overrides, budgets, the stored watermark, known facts. Values."""

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


class Placed(Protocol):
    """A message in its place: a node of the forest."""

    @property
    def id(self) -> str: ...

    @property
    def message(self) -> Message: ...

    @property
    def is_blind(self) -> bool:
        """Whether it was answered by a model that could not see pictures which stood before it."""
        ...

    @property
    def form(self) -> WireForm | None:
        """How it came, together with the messages behind it that the form counts; None where that is not known."""
        ...


class DetachedMessage(msgspec.Struct, frozen=True):
    """A message outside the forest (a file, a test) with an id of its own."""

    id: str
    message: Message
    is_blind: bool = False
    form: WireForm | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How the user wants old and large things treated. `None` budgets mean the model's own limits."""

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
    """How far the path has been rewritten, in positions of messages. Stored with the session for each model; on a path
    its borders only ever rise, so between two moves every prompt extends the last one."""

    low_before: int = 0
    text_before: int = 0
    """Age drew these two; the rest, a budget demanded."""
    result_media_before: int = 0
    """Media in tool results before this are text."""
    media_before: int = 0
    media_low_before: int = 0
    tool_text_before: int = 0
    dropped_before: int = 0
    text_cap: int = 0
    capped_before: int = 0
    """Texts before this that are longer than the cap lose their middle."""
    page_cap: int = 0
    paged_before: int = 0
    """Documents before this show at most `page_cap` pages each."""
    unpinned_before: int = 0
    """Before this, even what the user pinned is reduced: nothing else was left."""
    thinking_from: int = 0
    """Thinking before this was made behind another prefix."""
    sent_blocks: int = 0
    sent_hash: str = ""
    """What the last prompt held, where a platform binds thinking to it: the number of blocks, and their hash."""
    sent_messages: int = 0
    sent_path: str = ""
    """How many messages of the path the last request was made of, and a hash of which they were."""
    sent_node: str = ""
    sent_wishes: str = ""
    """The last message that it held, and what the user had chosen for it: the session's overrides as JSON."""
    sent_options: str = ""
    """The options of that request, as JSON; empty where none was set."""
    told: tuple[str, ...] = ()
    """Hashes of notices that the session has shown for this model and does not repeat."""

    @property
    def borders(self) -> Watermark:
        """Without the note of the last request: two that are equal show the same path the same way."""
        return msgspec.structs.replace(
            self,
            sent_blocks=0,
            sent_hash="",
            sent_messages=0,
            sent_path="",
            sent_node="",
            sent_wishes="",
            sent_options="",
            told=(),
        )


class DerivedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of derived bytes that exist."""

    media_type: str
    size_bytes: int
    width: int | None = None
    height: int | None = None
    pages: int | None = None


class Description(msgspec.Struct, frozen=True):
    """What a picture shows, in the words of the model `by`."""

    text: str
    by: str


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about derived bytes and texts, by (digest, recipe key). What is not here is asked for in `needs`."""

    derived: Mapping[tuple[str, str], DerivedFacts] = msgspec.field(default_factory=dict[tuple[str, str], DerivedFacts])
    texts: Mapping[tuple[str, str], str] = msgspec.field(default_factory=dict[tuple[str, str], str])
    descriptions: Mapping[str, Description] = msgspec.field(default_factory=dict[str, Description])
    """By digest."""
    describes: bool = False
    """Images are described on demand: those without a description are listed in `Prepared.undescribed`."""
    indescribable: frozenset[str] = frozenset()
    """Digests of images whose description failed."""
    failed: Mapping[tuple[str, str], str] = msgspec.field(default_factory=dict[tuple[str, str], str])
    """Recipes that could not be made, and why."""
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
    """Derived bytes or text that the prompt would be better with."""

    digest: str
    media_type: str
    recipe: Recipe


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What goes with the messages: the system prompt, the tools, how to answer."""

    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    ends_with_assistant: bool = False
    """Whether the last message may be the assistant's: its provider paused in it."""
    body: BodyForm | None = None
    """The request body that is compiled, as it came."""
    takes_forms: bool = True
    """Whether messages may be written as they came."""
    calls_as_text_before: int = 0
    """Calls of the messages before this position, and their results, are shown as text."""
    look_tool: str = "look"
    """The tool that calls back what was reduced; named in fallback texts when the model has it."""


def override_key(node_id: str, block: int, inner: int | None = None) -> str:
    """Return the name of a block in a session's overrides."""
    return f"{node_id}/{block}" if inner is None else f"{node_id}/{block}/{inner}"


def all_media_key(node_id: str) -> str:
    """Return the name of all media of a message in a session's overrides; one for a single block wins over it."""
    return f"{node_id}/*"


def alt_key(digest: str) -> str:
    """Return the name, among a session's overrides, of the words that a person gave to a medium."""
    return f"{_ALT}{digest}"


def overrides_of(kept: Mapping[str, Any]) -> tuple[dict[str, Override], dict[str, str]]:
    """Return what a session keeps as overrides: renditions by block, and a person's words (alt) by digest."""
    alts = {key.removeprefix(_ALT): cast("str", words) for key, words in kept.items() if key.startswith(_ALT)}
    return {key: value for key, value in kept.items() if not key.startswith(_ALT)} if alts else dict(kept), alts
