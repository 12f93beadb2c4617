"""What is true of a model: what it takes, what it refuses, how its tokens are counted, what must be sent back.

Values only. Where the facts come from (catalogue, endpoint, user, experience) is `providers`' business; every
capability remembers it in `origins`.
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
"""The service as every face names it."""

FactOrigin: TypeAlias = Literal["declared", "asked", "learned", "user", "guessed"]

PDF: Final = media_kinds.PDF
PLAIN_IMAGES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")


_PRODUCERS: Final[dict[str, str]] = {
    "bedrock-anthropic": "anthropic",
    "openai-responses": "openai",
    "openai-chat": "openai",
}


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """`accepts` are the media types taken in a user's message, `result_accepts` those taken inside a tool result."""

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
    """What the platform refuses. `None` means that it states no limit. `as_of` is the day on which this was true."""

    context_tokens: int = 8_192
    max_output_tokens: int = 4_096
    default_output_tokens: int | None = None
    """What is asked for where nothing is said and the platform wants a number; None: `max_output_tokens`."""
    max_request_bytes: int | None = None
    max_image_encoded_bytes: int | None = None
    max_document_encoded_bytes: int | None = None
    max_image_side_px: int | None = None
    many_images: int | None = None
    """More images than this in one request, history included, and each is held to `many_images_side_px`."""
    many_images_side_px: int | None = None
    max_images: int | None = None
    max_pages: int | None = None
    as_of: str = ""


class TokenRule(msgspec.Struct, frozen=True, kw_only=True):
    """How a family counts. `image` names a published formula in `compile/cost.py`; the rest are its parameters."""

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
    """Tokens of a PDF page beyond its image: fixed where the platform says so, else its text is counted."""
    page_as_image: bool = False
    audio_tokens_per_second: float = 0.0
    video_tokens_per_second: float = 0.0
    chars_per_token: float = 3.8


ThinkingLevel: TypeAlias = Literal["", "off", "minimal", "low", "medium", "high", "xhigh", "max"]
THINKING_LEVELS: Final[tuple[ThinkingLevel, ...]] = get_args(ThinkingLevel)
"""From nothing to the most."""

_BUDGETS: Final = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 24_576, "xhigh": 49_152, "max": 1_000_000}


class ThinkingRule(msgspec.Struct, frozen=True, kw_only=True):
    """Whether old reasoning goes back, and how it is asked for."""

    replay: Literal["never", "own", "bound", "tool_turns"] = "never"
    """never · own: to the model that made it · bound: own, and only behind an untouched prefix · tool_turns: the key
    must be present on every assistant message that called tools."""
    request: Literal["none", "budget", "adaptive", "always", "level", "effort", "flag"] = "none"
    levels: tuple[ThinkingLevel, ...] = ("off", "low", "medium", "high")
    """The efforts that this family takes, lowest first; `off` is one of them where thinking can be switched off."""
    min_budget: int = 1_024
    max_budget: int = 32_768
    """Tokens for thoughts, where they are asked for by number."""
    refuses_forced_calls: bool = False
    """Whether a call cannot be demanded while the model thinks."""
    asks_for_summary: bool = False
    """Whether thoughts come without words unless their summary is asked for."""
    place: Literal["any", "first", "before"] = "any"
    """any · first: a message that holds thinking begins with it · before: it stands directly before what it led to. In
    both of the latter nothing else of its message may be changed, and it is never the last."""
    keys: tuple[str, ...] = ()
    """Opaque data without any of these is not whole, and is not sent back."""
    signature_required: bool = False
    """A call of the current turn without its signature is refused; foreign calls carry the platform's sentinel."""

    def nearest(self, wish: ThinkingLevel) -> ThinkingLevel:
        """Return the highest level of this family that is not above the wish, else its lowest; empty for no wish."""
        levels: list[ThinkingLevel] = list(self.levels)
        if wish != "off" and "off" in levels:
            levels.remove("off")
        if not wish or not levels:
            return ""
        rank = THINKING_LEVELS.index
        below: list[ThinkingLevel] = [level for level in levels if rank(level) <= rank(wish)]
        return below[-1] if below else levels[0]

    def budget(self, wish: ThinkingLevel, max_tokens: int) -> int:
        """Return the tokens for thoughts: half of the answer's at most, so that some are left for words."""
        if wish == "off":
            return 0 if "off" in self.levels else self.min_budget
        return max(self.min_budget, min(_BUDGETS[wish], self.max_budget, max_tokens // 2))


class CacheRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a cached token costs relative to a fresh one, and how the cache is asked for."""

    mode: Literal["none", "explicit", "automatic"] = "none"
    write: float = 1.0
    read: float = 1.0
    min_tokens: int = 0


class IdRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which tool-call ids are legal. Illegal ones are replaced by `prefix` + a digest, cut to `length`."""

    pattern: str = ""
    prefix: str = ""
    length: int = 64


class ChatDialect(msgspec.Struct, frozen=True, kw_only=True):
    """How a service or server departs from plain Chat Completions. The defaults are what most servers understand."""

    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True
    """Whether usage must be asked for (`stream_options`)."""
    think_tags: bool = True
    """Whether `<think>…</think>` at the beginning of the content is thinking."""
    reasoning_fields: bool = True
    """Whether thinking goes back in the field that it came in."""
    thinking: Literal["effort", "switch_and_effort", "reasoning_object", "template_flag"] = "effort"
    """effort: `reasoning_effort` · switch_and_effort: `thinking: {type}` beside it · reasoning_object: `reasoning:
    {effort}` · template_flag: `chat_template_kwargs: {enable_thinking}`."""
    off_word: str = "none"
    """The effort by which thinking is switched off."""
    seed_field: Literal["seed", "random_seed"] = "seed"
    forced_word: Literal["required", "any"] = "required"
    """The tool choice that demands a call."""
    output_schema: Literal["json_schema", "json_object"] = "json_schema"
    """json_object: the service promises JSON but reads no schema; words say what it must hold."""
    user_field: Literal["user", "safety_identifier"] = "user"
    audio_part: Literal["object", "bare"] = "object"
    """object: `{data, format}` · bare: the base64 itself."""
    document_part: Literal["file", "document_url"] = "file"


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens. Cached ones cost as much as fresh ones where nothing else is said."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float | None = None
    cache_write: float | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The thing asked. `name` is what goes on the wire, `reference` what a person types: `anthropic/claude-opus-5`."""

    provider: ProviderName
    name: str
    wire: WireName
    family: str = ""
    base_url: str = ""
    auth: Literal["bearer", "x-goog-api-key", "api-key"] = "bearer"
    """The header that carries the key."""
    price: Price | None = None
    """What the user says that it costs; None: the price list decides."""
    alias: str = ""
    """The name under which it is configured, where it has one: its own key is found there."""
    capabilities: Capabilities = Capabilities()
    limits: Limits = Limits()
    tokens: TokenRule = TokenRule()
    thinking: ThinkingRule = ThinkingRule()
    cache: CacheRule = CacheRule()
    ids: IdRule = IdRule()
    dialect: ChatDialect = ChatDialect()
    """What `wire/openai_chat` does differently for this service."""
    user_after_tool: bool = True
    """Whether a user's message may directly follow tool results."""
    max_tool_name: int = 64
    """How many characters the name of a tool may have."""
    tool_name_start: Literal["any", "letter"] = "any"
    """`letter`: the name of a tool begins with a letter or `_`."""
    system_messages: Literal["none", "anywhere", "after_user"] = "none"
    """Where system messages may stand inside a conversation: `after_user` is at the end of a user's turn."""
    calls_need_tools: bool = False
    """Whether a history with calls is refused where the request defines no tool."""
    sampling: bool = True
    """Whether temperature and its like are taken at all."""
    options: tuple[str, ...] = ("top_p", "seed", "stop", "tool_choice", "tool_name", "parallel_calls", "output_schema")
    """The fields of `Sampling` beyond the common ones that the platform takes; the default is what most servers
    understand. `stop:sampling` means: where `sampling` is true."""
    own_blocks: tuple[str, ...] = ()
    """Types of blocks that only this platform has and takes back, such as those of tools that it runs itself; `*`: all
    that it made."""
    server_tools: dict[str, dict[str, Any]] = {}
    """What switches on the tools that the platform runs itself, by name: an entry of the request's `tools`."""
    schema_with_tools: bool = True
    """Whether a request may have both tools and a schema for the answer; where it may not, words ask for the JSON."""
    detail: Detail = "auto"
    """How closely pictures are looked at where they do not say so themselves."""

    @property
    def reference(self) -> str:
        return f"{self.provider}/{self.name}"

    @property
    def has_detail(self) -> bool:
        """Whether a request can say how closely to look; where it cannot, a smaller picture is sent."""
        return self.wire in ("openai_chat", "openai_responses") or self.tokens.image == "ceiling"

    def without(self, kind: str) -> Model:
        """The same model after it refused a kind of media (`image/`, `audio/`, `application/pdf`): not sent again."""
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
        """Whose opaque data this model reads back: one name for all doors to the same family."""
        return _PRODUCERS.get(self.provider, self.provider)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens as billed. `input_tokens` is everything that went in, cached or not, on every provider."""

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
