"""What is true of a model: what it takes, what it refuses, how its tokens are counted, what must be sent back.

Values only. Where the facts come from (catalogue, endpoint, user, experience) is `providers`' business; every
capability remembers it in `origins`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from loom.content.blocks import Detail

Wire: TypeAlias = Literal["anthropic", "openai_chat", "openai_responses", "gemini", "ollama", "spark"]
"""The protocol: one module in `wire/` each (`spark` is the built-in model and needs none)."""

Provider: TypeAlias = Literal[
    "anthropic",
    "bedrock-anthropic",
    "openai-responses",
    "openai-chat",
    "gemini",
    "ollama",
    "deepseek",
    "mistral",
    "openai-compatible",
    "loom",
]
"""The service as every face names it."""

Origin: TypeAlias = Literal["declared", "asked", "learned", "user", "guessed"]

PDF: Final = "application/pdf"
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
    streaming: bool = True
    origins: dict[str, Origin] = msgspec.field(default_factory=dict[str, Origin])

    @property
    def vision(self) -> bool:
        return any(kind.startswith("image/") for kind in self.accepts)

    @property
    def native_pdf(self) -> bool:
        return PDF in self.accepts

    @property
    def audio(self) -> bool:
        return any(kind.startswith("audio/") for kind in self.accepts)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the platform refuses. `None` means that it states no limit. `as_of` is the day on which this was true."""

    context_tokens: int = 8_192
    max_output_tokens: int = 4_096
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
    """How a family counts. `image` names a published formula in `context/cost.py`; the rest are its parameters."""

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
    chars_per_token: float = 3.8


class ThinkingRule(msgspec.Struct, frozen=True, kw_only=True):
    """Whether old reasoning goes back, and how it is asked for."""

    replay: Literal["never", "own", "bound", "tool_turns"] = "never"
    """never · own: to the model that made it · bound: own, and only behind an untouched prefix · tool_turns: the key
    must be present on every assistant message that called tools."""
    request: Literal["none", "budget", "adaptive", "always", "level", "effort", "flag"] = "none"
    keeps_all_turns: bool = False
    place: Literal["any", "first", "before"] = "any"
    """any · first: a message that holds thinking begins with it · before: it stands directly before what it led to. In
    both of the latter nothing else of its message may be changed, and it is never the last."""
    keys: tuple[str, ...] = ()
    """Opaque data without any of these is not whole, and is not sent back."""
    signature_required: bool = False
    """A call of the current turn without its signature is refused; foreign calls carry the platform's sentinel."""


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


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The thing asked. `name` is what goes on the wire, `reference` what a person types: `anthropic/claude-opus-5`."""

    provider: Provider
    name: str
    wire: Wire
    family: str = ""
    profile: str = ""
    """Which server of an OpenAI-compatible kind this is, where their rules differ (`mistral`, `groq`, `vllm` …)."""
    base_url: str = ""
    alias: str = ""
    """The name under which it is configured, where it has one: its own key is found there."""
    capabilities: Capabilities = Capabilities()
    limits: Limits = Limits()
    tokens: TokenRule = TokenRule()
    thinking: ThinkingRule = ThinkingRule()
    cache: CacheRule = CacheRule()
    ids: IdRule = IdRule()
    user_after_tool: bool = True
    """Whether a user's message may directly follow tool results."""
    calls_need_tools: bool = False
    """Whether a history with calls is refused where the request defines no tool."""
    sampling: bool = True
    """Whether temperature and its like are taken at all."""
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
        flag = {"image/": "vision", PDF: "native_pdf", "audio/": "audio"}.get(kind, kind)
        capabilities = msgspec.structs.replace(
            self.capabilities,
            accepts=accepts,
            result_accepts=tuple(found for found in self.capabilities.result_accepts if found in accepts),
            origins={**self.capabilities.origins, flag: "learned"},
        )
        return msgspec.structs.replace(self, capabilities=capabilities)

    @property
    def producer(self) -> str:
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
