"""Every key of `loom.toml` / `loom.yaml`: its type, bounds, default and meaning. Values only.

This is the single source: checking, environment variables, the JSON Schema and `docs/config.md` are all read from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from loom.config.secret import Secret, Url, printable

FEW: Final = 1_000_000
MANY_BYTES: Final = 10**15

Count: TypeAlias = Annotated[int, Meta(ge=0, le=FEW)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=FEW)]
Bytes: TypeAlias = Annotated[int, Meta(ge=1, le=MANY_BYTES)]
Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0.1, le=86_400)]
Temperature: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
HttpUrl: TypeAlias = Annotated[Url, Meta(extra={"schemes": ("http", "https")})]
Action: TypeAlias = Literal["allow", "ask", "deny"]
Aging: TypeAlias = Literal["stepped", "every-turn", "off"]


def about(text: str) -> Meta:
    return Meta(description=text)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Prints itself with secrets masked."""

    def __repr__(self) -> str:
        fields = (f"{name}={printable(getattr(self, name))}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(fields)})"


class CapabilityOverrides(Section, frozen=True, kw_only=True):
    """What you know about the model better than the catalogue does. What is not set is looked up."""

    vision: Annotated[bool | None, about("It sees images.")] = None
    native_pdf: Annotated[bool | None, about("It reads PDF files as they are.")] = None
    thinking: Annotated[bool | None, about("It can think before it answers.")] = None
    citations: Annotated[bool | None, about("It can cite the documents that it was given.")] = None
    tools: Annotated[bool | None, about("It can call tools.")] = None
    audio: Annotated[bool | None, about("It hears audio.")] = None
    accepts: Annotated[tuple[str, ...] | None, about('Media types that it takes, such as `"image/png"`.')] = None
    context_tokens: Annotated[Tokens | None, about("The size of its window.")] = None
    max_output_tokens: Annotated[Tokens | None, about("The longest answer that it can give.")] = None


class ModelEntry(Section, frozen=True, kw_only=True):
    """A model under a name of your own. With neither `provider` nor `model`, NAME is itself the model reference."""

    provider: Annotated[str, about("Whose model it is, such as `anthropic`, `openai`, `gemini`, `ollama`.")] = ""
    model: Annotated[str, about("What the provider calls it; empty means NAME.")] = ""
    base_url: Annotated[HttpUrl, about("Where it is served, if not at the provider's own address.")] = msgspec.field(
        default_factory=Url
    )
    api_key: Annotated[Secret, about("Its key; empty means the key of the provider (`[keys]`).")] = msgspec.field(
        default_factory=Secret
    )
    max_tokens: Annotated[Tokens | None, about("The longest answer to ask for.")] = None
    temperature: Annotated[Temperature | None, about("How freely it chooses its words.")] = None
    detail: Annotated[
        Literal["auto", "low", "high"], about("How closely it looks at pictures that do not say so themselves.")
    ] = "auto"
    roles: Annotated[tuple[str, ...], about('What you use it for, such as `"describe"`.')] = ()
    tier: Annotated[str, about("How strong or how dear it is, in your own word, such as `fast`.")] = ""
    headers: Annotated[Mapping[str, Secret], about("HTTP headers to send along.")] = msgspec.field(
        default_factory=dict[str, Secret]
    )
    capabilities: Annotated[CapabilityOverrides, about("Facts that override the catalogue.")] = CapabilityOverrides()


class Brain(Section, frozen=True, kw_only=True):
    """The model that an agent thinks with."""

    provider: Annotated[str, about("Whose model it is.")] = ""
    model: Annotated[str, about("Its name at the provider, or a name from `[models]`; empty means `model`.")] = ""


class AgentEntry(Section, frozen=True, kw_only=True):
    """An agent. Write a table `[agents.ID]`, or a list `[[agents]]` in which each has an `id`."""

    id: Annotated[str, about("Its name; in a table it is the name of the table.")] = ""
    brain: Annotated[Brain, about("The model that it thinks with.")] = Brain()
    vision: Annotated[bool | Literal["auto"], about('Whether it is shown images; `"auto"`: if its model can see.')] = (
        "auto"
    )
    system: Annotated[str, about("The system prompt, or `{file:prompt.md}`.")] = ""
    tools: Annotated[tuple[str, ...] | None, about("The tools it may use; not set means all of them.")] = None


class Images(Section, frozen=True, kw_only=True):
    """Pictures: what the door lets in and how they are fitted."""

    max_per_message: Annotated[Count, about("Images shown of one message; the rest become text.")] = 10
    max_size_bytes: Annotated[Bytes, about("The largest image file.")] = 10_485_760
    max_per_session: Annotated[Count, about("Images shown of one session; the rest become text.")] = 100
    low_res_size: Annotated[Annotated[int, Meta(ge=16, le=4096)], about("Longest side of the `low` form, px.")] = 512
    max_side: Annotated[Annotated[int, Meta(ge=64, le=16_384)], about("Longest side of the `full` form, px.")] = 2048
    max_pixels: Annotated[Bytes, about("Width × height above which an image is refused unread.")] = 64_000_000
    max_frames: Annotated[Positive, about("Frames above which an animation is refused.")] = 5_000


class Documents(Section, frozen=True, kw_only=True):
    """PDF, office and text files."""

    max_pdf_bytes: Annotated[Bytes, about("The largest PDF file.")] = 33_554_432
    max_office_bytes: Annotated[Bytes, about("The largest office file.")] = 67_108_864
    max_text_bytes: Annotated[Bytes, about("The most text taken from a file in one read.")] = 1_000_000
    max_expanded_bytes: Annotated[Bytes, about("What an archive (docx, xlsx, …) may unpack to.")] = 268_435_456
    pages_per_read: Annotated[Annotated[int, Meta(ge=1, le=1000)], about("Pages that one read gives.")] = 20
    warn_over_pages: Annotated[Positive, about("Pages above which a document is announced as long.")] = 100
    dpi: Annotated[Annotated[int, Meta(ge=36, le=600)], about("Resolution of page images.")] = 150


class Audio(Section, frozen=True, kw_only=True):
    """Sound files."""

    max_size_bytes: Annotated[Bytes, about("The largest audio file.")] = 26_214_400


class Worker(Section, frozen=True, kw_only=True):
    """The fence around the process that reads foreign files."""

    deadline_seconds: Annotated[Seconds, about("After this long it is ended.")] = 15.0
    conversion_seconds: Annotated[Seconds, about("The same for LibreOffice, which starts slowly.")] = 60.0
    ocr_seconds: Annotated[Seconds, about("The same for reading text in pictures.")] = 60.0
    memory_bytes: Annotated[Bytes, about("The memory that it may use.")] = 1_000_000_000


class Context(Section, frozen=True, kw_only=True):
    """What a model is shown of the past. The four `max_` budgets, where not set, are the model's own."""

    aging: Annotated[
        Aging, about("When old media shrink: in steps that spare the provider's cache, every turn, or never.")
    ] = "stepped"
    full_turns: Annotated[Count, about("Turns for which media stay `full`.")] = 1
    low_turns: Annotated[Count, about("Turns after that for which they stay `low`; then they are text.")] = 2
    max_tokens: Annotated[Tokens | None, about("Tokens of one request.")] = None
    max_bytes: Annotated[Bytes | None, about("Bytes of one request.")] = None
    max_images: Annotated[Count | None, about("Images in one request.")] = None
    max_pages: Annotated[Count | None, about("Document pages in one request.")] = None
    keep_turns: Annotated[Positive, about("The last turns, which are never cut to fit a budget.")] = 2
    tool_output_bytes: Annotated[Bytes, about("Text of one tool result; the rest can be read on.")] = 30_000
    auto_context: Annotated[
        tuple[str, ...],
        about('Text files that the agent is told of, and of their changes: globs such as `"docs/**/*.md"`.'),
    ] = ()
    describer: Annotated[
        str, about("The model that describes pictures once, for models without eyes; empty means none.")
    ] = ""


class Turn(Section, frozen=True, kw_only=True):
    """Where a turn ends, finished or not; "go on" continues it."""

    max_steps: Annotated[Positive, about("Model calls of one turn.")] = 50
    max_seconds: Annotated[
        Annotated[float, Meta(ge=1, le=604_800)], about("Its length; the time in which you are asked does not count.")
    ] = 3_600.0
    max_usd: Annotated[
        Annotated[float, Meta(ge=0, le=FEW)] | None, about("What it may cost, where the price is known.")
    ] = None


class Tools(Section, frozen=True, kw_only=True):
    """What the built-in tools may reach."""

    allow_hosts: Annotated[
        tuple[str, ...],
        about(
            "Hosts (`intranet`, `localhost:8000`) and networks (`10.1.0.0/16`) that `fetch_url` and `screenshot` may"
            " ask besides the public internet."
        ),
    ] = ()


class Store(Section, frozen=True, kw_only=True):
    """Where sessions are kept."""

    url: Annotated[Url, about("`sqlite:///PATH` or `postgresql://…`; empty means SQLite in the data folder.")] = (
        msgspec.field(default_factory=Url)
    )


class MediaFiles(Section, frozen=True, kw_only=True):
    """Where the bytes of media are kept."""

    url: Annotated[Url, about("A folder or `s3://BUCKET/PREFIX`; empty means the data folder.")] = msgspec.field(
        default_factory=Url
    )
    derived_max_bytes: Annotated[Bytes, about("Room for renditions, which can always be made again.")] = 1_073_741_824


class Bus(Section, frozen=True, kw_only=True):
    """How several daemons share events."""

    url: Annotated[Url, about("`redis://…`; empty means that there is one daemon.")] = msgspec.field(
        default_factory=Url
    )


class Server(Section, frozen=True, kw_only=True):
    """The daemon."""

    host: Annotated[Annotated[str, Meta(min_length=1)], about("The address it listens on.")] = "127.0.0.1"
    port: Annotated[Annotated[int, Meta(ge=1, le=65_535)], about("The port it listens on.")] = 5666
    password: Annotated[Secret, about("Lets a browser in without the token file; empty means none.")] = msgspec.field(
        default_factory=Secret
    )
    allowed_hosts: Annotated[tuple[str, ...], about("Host names it answers to, besides its own address.")] = ()
    allowed_origins: Annotated[tuple[str, ...], about("Origins of other web pages that may call it.")] = ()
    max_upload_bytes: Annotated[Bytes, about("The largest upload.")] = 67_108_864


class Rule(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do when a tool is about to run."""

    tool: Annotated[Annotated[str, Meta(min_length=1)], about("The tool, or a pattern such as `mcp_*`.")]
    pattern: Annotated[Annotated[str, Meta(min_length=1)], about("What its subject (command, path, URL) is like.")] = (
        "*"
    )
    action: Annotated[Action, about("What happens.")]


class Approval(Section, frozen=True, kw_only=True):
    """Which tool calls need your word."""

    default: Annotated[Action, about("What happens when no rule matches.")] = "ask"
    rules: Annotated[tuple[Rule, ...], about("In order; the last one that matches wins.")] = ()


class McpServer(Section, frozen=True, kw_only=True):
    """A server of tools: a program (`command`) or an address (`url`)."""

    command: Annotated[str, about("The program to start.")] = ""
    args: Annotated[tuple[str, ...], about("Its arguments.")] = ()
    env: Annotated[Mapping[str, Secret], about("Its environment, besides the few harmless variables.")] = msgspec.field(
        default_factory=dict[str, Secret]
    )
    url: Annotated[HttpUrl, about("The address of a running server.")] = msgspec.field(default_factory=Url)
    headers: Annotated[Mapping[str, Secret], about("HTTP headers to send along.")] = msgspec.field(
        default_factory=dict[str, Secret]
    )
    timeout_seconds: Annotated[Seconds, about("How long one call may take.")] = 60.0
    enabled: Annotated[bool, about("Whether it is used.")] = True


class Mcp(Section, frozen=True, kw_only=True):
    """Tools from elsewhere."""

    servers: Annotated[Mapping[str, McpServer], about("The servers, by name.")] = msgspec.field(
        default_factory=dict[str, McpServer]
    )


class Settings(Section, frozen=True, kw_only=True):
    """All keys."""

    model: Annotated[
        str, about("The model that answers: `provider/model`, or a name from `[models]`; empty means the best found.")
    ] = ""
    home: Annotated[
        str, about("The data folder; empty means the usual place of this system. `LOOM_HOME` sets it too.")
    ] = ""
    cleanup_after_days: Annotated[
        Annotated[int, Meta(ge=0, le=36_500)], about("Media that nothing refers to are deleted after so many days.")
    ] = 7
    trusted_folders: Annotated[
        tuple[str, ...], about("Folders (and all below them) whose project file may set everything.")
    ] = ()
    keys: Annotated[Mapping[str, Secret], about("One key per provider, by its name.")] = msgspec.field(
        default_factory=dict[str, Secret]
    )
    models: Annotated[Mapping[str, ModelEntry], about("Models by a name of your own.")] = msgspec.field(
        default_factory=dict[str, ModelEntry]
    )
    agents: Annotated[Mapping[str, AgentEntry], about("Agents by their id.")] = msgspec.field(
        default_factory=dict[str, AgentEntry]
    )
    images: Images = msgspec.field(default_factory=Images)
    documents: Documents = msgspec.field(default_factory=Documents)
    audio: Audio = msgspec.field(default_factory=Audio)
    worker: Worker = msgspec.field(default_factory=Worker)
    context: Context = msgspec.field(default_factory=Context)
    turn: Turn = msgspec.field(default_factory=Turn)
    tools: Tools = msgspec.field(default_factory=Tools)
    store: Store = msgspec.field(default_factory=Store)
    media: MediaFiles = msgspec.field(default_factory=MediaFiles)
    bus: Bus = msgspec.field(default_factory=Bus)
    server: Server = msgspec.field(default_factory=Server)
    approval: Approval = msgspec.field(default_factory=Approval)
    mcp: Mcp = msgspec.field(default_factory=Mcp)


PROTECTED: Final = (
    "home",
    "trusted_folders",
    "cleanup_after_days",
    "keys",
    "models.*.base_url",
    "models.*.api_key",
    "models.*.headers",
    "worker",
    "context.describer",
    "turn",
    "tools",
    "store",
    "media",
    "bus",
    "server",
    "mcp",
)
"""What a project file may set only in a trusted folder: where keys, bytes and commands go, and what is shared by all
projects. A name covers everything below it."""
