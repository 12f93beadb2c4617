"""Provider-specific blocks: calls and results of tools that a provider runs itself, its search results, text documents.
They are sent back to that provider unchanged, and as text to all others.

They are stored as an `UnknownBlock`: `{"type": "provider_block", "provider": …, "block": the original block}`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import NoneType
from typing import Any, Final, TypeAlias, cast

from loom.content.blocks import UnknownBlock
from loom.content.json_values import get_object

PROVIDER_BLOCK: Final = "provider_block"
_MAX_WORDS: Final = 4_000
_MAX_RESULTS: Final = 20
_SERVER_CALL_ID: Final = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
_STATUSES: Final = ("in_progress", "searching", "interpreting", "completed", "incomplete", "failed")
_NAMES: Final = ("id", "name", "tool_use_id", "error_code", "file_id", "tool_name", "container_id")
"""Fields that must not be empty."""
_NESTED: Final = ("content", "tool_references")
_Types: TypeAlias = tuple[type, ...]
_RAN: Final[dict[str, _Types]] = {"content": (list,), "return_code": (int,), "stderr": (str,)}
_EDITOR: Final = "text_editor_code_execution"
_REQUIRED: Final[dict[str, dict[str, _Types]]] = {
    "server_tool_use": {"id": (str,), "name": (str,), "input": (dict,)},
    "web_search_tool_result": {"tool_use_id": (str,), "content": (list, dict)},
    **{
        f"{name}_tool_result": {"tool_use_id": (str,), "content": (dict,)}
        for name in ("web_fetch", "code_execution", "bash_code_execution", _EDITOR, "tool_search")
    },
    **{
        f"{name}_tool_result_error": {"error_code": (str,)}
        for name in ("web_search", "web_fetch", "code_execution", "bash_code_execution", _EDITOR, "tool_search")
    },
    "web_search_result": {"encrypted_content": (str,), "title": (str,), "url": (str,)},
    "web_fetch_result": {"content": (dict,), "url": (str,)},
    "code_execution_result": {**_RAN, "stdout": (str,)},
    "bash_code_execution_result": {**_RAN, "stdout": (str,)},
    "encrypted_code_execution_result": {**_RAN, "encrypted_stdout": (str,)},
    "code_execution_output": {"file_id": (str,)},
    "bash_code_execution_output": {"file_id": (str,)},
    f"{_EDITOR}_view_result": {"content": (str,), "file_type": (str,)},
    f"{_EDITOR}_create_result": {"is_file_update": (bool,)},
    f"{_EDITOR}_str_replace_result": {},
    "tool_search_tool_search_result": {"tool_references": (list,)},
    "tool_reference": {"tool_name": (str,)},
    "document": {"source": (dict,)},
    "search_result": {"source": (str,), "title": (str,), "content": (list,)},
    "text": {"text": (str,)},
    "web_search_call": {"id": (str,), "status": (str,), "action": (dict,)},
    "file_search_call": {"id": (str,), "status": (str,), "queries": (list,)},
    "code_interpreter_call": {
        "id": (str,), "status": (str,), "container_id": (str,), "code": (str, NoneType), "outputs": (list, NoneType),
    },
}  # fmt: skip
"""The required fields of each kind of block, according to the SDKs of Anthropic and OpenAI."""
_OPTIONAL: Final[dict[str, dict[str, _Types]]] = {
    "web_search_result": {"page_age": (str,)},
    "web_fetch_result": {"retrieved_at": (str,)},
    "document": {"title": (str,)},
}
_INSIDE: Final[dict[str, dict[type, tuple[str, ...]]]] = {
    "web_search_tool_result": {list: ("web_search_result",), dict: ("web_search_tool_result_error",)},
    "web_fetch_tool_result": {dict: ("web_fetch_result", "web_fetch_tool_result_error")},
    "web_fetch_result": {dict: ("document",)},
    "code_execution_tool_result": {
        dict: ("code_execution_result", "encrypted_code_execution_result", "code_execution_tool_result_error")
    },
    "bash_code_execution_tool_result": {dict: ("bash_code_execution_result", "bash_code_execution_tool_result_error")},
    f"{_EDITOR}_tool_result": {
        dict: tuple(
            f"{_EDITOR}_{end}" for end in ("view_result", "create_result", "str_replace_result", "tool_result_error")
        )
    },
    "tool_search_tool_result": {dict: ("tool_search_tool_search_result", "tool_search_tool_result_error")},
    "tool_search_tool_search_result": {list: ("tool_reference",)},
    "code_execution_result": {list: ("code_execution_output",)},
    "encrypted_code_execution_result": {list: ("code_execution_output",)},
    "bash_code_execution_result": {list: ("bash_code_execution_output",)},
    "search_result": {list: ("text",)},
}


def provider_block(provider: str, block: dict[str, Any]) -> UnknownBlock:
    """Return a block of `provider`'s own kind."""
    return UnknownBlock({"type": PROVIDER_BLOCK, "provider": provider, "block": block})


def block_for(provider: str, own_types: tuple[str, ...], block: UnknownBlock) -> dict[str, Any] | None:
    """Return the block in the form that `provider` accepts; None if it belongs to another provider. `own_types` are the
    types that it accepts, `*` for all of its own; blocks that were stored without a provider are recognized by these
    types."""
    if block.kind != PROVIDER_BLOCK:
        return block.data if block.kind in own_types else None
    inner = get_object(block.data.get("block"))
    is_own = bool(inner) and block.data.get("provider") == provider
    return inner if is_own and ("*" in own_types or inner.get("type") in own_types) else None


def restore_block(data: dict[str, Any], *, is_foreign: bool) -> dict[str, Any] | None:
    """Return a block in the form that its provider accepts; None if a required field is missing or invalid. A block
    that the provider itself sent is checked only at its top level, because it may be newer than this version. Of a
    block from a foreign file only the known fields are kept, because a provider refuses others."""
    kind = str(data.get("type"))
    if kind == "server_tool_use" and not _SERVER_CALL_ID.fullmatch(str(data.get("id"))):
        return None
    if is_foreign:
        return _known_fields(data)
    if not all(_is_valid(data.get(key), key, types) for key, types in _REQUIRED.get(kind, {}).items()):
        return None
    return {key: value for key, value in data.items() if key != "cache_control"}


def role_may_contain(data: dict[str, Any], role: str) -> bool:
    """Return whether a message of `role` may contain this block: only users supply documents and search results, and
    only assistants call tools of the provider."""
    return (role == "user") == (data.get("type") in ("document", "search_result"))


def find_unpaired(blocks: Sequence[dict[str, Any]], taken: set[str], *, may_end_open: bool = False) -> frozenset[int]:
    """Return the positions of server-side calls without a result after them, of results without their call, and of
    calls whose id is in `taken`; all ids are added to `taken`. The blocks are those of one message as it is sent. With
    `may_end_open`, calls without a result are allowed."""
    waiting: dict[str, int] = {}
    lost: set[int] = set()
    for position, data in enumerate(blocks):
        call, result = call_id_of(data)
        if call and call not in taken:
            taken.add(call)
            waiting[call] = position
        elif result in waiting and _is_result_of(data, blocks[waiting[result]]):
            del waiting[result]
        elif call or result:
            lost.add(position)
    return frozenset(lost if may_end_open else lost | set(waiting.values()))


def _is_result_of(result: dict[str, Any], call: dict[str, Any]) -> bool:
    """Return whether a result answers a call: `web_search_tool_result` answers `web_search`, `tool_search_tool_result`
    answers `tool_search_tool_bm25`."""
    stem, name = str(result["type"]).removesuffix("_tool_result"), str(call.get("name"))
    return call["type"] == "mcp_tool_use" or name == stem or name.startswith(f"{stem}_tool_")


def _is_valid(value: Any, key: str, types: _Types) -> bool:
    if key == "status":
        return value in _STATUSES
    return type(value) in types and (bool(value) or key not in _NAMES)


def _known_fields(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the known fields of a block and of the blocks inside it; None if a required one is missing or invalid."""
    kind = str(data.get("type"))
    if kind not in _REQUIRED:
        return None
    found: dict[str, Any] = {"type": kind}
    for key, types in _REQUIRED[kind].items():
        value = data.get(key)
        if not _is_valid(value, key, types):
            return None
        if kind in _INSIDE and key in _NESTED:
            value = _inner_blocks(kind, value)
        elif kind == "document":
            value = _document_source(get_object(value))
        if value is None and NoneType not in types:
            return None
        found[key] = value
    return found | {key: data[key] for key, types in _OPTIONAL.get(kind, {}).items() if type(data.get(key)) in types}


def _inner_blocks(outer: str, value: Any) -> Any:
    """Return the blocks inside a block; None if one of them is not allowed there."""
    items: list[Any] = _list(value) if isinstance(value, list) else [value]
    found = [_known_fields(get_object(item)) for item in items]
    allowed = _INSIDE[outer][list if isinstance(value, list) else dict]
    if any(item is None or item["type"] not in allowed for item in found):
        return None
    return found if isinstance(value, list) else found[0]


def _document_source(source: dict[str, Any]) -> dict[str, Any] | None:
    found = {key: source.get(key) for key in ("type", "media_type", "data")}
    is_whole = found["type"] in ("text", "base64") and all(isinstance(value, str) for value in found.values())
    return found if is_whole else None


def call_id_of(data: dict[str, Any]) -> tuple[str, str]:
    """Return the id of a server-side call, and the id of the call that this block answers; either may be empty."""
    kind = str(data.get("type", ""))
    own = str(data.get("id", "")) if kind in ("server_tool_use", "mcp_tool_use") else ""
    return own, str(data.get("tool_use_id", "")) if kind.endswith("_tool_result") else ""


def provider_text(block: UnknownBlock) -> str:
    """Return the text of such a block, for models and people that cannot read it; empty for other unknown blocks."""
    data: Any = block.data.get("block") if block.kind == PROVIDER_BLOCK else block.data
    return _text(cast("dict[str, Any]", data))[:_MAX_WORDS] if isinstance(data, dict) else ""


def _text(data: dict[str, Any]) -> str:
    kind = str(data.get("type") or next(iter(data), ""))
    match kind:
        case "server_tool_use" | "mcp_tool_use":
            arguments = ", ".join(str(value) for value in get_object(data.get("input")).values())
            return f"[{data.get('name', 'a tool')}: {arguments}]"
        case "web_search_call":
            action = get_object(data.get("action"))
            return f"[web_search: {action.get('query') or action.get('url') or data.get('status', '')}]"
        case "code_interpreter_call":
            logs = [str(get_object(item).get("logs", "")) for item in _list(data.get("outputs"))]
            return "\n".join(part for part in (f"[code that ran]\n{data.get('code', '')}", *logs) if part)
        case "file_search_call":
            return f"[file_search: {', '.join(map(str, _list(data.get('queries'))))}]"
        case "executableCode":
            return f"[code that ran]\n{get_object(data.get('executableCode')).get('code', '')}"
        case "codeExecutionResult":
            return f"[its output]\n{get_object(data.get('codeExecutionResult')).get('output', '')}"
        case "document":
            return _document(data)
        case "search_result":
            facts = ", ".join(str(data[key]) for key in ("title", "source") if data.get(key))
            return "\n".join(part for part in (f"[search result: {facts}]", _words(data.get("content"))) if part)
        case _ if kind.endswith("_tool_result"):
            return _result(kind, data.get("content"))
        case _:
            return ""


def _document(data: dict[str, Any]) -> str:
    source = get_object(data.get("source"))
    head = f"[document: {data['title']}]" if data.get("title") else "[document]"
    words = source.get("data") if source.get("type") == "text" else _words(source.get("content"))
    return "\n".join(str(part) for part in (head, data.get("context"), words) if part)


def _result(kind: str, content: Any) -> str:
    name = kind.removesuffix("_tool_result")
    inner = get_object(content)
    if inner.get("error_code"):
        return f"[{name} failed: {inner['error_code']}]"
    if inner:
        output = [
            str(inner[key]) for key in ("stdout", "stderr", "output", "content") if isinstance(inner.get(key), str)
        ]
        return "\n".join((f"[the result of {name}]", *(text for text in output if text)))
    lines = [
        " ".join(str(part) for part in (item.get("title"), item.get("url")) if part)
        for item in map(get_object, _list(content)[:_MAX_RESULTS])
    ]
    return "\n".join((f"[the result of {name}]", *(line for line in lines if line)))


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(text) for item in _list(content) if (text := get_object(item).get("text")))


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
