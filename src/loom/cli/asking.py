"""What `ask` and `chat` share: the options' meaning, the tools, the first-run notice, the face for this output."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from loom.cli.faces import Face, JsonFace, StreamJsonFace, TerminalFace, TextFace
from loom.cli.terminal import harmless, has_colour, say
from loom.errors import ConfigError
from loom.runtime import Runtime
from loom.tools.base import Tool

Format: TypeAlias = Literal["text", "json", "stream-json"]

SPARK_NOTICE: Final = (
    "loom: no API key and no local model found, so loom/spark answers (built in, offline: it looks,\n"
    "      it does not reason). `loom keys set anthropic` or a running Ollama changes that.\n\n"
)
_NOTICE_FILE: Final = "spark-notice"


async def model_for(runtime: Runtime, asked: str) -> str:
    """The model to begin with: what was asked for, else the best that is there. The built-in one says so once a day."""
    if asked:
        return runtime.model(asked) and asked
    chosen = await runtime.default_model()
    if chosen == runtime.BUILT_IN and not runtime.config.model and _is_first_today(runtime):
        sys.stderr.write(SPARK_NOTICE)
        sys.stderr.flush()
    return chosen


def _is_first_today(runtime: Runtime) -> bool:
    stamp = runtime.config.state_folder() / _NOTICE_FILE
    today = datetime.fromtimestamp(time.time(), UTC).date().isoformat()
    try:
        if stamp.read_text(encoding="utf-8").strip() == today:
            return False
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(f"{today}\n", encoding="utf-8")
    return True


async def choose_tools(runtime: Runtime, names: Sequence[str], *, default: Literal["safe", "all"]) -> None:
    """`-T name`, repeatable; `all`, `safe` (those that only read) and `none` stand for themselves. Tools of MCP servers
    come with `all`, or by name."""
    wanted = names or (default,)
    found = runtime.built_in_tools()
    runtime.offers_mcp = "all" in wanted
    if set(wanted) - {*found, "all", "safe", "none"}:
        await runtime.mcp.ready()
        found |= runtime.mcp.tools
    chosen: dict[str, Tool] = {}
    for name in wanted:
        match name:
            case "none":
                chosen.clear()
            case "all":
                chosen |= found
            case "safe":
                chosen |= {key: tool for key, tool in found.items() if tool.danger == "none"}
            case _ if name in found:
                chosen[name] = found[name]
            case _:
                raise ConfigError(f"there is no tool {name!r}.", hint=f"These exist: {', '.join(sorted(found))}.")
    runtime.tools = chosen


def warn(runtime: Runtime) -> None:
    """What is odd about the configuration and the servers of tools; each is said once."""
    for notice in (*runtime.config.warnings, *runtime.notices):
        say(notice)
    runtime.notices.clear()


def face_for(
    runtime: Runtime, form: Format, *, streams: bool = True, shows_reasoning: bool = True, plain: bool = False
) -> Face:
    match form:
        case "json":
            return JsonFace()
        case "stream-json":
            return StreamJsonFace()
        case "text" if has_colour(sys.stdout) and not plain:
            return TerminalFace(runtime, streams=streams, shows_reasoning=shows_reasoning)
        case "text":
            return TextFace(streams=streams, shows_reasoning=shows_reasoning)


def tell(notices: Sequence[str]) -> None:
    """What happened to the attachments on their way in."""
    for notice in notices:
        sys.stderr.write(f"[{harmless(notice)}]\n")
    sys.stderr.flush()
