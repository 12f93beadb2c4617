"""How the options of a message select its session, model, tools, key and output."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from loom.api_types import SessionView
from loom.atomic_file import write_file_whole
from loom.cli.shared import terminal
from loom.cli.shared.attachments import MessageInput, add_password_hint, ingest_content, prepare_files
from loom.cli.shared.options import MessageOptions, MessageTarget
from loom.cli.shared.renderers import JsonRenderer, StreamJsonRenderer, TerminalRenderer, TextRenderer, TurnRenderer
from loom.cli.shared.terminal import ProgressLine, has_color, print_line, safe_text
from loom.config import load_config
from loom.config.templates import Template, fill_template
from loom.content.blocks import ContentBlock
from loom.content.inputs import Attachment, Content
from loom.errors import ConfigError, ContentError, NotFound
from loom.formats.json_schema import check_value
from loom.library import Library, read_media
from loom.runtime import FIRST_CHOICES, Runtime, key_names
from loom.runtime.agents import agent_model, find_agent
from loom.runtime.attachments import limit_pages
from loom.runtime.model_resolution import BUILT_IN_MODEL
from loom.runtime.session import LocalSession
from loom.sampling import OutputSchema
from loom.struct_types import decode_json

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]

SPARK_NOTICE: Final = (
    "loom: No API key and no local model found: using loom/spark, the built-in demo model (not a language model).\n"
    "      Add a key with `loom keys set anthropic`, or start Ollama.\n\n"
)
_SHRUNK: Final = ": a copy of "
_GROUPS: Final = ("all", "safe", "none")
_NOTICE_FILE: Final = "spark-notice"


async def requested_model(runtime: Runtime, speaking: MessageOptions) -> str:
    """Return the model of -m, -q or --agent; empty if none is given. Add a notice to the runtime if the agent's model
    is replaced. Raise `ConfigError` if --describe-with names no model."""
    if speaking.describer:
        runtime.models.resolve(speaking.describer)
    if speaking.agent and not speaking.model and not speaking.queries:
        model, notice = agent_model(find_agent(runtime.config, speaking.agent, Path.cwd()), runtime.models)
        if notice:
            runtime.notices.append(notice)
        return model
    if speaking.model or not speaking.queries:
        return speaking.model
    words = [word.casefold() for query in speaking.queries for word in query.split()]
    known = await names_known(runtime)
    found = next((name for name in known if all(word in name.casefold() for word in words)), "")
    if not found:
        raise ConfigError(
            f"No known model has {' and '.join(words) or 'nothing'} in its name.",
            hint="List models: `loom models`. Use any other with -m platform/name.",
        )
    return found


def read_schema(name: str) -> OutputSchema:
    """Return the JSON Schema in a file; raise `ContentError` if it contains none."""
    path = Path(name)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ContentError(f"File not found: {name}.") from None
    except OSError as error:
        raise ContentError(f"Cannot read {name}: {error.strerror}.") from None
    try:
        schema = decode_json(data, dict[str, Any])
    except msgspec.DecodeError as error:
        raise ContentError(f"{name} is not a JSON Schema: {error}", hint='Example: {"type": "object", …}') from None
    problem = check_value(schema, None).fault
    if problem:
        raise ContentError(f"{name} cannot be used: {problem}")
    return OutputSchema(schema=schema, name=str(schema.get("title") or path.stem))


async def model_for(runtime: Runtime, asked: str) -> str:
    """Return the requested model, else the best available one. If that is the built-in one, print a notice once a
    day."""
    if asked:
        return runtime.models.resolve(asked) and asked
    chosen = await runtime.models.default()
    if chosen == BUILT_IN_MODEL and not runtime.config.model and _is_first_today(runtime):
        sys.stderr.write(SPARK_NOTICE)
        sys.stderr.flush()
    return chosen


def _is_first_today(runtime: Runtime) -> bool:
    stamp = runtime.config.state_folder() / _NOTICE_FILE
    today = datetime.fromtimestamp(time.time(), UTC).date().isoformat()
    # The notice must not stop a question: if the stamp cannot be written, it is printed again.
    with suppress(OSError, UnicodeDecodeError):
        if stamp.read_text(encoding="utf-8").strip() == today:
            return False
    with suppress(OSError):
        write_file_whole(stamp, f"{today}\n")
    return True


def stored_key(runtime: Runtime, speaking: MessageOptions) -> str:
    """Return the stored key that `--key NAME` names; empty without the option. The key itself is never an argument,
    which every program on the machine could read."""
    key = runtime.config.secrets("keys").get(speaking.key, "") if speaking.key else ""
    if speaking.key and not key:
        raise ConfigError(
            "No stored key has that name.",  # not the name itself: it may be a key, given by mistake
            hint="Store one: `loom keys set SERVICE --as NAME`. List keys: `loom keys list`.",
        )
    return key


def use_key(runtime: Runtime, speaking: MessageOptions, key: str, reference: str) -> None:
    """Use `key` for the service of this model, in this run only."""
    if not key:
        return
    model = runtime.models.resolve(reference)
    own = {"models": {model.alias: {"api_key": key}}} if model.alias else {}
    runtime.reconfigure(load_config(flags={**speaking.flags, "keys": {key_names(model.provider)[0]: key}, **own}))


async def ingest_input(
    runtime: Runtime,
    speaking: MessageOptions,
    files: Sequence[Attachment],
    words: Sequence[Content],
    progress: ProgressLine,
) -> tuple[list[ContentBlock], list[str]]:
    """Return a message's files and texts as blocks whose bytes are in the store, and notices about them."""
    if files:
        first = files[0].name or getattr(files[0].source, "name", "") or "the attachment"
        progress.show(f"reading {first}" + (f" and {len(files) - 1} more" if len(files) > 1 else ""))
    try:
        with add_password_hint(speaking.wishes):
            ready = await prepare_files(files, speaking.wishes, runtime)
            found = await ingest_content([*ready, *words], runtime.library.ingest, runtime)
    finally:
        progress.clear()
    blocks, notices = limit_pages(found.blocks, runtime.config.documents.pages_per_read)
    how = " (images.max_size_bytes). Use --no-resize to refuse instead."
    file_notices = [notice.removesuffix(".") + how if _SHRUNK in notice else notice for notice in found.notices]
    return blocks, [*file_notices, *notices]


def apply_template(speaking: MessageOptions, message: MessageInput) -> tuple[MessageInput, str]:
    """Return the message with the template applied, and the system prompt of a new session."""
    template = speaking.template or Template()
    given = "\n\n".join(part for part in (message.piped, message.words) if part)
    prompt, theirs = fill_template(template, given, speaking.params, names=message.names)
    system = speaking.system or (theirs if speaking.place.is_new else "")
    return (msgspec.structs.replace(message, words=prompt, piped="") if template.prompt else message), system


async def choose_tools(
    runtime: Runtime, names: Sequence[str], *, default: Literal["safe", "all"]
) -> tuple[str, ...] | None:
    """Return the names of the tools that the next message may call; None for all.

    `-T name` is repeatable; `all`, `safe` (read-only tools) and `none` are groups. Tools of MCP servers are included in
    `all`, or by name. The runtime itself has all tools: a turn that is continued keeps its own selection.
    """
    wanted = names or (default,)
    built_in = runtime.toolbox.tools
    if set(wanted) - {*built_in, *_GROUPS}:
        await runtime.mcp.wait_ready()
    chosen: dict[str, None] = {}
    for name in wanted:
        match name:
            case "none":
                chosen.clear()
            case "safe":
                chosen |= dict.fromkeys(key for key, tool in built_in.items() if tool.danger == "none")
            case _:
                chosen[name] = None
    if "all" in chosen:
        return None
    return tuple(runtime.toolbox.available_tools(chosen))


def print_warnings(runtime: Runtime) -> None:
    """Print warnings about the configuration and MCP servers, each once."""
    for notice in (*runtime.config.warnings, *runtime.notices):
        print_line(notice)
    runtime.notices.clear()


def renderer_for(
    runtime: Runtime, form: OutputFormat, *, streams: bool = True, shows_reasoning: bool = True, plain: bool = False
) -> TurnRenderer:
    match form:
        case "json":
            return JsonRenderer()
        case "stream-json":
            return StreamJsonRenderer()
        case "text" if has_color(sys.stdout) and not plain:
            return TerminalRenderer(
                partial(read_media, runtime.library), streams=streams, shows_reasoning=shows_reasoning
            )
        case "text":
            return TextRenderer(streams=streams, shows_reasoning=shows_reasoning)


PLAN_MODE_NOTICE: Final = (
    "Plan mode: only tools that read are offered. To leave it, approve a plan or use --permission ask."
)


def print_notices(notices: Sequence[str]) -> None:
    """Print notices about the attachments."""
    for notice in notices:
        terminal.print_notice(f"[{safe_text(notice)}]")


async def names_known(runtime: Runtime) -> list[str]:
    """Return the names that `-q` searches: configured names, models of local servers, and Loom's default choices."""
    local = [name for server in await runtime.models.local_servers() for name in server.models]
    chosen = [f"{platform}/{name}" for platform, name in FIRST_CHOICES.items()]
    return list(dict.fromkeys([*runtime.config.models, *local, *chosen, BUILT_IN_MODEL]))


async def find_or_last(library: Library, text: str) -> SessionView:
    """Return the session that `text` names; an empty text means the last one of this folder."""
    return await (library.find(text) if text else library.find(workspace=str(Path.cwd())))


async def target_session(library: Library, target: MessageTarget) -> SessionView:
    """Return the session that a command continues; its head is not moved yet."""
    if target.node and not target.resume and not target.last_here:
        return (await library.find_message(target.node)).session
    return await find_or_last(library, target.resume)


async def attached_session(library: Library, session: str, *, last: bool) -> str:
    """Return the id of the daemon's session to continue; empty for a new one."""
    if session or not last:
        return session.upper()
    try:
        return (await library.find()).id
    except NotFound:
        raise NotFound("The daemon has no sessions yet.", hint="Start one: `loom attach`.") from None


async def open_target(
    runtime: Runtime,
    target: MessageTarget,
    *,
    model: str,
    system: str,
    title: str,
    tools: Sequence[str] | None = None,
    agent: str = "",
) -> LocalSession:
    """Return the session to send in: new, continued, forked, or moved to a message. No message is overwritten."""
    if target.is_new:
        return await runtime.session(title=title, model=model, system=system, tools=tools, agent=agent)
    if system:
        raise ConfigError(
            "A system prompt can only be set for a new session.", hint="Leave out -s, or start a new session."
        )
    found = await target_session(runtime.library, target)
    if target.fork:
        found = await (await (await runtime.library.open(found.id)).fork(target.node or None)).info()
    session = await runtime.session(found.id, tools=tools, agent=agent)
    if target.node and (await runtime.library.find_message(target.node)).node != found.head:
        await session.go(target.node)
    if model:
        await session.use(model)
    return session
