"""The OpenAPI 3.1 document, made from the table of routes and the types in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any, Final, get_args

import msgspec

from loom.api_types import ProblemBody
from loom.daemon.dispatch import Route
from loom.daemon.problems import JSON, PROBLEM_JSON
from loom.events import Event

_REF: Final = "#/components/schemas/{name}"
_HEADERS: Final = {
    "If-Match": "The revision (ETag) to change; 412 if it is not the current one.",
    "Idempotency-Key": "Requests with the same key are processed once.",
    "If-None-Match": "ETags that the client has.",
    "Range": "One range of bytes.",
    "X-Loom-Password": "The password of a PDF, percent-encoded. An unlocked copy is stored.",
    "Last-Event-ID": "The number of the last event that the client received.",
}
_PATHS: Final = {
    "session": ("The id of a session.", {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"}),
    "digest": ("`sha256:` and 64 hex digits.", {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}),
    "node": ("The id of a node.", {"type": "string", "pattern": "^node:sha256:[0-9a-f]{64}$"}),
    "message": ("The id of a queued message.", {"type": "string", "minLength": 1}),
    "approval": ("The id of an approval.", {"type": "string", "minLength": 1}),
    "process": ("The number of a background process.", {"type": "string", "minLength": 1}),
    "provider": ("The name of a service.", {"type": "string", "minLength": 1}),
    "prompt": ("The name of a prompt.", {"type": "string", "pattern": r"^\w[\w.-]{0,63}$"}),
    "share": ("The id of a link.", {"type": "string", "minLength": 1}),
    "key": ("The name of a setting.", {"type": "string", "minLength": 1}),
    "server": ("The name of a model at a server.", {"type": "string", "minLength": 1}),
    "user": ("The name of a user, or `everyone`.", {"type": "string", "minLength": 1}),
    "login": ("The id of a login.", {"type": "string", "minLength": 1}),
}


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    listed = [route for route in routes if route.is_listed]
    schemas, components = _schemas(listed)
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Loom",
            "version": metadata.version("loom-runtime"),
            "description": "Sessions of a multimodal agent. Events are described in /asyncapi.json.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "loom"},
            },
        },
        "security": [{"token": []}, {"cookie": []}],
    }


def _schemas(routes: Iterable[Route]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the schema of every type in the table, and the components that they refer to."""
    kinds: list[Any] = list(
        dict.fromkeys(
            kind
            for route in routes
            for kind in (route.body, route.answer, route.query, *route.body_types.values())
            if kind is not None and not isinstance(kind, dict)
        )
    )
    events = get_args(Event)
    kinds += [ProblemBody, *(event for event in events if event not in kinds)]
    found, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    # Stored events are sent as raw JSON, which has no schema: set it here.
    shown = [{"$ref": _REF.format(name=event.__name__)} for event in events]
    if "EventEnvelope" in components:
        components["EventEnvelope"]["properties"]["data"] = {"anyOf": shown}
    return dict(zip(kinds, found, strict=True)), components


def _operation(route: Route, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *re.findall(r"\w+", route.path)]),
        "summary": route.summary,
        "parameters": [*_in_path(route), *_in_query(route, schemas, components), *map(_in_header, route.headers)],
        "responses": _responses(route, schemas),
    }
    content: dict[str, Any] = {
        kind: {"schema": schema if isinstance(schema, dict) else schemas[schema]}
        for kind, schema in route.body_types.items()
    }
    if route.body is not None:
        content[JSON] = {"schema": schemas[route.body]}
    if content:
        operation["requestBody"] = {
            "content": content,
            "required": route.body is None or _has_required(route, schemas, components),
        }
    if route.is_open:
        operation["security"] = []
    return operation


def _has_required(route: Route, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> bool:
    """Return whether the body has required fields. An empty body is read as `{}`, which is enough otherwise."""
    name = schemas[route.body].get("$ref", "").rpartition("/")[2]
    return bool(components.get(name, {}).get("required"))


def _in_path(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in re.findall(r"{(\w+)}", route.path):
        text, schema = _PATHS[name]
        found.append({"name": name, "in": "path", "required": True, "description": text, "schema": schema})
    return found


def _in_query(route: Route, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = components[schemas[route.query]["$ref"].rpartition("/")[2]]
    required: Sequence[str] = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": field}
        for name, field in schema["properties"].items()
    ]


def _in_header(name: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": _HEADERS[name], "schema": {"type": "string"}}


def _responses(route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    content = {kind: {"schema": schema} for kind, schema in route.answer_types.items()}
    if route.answer is not None:
        content[JSON] = {"schema": schemas[route.answer]}
    if content:
        good["content"] = content
    responses: dict[str, Any] = {str(route.status): good}
    for status, text in route.also.items():
        responses[str(status)] = {**good, "description": text} if status < 300 else {"description": text}
    problem = {
        "description": "What went wrong, and what to do.",
        "content": {PROBLEM_JSON: {"schema": schemas[ProblemBody]}},
    }
    return {**responses, "default": problem}
