"""Generate src/api/generated.ts: the types of the daemon's responses and events, from the API documents that it serves.

python web/generate_types.py            write the file
python web/generate_types.py --check    fail if the file is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent / "src/api/generated.ts"
HEAD = (
    "// Made by generate_types.py from /openapi.json and /asyncapi.json. Fields that are left out have their default.\n"
)
SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def typescript() -> str:
    """Return the text of the file."""
    from loom.daemon.asyncapi import asyncapi_document
    from loom.daemon.routes import document as openapi_document

    openapi, asyncapi = openapi_document(), asyncapi_document()
    schemas: dict[str, Any] = {**asyncapi["components"]["schemas"], **openapi["components"]["schemas"]}
    parts = [HEAD, *(_declaration(name, schemas[name]) for name in sorted(schemas)), _event_data(asyncapi)]
    return "\n".join(parts)


def _declaration(name: str, schema: dict[str, Any]) -> str:
    comment = f"/** {schema['description']} */\n" if schema.get("description") else ""
    if schema.get("type") == "object" and "properties" in schema:
        return f"{comment}export interface {name} {_object(schema)}\n"
    return f"{comment}export type {name} = {_type(schema)};\n"


def _object(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    fields = [
        f"  {field}{'' if field in required else '?'}: {_type(value)};" for field, value in schema["properties"].items()
    ]
    return "{\n" + "\n".join(fields) + "\n}"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " | ".join(dict.fromkeys(_type(option) for option in schema[keyword]))
    match schema.get("type"):
        case "array":
            inner = _type(schema.get("items", {}))
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        case "object" if "properties" in schema:
            return _object(schema).replace("\n", " ")
        case "object":
            values = schema.get("additionalProperties")
            return f"Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>"
        case str() as kind:
            return SIMPLE[kind]
        case _:
            return "unknown"


def _event_data(asyncapi: dict[str, Any]) -> str:
    """Return an interface that maps the type of each envelope to its data."""
    lines = [
        f"  {name}: {_type(message['payload']['properties']['data'])};"
        for name, message in asyncapi["components"]["messages"].items()
        if {"seq", "data"} <= message["payload"].get("properties", {}).keys()
    ]
    return "export interface EventData {\n" + "\n".join(lines) + "\n}\n"


def main() -> None:
    text = typescript()
    if "--check" in sys.argv:
        if TARGET.read_text() != text:
            sys.exit("web/src/api/generated.ts is out of date: run python web/generate_types.py")
    else:
        TARGET.write_text(text)


if __name__ == "__main__":
    main()
