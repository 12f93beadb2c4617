"""Check a JSON value against a JSON Schema, in a worker process.

Both may come from anywhere: a regular expression of the schema may take hours on one answer, and references may branch
or repeat without end. A worker has a deadline, and the event loop never waits for it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from loom.errors import MediaError, TooLarge
from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerKind, current_pool
from loom.struct_types import decode_msgpack

SCHEMA_WORKER: Final = WorkerKind("loom.formats.json_schema_job")
CHECK_SECONDS: Final = 5.0


class SchemaCheck(msgspec.Struct, frozen=True):
    """`problem` says where and how the value does not match; `fault` why no value can be checked. Both are empty if the
    value matches."""

    fault: str = ""
    problem: str = ""


def check_value(schema: dict[str, Any], value: bytes | None) -> SchemaCheck:
    """Return how the JSON text `value` does not match `schema`; with None, only whether the schema is valid."""
    try:
        document, job = msgspec.json.encode(schema), msgspec.msgpack.encode(value)
        result, _ = current_pool().call(
            SCHEMA_WORKER, job, document, name="The schema", limits=IntakeLimits(), seconds=CHECK_SECONDS
        )
    except TooLarge:
        return SchemaCheck(fault=f"it takes longer than {CHECK_SECONDS:g} s, or too much memory")
    except MediaError as error:
        return SchemaCheck(fault=error.message)
    except (RecursionError, TypeError, ValueError) as error:
        return SchemaCheck(fault=f"the schema cannot be written as JSON: {error}")
    return decode_msgpack(result, SchemaCheck)


async def check_value_aside(schema: dict[str, Any], value: bytes | None) -> SchemaCheck:
    """Check in a thread of the worker pool; see `check_value`."""
    return await current_pool().run(check_value, schema, value)
