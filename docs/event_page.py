"""`docs/events.md`: names, tags, fields, types and defaults are read from `loom.events`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec

from loom import events
from loom.events import Envelope, Event, ModelEvent

_INTRODUCTION: Final = """\
# Events

What a session tells while a turn runs, in the order in which it happens. `session.stream()` gives them; the store keeps
them under numbers that count within the session, so that a face which was away can read on from the last one it saw.
(`loom ask --output-format stream-json` uses a shorter list with the [names that scripts know](cli.md).)

No event carries bytes. An image is a reference (`digest`, type, size), and its bytes are in the media store before the
event is told.

As JSON an event is an object whose `type` is the tag given below; fields that have their default are left out.
`loom.events.encode_event` and `decode_event` translate, and any event that was written comes back equal.

A turn goes like this:

```text
message_stored                                   what the user said is on disk
turn_started
  step_started                                   a request leaves
    thinking · text · cited · call_started …     the model speaks; deltas carry the index of their block
    usage · stopped                              its last word; without `stopped` the answer is incomplete
  message_stored                                 what was streamed is on disk
  step_finished
  tool_started
    approval_requested · approval_answered       where the call needs the user's word
    tool_progressed · tool_finished
  message_stored                                 the results, together
  step_started …                                 until the model calls nothing more
turn_finished  or  turn_failed
```

This page is made by `make docs`.
"""

_MEANING: Final = {
    "TextDelta": "The next words of the text block at `index`.",
    "Cited": "The text block at `index` cites a place in a source.",
    "ThinkingDelta": "The next words of the reasoning at `index`.",
    "CallStarted": "The model begins to write a tool call.",
    "ImageAdded": "An image that the model made; the store already holds it.",
    "BlockAdded": "A block of the provider's own kind: a call of a tool that it runs itself, or its result.",
    "TurnStarted": "A turn begins, with this model.",
    "StepStarted": "One request of the turn is about to leave; `tokens` and `wire_bytes` are the receipt's totals.",
    "StepFinished": "The answer to that request is over.",
    "ToolStarted": "A tool begins to run.",
    "ToolProgressed": "A running tool tells how far it is; `fraction` is from 0 to 1 where it is known.",
    "ToolFinished": "A tool is done; `result` is what the model will be shown.",
    "ApprovalAnswered": "The question is answered. `always` holds for whatever matches the pattern of the request.",
    "MessageQueued": "Another turn is running: this message waits, with its media, until it is over.",
    "TurnFinished": "The model has said its last word; `node` is where the session stands now.",
}
"""For the events that say nothing of themselves."""

_FIELDS: Final = {
    "action": "what would be done",
    "answer": "the user's word",
    "approval": "the id with which the question is answered",
    "arguments": "the next piece of JSON text",
    "block": "the block as the provider sent it",
    "call": "the call, with its arguments",
    "call_id": "the id of the tool call",
    "citation": "source, place and the words that are cited",
    "code": "for programs; that of an [error](errors.md) or a word such as `door`, `receipt`",
    "detail": "the provider's own word for it",
    "event": "any of the events above",
    "fraction": "how much is done, from 0 to 1",
    "hint": "what to do next",
    "id": "the id of the tool call",
    "image": "the image, as a reference",
    "index": "which block of the message, from 0",
    "message": "its role and its blocks",
    "model": "`platform/name`",
    "name": "the name of the tool",
    "node": "the id of the stored message",
    "opaque": "data that goes back unchanged, and only to the model that made it",
    "pattern": "what `always` would allow from now on",
    "reason": "why",
    "redacted": "whether the provider keeps the words to itself",
    "result": "blocks for the model, `data` for interfaces, and whether it is an error",
    "seconds": "how long it took",
    "seq": "counts within the session",
    "session": "the id of the session",
    "steers": "whether the running turn reads it at its next step",
    "step": "which request of the turn, from 1",
    "stop": "why the model stopped",
    "text": "words for a person",
    "tokens": "of the whole request, as estimated",
    "turn": "the id of the turn",
    "usage": "tokens, as the provider counts them",
    "wire_bytes": "of the whole request, as encoded",
}
"""What a field means wherever it stands; what a class says of its own field comes first."""


def page() -> str:
    spoken = get_args(ModelEvent)
    seen = [found for found in get_args(Event) if found not in spoken]
    lines = [_INTRODUCTION, "## What a model says", "", *map(_section, spoken)]
    lines += ["## What happens around it", "", *map(_section, seen)]
    lines += ["## In the store", "", _section(Envelope)]
    lines += ["## Why a model stopped", "", _stops(), ""]
    return "\n".join(lines)


def event_classes() -> list[type[msgspec.Struct]]:
    return list(get_args(Event))


def _section(event: type[msgspec.Struct]) -> str:
    tag = event.__struct_config__.tag
    heading = [f"### {event.__name__}", "", *([f"`{tag}`", ""] if tag else []), _meaning(event), ""]
    rows = ["| field | type | default | meaning |", "|---|---|---|---|", *_rows(event)]
    return "\n".join([*heading, *rows, ""])


def _meaning(event: type[msgspec.Struct]) -> str:
    own_words = vars(event).get("__doc__")
    return " ".join(inspect.cleandoc(own_words).split()) if own_words else _MEANING[event.__name__]


def _rows(event: type[msgspec.Struct]) -> Iterator[str]:
    told = dict(_field_docs(event))
    for field, annotation in zip(msgspec.structs.fields(event), _annotations(event), strict=True):
        default = "*always there*" if field.required else f"`{msgspec.json.encode(field.default).decode()}`"
        takes = f"`{annotation}`".replace("|", "\\|")
        yield f"| `{field.name}` | {takes} | {default} | {told.get(field.name) or _FIELDS[field.name]} |"


def _annotations(event: type[msgspec.Struct]) -> list[str]:
    """As they are written in the class, which is shorter than what they stand for."""
    return [str(event.__annotations__[name]) for name in event.__struct_fields__]


def _field_docs(event: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """The texts that stand below single fields."""
    (definition,) = ast.parse(inspect.getsource(event)).body
    assert isinstance(definition, ast.ClassDef)
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            yield ast.unparse(field.target), " ".join(str(below.value.value).split()).rstrip(".")


def _stops() -> str:
    reasons: tuple[Any, ...] = get_args(events.StopReason)
    return " · ".join(f"`{reason}`" for reason in reasons)
