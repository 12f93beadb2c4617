"""Structured output: extract the JSON value of an answer and check it against the requested schema."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from loom.errors import ContentError, OutputInvalid
from loom.formats.json_schema import check_value_aside
from loom.sampling import OutputSchema

_FENCE: Final = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)```", re.DOTALL)
_MAX_PROBLEM: Final = 500


class ParsedOutput(msgspec.Struct, frozen=True):
    """The value, a `problem` that tells the model what to correct, or a `fault` that no answer can correct."""

    value: Any = None
    problem: str = ""
    fault: str = ""

    @property
    def error(self) -> str:
        """Return a sentence about the problem or the fault, or an empty string."""
        if self.fault:
            return f"The answer cannot be checked against its schema: {self.fault}"
        return f"The answer does not match its schema: {self.problem}" if self.problem else ""


async def parse_output(text: str, schema: OutputSchema) -> ParsedOutput:
    """Return the JSON value of an answer that matches the schema. The whole text, a fenced block, and the text between
    the first and the last bracket are tried in this order."""
    problem = "the answer is not JSON"
    for candidate in _candidates(text):
        try:
            value = msgspec.json.decode(candidate)
        except msgspec.DecodeError as error:
            problem = f"the answer is not valid JSON: {error}" if candidate == text.strip() else problem
            continue
        found = await check_value_aside(schema.schema, candidate.encode())
        if found.fault:
            return ParsedOutput(fault=found.fault[:_MAX_PROBLEM])
        if not found.problem:
            return ParsedOutput(value)
        problem = found.problem
    return ParsedOutput(problem=problem[:_MAX_PROBLEM])


async def read_output(text: str, schema: OutputSchema | None) -> Any:
    """Return the value of an answer, or None if no schema was requested. Raise `OutputInvalid` if it does not match."""
    if schema is None:
        return None
    found = await parse_output(text, schema)
    if found.error:
        raise OutputInvalid(
            found.error,
            hint="The answer is in the session. Ask again, try another model, or make the schema simpler.",
        )
    return found.value


async def require_valid_schema(schema: OutputSchema | None) -> None:
    """Raise `ContentError` for a schema that no answer could be checked against, before an answer is paid for."""
    if schema is not None and (fault := (await check_value_aside(schema.schema, None)).fault):
        raise ContentError(f"No answer can be checked against this schema: {fault[:_MAX_PROBLEM]}")


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
