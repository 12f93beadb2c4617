"""Tools: typed functions that a model may call. The schema comes from the signature and the docstring.

    @tool
    async def plot(context: ToolContext, csv: str, *, column: int = 0) -> Path:
        '''Draw a column of a CSV file.

        csv: the path of the file
        column: which column, counted from zero
        '''

A tool may return text, a Path, bytes, an image, blocks, JSON, or a list of these. If the arguments that a model wrote
are invalid, the model gets an error that describes the expected ones.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
import typing
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, overload, runtime_checkable

import msgspec

from loom.content.blocks import ContentBlock, TextBlock, ToolResult, clean_text
from loom.content.inputs import Content
from loom.content.media import Media
from loom.errors import ContentError, ToolError
from loom.formats.facts import IntakeLimits
from loom.models import Capabilities
from loom.prompt import ToolSpec
from loom.struct_types import convert
from loom.tools.docstrings import parse_docstring
from loom.tools.input_schema import describe_arguments
from loom.tools.own_thread import run_in_own_thread
from loom.tools.workspace import OpenFile

Danger: TypeAlias = Literal["none", "ask"]
"""Whether a call needs the user's approval unless a rule decides otherwise."""
Preview: TypeAlias = Callable[[Path, dict[str, Any]], str]
"""(workspace, arguments) → a description of the call that the user reads before approving it. It changes nothing."""

Precheck: TypeAlias = "Callable[[FileContext, dict[str, Any]], None]"
"""(context, arguments) → None. Raises ToolError for a call that no approval can make possible."""

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class FileContext(Protocol):
    """The services for reading a file: the workspace, a way to convert bytes to blocks, and approvals."""

    @property
    def workspace(self) -> Path: ...

    @property
    def limits(self) -> IntakeLimits: ...

    async def attach(self, data: bytes, *, name: str, source: str, pages: str = "") -> Sequence[ContentBlock]:
        """Store bytes and return the block that shows them, with notices about it."""
        ...

    async def approve(self, action: str, *, why: str) -> None:
        """Ask the user for approval; raise ToolError if it is denied."""
        ...


@runtime_checkable
class FileJudge(Protocol):
    """A context that judges a file by its open descriptor: its path may lead elsewhere by now."""

    async def approve_file(self, opened: OpenFile, action: str, *, why: str) -> None:
        """Raise ToolError if the file must not be read. `why` is the reason for an approval; if empty, only a rule can
        deny."""
        ...


class ToolContext(FileContext, Protocol):
    """The services that a tool gets besides its arguments."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the model that will read the result."""
        ...

    async def attach(
        self, data: bytes | Path, *, name: str = "", source: str = "", pages: str = ""
    ) -> Sequence[ContentBlock]:
        """Store bytes, or a file of the workspace, and return the blocks that show them. Return them from the tool, or
        `inject` them, to put them into the conversation."""
        ...

    async def approve(self, action: str, *, why: str, url: str = "") -> None:
        """Ask the user for approval; raise ToolError if it is denied. `url` is the target of the call, if not the one
        in its arguments."""
        ...

    def may_read(self, *places: Path) -> bool:
        """Return whether the user's rules permit reading a file that the tool found by itself; `places` are its
        paths."""
        ...

    @property
    def reads_all(self) -> bool:
        """Whether `may_read` is true of every file, because no rule is about files of this tool."""
        ...

    async def inject(self, *content: Content) -> None:
        """Put content into the conversation, after the results of this step."""
        ...

    async def emit(self, text: str, *, fraction: float | None = None) -> None:
        """Report progress to the user."""
        ...

    async def confirm(self, action: str, *, why: str, schema: dict[str, Any] | None = None) -> str:
        """Ask the user, even if a rule allows the tool; raise ToolError if they deny it. Return the text that they
        wrote with their approval. `schema` describes the requested values; interfaces show it as a form."""
        ...

    async def media(self) -> Sequence[Media]:
        """Return the media of the session, oldest first; long outputs that were truncated are texts among them."""
        ...

    async def load(self, digest: str) -> bytes:
        """Return the bytes of one of these media."""
        ...


@runtime_checkable
class KeepsPartialResult(Protocol):
    """A context that keeps what a call has found out so far."""

    def keep_partial(self, text: str) -> None:
        """Add `text` to the result that the call gets if it is cut off; it replaces an earlier one."""
        ...


class SyncToolContext(Protocol):
    """The `ToolContext` of a plain `def` tool, which runs in a thread: its methods block until they are done."""

    @property
    def workspace(self) -> Path: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def attach(
        self, data: bytes | Path, *, name: str = "", source: str = "", pages: str = ""
    ) -> Sequence[ContentBlock]: ...

    def inject(self, *content: Content) -> None: ...

    def emit(self, text: str, *, fraction: float | None = None) -> None: ...

    def approve(self, action: str, *, why: str, url: str = "") -> None: ...

    def confirm(self, action: str, *, why: str, schema: dict[str, Any] | None = None) -> str: ...

    def media(self) -> Sequence[Media]: ...

    def load(self, digest: str) -> bytes: ...


class _ThreadContext:
    """A `ToolContext` for a thread: coroutines run in the event loop, and the thread waits for them until the call
    ends."""

    def __init__(self, context: ToolContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._lock = threading.Lock()
        self._pending: set[Future[Any]] = set()
        self._is_over = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._context, name)
        if not inspect.iscoroutinefunction(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            with self._lock:
                if self._is_over:
                    raise ToolError("This call has ended.")
                future = asyncio.run_coroutine_threadsafe(found(*given, **named), self._loop)
                self._pending.add(future)
            try:
                return future.result()
            finally:
                self._pending.discard(future)

        return call

    def close(self) -> None:
        """End what the thread waits for; afterwards it can start nothing. A cancelled call leaves its thread running,
        and the event loop may end before it."""
        with self._lock:
            self._is_over = True
        for future in tuple(self._pending):
            future.cancel()


class Tool:
    """A function with its description. Call it with `run`; models see its `spec`.

    `reads_only` states that a call changes nothing, so it may run together with other reading calls. `repeatable`
    states that running a call a second time does no more than running it once, so a call whose outcome was lost in a
    crash may be run again; every reading tool is repeatable. `precheck` raises ToolError for a call that can only be
    refused, so that no approval is requested for it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        danger: Danger = "none",
        preview: Preview | None = None,
        precheck: Precheck | None = None,
        repeatable: bool = False,
        reads_only: bool = False,
    ) -> None:
        self.function = function
        self.precheck = precheck
        self.danger: Danger = danger
        self.preview = preview
        self.reads_only = reads_only
        self.repeatable = repeatable or reads_only
        docs = parse_docstring(inspect.getdoc(function) or "", inspect.signature(function).parameters)
        chosen = name or function.__name__
        if _LEGAL_NAME.fullmatch(chosen) is None:
            raise ContentError(f"A tool's name has letters, digits, _ and -, 64 at most, not {chosen!r}")
        self._context_name, self._arguments = _arguments_of(function, chosen, docs.parameters)
        self.spec = ToolSpec(name=chosen, description=docs.summary, parameters=_schema(self._arguments))

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the declared parameters."""
        return frozenset(cast("dict[str, Any]", self.spec.parameters.get("properties", {})))

    def check_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments converted to the function's types. Raise a ToolError that helps a model to correct
        them."""
        try:
            found = convert(arguments, self._arguments, strict=False, dec_hook=_read_model)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ToolError(
                f"{self.name} does not accept these arguments: {error}. "
                f"Expected: ({describe_arguments(self.spec.parameters)})"
            ) from None
        return {field: getattr(found, field) for field in self._arguments.__struct_fields__}

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        values = self.check_arguments(arguments)
        if inspect.iscoroutinefunction(self.function):
            if self._context_name:
                values[self._context_name] = context
            return await self.function(**values)
        thread_context = _ThreadContext(context, asyncio.get_running_loop())
        if self._context_name:
            values[self._context_name] = thread_context
        try:
            return await run_in_own_thread(self.function, **values)
        finally:
            thread_context.close()


@overload
def tool(function: Callable[..., Any]) -> Tool: ...


@overload
def tool(
    *,
    name: str = ...,
    danger: Danger = ...,
    preview: Preview | None = ...,
    precheck: Precheck | None = ...,
    repeatable: bool = ...,
    reads_only: bool = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    danger: Danger = "none",
    preview: Preview | None = None,
    precheck: Precheck | None = None,
    repeatable: bool = False,
    reads_only: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Create a tool from a typed function, sync or async.

    Set `reads_only` for a function that changes nothing, `repeatable` for one whose second run changes no more than its
    first. Without either, calls run one after another and are never repeated.
    """
    if function is not None:
        return Tool(function)
    return lambda found: Tool(
        found,
        name=name,
        danger=danger,
        preview=preview,
        precheck=precheck,
        repeatable=repeatable,
        reads_only=reads_only,
    )


def text_result(text: str, *, data: Any = None) -> ToolResult:
    """Return a result with `data` for interfaces; the caller of the tool adds the id of the call."""
    return ToolResult("-", (TextBlock(clean_text(text)),), data=data)


def _arguments_of(
    function: Callable[..., Any], name: str, described: dict[str, str]
) -> tuple[str, type[msgspec.Struct]]:
    """Return a struct with the function's parameters, and the name of the parameter that takes the context."""
    hints = typing.get_type_hints(function, include_extras=True)
    context_name = ""
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise ContentError(f"The tool {name} cannot take {parameter}: a model needs to know each parameter")
        annotation = hints.get(parameter.name)
        if annotation is None:
            raise ContentError(f"The parameter {parameter.name} of the tool {name} needs a type")
        if annotation in (ToolContext, FileContext, SyncToolContext):
            context_name = parameter.name
            continue
        if parameter.name in described:
            annotation = typing.Annotated[annotation, msgspec.Meta(description=described[parameter.name])]
        default = parameter.default
        if default is inspect.Parameter.empty:
            fields.append((parameter.name, annotation))
        elif _is_pydantic(type(default)):
            fields.append((parameter.name, annotation, msgspec.field(default_factory=default.model_copy)))
        else:
            fields.append((parameter.name, annotation, default))
    return context_name, msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _is_pydantic(kind: Any) -> bool:
    """Return whether a type is a Pydantic model. Pydantic itself is not imported."""
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema")


def _read_model(kind: Any, value: Any) -> Any:
    """Read a parameter whose type msgspec does not support: a Pydantic model. A ValueError is reported to the model."""
    if not _is_pydantic(kind):
        raise ValueError(f"{getattr(kind, '__name__', kind)} cannot be read from JSON")
    try:
        return kind.model_validate(value)
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments, without references: some platforms do not resolve them."""
    components: dict[str, Any] = {}

    def of_model(kind: Any) -> dict[str, Any]:
        if not _is_pydantic(kind):
            raise ContentError(
                f"The tool {arguments.__name__} has a parameter of a type that no schema describes: "
                f"{getattr(kind, '__name__', kind)}",
                hint="Use JSON types, dataclasses, TypedDicts, msgspec structs or Pydantic models.",
            )
        schema = kind.model_json_schema(ref_template="{model}")
        components.update(schema.pop("$defs", {}))
        return schema

    (schema,), found_components = msgspec.json.schema_components(
        [arguments], schema_hook=of_model, ref_template="{name}"
    )
    components |= found_components

    def inline_references(value: Any, depth: int = 0) -> Any:
        if depth > 20:
            raise ContentError(f"The parameters of {arguments.__name__} refer to themselves")
        match value:
            case {"$ref": str() as reference}:
                return inline_references(components[reference], depth + 1)
            case dict():
                return {key: inline_references(item, depth + 1) for key, item in cast("dict[str, Any]", value).items()}
            case list():
                return [inline_references(item, depth + 1) for item in cast("list[Any]", value)]
            case _:
                return value

    found = cast("dict[str, Any]", inline_references(schema))
    found.pop("title", None)
    return found
