"""Every key of `loom.toml` / `loom.yaml`: its type, bounds, default and meaning. Values only.

This is the single source: checking, environment variables, the JSON Schema and `docs/config.md` are all read from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from loom.config.secret import Secret, Url, setting_text
from loom.models import ThinkingLevel
from loom.sampling import CacheMode

FEW: Final = 1_000_000
MANY_BYTES: Final = 10**15

Count: TypeAlias = Annotated[int, Meta(ge=0, le=FEW)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=FEW)]
Bytes: TypeAlias = Annotated[int, Meta(ge=1, le=MANY_BYTES)]
Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0.1, le=86_400)]
Temperature: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=FEW)]
HttpUrl: TypeAlias = Annotated[Url, Meta(extra={"schemes": ("http", "https")})]
ApprovalAction: TypeAlias = Literal["allow", "ask", "deny"]
AgingMode: TypeAlias = Literal["stepped", "every-turn", "off"]


def about(text: str) -> Meta:
    return Meta(description=text)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A table of settings. Its repr masks secrets."""

    def __repr__(self) -> str:
        fields = (f"{name}={setting_text(getattr(self, name))}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(fields)})"


class CapabilityOverrides(Section, frozen=True, kw_only=True):
    """Facts about the model that override the catalog. Unset keys are looked up."""

    vision: Annotated[bool | None, about("It accepts images.")] = None
    native_pdf: Annotated[bool | None, about("It accepts PDF files.")] = None
    thinking: Annotated[bool | None, about("It supports reasoning.")] = None
    citations: Annotated[bool | None, about("It can cite documents.")] = None
    tools: Annotated[bool | None, about("It can call tools.")] = None
    audio: Annotated[bool | None, about("It accepts audio.")] = None
    video: Annotated[bool | None, about("It accepts video.")] = None
    accepts: Annotated[tuple[str, ...] | None, about('Media types that it accepts, such as `"image/png"`.')] = None
    context_tokens: Annotated[Tokens | None, about("The size of its context window.")] = None
    max_output_tokens: Annotated[Tokens | None, about("The longest answer that it can generate.")] = None


class PriceEntry(Section, frozen=True, kw_only=True):
    """The price of a model in US dollars per million tokens. Unset means the built-in price list."""

    input: Annotated[Dollars | None, about("Input tokens.")] = None
    output: Annotated[Dollars | None, about("Output tokens.")] = None
    cache_read: Annotated[Dollars | None, about("Tokens read from the cache; unset means `input`.")] = None
    cache_write: Annotated[Dollars | None, about("Tokens written to the cache; unset means `input`.")] = None


class ModelEntry(Section, frozen=True, kw_only=True):
    """A model under a name of your choice. Without `provider` and `model`, NAME is the model reference."""

    provider: Annotated[str, about("The provider, such as `anthropic`, `openai`, `gemini`, `ollama`.")] = ""
    model: Annotated[str, about("The provider's name for it; empty means NAME.")] = ""
    base_url: Annotated[HttpUrl, about("The URL of the server, if not the provider's own.")] = msgspec.field(
        default_factory=Url
    )
    api_key: Annotated[Secret, about("Its API key; empty means the provider's key (`[keys]`).")] = msgspec.field(
        default_factory=Secret
    )
    max_tokens: Annotated[Tokens | None, about("The maximum length of an answer.")] = None
    temperature: Annotated[Temperature | None, about("The sampling temperature.")] = None
    thinking: Annotated[
        ThinkingLevel,
        about("How much it thinks before it answers; an unsupported level becomes the nearest one."),
    ] = ""
    top_p: Annotated[Annotated[float, Meta(ge=0, le=1)] | None, about("Nucleus sampling.")] = None
    seed: Annotated[
        Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None, about("The seed, for reproducible answers.")
    ] = None
    stop: Annotated[tuple[str, ...], about("Stop sequences: texts at which an answer ends.")] = ()
    parallel_calls: Annotated[bool | None, about("Whether it may call several tools in one step.")] = None
    service_tier: Annotated[str, about("The provider's service tier, such as `flex` or `priority`.")] = ""
    user: Annotated[str, about("An id of the end user, for the provider's abuse reports.")] = ""
    cache_key: Annotated[str, about("Requests with the same key are sent to the same cache.")] = ""
    cache: Annotated[
        CacheMode,
        about("`1h` keeps the prompt cache for an hour at a higher price; `off` caches nothing, if possible."),
    ] = ""
    server_tools: Annotated[
        tuple[str, ...],
        about("Tools that the provider runs: `web_search`, `web_fetch`, `code_execution`, `image_generation`."),
    ] = ()
    extra_body: Annotated[
        Mapping[str, Any], about("Fields that are merged into every request, such as `top_k` or `provider`.")
    ] = msgspec.field(default_factory=dict[str, Any])
    detail: Annotated[Literal["auto", "low", "high"], about("The image detail, for images without their own.")] = "auto"
    headers: Annotated[Mapping[str, Secret], about("Additional HTTP headers.")] = msgspec.field(
        default_factory=dict[str, Secret]
    )
    capabilities: Annotated[CapabilityOverrides, about("Facts that override the catalog.")] = CapabilityOverrides()
    price: Annotated[PriceEntry, about("Its price; it also applies to a local server.")] = PriceEntry()


class ApprovalRule(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do when a tool is called."""

    tool: Annotated[
        Annotated[str, Meta(min_length=1)], about("The tool, or a pattern: `SERVER__*`; `mcp_*`: all of MCP.")
    ]
    pattern: Annotated[
        Annotated[str, Meta(min_length=1)], about("A pattern for its subject: the command, path or URL.")
    ] = "*"
    action: Annotated[ApprovalAction, about("What to do.")]


class AgentModel(Section, frozen=True, kw_only=True):
    """The model of an agent, in the form of older files; `model` is shorter."""

    provider: Annotated[str, about("The provider.")] = ""
    model: Annotated[str, about("Its name at the provider, or a name from `[models]`; empty means `model`.")] = ""


class AgentEntry(Section, frozen=True, kw_only=True):
    """An agent. Write a table `[agents.ID]`, or a list `[[agents]]` in which each has an `id`."""

    id: Annotated[str, about("Its name; in a table it is the name of the table.")] = ""
    description: Annotated[str, about("What it is for; other agents read this before they use it.")] = ""
    model: Annotated[str, about("`provider/model`, or a name from `[models]`; empty means the default model.")] = ""
    brain: Annotated[AgentModel, about("The same as `model`, as `provider` and `model`.")] = AgentModel()
    vision: Annotated[bool | Literal["auto"], about('Whether it gets images; `"auto"`: if the model supports it.')] = (
        "auto"
    )
    system: Annotated[str, about("The system prompt instead of the default, or `{file:prompt.md}`.")] = ""
    tools: Annotated[
        tuple[str, ...] | None, about("The tools it may use, or patterns: `SERVER__*`; unset means all of them.")
    ] = None
    rules: Annotated[
        tuple[ApprovalRule, ...], about("Approval rules after those of `approval.rules`; the last match wins.")
    ] = ()
    max_steps: Annotated[Positive | None, about("Its maximum steps per turn; unset means `turn.max_steps`.")] = None
    max_usd: Annotated[
        Annotated[float, Meta(ge=0, le=FEW)] | None,
        about("Its maximum cost per turn in US dollars; unset means `turn.max_usd`."),
    ] = None


class Hook(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that runs before or after a tool call. Its stdin is JSON: session_id, cwd, tool_name, tool_input."""

    tool: Annotated[Annotated[str, Meta(min_length=1)], about("The tool, or a pattern such as `edit_*`.")] = "*"
    command: Annotated[Annotated[str, Meta(min_length=1)], about("The command line, run in the workspace.")]
    timeout_seconds: Annotated[Seconds, about("After this it is stopped and counts as failed.")] = 60.0


class TurnHook(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that runs before or after a turn or a summary. Its stdin is JSON: session_id, cwd, turn_id, state."""

    command: Annotated[Annotated[str, Meta(min_length=1)], about("The command line, run in the workspace.")]
    timeout_seconds: Annotated[Seconds, about("After this it is stopped and counts as failed.")] = 60.0


class HookSettings(Section, frozen=True, kw_only=True):
    """Your programs that run before and after tool calls, turns and summaries."""

    before_tool: Annotated[
        tuple[Hook, ...], about("Before a call; exit code 2 denies it, and the model reads the output.")
    ] = ()
    after_tool: Annotated[
        tuple[Hook, ...], about("After a successful call; with exit code 2 the model reads the output.")
    ] = ()
    turn_start: Annotated[
        tuple[TurnHook, ...], about("When a turn starts; exit code 2 ends it and shows you the output.")
    ] = ()
    turn_end: Annotated[tuple[TurnHook, ...], about("When a turn ends, finished or failed.")] = ()
    before_compact: Annotated[
        tuple[TurnHook, ...], about("Before the conversation is summarized; exit code 2 prevents it.")
    ] = ()
    after_compact: Annotated[tuple[TurnHook, ...], about("After the conversation was summarized.")] = ()
    claude_code: Annotated[
        bool,
        about("Also run the hooks in `~/.claude/settings.json`, and in `.claude/settings.json` of trusted folders."),
    ] = True


class PromptSettings(Section, frozen=True, kw_only=True):
    """The system prompt of new sessions that have tools. `loom prompt` prints it."""

    default: Annotated[bool, about("Use the default prompt: how to work, and facts about the machine.")] = True
    system: Annotated[str, about("Replaces the default prompt: a text, or `{file:prompt.md}`.")] = ""
    append: Annotated[str, about("Added after it: a text, or `{file:prompt.md}`.")] = ""


class ImageSettings(Section, frozen=True, kw_only=True):
    """Images: intake limits and sizes."""

    max_per_message: Annotated[Count, about("Images sent per message; the rest become text.")] = 10
    max_size_bytes: Annotated[Bytes, about("The largest image file.")] = 10_485_760
    max_per_session: Annotated[Count, about("Images sent per session; the rest become text.")] = 100
    low_res_size: Annotated[Annotated[int, Meta(ge=16, le=4096)], about("Longest side of the `low` form, px.")] = 512
    max_side: Annotated[Annotated[int, Meta(ge=64, le=16_384)], about("Longest side of the `full` form, px.")] = 2048
    max_pixels: Annotated[Bytes, about("Width × height above which an image is refused without decoding.")] = 64_000_000
    max_frames: Annotated[Positive, about("Frames above which an animation is refused.")] = 5_000


class DocumentSettings(Section, frozen=True, kw_only=True):
    """PDF, office and text files."""

    max_pdf_bytes: Annotated[Bytes, about("The largest PDF file.")] = 33_554_432
    max_office_bytes: Annotated[Bytes, about("The largest office file.")] = 67_108_864
    max_text_bytes: Annotated[Bytes, about("The maximum text of one read.")] = 1_000_000
    max_expanded_bytes: Annotated[Bytes, about("The decompressed size of an archive (docx, xlsx, …).")] = 268_435_456
    pages_per_read: Annotated[Annotated[int, Meta(ge=1, le=1000)], about("Pages per read.")] = 20
    dpi: Annotated[Annotated[int, Meta(ge=36, le=600)], about("Resolution of page images.")] = 150


class AudioSettings(Section, frozen=True, kw_only=True):
    """Audio files."""

    max_size_bytes: Annotated[Bytes, about("The largest audio file.")] = 26_214_400
    transcriber: Annotated[
        str, about("The model that transcribes speech for models without audio input, such as `openai/whisper-1`.")
    ] = ""
    transcribe_command: Annotated[
        tuple[str, ...],
        about("A local program to use instead; `{file}` is the recording, and its output is the transcript."),
    ] = ()
    speaker: Annotated[str, about("The text-to-speech model of `loom speak`, such as `openai/gpt-4o-mini-tts`.")] = ""
    voice: Annotated[str, about("Its voice.")] = "alloy"
    speak_command: Annotated[
        tuple[str, ...],
        about("A local program to use instead; `{text}` is a text file, `{file}` the audio file that it writes."),
    ] = ()


class VideoSettings(Section, frozen=True, kw_only=True):
    """Video files. Models without video input get frames, chosen by scene, and a transcript."""

    max_size_bytes: Annotated[Bytes, about("The largest video file.")] = 209_715_200
    frames: Annotated[Annotated[int, Meta(ge=1, le=100)], about("The most frames sent of a video.")] = 12
    frame_side: Annotated[Annotated[int, Meta(ge=64, le=4096)], about("Longest side of a frame, px.")] = 1024


class WorkerSettings(Section, frozen=True, kw_only=True):
    """Limits of the worker processes that decode files."""

    deadline_seconds: Annotated[Seconds, about("The timeout of a job.")] = 15.0
    conversion_seconds: Annotated[Seconds, about("The timeout of a LibreOffice conversion.")] = 60.0
    ocr_seconds: Annotated[Seconds, about("The timeout of OCR.")] = 60.0
    memory_bytes: Annotated[Bytes, about("The memory limit.")] = 1_000_000_000


class ContextSettings(Section, frozen=True, kw_only=True):
    """How much of the history is sent. Unset `max_` budgets are those of the model."""

    aging: Annotated[
        AgingMode, about("When old media are reduced: in steps that keep the provider's cache, every turn, or never.")
    ] = "stepped"
    full_turns: Annotated[Count, about("Turns for which media stay `full`.")] = 1
    low_turns: Annotated[Count, about("Turns after that for which they stay `low`; then they are text.")] = 2
    max_tokens: Annotated[Tokens | None, about("Tokens per request.")] = None
    max_bytes: Annotated[Bytes | None, about("Bytes per request.")] = None
    max_images: Annotated[Count | None, about("Images per request.")] = None
    max_pages: Annotated[Count | None, about("Document pages per request.")] = None
    keep_turns: Annotated[Positive, about("The number of last turns that are never trimmed.")] = 2
    tool_output_bytes: Annotated[Bytes, about("Text per tool result; the model can read the rest on demand.")] = 30_000
    auto_context: Annotated[
        tuple[str, ...],
        about('Text files whose content and changes are sent to the model: globs such as `"docs/**/*.md"`.'),
    ] = ()
    compact_at: Annotated[
        Annotated[float, Meta(ge=0, le=1)],
        about(
            "Summarize the conversation when it fills this part of the context window (without room for the answer);"
            " 0 means never."
        ),
    ] = 0.8
    describer: Annotated[str, about("The model that describes images for text-only models; empty means none.")] = ""


class TurnSettings(Section, frozen=True, kw_only=True):
    """The limits of a turn, and what happens to it after a crash."""

    max_steps: Annotated[Positive, about("Model calls per turn.")] = 50
    max_seconds: Annotated[
        Annotated[float, Meta(ge=1, le=604_800)], about("Its duration; time spent waiting for approval does not count.")
    ] = 3_600.0
    max_usd: Annotated[
        Annotated[float, Meta(ge=0, le=FEW)] | None, about("Its maximum cost, if the price is known.")
    ] = None
    max_answer_bytes: Annotated[Bytes, about("The longest answer; a longer one is stopped there.")] = 16_000_000
    after_crash: Annotated[
        Literal["continue", "stop"],
        about("Whether another process continues a turn whose process ended, or ends it as interrupted."),
    ] = "continue"
    engine: Annotated[
        Literal["builtin", "dbos"],
        about("What records the steps of turns: Loom, or also DBOS (`loom-runtime[dbos]`, needs PostgreSQL)."),
    ] = "builtin"


class BudgetSettings(Section, frozen=True, kw_only=True):
    """What answers may cost; after that no new turn starts. Answers without a known price count as free."""

    session_usd: Annotated[Dollars | None, about("A session, with all its branches.")] = None
    day_usd: Annotated[Dollars | None, about("All sessions of a day, in the time zone of this machine.")] = None
    total_usd: Annotated[Dollars | None, about("All stored sessions, of all days.")] = None


class ToolSettings(Section, frozen=True, kw_only=True):
    """What the built-in tools may access."""

    allow_hosts: Annotated[
        tuple[str, ...],
        about(
            "Hosts (`intranet`, `localhost:8000`) and networks (`10.1.0.0/16`) that `fetch_url` and `screenshot` may"
            " access in addition to the public internet."
        ),
    ] = ()
    environment: Annotated[
        tuple[str, ...],
        about("Environment variables that commands get in addition to the usual ones (`PATH`, `HOME`, `LANG` …)."),
    ] = ()


class SandboxEntry(Section, frozen=True, kw_only=True):
    """The sandbox for commands: they can write only to the workspace, see no keys, and have no network."""

    mode: Annotated[
        Literal["auto", "require", "off"],
        about("`auto`: as strict as this machine allows; `require`: no command without a sandbox; `off`: no sandbox."),
    ] = "auto"
    network: Annotated[
        bool, about("Whether every command may use the network; otherwise network access needs approval.")
    ] = False
    writable: Annotated[tuple[str, ...], about("Folders that commands may write, in addition to the workspace.")] = ()
    hidden: Annotated[
        tuple[str, ...], about("Files and folders that no command may read, in addition to the usual ones.")
    ] = ()
    max_memory_bytes: Annotated[Bytes | None, about("Address space of one process.")] = None
    max_processes: Annotated[Positive | None, about("Processes of one command.")] = 2_000
    max_file_bytes: Annotated[Bytes | None, about("The largest file that a command may write.")] = None


class StoreSettings(Section, frozen=True, kw_only=True):
    """Where sessions are stored."""

    url: Annotated[Url, about("`sqlite:///PATH` or `postgresql://…`; empty means SQLite in the data folder.")] = (
        msgspec.field(default_factory=Url)
    )


class MediaSettings(Section, frozen=True, kw_only=True):
    """Where media are stored."""

    url: Annotated[Url, about("A folder or `s3://BUCKET/PREFIX`; empty means the data folder.")] = msgspec.field(
        default_factory=Url
    )
    timeout_seconds: Annotated[
        Seconds,
        about(
            "The timeout of a bucket, plus the time for the bytes at 256 KB/s. Media that arrive too late are left out"
            " of the request and fetched again for a later one."
        ),
    ] = 10.0
    derived_max_bytes: Annotated[Bytes, about("The cache of renditions, which can be made again.")] = 1_073_741_824
    uploads: Annotated[
        bool,
        about("Upload large media that are sent repeatedly, if the provider stores files, and refer to them by id."),
    ] = True


class BusSettings(Section, frozen=True, kw_only=True):
    """How several daemons share events."""

    url: Annotated[Url, about("`redis://…`; empty means a single daemon.")] = msgspec.field(default_factory=Url)


class ServerSettings(Section, frozen=True, kw_only=True):
    """The daemon."""

    host: Annotated[Annotated[str, Meta(min_length=1)], about("The address it listens on.")] = "127.0.0.1"
    port: Annotated[Annotated[int, Meta(ge=1, le=65_535)], about("The port it listens on.")] = 5666
    password: Annotated[Secret, about("The password for browsers; empty means none.")] = msgspec.field(
        default_factory=Secret
    )
    allowed_hosts: Annotated[tuple[str, ...], about("Accepted Host headers, in addition to its own address.")] = ()
    allowed_origins: Annotated[tuple[str, ...], about("Origins of other web pages that may use the API.")] = ()
    trusted_proxies: Annotated[
        tuple[str, ...], about("Addresses or networks of reverse proxies whose X-Forwarded headers are trusted.")
    ] = ()
    tls_cert: Annotated[str, about("The file with the TLS certificate chain (PEM): serve https.")] = ""
    tls_key: Annotated[str, about("The file with the private key of that certificate (PEM).")] = ""
    max_upload_bytes: Annotated[Bytes, about("The largest upload.")] = 67_108_864


class ApprovalSettings(Section, frozen=True, kw_only=True):
    """Which tool calls need approval."""

    default: Annotated[ApprovalAction, about("What to do when no rule matches.")] = "ask"
    rules: Annotated[tuple[ApprovalRule, ...], about("Rules in order; the last match wins.")] = ()


WebhookEvent: TypeAlias = Literal["turn_finished", "turn_failed", "approval_requested"]


class WebhookEntry(Section, frozen=True, kw_only=True):
    """A URL to which the daemon posts events. `docs/deploy.md` describes the requests."""

    url: Annotated[HttpUrl, about("The URL to post to. A host that is not public must be in `tools.allow_hosts`.")] = (
        msgspec.field(default_factory=Url)
    )
    secret: Annotated[Secret, about("Signs the requests (HMAC-SHA256): a random text, or `whsec_` and base64.")] = (
        msgspec.field(default_factory=Secret)
    )
    events: Annotated[tuple[WebhookEvent, ...], about("The events to send.")] = (
        "turn_finished",
        "turn_failed",
        "approval_requested",
    )


class GatewayRoutes(Section, frozen=True, kw_only=True):
    """Models by the content of a request. Empty means the requested model."""

    images: Annotated[str, about("The model for conversations with images or documents.")] = ""
    large: Annotated[str, about("The model for requests of more than `large_tokens`.")] = ""
    large_tokens: Annotated[Positive, about("The estimated number of tokens above which a request is large.")] = 150_000
    costly: Annotated[str, about("The model for requests whose input would cost more than `costly_usd`.")] = ""
    costly_usd: Annotated[
        Annotated[float, Meta(ge=0, le=FEW)],
        about("The price of the input, in US dollars, above which a request is costly."),
    ] = 1.0


class GatewayKey(Section, frozen=True, kw_only=True):
    """A key for one client of the gateway."""

    token: Annotated[Secret, about("The API key that the client sends.")] = msgspec.field(default_factory=Secret)
    models: Annotated[
        tuple[str, ...], about('Models it may use, as patterns such as `"claude-*"`; empty means all.')
    ] = ()
    max_usd_per_day: Annotated[
        Annotated[float, Meta(ge=0, le=FEW)] | None, about("What its answers may cost per day (UTC).")
    ] = None
    max_requests_per_minute: Annotated[Positive | None, about("Requests per minute.")] = None


class GatewaySettings(Section, frozen=True, kw_only=True):
    """The gateway: programs that use the API of Anthropic or OpenAI can use any model through the daemon."""

    aliases: Annotated[
        Mapping[str, str],
        about('Model names as clients send them, or patterns (`"claude-*"`), and the model to use; first match.'),
    ] = msgspec.field(default_factory=dict[str, str])
    routes: Annotated[GatewayRoutes, about("Models by the content of a request.")] = GatewayRoutes()
    fallback: Annotated[
        Mapping[str, tuple[str, ...]],
        about("Models to try, in order, when a model is rate limited, unavailable, or refuses; by name or pattern."),
    ] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    notices: Annotated[
        Literal["header", "inline"],
        about("How clients see what was reduced: in headers and receipts, or also once as a line in the answer."),
    ] = "header"
    ocr_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=FEW)],
        about("How long an answer waits for OCR and descriptions of images; later ones arrive with the next request."),
    ] = 2.0
    max_request_bytes: Annotated[Bytes, about("The largest request body.")] = 67_108_864
    keys: Annotated[Mapping[str, GatewayKey], about("Keys of clients, by name.")] = msgspec.field(
        default_factory=dict[str, GatewayKey]
    )


class TelemetrySettings(Section, frozen=True, kw_only=True):
    """OpenTelemetry spans and metrics of turns, sent by OTLP over HTTP (`loom-runtime[otel]`)."""

    endpoint: Annotated[
        HttpUrl,
        about(
            "The collector, such as `http://localhost:4318`; empty means `OTEL_EXPORTER_OTLP_ENDPOINT`, if it is set."
        ),
    ] = msgspec.field(default_factory=Url)
    service_name: Annotated[
        str, about("The name of this service; empty means `OTEL_SERVICE_NAME`, if it is set, or `loom`.")
    ] = ""
    content: Annotated[bool, about("Also record messages, answers, and the arguments and results of tools.")] = False


class McpServer(Section, frozen=True, kw_only=True):
    """An MCP server: a program (`command`) or a URL (`url`)."""

    command: Annotated[str, about("The program to start.")] = ""
    args: Annotated[tuple[str, ...], about("Its arguments.")] = ()
    env: Annotated[Mapping[str, Secret], about("Environment variables, besides a few safe ones.")] = msgspec.field(
        default_factory=dict[str, Secret]
    )
    url: Annotated[HttpUrl, about("The URL of a running server.")] = msgspec.field(default_factory=Url)
    headers: Annotated[Mapping[str, Secret], about("Additional HTTP headers.")] = msgspec.field(
        default_factory=dict[str, Secret]
    )
    timeout_seconds: Annotated[Seconds, about("The timeout of a call.")] = 60.0
    roots: Annotated[
        tuple[str, ...] | None,
        about("Folders that the server may work in (its MCP roots). Default: the workspace of the session."),
    ] = None
    enabled: Annotated[bool, about("Whether it is used.")] = True
    sandbox: Annotated[
        Literal["off", "offline", "online"],
        about("Start the program in the sandbox for commands, with or without network."),
    ] = "off"
    trusted: Annotated[
        bool, about("Trust its description of its tools: read-only ones run in parallel, and again after a crash.")
    ] = False


class McpSettings(Section, frozen=True, kw_only=True):
    """Tools of MCP servers."""

    servers: Annotated[Mapping[str, McpServer], about("The servers, by name.")] = msgspec.field(
        default_factory=dict[str, McpServer]
    )


class Settings(Section, frozen=True, kw_only=True):
    """All settings."""

    model: Annotated[
        str, about("The default model: `provider/model`, or a name from `[models]`; empty means the best available.")
    ] = ""
    home: Annotated[
        str, about("The data folder; empty means the default of the operating system. Also `LOOM_HOME`.")
    ] = ""
    cleanup_after_days: Annotated[
        Annotated[int, Meta(ge=0, le=36_500)], about("Days after which unreferenced media are deleted.")
    ] = 7
    trusted_folders: Annotated[
        tuple[str, ...], about("Folders, with subfolders, whose project file may set everything.")
    ] = ()
    keys: Annotated[Mapping[str, Secret], about("API keys by provider.")] = msgspec.field(
        default_factory=dict[str, Secret]
    )
    models: Annotated[Mapping[str, ModelEntry], about("Models by a name of your choice.")] = msgspec.field(
        default_factory=dict[str, ModelEntry]
    )
    agents: Annotated[Mapping[str, AgentEntry], about("Agents by their id.")] = msgspec.field(
        default_factory=dict[str, AgentEntry]
    )
    prompt: PromptSettings = msgspec.field(default_factory=PromptSettings)
    images: ImageSettings = msgspec.field(default_factory=ImageSettings)
    documents: DocumentSettings = msgspec.field(default_factory=DocumentSettings)
    audio: AudioSettings = msgspec.field(default_factory=AudioSettings)
    video: VideoSettings = msgspec.field(default_factory=VideoSettings)
    worker: WorkerSettings = msgspec.field(default_factory=WorkerSettings)
    context: ContextSettings = msgspec.field(default_factory=ContextSettings)
    turn: TurnSettings = msgspec.field(default_factory=TurnSettings)
    budget: BudgetSettings = msgspec.field(default_factory=BudgetSettings)
    tools: ToolSettings = msgspec.field(default_factory=ToolSettings)
    hooks: HookSettings = msgspec.field(default_factory=HookSettings)
    sandbox: SandboxEntry = msgspec.field(default_factory=SandboxEntry)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    media: MediaSettings = msgspec.field(default_factory=MediaSettings)
    bus: BusSettings = msgspec.field(default_factory=BusSettings)
    server: ServerSettings = msgspec.field(default_factory=ServerSettings)
    approval: ApprovalSettings = msgspec.field(default_factory=ApprovalSettings)
    gateway: GatewaySettings = msgspec.field(default_factory=GatewaySettings)
    webhooks: Annotated[Mapping[str, WebhookEntry], about("Webhooks of the daemon by a name of your choice.")] = (
        msgspec.field(default_factory=dict[str, WebhookEntry])
    )
    telemetry: TelemetrySettings = msgspec.field(default_factory=TelemetrySettings)
    mcp: McpSettings = msgspec.field(default_factory=McpSettings)


REMOVED: Final = {
    ("models", "*", "roles"): "was removed, because it had no effect; `context.describer` names the describing model",
    ("models", "*", "tier"): "was removed, because it had no effect; delete it",
    ("documents", "warn_over_pages"): "was removed, because it had no effect; delete it",
}
"""Keys of earlier versions, with the text of the warning for each."""

LIMITS: Final = (
    "images.max_per_message",
    "images.max_size_bytes",
    "images.max_per_session",
    "images.max_side",
    "images.max_pixels",
    "images.max_frames",
    "documents.max_pdf_bytes",
    "documents.max_office_bytes",
    "documents.max_text_bytes",
    "documents.max_expanded_bytes",
    "documents.pages_per_read",
    "documents.dpi",
    "audio.max_size_bytes",
    "video.max_size_bytes",
    "video.frames",
    "video.frame_side",
)
"""Limits that a project file may lower, but raise only in a trusted folder."""
PROTECTED: Final = (
    "home",
    "trusted_folders",
    "cleanup_after_days",
    "keys",
    "models.*.base_url",
    "models.*.api_key",
    "models.*.headers",
    "agents.*.rules",
    "worker",
    "context.describer",
    "audio.transcriber",
    "audio.transcribe_command",
    "audio.speaker",
    "audio.speak_command",
    "turn",
    "budget",
    "tools",
    "hooks",
    "sandbox",
    "store",
    "media",
    "bus",
    "server",
    "gateway",
    "webhooks",
    "telemetry",
    "mcp",
)
"""Settings that a project file may change only in a trusted folder: where keys, data and commands go, and what all
projects share. A name covers everything below it."""
