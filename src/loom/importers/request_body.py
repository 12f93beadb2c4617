"""Read the request body of a foreign protocol, except its conversation: model, tools and sampling options.

Four protocols differ by their fields: Anthropic Messages (`messages`, with `max_tokens` and `system`), OpenAI Chat
Completions (`messages`), OpenAI Responses (`input`) and Gemini (`contents`). Unknown fields are kept in `extra`, for
the protocol's own provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from loom.content.json_values import first_text, get_list, get_object, get_text
from loom.content.wire_forms import BodyForm
from loom.importers.forms import OWNERS, BodyProtocol
from loom.models import THINKING_LEVELS, ThinkingLevel
from loom.prompt import ToolSpec
from loom.sampling import OutputSchema, Sampling
from loom.wire.answer import ForeignTool

_CONVERSATION: Final = frozenset(
    (
        *("messages", "input", "contents", "system", "instructions", "systemInstruction", "system_instruction"),
        *("model", "stream", "stream_options"),
    )
)
_UNFORMED: Final = frozenset(("messages", "input", "contents", "model", "stream"))
"""Fields that are not part of a body's form: messages have their own forms, and the transport decides the rest."""
_BUDGETS: Final[tuple[tuple[int, ThinkingLevel], ...]] = (
    (2_048, "low"),
    (8_192, "medium"),
    (24_576, "high"),
    (49_152, "xhigh"),
)
"""The largest budget of thinking tokens for each level."""
_FREEFORM: Final = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as text."}},
    "required": ["input"],
}


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    """A request body without its conversation."""

    protocol: BodyProtocol
    model: str = ""
    tools: tuple[ToolSpec, ...] = ()
    foreign_tools: Mapping[str, ForeignTool] = msgspec.field(default_factory=dict[str, ForeignTool])
    """Tools that have another name or kind at the client, by their name in `tools`."""
    server_tools: tuple[dict[str, Any], ...] = ()
    """Definitions of tools that the protocol's own provider runs."""
    sampling: Sampling = Sampling()
    is_stream: bool = False
    includes_usage: bool = False
    """Whether a stream of Chat Completions ends with a chunk of usage."""
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """Fields that only the protocol's own provider understands."""
    fields: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """All fields except the conversation, the model and `stream`, unchanged."""
    names: tuple[str, ...] = ()
    """The names of all fields in their original order."""
    notices: tuple[str, ...] = ()

    def form(self, head: Sequence[Any] = ()) -> BodyForm:
        """Return the original body, for its own provider. `head` are the system prompts in the list of messages."""
        return BodyForm(
            provider=OWNERS[self.protocol],
            wire=self.protocol,
            fields=dict(self.fields),
            head=tuple(head),
            names=self.names,
        )


def read_request_body(body: Mapping[str, Any], protocol: BodyProtocol | None = None) -> RequestBody:
    """Read a body of `protocol`; None detects it. Never raise: fields of the wrong type go to `extra`, and tools that
    are not valid are left out with a notice."""
    found = protocol or detect_protocol(body)
    tools = _Tools(found)
    for definition in get_list(body.get("tools")):
        tools.add(get_object(definition))
    for definition in get_list(body.get("functions")) if found == "openai_chat" else ():
        tools.add({"type": "function", "function": definition})
    fields = _BodyFields(body)
    read = {"anthropic": _anthropic, "openai_chat": _chat, "openai_responses": _responses, "gemini": _gemini}[found]
    sampling = read(fields)
    fields.take("tools", "functions")
    extra = {name: value for name, value in body.items() if name not in fields.taken and name not in _CONVERSATION}
    return RequestBody(
        protocol=found,
        model=first_text(dict(body), "model"),
        tools=tuple(tools.specs.values()),
        foreign_tools=tools.foreign,
        server_tools=tuple(tools.server),
        sampling=sampling,
        is_stream=body.get("stream") is True,
        includes_usage=get_object(body.get("stream_options")).get("include_usage") is True,
        extra=extra,
        fields={name: value for name, value in body.items() if name not in _UNFORMED},
        names=tuple(body),
        notices=tuple(tools.notices),
    )


def detect_protocol(body: Mapping[str, Any]) -> BodyProtocol:
    """Return the protocol of a request body, by its fields."""
    if "input" in body and "messages" not in body:
        return "openai_responses"
    if "contents" in body and "messages" not in body:
        return "gemini"
    tools = [get_object(tool) for tool in get_list(body.get("tools"))]
    is_anthropic = (
        "system" in body
        or "stop_sequences" in body
        or "anthropic_version" in body
        or "output_config" in body
        or isinstance(body.get("thinking"), dict)
        or any("input_schema" in tool for tool in tools)
        or any(_has_anthropic_block(get_object(message)) for message in get_list(body.get("messages")))
        or (get_text(body.get("model")).startswith("claude") and not any(name in body for name in _CHAT_FIELDS))
    )
    return "anthropic" if is_anthropic else "openai_chat"


_CHAT_FIELDS: Final = ("max_completion_tokens", "response_format", "stream_options", "reasoning_effort", "functions")


def _has_anthropic_block(message: Mapping[str, Any]) -> bool:
    kinds = ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "search_result")
    return any(get_object(block).get("type") in kinds for block in get_list(message.get("content")))


class _Tools:
    """Collects tool definitions. A namespace is joined with the tool's name, because most models have flat names."""

    def __init__(self, protocol: BodyProtocol) -> None:
        self._protocol = protocol
        self.specs: dict[str, ToolSpec] = {}
        self.foreign: dict[str, ForeignTool] = {}
        self.server: list[dict[str, Any]] = []
        self.notices: list[str] = []

    def add(self, tool: dict[str, Any], namespace: str = "") -> None:
        kind = get_text(tool.get("type"))
        if self._protocol == "anthropic":
            if "input_schema" in tool or kind in ("", "custom"):
                self._function(tool, tool.get("input_schema"), namespace)
            else:
                self.server.append(tool)
            return
        if self._protocol == "gemini":
            self._gemini(tool)
            return
        match kind:
            case "function" if isinstance(tool.get("function"), dict):
                function = get_object(tool["function"])
                self._function(function, function.get("parameters"), namespace)
            case "function" | "":
                self._function(tool, tool.get("parameters"), namespace)
            case "custom":
                inner = get_object(tool.get("custom")) or tool
                self._put(ForeignTool(name=get_text(inner.get("name")), namespace=namespace, is_freeform=True), inner)
            case "namespace":
                for member in get_list(tool.get("tools")):
                    self.add(get_object(member), get_text(tool.get("name")))
            case _:
                self.server.append(tool)

    def _gemini(self, tool: dict[str, Any]) -> None:
        """Add an entry of Gemini's `tools`, which declares functions or enables one of Gemini's own tools."""
        for key, value in tool.items():
            if key not in ("functionDeclarations", "function_declarations"):
                self.server.append({key: value, "name": key})
                continue
            for declaration in map(get_object, get_list(value)):
                schema = declaration.get("parametersJsonSchema")
                parameters = schema if schema is not None else _json_schema(declaration.get("parameters"))
                self._function(declaration, parameters, "")

    def _function(self, tool: dict[str, Any], parameters: Any, namespace: str) -> None:
        foreign = ForeignTool(name=get_text(tool.get("name")), namespace=namespace)
        self._put(foreign, tool, get_object(parameters) or {"type": "object", "properties": {}})

    def _put(self, foreign: ForeignTool, tool: dict[str, Any], parameters: dict[str, Any] | None = None) -> None:
        if not foreign.name:
            self.notices.append("a tool without a name is left out")
            return
        name = f"{foreign.namespace}__{foreign.name}" if foreign.namespace else foreign.name
        if name in self.specs:
            self.notices.append(f"the tool {name} is defined twice; the first definition is used")
            return
        description = get_text(tool.get("description"))
        self.specs[name] = ToolSpec(name=name, description=description, parameters=parameters or _FREEFORM)
        if foreign.is_freeform or foreign.namespace:
            self.foreign[name] = foreign


class _BodyFields:
    """Typed access to the fields of a body. `taken` collects the names of the fields that were read."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self.taken: set[str] = set()

    def take(self, *names: str) -> None:
        self.taken.update(name for name in names if name in self._body)

    def number(self, name: str) -> float | None:
        value = self._body.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.take(name)
            return float(value)
        return None

    def count(self, *names: str) -> int | None:
        for name in names:
            value = self._body.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                self.take(name)
                return value
        return None

    def text(self, *names: str) -> str:
        for name in names:
            value = self._body.get(name)
            if isinstance(value, str) and value:
                self.take(name)
                return value
        return ""

    def flag(self, name: str) -> bool | None:
        value = self._body.get(name)
        if isinstance(value, bool):
            self.take(name)
            return value
        return None

    def object(self, name: str) -> dict[str, Any]:
        found = get_object(self._body.get(name))
        if found:
            self.take(name)
        return found

    def value(self, name: str) -> Any:
        value = self._body.get(name)
        if value is not None:
            self.take(name)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        items = [value] if isinstance(value, str) else get_list(value)
        return tuple(item for item in items if isinstance(item, str) and item)


def _anthropic(fields: _BodyFields) -> Sampling:
    thinking = fields.object("thinking")
    output = fields.object("output_config")
    choice = fields.object("tool_choice")
    kind = get_text(choice.get("type"))
    return Sampling(
        max_tokens=fields.count("max_tokens"),
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        stop=fields.texts("stop_sequences"),
        thinking=_anthropic_level(thinking, get_text(output.get("effort"))),
        tool_choice="none" if kind == "none" else "any" if kind in ("any", "tool") else "auto",
        tool_name=get_text(choice.get("name")) if kind == "tool" else "",
        parallel_calls=False if choice.get("disable_parallel_tool_use") is True else None,
        output_schema=_schema(get_object(output.get("format"))),
        service_tier=fields.text("service_tier"),
        user=get_text(fields.object("metadata").get("user_id")),
    )


def _anthropic_level(thinking: dict[str, Any], effort: str) -> ThinkingLevel:
    match thinking.get("type"):
        case "disabled":
            return "off"
        case "enabled" if isinstance(thinking.get("budget_tokens"), int):
            return _budget_level(thinking["budget_tokens"])
        case "adaptive":
            return _level(effort) or "high"
        case _:
            return _level(effort)


def _budget_level(budget: int) -> ThinkingLevel:
    if budget == 0:
        return "off"
    if budget < 0:
        return ""  # the model decides
    for most, level in _BUDGETS:
        if budget <= most:
            return level
    return "max"


def _chat(fields: _BodyFields) -> Sampling:
    choice, name = _openai_choice(fields.value("tool_choice"))
    return Sampling(
        max_tokens=fields.count("max_completion_tokens", "max_tokens"),
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        seed=_seed(fields),
        stop=fields.texts("stop"),
        thinking=_level(fields.text("reasoning_effort")),
        tool_choice=choice,
        tool_name=name,
        parallel_calls=fields.flag("parallel_tool_calls"),
        output_schema=_schema(fields.object("response_format")),
        service_tier=fields.text("service_tier"),
        user=fields.text("safety_identifier", "user"),
        cache_key=fields.text("prompt_cache_key"),
    )


def _responses(fields: _BodyFields) -> Sampling:
    choice, name = _openai_choice(fields.value("tool_choice"))
    reasoning, text = fields.object("reasoning"), fields.object("text")
    return Sampling(
        max_tokens=fields.count("max_output_tokens"),
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        thinking=_level(get_text(reasoning.get("effort"))),
        tool_choice=choice,
        tool_name=name,
        parallel_calls=fields.flag("parallel_tool_calls"),
        output_schema=_schema(get_object(text.get("format"))),
        service_tier=fields.text("service_tier"),
        user=fields.text("safety_identifier", "user"),
        cache_key=fields.text("prompt_cache_key"),
    )


def _gemini(fields: _BodyFields) -> Sampling:
    generation = _BodyFields(fields.object("generationConfig"))
    thinking = generation.object("thinkingConfig")
    calling = get_object(fields.object("toolConfig").get("functionCallingConfig"))
    mode = get_text(calling.get("mode")).lower()
    allowed = [name for name in get_list(calling.get("allowedFunctionNames")) if isinstance(name, str)]
    schema = generation.object("responseJsonSchema") or _json_schema(generation.object("responseSchema"))
    budget = thinking.get("thinkingBudget")
    level = _level(get_text(thinking.get("thinkingLevel")).lower())
    return Sampling(
        max_tokens=generation.count("maxOutputTokens"),
        temperature=generation.number("temperature"),
        top_p=generation.number("topP"),
        seed=_seed(generation),
        stop=generation.texts("stopSequences"),
        thinking=_budget_level(budget) if isinstance(budget, int) and not level else level,
        tool_choice="none" if mode == "none" else "any" if mode == "any" else "auto",
        tool_name=allowed[0] if mode == "any" and len(allowed) == 1 else "",
        output_schema=OutputSchema(schema=schema) if schema else None,
        service_tier=fields.text("serviceTier"),
    )


def _json_schema(schema: Any) -> dict[str, Any]:
    """Return a Gemini schema as JSON Schema: Gemini writes types in capitals."""
    return get_object(_lower_types(schema))


def _lower_types(value: Any) -> Any:
    if isinstance(value, list):
        return [_lower_types(item) for item in get_list(value)]
    if not isinstance(value, dict):
        return value
    fields = get_object(value)
    return {
        key: item.lower() if key == "type" and isinstance(item, str) else _lower_types(item)
        for key, item in fields.items()
    }


def _seed(fields: _BodyFields) -> int | None:
    seed = fields.number("seed")
    return int(seed) if seed is not None and seed == int(seed) else None


def _openai_choice(choice: Any) -> tuple[Literal["auto", "none", "any"], str]:
    match choice:
        case "none":
            return "none", ""
        case "required" | "any":
            return "any", ""
        case {"type": "function" | "custom", **rest}:
            inner = get_object(rest.get("function")) or get_object(rest.get("custom")) or dict(rest)
            return "any", get_text(inner.get("name"))
        case _:
            return "auto", ""


def _level(effort: str) -> ThinkingLevel:
    if effort == "none":
        return "off"
    for level in THINKING_LEVELS:
        if level == effort:
            return level
    return ""


def _schema(described: dict[str, Any]) -> OutputSchema | None:
    """Read `{type: json_schema, schema}` of Anthropic and Responses, or the nested object of Chat Completions."""
    if described.get("type") != "json_schema":
        return None
    inner = get_object(described.get("json_schema")) or described
    schema = get_object(inner.get("schema"))
    return OutputSchema(schema=schema, name=get_text(inner.get("name")) or "answer") if schema else None


def without_billing_line(system: Any) -> Any:
    """Return `system` without the billing line that some clients put first and change with every request: it would
    prevent the prompt from being cached."""
    blocks = get_list(system)
    kept = [
        block
        for block in blocks
        if not get_text(get_object(block).get("text")).lstrip().lower().startswith("x-anthropic-billing-header")
    ]
    return kept if len(kept) < len(blocks) else system


def server_tool_names(tools: tuple[dict[str, Any], ...]) -> Iterator[str]:
    for tool in tools:
        yield get_text(tool.get("name")) or get_text(tool.get("type")) or "unnamed"
