"""Writes src/api/generated.ts: the shapes of the daemon's answers and events, from the very documents that it serves.

python web/generate_types.py            write the file
python web/generate_types.py --check    fail where it is not what the daemon says
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


def generated() -> str:
    from loom.daemon.asyncapi import asyncapi_document as events
    from loom.daemon.routes import document as answers

    asked, told = answers(), events()
    schemas: dict[str, Any] = {**told["components"]["schemas"], **asked["components"]["schemas"]}
    parts = [HEAD, *(_declared(name, schemas[name]) for name in sorted(schemas)), _event_data(told)]
    return "\n".join(parts)


def _declared(name: str, schema: dict[str, Any]) -> str:
    words = f"/** {schema['description']} */\n" if schema.get("description") else ""
    if schema.get("type") == "object" and "properties" in schema:
        return f"{words}export interface {name} {_object(schema)}\n"
    return f"{words}export type {name} = {_type(schema)};\n"


def _object(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    fields = [
        f"  {field}{'' if field in required else '?'}: {_type(given)};" for field, given in schema["properties"].items()
    ]
    return "{\n" + "\n".join(fields) + "\n}"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " | ".join(dict.fromkeys(_type(option) for option in schema[word]))
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


def _event_data(told: dict[str, Any]) -> str:
    """The data of every envelope by its type."""
    lines = [
        f"  {name}: {_type(message['payload']['properties']['data'])};"
        for name, message in told["components"]["messages"].items()
        if {"seq", "data"} <= message["payload"].get("properties", {}).keys()
    ]
    return "export interface EventData {\n" + "\n".join(lines) + "\n}\n"


def main() -> None:
    text = generated()
    if "--check" in sys.argv:
        if TARGET.read_text() != text:
            sys.exit("web/src/api/generated.ts is not what the daemon says: run python web/generate_types.py")
    else:
        TARGET.write_text(text)


if __name__ == "__main__":
    main()
