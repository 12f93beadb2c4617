"""Structured output: the JSON that a schema asks for, on every protocol; checked, and asked for once more."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from typing import Any, TypedDict

import msgspec
import pytest

from flow.far_models import WIRES, far_model
from loom.agent.output import parse_output
from loom.errors import ContentError, OutputInvalid
from loom.events import NoticeRaised
from loom.sampling import OutputSchema
from providers.far_side import Reply, far_side

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
GOOD = {"city": "Ulm", "people": 126_000}
OPTIONS: dict[str, Any] = {"output_schema": {"schema": SCHEMA}}


@pytest.mark.parametrize("wire", WIRES)
async def test_a_good_answer_is_a_value_on_every_protocol(wire: str) -> None:
    async with far_model(wire, json.dumps(GOOD)) as far:
        session = await far.runtime.session(model="far")
        reply = await session.send("Which city?", options=OPTIONS)
        plain = await session.send("And now in words?")
    assert reply.output == GOOD
    assert plain.output is None
    assert json.dumps(SCHEMA["required"]) in json.dumps(far.requests[0])
    assert len(far.requests) == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_that_does_not_match_is_asked_for_once_more(wire: str) -> None:
    async with far_model(wire, '{"city": "Ulm"}', json.dumps(GOOD)) as far:
        session = await far.runtime.session(model="far")
        reply = await session.send("Which city?", options=OPTIONS)
        path = await session.path()
    assert reply.output == GOOD
    assert [message.role for message in path] == ["user", "assistant", "user", "assistant"]
    assert "'people' is a required property" in path[2].text
    assert "'people' is a required property" in far.texts(1)


async def test_an_answer_that_never_matches_is_an_error_and_stays_in_the_session() -> None:
    async with far_model("openai_chat", "no JSON at all") as far:
        session = await far.runtime.session(model="far")
        with pytest.raises(OutputInvalid, match="does not match"):
            await session.send("Which city?", options=OPTIONS)
        path = await session.path()
        async with session.stream("again", options=OPTIONS) as events:
            codes = [event.code async for event in events if isinstance(event, NoticeRaised)]
    assert [message.role for message in path] == ["user", "assistant", "user", "assistant"]
    assert codes == ["output.repair", "output.invalid"]
    assert len(far.requests) == 4


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"```json\n{json.dumps(GOOD, indent=2)}\n```",
        f"Here it is:\n```\n{json.dumps(GOOD)}\n```\nDone.",
        f"The answer is {json.dumps(GOOD)}.",
    ],
)
async def test_the_value_is_found_in_what_models_put_around_it(text: str) -> None:
    assert (await parse_output(text, OutputSchema(schema=SCHEMA))).value == GOOD


async def test_a_schema_with_a_url_is_not_valid_and_the_url_is_not_requested() -> None:
    async with far_side(lambda _: Reply(body=b'{"type": "string"}', content_type="application/json")) as server:
        schema = OutputSchema(schema={"$ref": f"{server.url}/schema.json"}, name="remote")
        found = await parse_output('"text"', schema)
    assert found.fault.startswith("the schema is not valid")
    assert server.requests == []


# Schemas that no answer can be checked against -----------------------------------------------------------------------

INVALID_SCHEMAS: dict[str, dict[str, Any]] = {
    "an unknown type": {"type": 7},
    "a pattern that is no regular expression": {"type": "string", "pattern": "("},
    "nesting without end": functools.reduce(lambda inner, _: {"not": inner}, range(3000), dict[str, Any]()),
}


@pytest.mark.parametrize("name", INVALID_SCHEMAS)
async def test_an_invalid_schema_is_refused_before_anything_is_asked(name: str) -> None:
    options = {"output_schema": {"schema": INVALID_SCHEMAS[name]}}
    async with far_model("openai_chat", "1") as far:
        session = await far.runtime.session(model="far")
        for send in (session.send, session.post):
            with pytest.raises(ContentError, match="schema"):
                await send("Which city?", options=options)
        assert await session.path() == ()
        assert await session.queue() == ()
    assert far.requests == []


async def test_a_schema_that_refers_to_itself_without_end_is_a_fault_that_the_model_is_not_asked_to_correct() -> None:
    async with far_model("openai_chat", "1") as far:
        session = await far.runtime.session(model="far")
        with pytest.raises(OutputInvalid, match="refers to itself"):
            await session.send("Which city?", options={"output_schema": {"schema": {"$ref": "#"}}})
        assert [message.text for message in await session.path()] == ["Which city?", "1"]
    assert len(far.requests) == 1


async def test_a_check_that_would_take_hours_ends_and_delays_nothing_else() -> None:
    endless = {"type": "string", "pattern": "^(a+)+$"}
    async with far_model("openai_chat", json.dumps("a" * 60 + "!")) as far:
        session = await far.runtime.session(model="far")
        turn = asyncio.create_task(session.send("Which city?", options={"output_schema": {"schema": endless}}))
        ticks = 0
        while not turn.done():
            await asyncio.sleep(0.01)
            ticks += 1
        with pytest.raises(OutputInvalid, match="longer than"):
            await turn
    assert ticks > 20
    assert len(far.requests) == 1


# A type instead of a schema ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Item:
    name: str
    price: float


@dataclasses.dataclass
class Bill:
    """A bill."""

    items: list[Item]
    total: float


class BillStruct(msgspec.Struct):
    items: list[dict[str, Any]]
    total: float


class BillDict(TypedDict):
    items: list[dict[str, Any]]
    total: float


def _pydantic_bill() -> Any:
    pydantic = pytest.importorskip("pydantic")
    return pydantic.create_model("BillModel", items=(list[dict[str, Any]], ...), total=(float, ...))


ANSWER = '{"items": [{"name": "tea", "price": 2.5}], "total": 2.5}'


@pytest.mark.parametrize("kind", ["dataclass", "struct", "typed_dict", "pydantic", "schema"])
async def test_a_type_is_the_schema_and_the_answer_a_value_of_it(kind: str) -> None:
    types: dict[str, Any] = {"dataclass": Bill, "struct": BillStruct, "typed_dict": BillDict}
    schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    output = _pydantic_bill() if kind == "pydantic" else types.get(kind, schema)
    async with far_model("openai_responses", ANSWER) as far:
        session = await far.runtime.session(model="far")
        reply = await session.send("read the bill", output=output)
        sent = far.requests[0]["text"]["format"]
        assert sent["type"] == "json_schema"
        assert sent["schema"]["type"] == "object"
        if kind in ("schema", "typed_dict"):
            assert reply.output["total"] == 2.5
        else:
            assert type(reply.output) is output
            assert reply.output.total == 2.5
        if kind == "dataclass":
            assert reply.output.items == [Item("tea", 2.5)]
        stream = session.stream("again", output=output)
        assert (await stream.finish()).output == reply.output


async def test_a_type_that_no_answer_can_have_is_refused_before_anything_is_asked() -> None:
    async with far_model("openai_responses", ANSWER) as far:
        session = await far.runtime.session(model="far")
        with pytest.raises(ContentError, match="cannot be used as an output type"):
            await session.send("read", output=complex)
        assert far.requests == []
