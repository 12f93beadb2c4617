"""The library with `await`: `loom.AsyncLoom`, with the same keywords as `loom.Loom`.

async with loom.AsyncLoom(model="claude-sonnet-5-5", tools=["read_file", my_function]) as lm:
    print(await lm.ask("what is wrong here?", "login.png"))
    session = await lm.session("triage")
    async for words in session.stream("and now?").text():
        print(words, end="")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loom.agent.gate import Approve, StringRule
from loom.config import Config, load_config
from loom.config.schema import AgentEntry
from loom.content.inputs import Content
from loom.errors import LoomError
from loom.runtime import Runtime
from loom.runtime.agents import with_agents
from loom.runtime.custom_provider import CustomProvider
from loom.runtime.options import ProviderChoice, ToolChoice
from loom.runtime.session import LocalSession
from loom.sampling import Choices
from loom.session import Reply
from loom.tools.base import Tool

_MAX_PATH_CHARS = 4_096


class AsyncLoom:
    """A runtime for a program. Use it in an `async with` block.

    `model` is a name or a custom provider. `tools` mix names of built-in tools, typed functions and `Tool` objects;
    "all" means every built-in tool. `approve` decides on every call, once: it receives an `ApprovalRequest` and returns
    `Allow()`, `Deny(reason)` or `Ask()`, with or without `await`. `providers` replace the providers of the platforms
    that they are given for. `store` and `media` are the locations of sessions and bytes ("postgresql://…",
    "s3://bucket/prefix"). `system` is the default system prompt. `agents` are used as `session(agent=NAME)`; each is a
    mapping with the fields of `[agents.NAME]`: `model`, `system`, `tools`, `description`. `config` replaces the user's
    configuration.
    """

    def __init__(
        self,
        *,
        model: str | CustomProvider = "",
        tools: ToolChoice = (),
        approve: Approve | StringRule | None = None,
        providers: ProviderChoice | None = None,
        store: str = "",
        media: str = "",
        config: Config | None = None,
        system: str = "",
        agents: Mapping[str, AgentEntry | Mapping[str, Any]] | None = None,
    ) -> None:
        if agents:
            flags = {"store.url": store or None, "media.url": media or None}
            config, store, media = with_agents(config or load_config(flags=flags), agents), "", ""
        self._opening = Runtime.open(
            config,
            model=model,
            tools=tools,
            approve=approve,
            providers=providers,
            store=store,
            media=media,
            system=system,
        )
        self._runtime: Runtime | None = None

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            raise LoomError("This AsyncLoom is not open.", hint="Use it in `async with loom.AsyncLoom(...) as lm:`.")
        return self._runtime

    async def __aenter__(self) -> Self:
        self._runtime = await self._opening.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runtime = None
        await self._opening.__aexit__(kind, error, trace)

    async def session(
        self,
        title: str = "",
        *,
        session_id: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        agent: str = "",
        tools: Iterable[str | Tool | Callable[..., Any]] | None = None,
    ) -> LocalSession:
        """Create a session, or open an existing one by its id. `tools` are those that it may call; None means all that
        this object was given."""
        return await self.runtime.session(
            session_id,
            title=title,
            model=model,
            system=system,
            workspace=workspace,
            agent=agent,
            tools=None if tools is None else self.runtime.toolbox.resolve(tools),
        )

    async def ask(
        self,
        *content: Content,
        model: str = "",
        n: int = 1,
        thinking: str = "",
        options: Choices = None,
        output: Any = None,
        system: str = "",
        tools: Iterable[str | Tool | Callable[..., Any]] | None = None,
    ) -> Reply:
        """Ask one question in a session of its own. Strings after the first that name existing files are attached.
        `output` is the type of `reply.output`."""
        session = await self.session(model=model, system=system, tools=tools)
        return await session.send(*as_contents(content), n=n, thinking=thinking, options=options, output=output)


def as_contents(content: tuple[Content, ...]) -> tuple[Content, ...]:
    """Return the parts of a question. A string after the first that names a file is replaced with that file."""
    return (*content[:1], *(_as_content(item) for item in content[1:]))


def _as_content(item: Content) -> Content:
    if not isinstance(item, str) or "\n" in item or not 0 < len(item) < _MAX_PATH_CHARS:
        return item
    path = Path(item).expanduser()
    try:
        return path if path.is_file() else item
    except OSError:
        return item
