"""The program of the schema worker: jsonschema, with references inside the schema only."""

from __future__ import annotations

from typing import Any

import msgspec
from jsonschema import exceptions
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from loom.formats.json_schema import SchemaCheck
from loom.formats.worker.loop import Task, serve
from loom.struct_types import decode_json, decode_msgpack


def run(task: Task, document: bytes | None) -> tuple[bytes, bytes] | None:
    if document is None:
        return None
    value = decode_msgpack(task.job, bytes | None)
    return msgspec.msgpack.encode(check(decode_json(document, dict[str, Any]), value)), b""


def check(schema: dict[str, Any], value: bytes | None) -> SchemaCheck:
    # The default registry fetches URLs.
    validator: Any = validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())
    try:
        validator.check_schema(schema)
        if value is None:
            return SchemaCheck()
        found = next(iter(sorted(validator.iter_errors(msgspec.json.decode(value)), key=exceptions.relevance)), None)
    except exceptions.SchemaError as error:
        return SchemaCheck(fault=f"the schema is not valid: {error.message}")
    except Unresolvable as error:
        return SchemaCheck(fault=f"the schema is not valid: {error}")
    except RecursionError:
        return SchemaCheck(fault="the schema is nested too deeply, or refers to itself without end")
    return SchemaCheck() if found is None else SchemaCheck(problem=f"at {found.json_path}: {found.message}")


if __name__ == "__main__":
    serve(run)
