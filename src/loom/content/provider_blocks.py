"""Blocks of a provider's own kind: calls and results of the tools that it runs itself, its search results, documents of
words. They go back to it as they came, and are text for everyone else.

They are stored as an `UnknownBlock`: `{"type": "provider_block", "provider": …, "block": the block as it came}`.
"""

from __future__ import annotations

from typing import Any, Final, cast

from loom.content.blocks import UnknownBlock

PROVIDER_BLOCK: Final = "provider_block"
_MAX_WORDS: Final = 4_000
_MAX_RESULTS: Final = 20


def provider_block(provider: str, block: dict[str, Any]) -> UnknownBlock:
    """Return a block of `provider`'s own kind."""
    return UnknownBlock({"type": PROVIDER_BLOCK, "provider": provider, "block": block})


def block_for(provider: str, own_types: tuple[str, ...], block: UnknownBlock) -> dict[str, Any] | None:
    """Return the block as `provider` takes it back; None where it is not its own. `own_types` are the types that it
    takes back, `*` for all that it made; blocks that were stored without their owner are recognised by these names."""
    if block.kind != PROVIDER_BLOCK:
        return block.data if block.kind in own_types else None
    inner = _object(block.data.get("block"))
    is_own = bool(inner) and block.data.get("provider") == provider
    return inner if is_own and ("*" in own_types or inner.get("type") in own_types) else None


def call_id_of(data: dict[str, Any]) -> tuple[str, str]:
    """Return (the id of a call that the provider ran, the id of the call that this answers); empty where it is none."""
    kind = str(data.get("type", ""))
    own = str(data.get("id", "")) if kind in ("server_tool_use", "mcp_tool_use") else ""
    return own, str(data.get("tool_use_id", "")) if kind.endswith("_tool_result") else ""


def provider_text(block: UnknownBlock) -> str:
    """Return what such a block says, for models and people that cannot read it; empty for other unknown blocks."""
    data: Any = block.data.get("block") if block.kind == PROVIDER_BLOCK else block.data
    return _text(cast("dict[str, Any]", data))[:_MAX_WORDS] if isinstance(data, dict) else ""


def _text(data: dict[str, Any]) -> str:
    kind = str(data.get("type") or next(iter(data), ""))
    match kind:
        case "server_tool_use" | "mcp_tool_use":
            return f"[{data.get('name', 'a tool')}: {_first_words(data.get('input'))}]"
        case "web_search_call":
            action = _object(data.get("action"))
            return f"[web_search: {action.get('query') or action.get('url') or data.get('status', '')}]"
        case "code_interpreter_call":
            logs = [str(_object(item).get("logs", "")) for item in _list(data.get("outputs"))]
            return "\n".join(part for part in (f"[code that ran]\n{data.get('code', '')}", *logs) if part)
        case "file_search_call":
            return f"[file_search: {', '.join(map(str, _list(data.get('queries'))))}]"
        case "executableCode":
            return f"[code that ran]\n{_object(data.get('executableCode')).get('code', '')}"
        case "codeExecutionResult":
            return f"[its output]\n{_object(data.get('codeExecutionResult')).get('output', '')}"
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
    source = _object(data.get("source"))
    head = f"[document: {data['title']}]" if data.get("title") else "[document]"
    words = source.get("data") if source.get("type") == "text" else _words(source.get("content"))
    return "\n".join(str(part) for part in (head, data.get("context"), words) if part)


def _result(kind: str, content: Any) -> str:
    name = kind.removesuffix("_tool_result")
    inner = _object(content)
    if inner.get("error_code"):
        return f"[{name} failed: {inner['error_code']}]"
    if inner:
        output = [
            str(inner[key]) for key in ("stdout", "stderr", "output", "content") if isinstance(inner.get(key), str)
        ]
        return "\n".join((f"[the result of {name}]", *(text for text in output if text)))
    lines = [
        " ".join(str(part) for part in (item.get("title"), item.get("url")) if part)
        for item in map(_object, _list(content)[:_MAX_RESULTS])
    ]
    return "\n".join((f"[the result of {name}]", *(line for line in lines if line)))


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(text) for item in _list(content) if (text := _object(item).get("text")))


def _first_words(value: Any) -> str:
    found = _object(value)
    return ", ".join(str(item) for item in found.values()) if found else ""


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
