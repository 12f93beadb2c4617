"""Options that `ask` and `chat` share, with their shell completion."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import click
import msgspec
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from loom.cli.shared.terminal import PLAIN, is_plain
from loom.errors import ConfigError
from loom.models import THINKING_LEVELS
from loom.sampling import Sampling, read_options, sampling_of

if TYPE_CHECKING:  # not imported before the first paint of the terminal UI
    from loom.config.templates import Template

F = TypeVar("F", bound=Callable[..., Any])
Option: TypeAlias = Callable[[Any], Any]
ApprovalMode: TypeAlias = Literal["ask", "auto", "plan", "deny"]

LATEST: Final = "latest"

_SAFE: Final = "A tool that the model may use; also all, safe (default: read-only tools) or none."
_ALL: Final = "A tool that the model may use; all (default), safe or none."


class MessageTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a message is sent to: a new one, unless one of these is set."""

    last_here: bool = False
    resume: str = ""
    node: str = ""
    fork: bool = False

    @property
    def is_new(self) -> bool:
        return not (self.last_here or self.resume or self.node or self.fork)


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    resizes: bool = True
    pdf_password_file: str = ""

    @property
    def are_none(self) -> bool:
        return self.resizes and not self.pdf_password_file


class MessageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed shared options; a template's values are used where an option is not given."""

    model: str = ""
    queries: tuple[str, ...] = ()
    place: MessageTarget = MessageTarget()
    system: str = ""
    agent: str = ""
    tools: tuple[str, ...] = ()
    permission: ApprovalMode = "ask"
    plan_mode: bool | None = None
    """Whether to turn plan mode on or off; None leaves it as it is in a session that is continued."""
    plain: bool = False
    shows_reasoning: bool = True
    key: str = ""
    describer: str = ""
    base_url: str = ""
    """The base URL of `model`, for this run."""
    template: Template | None = None
    params: tuple[tuple[str, str], ...] = ()
    wishes: FileOptions = FileOptions()
    uses_daemon: bool = True
    sampling: Sampling = Sampling()
    """Thinking and options for the messages of this run."""

    @property
    def flags(self) -> dict[str, Any]:
        """Settings for this run only."""
        settings = self.template.settings if self.template is not None else {}
        if self.describer:
            settings["context"] = {**settings.get("context", {}), "describer": self.describer}
        if self.base_url:
            platform, slash, name = self.model.partition("/")
            entry = {"provider": platform if slash else "compatible", "model": name if slash else self.model}
            models = settings.get("models", {})
            settings["models"] = {**models, self.model: {**entry, "base_url": self.base_url}}
        return settings


def message_options(*, tools: str) -> Callable[[F], F]:
    """Return a decorator that adds the shared options to a command. `tools` is the default selection of tools: safe or
    all."""
    options = [
        *_model_options(),
        *_session_options(),
        *_tool_options(_SAFE if tools == "safe" else _ALL),
        *_media_options(),
    ]

    def add_options(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options


def _model_options() -> list[Option]:
    return [
        click.option(
            "-m", "--model", default="", shell_complete=complete_models, help="platform/name, or a configured name."
        ),
        click.option(
            "-q",
            "--query",
            "queries",
            multiple=True,
            metavar="WORD",
            help="Instead of -m: the first model whose name contains all these words.",
        ),
        click.option(
            "--base-url",
            default="",
            metavar="URL",
            help="The server of -m NAME, for this run: any OpenAI-compatible one, or that of -m platform/name.",
        ),
        click.option("--key", default="", metavar="NAME", help="A stored key by name, instead of the provider's key."),
        click.option(
            "--describe-with",
            "describer",
            default="",
            metavar="MODEL",
            shell_complete=complete_models,
            help="Let this model describe images for a text-only model.",
        ),
    ]


def _session_options() -> list[Option]:
    return [
        click.option("-c", "--continue", "last_here", is_flag=True, help="Continue the last session of this folder."),
        click.option(
            "-r",
            "--resume",
            is_flag=False,
            flag_value=LATEST,
            default="",
            metavar="[ID|N|latest]",
            shell_complete=complete_sessions,
            help="Continue a session: its id, its number in `loom sessions`, or its title.",
        ),
        click.option("--cid", default="", hidden=True),
        click.option(
            "--from", "node", default="", metavar="NODE", help="Continue from this message; nothing is overwritten."
        ),
        click.option("--fork", is_flag=True, help="Continue in a new session; the old one is unchanged."),
        click.option("-s", "--system", default="", help="The system prompt of a new session."),
        click.option(
            "--agent",
            default="",
            metavar="NAME",
            help="An agent: [agents.NAME], or a file in .claude/agents.",
        ),
        click.option(
            "-t",
            "--template",
            default="",
            metavar="NAME",
            shell_complete=complete_templates,
            help="Use a template: a name saved with --save, or a TOML file.",
        ),
        click.option(
            "--param",
            "params",
            nargs=2,
            multiple=True,
            metavar="NAME VALUE",
            help="A value for $NAME in the template.",
        ),
    ]


def _tool_options(tools: str) -> list[Option]:
    return [
        click.option("-T", "--tool", "tools", multiple=True, metavar="NAME", help=tools),
        click.option(
            "--permission",
            type=click.Choice(["ask", "auto", "plan", "deny"]),
            default="ask",
            show_default=True,
            help="What to do when a tool needs approval. With plan, only reading tools are offered until you approve"
            " the model's plan. Without a terminal, ask means deny.",
        ),
        click.option("--plan", "plans", is_flag=True, help="The same as --permission plan."),
        click.option(
            "--think",
            "thinking",
            type=click.Choice([level for level in THINKING_LEVELS if level]),
            default=None,
            help="How much the model thinks first; an unsupported level becomes the nearest one.",
        ),
        click.option(
            "-o",
            "--option",
            "options",
            multiple=True,
            metavar="KEY=VALUE",
            help="An option of the request, such as top_p=0.9, seed=7, max_tokens=2000 or extra_body.top_k=40.",
        ),
        click.option("--plain", is_flag=True, help="No colors, boxes or images (also LOOM_PLAIN=1)."),
        click.option("-R", "--hide-reasoning", is_flag=True, help="Do not show the model's reasoning on stderr."),
        click.option("--no-daemon", is_flag=True, help="Answer in this process, even if `loom serve` is running."),
    ]


def _media_options() -> list[Option]:
    return [
        click.option(
            "--no-resize", is_flag=True, help="Refuse an image over the size limit instead of using a smaller copy."
        ),
        click.option(
            "--password-file",
            "--pdf-password-file",
            "pdf_password_file",
            default="",
            metavar="FILE",
            help="A file with the password of encrypted PDFs.",
        ),
    ]


def message_options_from(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `MessageOptions` from click's parameters. With --plain, set `LOOM_PLAIN` for the whole
    process."""
    if given["plain"]:
        os.environ[PLAIN] = "1"
    if given["base_url"] and not given["model"]:
        raise ConfigError("--base-url needs a model.", hint="Add -m NAME, as the server calls it.")
    if given["base_url"] and not given["base_url"].startswith(("http://", "https://")):
        raise ConfigError(f"Not a URL: {given['base_url']}.", hint="Write --base-url http://HOST:PORT/v1")
    template: Template | None = None
    if given["template"]:
        from loom.config.templates import read_template

        template = read_template(given["template"])
    permission: ApprovalMode = "plan" if given.pop("plans", False) else given["permission"]
    source = click.get_current_context().get_parameter_source("permission")
    is_chosen = permission == "plan" or source is not ParameterSource.DEFAULT
    place = MessageTarget(
        last_here=given["last_here"],
        resume=given["resume"] or given["cid"],
        node=given["node"],
        fork=given["fork"],
    )
    return {
        "model": given["model"] or ("" if given["queries"] or template is None else template.model),
        "queries": given["queries"],
        "place": place,
        "system": given["system"],
        "agent": given["agent"],
        "tools": given["tools"] or (template.tools if template is not None else ()),
        "permission": permission,
        "plan_mode": permission == "plan" if is_chosen else None,
        "plain": is_plain(),
        "shows_reasoning": not given["hide_reasoning"],
        "key": given["key"],
        "describer": given["describer"],
        "base_url": given["base_url"],
        "template": template,
        "params": given["params"],
        "wishes": FileOptions(resizes=not given["no_resize"], pdf_password_file=given["pdf_password_file"]),
        "uses_daemon": not given["no_daemon"],
        "sampling": sampling_of(read_options(given["options"]), thinking=given["thinking"] or ""),
    }


def complete_models(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete configured names, then platforms, also in a list with commas."""
    from loom.config import load_config
    from loom.errors import LoomError
    from loom.providers.catalog import platforms

    try:
        configured = list(load_config().models)
    except LoomError:
        configured = []
    done, comma, last = incomplete.rpartition(",")
    names = [*configured, "spark", *(f"{platform}/" for platform in platforms() if platform != "loom")]
    return [CompletionItem(f"{done}{comma}{name}") for name in names if name.startswith(last)]


def complete_sessions(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    import asyncio

    from loom.errors import LoomError

    try:
        found = asyncio.run(_sessions(incomplete))
    except LoomError:
        found = []
    return [CompletionItem("latest")] * "latest".startswith(incomplete) + found


async def _sessions(incomplete: str) -> list[CompletionItem]:
    from loom.runtime import Runtime

    async with Runtime.open() as runtime:
        newest = (await runtime.library.sessions(limit=20)).sessions
    return [
        CompletionItem(session.id, help=session.title)
        for session in newest
        if session.id.startswith(incomplete.upper())
    ]


def complete_templates(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from loom.config.templates import template_names
    from loom.errors import LoomError

    try:
        return [CompletionItem(name) for name in template_names() if name.startswith(incomplete)]
    except LoomError:
        return []
