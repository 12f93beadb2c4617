"""Structured output: extract the JSON value of an answer and check it against the requested schema."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from loom.errors import OutputInvalid
from loom.sampling import OutputSchema

_FENCE: Final = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)```", re.DOTALL)
_MAX_PROBLEM: Final = 500


class ParsedOutput(msgspec.Struct, frozen=True):
    """The value, or a `problem` that tells the model what to correct."""

    value: Any = None
    problem: str = ""


def parse_output(text: str, schema: OutputSchema) -> ParsedOutput:
    """Return the JSON value of an answer that matches the schema. The whole text, a fenced block, and the text between
    the first and the last bracket are tried in this order."""
    problem = "the answer is not JSON"
    for candidate in _candidates(text):
        try:
            value = msgspec.json.decode(candidate)
        except msgspec.DecodeError as error:
            problem = f"the answer is not valid JSON: {error}" if candidate == text.strip() else problem
            continue
        wrong = schema_problem(value, schema.schema)
        if not wrong:
            return ParsedOutput(value)
        problem = wrong
    return ParsedOutput(problem=problem[:_MAX_PROBLEM])


def read_output(text: str, schema: OutputSchema | None) -> Any:
    """Return the value of an answer, or None if no schema was requested. Raise `OutputInvalid` if it does not match."""
    if schema is None:
        return None
    found = parse_output(text, schema)
    if found.problem:
        raise OutputInvalid(
            f"The answer does not match its schema: {found.problem}",
            hint="The answer is in the session. Ask again, try another model, or make the schema simpler.",
        )
    return found.value


def schema_problem(value: Any, schema: dict[str, Any]) -> str:
    """Return where and how a value does not match a JSON Schema, or an empty string if it does. Nothing is fetched."""
    from jsonschema import exceptions
    from referencing.exceptions import Unresolvable

    fault = schema_fault(schema)
    if fault:
        return f"the schema itself is not valid: {fault}"
    try:
        found = next(iter(sorted(_validator(schema).iter_errors(value), key=exceptions.relevance)), None)
    except Unresolvable as error:
        return f"the schema itself is not valid: {error}"
    return "" if found is None else f"at {found.json_path}: {found.message}"


def schema_fault(schema: dict[str, Any]) -> str:
    """Return why a schema is invalid, or an empty string if it is valid."""
    from jsonschema.exceptions import SchemaError

    try:
        _validator(schema).check_schema(schema)
    except SchemaError as error:
        return error.message
    return ""


def _validator(schema: dict[str, Any]) -> Any:
    """Return a validator that resolves references inside the schema only: the default registry fetches URLs, and a
    schema may come from anywhere."""
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    return validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())


def repair_text(problem: str) -> str:
    """Return the message that asks a model to correct its answer."""
    return (
        f"[Your answer does not match the JSON Schema: {problem}. Answer again with one JSON value that matches it, and"
        " nothing else.]"
    )


def _candidates(text: str) -> list[str]:
    whole = text.strip()
    found = [whole, *(match[1].strip() for match in _FENCE.finditer(text))]
    for opening, closing in (("{", "}"), ("[", "]")):
        start, end = whole.find(opening), whole.rfind(closing)
        if 0 <= start < end:
            found.append(whole[start : end + 1])
    return list(dict.fromkeys(candidate for candidate in found if candidate))
