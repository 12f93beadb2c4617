"""`/docs`: the OpenAPI document as a page without scripts or external resources."""

from __future__ import annotations

from html import escape
from typing import Any, Final

import msgspec
from starlette.responses import HTMLResponse

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_STYLE: Final = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}"
    "body{max-width:60rem;margin:2rem auto;padding:0 1rem}h2{margin:2.5rem 0 .5rem}"
    "details{border-top:1px solid #8884;padding:.4rem 0}"
    "summary{cursor:pointer;display:flex;gap:.8rem;align-items:baseline}"
    "summary b{min-width:4.5rem;font:700 .8rem ui-monospace,monospace}"
    "summary code{flex:1;overflow-wrap:anywhere}summary span{opacity:.75;text-align:end}"
    "pre{overflow:auto;background:#8881;padding:.8rem;border-radius:.4rem;font-size:.8rem}"
    "th,td{text-align:start;padding:.2rem .8rem .2rem 0;vertical-align:top}"
)
_HEAD: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    f"<title>Loom: the API</title><style>{_STYLE}</style></head><body><h1>Loom: the API</h1>"
    '<p>Made from <a href="/openapi.json">/openapi.json</a>. Events: <a href="/asyncapi.json">/asyncapi.json</a>. '
    "Programs send <code>Authorization: Bearer TOKEN</code>; <code>loom token</code> prints it.</p>"
)


def page(document: dict[str, Any]) -> HTMLResponse:
    parts = [_HEAD, "<h2>Routes</h2>"]
    for path, methods in document["paths"].items():
        parts += [_operation(path, method.upper(), operation) for method, operation in methods.items()]
    parts.append("<h2>Types</h2>")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(
            f'<details id="{escape(name)}"><summary><code>{escape(name)}</code>'
            f"<span>{escape(schema.get('description', ''))}</span></summary>{_json(schema)}</details>"
        )
    return HTMLResponse("\n".join([*parts, "</body></html>"]), headers={"Content-Security-Policy": _POLICY})


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(found['name'])}</code><td>{escape(found['in'])}"
        f"<td>{escape(found.get('description') or found['schema'].get('description', ''))}"
        for found in operation["parameters"]
    )
    table = f"<table><tr><th>parameter<th>in<th>{rows}</table>" if rows else ""
    body = f"<h4>sent</h4>{_json(operation['requestBody']['content'])}" if "requestBody" in operation else ""
    answers = "".join(
        f"<h4>{escape(status)} · {escape(answer['description'])}</h4>"
        + (_json(answer["content"]) if "content" in answer else "")
        for status, answer in operation["responses"].items()
        if status != "default"
    )
    return (
        f"<details><summary><b>{method}</b><code>{escape(path)}</code><span>{escape(operation['summary'])}</span>"
        f"</summary>{table}{body}{answers}</details>"
    )


def _json(value: object) -> str:
    return f"<pre>{escape(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())}</pre>"
