"""Types for structured answers: the JSON Schema of a type for the model, and the answer's JSON as a value of the type.

A type is a dataclass, a `TypedDict`, a `msgspec.Struct`, a Pydantic model, or a composite of these (`list[Row]`); a
mapping is a JSON Schema itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from loom.errors import ContentError, OutputInvalid
from loom.struct_types import convert


def schema_of(output: Any) -> tuple[dict[str, Any], str]:
    """Return the JSON Schema of a type and a name for it; raise `ContentError` if the type has none."""
    if isinstance(output, Mapping):
        return dict(cast("Mapping[str, Any]", output)), "answer"
    if isinstance(output, str):  # msgspec would take it for a forward reference
        raise _output_type_error(repr(output))
    name = str(getattr(output, "__name__", "answer"))
    if hasattr(output, "model_json_schema"):
        return _without_root_reference(output.model_json_schema()), name
    try:
        return _without_root_reference(msgspec.json.schema(output)), name
    except (TypeError, ValueError) as error:
        raise _output_type_error(str(getattr(output, "__name__", output))) from error


def _output_type_error(name: str) -> ContentError:
    return ContentError(
        f"{name} cannot be used as an output type.",
        hint="Use a dataclass, a TypedDict, a msgspec.Struct, a Pydantic model or a JSON Schema, with fields of such"
        " types.",
    )


def _without_root_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace a reference at the root with its definition, because services require an object there."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definitions = cast("dict[str, Any]", schema.get("$defs", {}))
    name = reference.rpartition("/")[2]
    is_recursive = f'"{reference}"' in msgspec.json.encode(definitions).decode()
    rest = {key: value for key, value in definitions.items() if key != name or is_recursive}
    return {**definitions[name], **({"$defs": rest} if rest else {})}


def convert_output(value: Any, output: Any) -> Any:
    """Convert the JSON value of an answer to the type; with a JSON Schema, return it unchanged. Raise `OutputInvalid`
    if it does not match the type."""
    if output is None or isinstance(output, Mapping):
        return value
    try:
        if hasattr(output, "model_validate"):
            return output.model_validate(value)
        return convert(value, output)
    except ValueError as error:  # the errors of both libraries are ValueErrors
        raise OutputInvalid(
            f"The answer does not match {getattr(output, '__name__', output)}: {error}",
            hint="The answer is in the session. Ask again, or make the type simpler.",
        ) from None
