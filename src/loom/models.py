"""Facts about a model: what it supports, its limits, how its tokens are counted, and what must be sent back to it.

Plain values. `providers` collects the facts from the catalog, the endpoint, the user and earlier refusals; `origins`
records the source of every capability.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from loom.content import media_kinds
from loom.content.blocks import Detail
from loom.content.media_kinds import MEDIA_KINDS, MediaKindName, capability_of

WireName: TypeAlias = Literal[
    "anthropic", "bedrock_anthropic", "bedrock_converse", "openai_chat", "openai_responses", "gemini", "ollama", "spark"
]
"""The protocol: one module in `wire/` each (`spark` is the built-in model and needs none)."""

ProviderName: TypeAlias = Literal[
    "anthropic",
    "bedrock-anthropic",
    "bedrock-converse",
    "openai-responses",
    "openai-chat",
    "gemini",
    "ollama",
    "deepseek",
    "mistral",
    "openai-compatible",
    "vllm",
    "llama.cpp",
    "lm-studio",
    "openrouter",
    "groq",
    "xai",
    "azure",
    "vertex",
    "loom",
]
"""The name of the service in all interfaces."""

FactOrigin: TypeAlias = Literal["declared", "asked", "learned", "user", "guessed"]

PDF: Final = media_kinds.PDF
PLAIN_IMAGES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")


_PRODUCERS: Final[dict[str, str]] = {
    "bedrock-anthropic": "anthropic",
    "openai-responses": "openai",
    "openai-chat": "openai",
}


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model supports. `accepts` are the media types in a user's message, `result_accepts` those inside a tool
    result."""

    accepts: tuple[str, ...] = ()
    result_accepts: tuple[str, ...] = ()
    tools: bool = True
    thinking: bool = False
    citations: bool = False
    origins: dict[str, FactOrigin] = msgspec.field(default_factory=dict[str, FactOrigin])

    def takes(self, kind: MediaKindName) -> bool:
        return any(found.startswith(MEDIA_KINDS[kind].accepted_prefix) for found in self.accepts)

    @property
    def vision(self) -> bool:
        return self.takes("image")

    @property
    def native_pdf(self) -> bool:
        return self.takes("document")

    @property
    def audio(self) -> bool:
        return self.takes("audio")

    @property
    def video(self) -> bool:
        return self.takes("video")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a platform. None means that it states no limit. `as_of` is the day on which they were checked."""

    context_tokens: int = 8_192
    max_output_tokens: int = 4_096
    default_output_tokens: int | None = None
    """The value to send if none is set and the platform requires one; None: `max_output_tokens`."""
    max_request_bytes: int | None = None
    max_image_encoded_bytes: int | None = None
    max_document_encoded_bytes: int | None = None
    max_image_side_px: int | None = None
    many_images: int | None = None
    """If one request, history included, has more images than this, each is limited to `many_images_side_px`."""
    many_images_side_px: int | None = None
    max_images: int | None = None
    max_pages: int | None = None
    as_of: str = ""


class TokenRule(msgspec.Struct, frozen=True, kw_only=True):
    """How a model family counts tokens. `image` names a published formula in `compile/cost.py`; the others are its
    parameters."""

    image: Literal["patches28", "patches32", "tiles", "ceiling", "crops", "flat"] = "flat"
    max_edge_px: int = 0
    max_tokens: int = 0
    multiplier: float = 1.0
    budget: int = 0
    base: int = 0
    per_tile: int = 0
    image_tokens: int = 768
    low_tokens: int = 0
    page_tokens: int = 0
    """Tokens of a PDF page in addition to its image: fixed if the platform states them, otherwise its text is
    counted."""
    page_as_image: bool = False
    audio_tokens_per_second: float = 0.0
    video_tokens_per_second: float = 0.0
    chars_per_token: float = 3.8


ThinkingLevel: TypeAlias = Literal["", "off", "minimal", "low", "medium", "high", "xhigh", "max"]
THINKING_LEVELS: Final[tuple[ThinkingLevel, ...]] = get_args(ThinkingLevel)
"""The levels from lowest to highest."""

_BUDGETS: Final = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 24_576, "xhigh": 49_152, "max": 1_000_000}


class ThinkingRule(msgspec.Struct, frozen=True, kw_only=True):
    """Whether earlier thinking is sent back, and how thinking is requested."""

    replay: Literal["never", "own", "bound", "tool_turns"] = "never"
    """never · own: to the model that produced it · bound: own, and only after an unchanged prefix · tool_turns: the key
    must be present on every assistant message with tool calls."""
    request: Literal["none", "budget", "adaptive", "always", "level", "effort", "flag"] = "none"
    levels: tuple[ThinkingLevel, ...] = ("off", "low", "medium", "high")
    """The levels that this family supports, lowest first; `off` is one of them if thinking can be switched off."""
    min_budget: int = 1_024
    max_budget: int = 32_768
    """The limits of thinking tokens, if they are requested as a number."""
    refuses_forced_calls: bool = False
    """Whether a tool call cannot be forced while the model thinks."""
    asks_for_summary: bool = False
    """Whether thinking arrives without text unless a summary is requested."""
    place: Literal["any", "first", "before"] = "any"
    """any · first: a message with thinking begins with it · before: thinking is directly before the content that it led
    to. In the last two cases nothing else in its message may be changed, and thinking is never the last block."""
    keys: tuple[str, ...] = ()
    """Opaque data without any of these keys is incomplete, and is not sent back."""
    signature_required: bool = False
    """Whether a call of the current turn without its signature is refused; calls of other models carry the platform's
    placeholder."""

    def nearest(self, wish: ThinkingLevel) -> ThinkingLevel:
        """Return the highest level of this family that is not above `wish`, otherwise its lowest; empty if `wish`
        is."""
        levels: list[ThinkingLevel] = list(self.levels)
        if wish != "off" and "off" in levels:
            levels.remove("off")
        if not wish or not levels:
            return ""
        rank = THINKING_LEVELS.index
        below: list[ThinkingLevel] = [level for level in levels if rank(level) <= rank(wish)]
        return below[-1] if below else levels[0]

    def budget(self, wish: ThinkingLevel, max_tokens: int) -> int:
        """Return the thinking tokens: at most half of the answer's, so that enough are left for text."""
        if wish == "off":
            return 0 if "off" in self.levels else self.min_budget
        return max(self.min_budget, min(_BUDGETS[wish], self.max_budget, max_tokens // 2))


class CacheRule(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of cached tokens relative to uncached ones, and how caching is requested."""

    mode: Literal["none", "explicit", "automatic"] = "none"
    write: float = 1.0
    read: float = 1.0
    min_tokens: int = 0
    seconds: int = 300
    """How long after the last request a cached prefix can be expected to be read again."""


class IdRule(msgspec.Struct, frozen=True, kw_only=True):
    """The valid tool-call ids. Invalid ones are replaced with `prefix` and a digest, truncated to `length`."""

    pattern: str = ""
    prefix: str = ""
    length: int = 64


class ChatDialect(msgspec.Struct, frozen=True, kw_only=True):
    """How a service or server deviates from plain Chat Completions. The defaults are what most servers support."""

    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True
    """Whether usage must be requested (`stream_options`)."""
    think_tags: bool = True
    """Whether `<think>…</think>` at the beginning of the content is thinking."""
    reasoning_fields: bool = True
    """Whether thinking is sent back in the field in which it was received."""
    thinking: Literal["effort", "switch_and_effort", "reasoning_object", "template_flag"] = "effort"
    """effort: `reasoning_effort` · switch_and_effort: `thinking: {type}` beside it · reasoning_object: `reasoning:
    {effort}` · template_flag: `chat_template_kwargs: {enable_thinking}`."""
    off_word: str = "none"
    """The effort that switches thinking off."""
    seed_field: Literal["seed", "random_seed"] = "seed"
    forced_word: Literal["required", "any"] = "required"
    """The tool choice that forces a call."""
    output_schema: Literal["json_schema", "json_object"] = "json_schema"
    """json_object: the service guarantees JSON but does not read a schema; the prompt describes it."""
    user_field: Literal["user", "safety_identifier"] = "user"
    audio_part: Literal["object", "bare"] = "object"
    """object: `{data, format}` · bare: the base64 itself."""
    document_part: Literal["file", "document_url"] = "file"


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens. If nothing else is set, cached tokens cost as much as uncached ones."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float | None = None
    cache_write: float | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model of a platform. `name` is its name on the wire, `reference` the one that users type:
    `anthropic/claude-opus-5`."""

    provider: ProviderName
    name: str
    wire: WireName
    family: str = ""
    base_url: str = ""
    auth: Literal["bearer", "x-goog-api-key", "api-key"] = "bearer"
    """The header with the key."""
    price: Price | None = None
    """The price that the user configured; None: that of the price list."""
    alias: str = ""
    """The name under which it is configured, if any; its own key is stored there."""
    capabilities: Capabilities = Capabilities()
    limits: Limits = Limits()
    tokens: TokenRule = TokenRule()
    thinking: ThinkingRule = ThinkingRule()
    cache: CacheRule = CacheRule()
    ids: IdRule = IdRule()
    dialect: ChatDialect = ChatDialect()
    """How `wire/openai_chat` differs for this service."""
    user_after_tool: bool = True
    """Whether a user message may directly follow tool results."""
    max_tool_name: int = 64
    """The maximum length of a tool name, in characters."""
    tool_name_start: Literal["any", "letter"] = "any"
    """`letter`: a tool name must start with a letter or `_`."""
    property_names: str = r"[a-zA-Z0-9_-]{1,64}"
    """The pattern of the names of a tool's arguments; empty if the platform takes any. The default suits every
    platform."""
    system_messages: Literal["none", "anywhere", "after_user"] = "none"
    """Where system messages may stand inside a conversation: `after_user` is at the end of a user's turn."""
    calls_need_tools: bool = False
    """Whether a history with calls is refused if the request defines no tool."""
    sampling: bool = True
    """Whether temperature and similar options are supported at all."""
    options: tuple[str, ...] = ("top_p", "seed", "stop", "tool_choice", "tool_name", "parallel_calls", "output_schema")
    """The fields of `Sampling` beyond the common ones that the platform supports; the default is what most servers
    support. `stop:sampling` means: if `sampling` is true."""
    own_blocks: tuple[str, ...] = ()
    """Types of provider-specific blocks that this platform accepts, such as those of tools that it runs itself; `*`:
    all of its own."""
    server_tools: dict[str, dict[str, Any]] = {}
    """The entries of the request's `tools` that enable tools that the platform runs itself, by name."""
    schema_with_tools: bool = True
    """Whether a request may have both tools and a schema for the answer; if not, the prompt asks for the JSON."""
    detail: Detail = "auto"
    """The detail of images that do not set their own."""

    @property
    def reference(self) -> str:
        return f"{self.provider}/{self.name}"

    @property
    def has_detail(self) -> bool:
        """Whether a request can set the detail of an image; if not, a smaller image is sent."""
        return self.wire in ("openai_chat", "openai_responses") or self.tokens.image == "ceiling"

    def without(self, kind: str) -> Model:
        """Return the model without a kind of media that it refused (`image/`, `audio/`, `application/pdf`)."""
        accepts = tuple(found for found in self.capabilities.accepts if not found.startswith(kind))
        capabilities = msgspec.structs.replace(
            self.capabilities,
            accepts=accepts,
            result_accepts=tuple(found for found in self.capabilities.result_accepts if found in accepts),
            origins={**self.capabilities.origins, capability_of(kind): "learned"},
        )
        return msgspec.structs.replace(self, capabilities=capabilities)

    @property
    def opaque_owner(self) -> str:
        """The owner of the opaque data that this model reads: one name for all platforms of the same family."""
        return _PRODUCERS.get(self.provider, self.provider)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens as billed. `input_tokens` includes cached tokens, for every provider."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    thinking_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            thinking_tokens=self.thinking_tokens + other.thinking_tokens,
        )
