"""The reference of events (AsyncAPI 3.0), generated from the types that the daemon sends, so that it cannot differ from
them."""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

import msgspec

from loom.api_types import OLDER_NAME, ProblemText
from loom.content.blocks import ImageBlock, ToolResult
from loom.daemon.envelopes import TOOL_CALL, EventImage
from loom.daemon.session_list import ListedSession
from loom.daemon.sockets import NAMESPACE, Join
from loom.events import Event, ImageAdded, MessageStored, StepFinished, ToolFinished

_REFS: Final = "#/components/schemas/{name}"
_SUMMARY: Final = {
    "text": "A piece of the answer. Pieces that follow each other are joined; `seq` is that of the last.",
    "thinking": "A piece of the model's reasoning, joined in the same way.",
    "call": "A piece of the JSON text of a call's arguments, joined in the same way.",
    "image": "The model generated an image.",
    "message_stored": "A message is on disk as this node.",
    "turn_finished": "The turn is over.",
    "turn_failed": "The turn failed or was stopped; its partial text is kept.",
}


class ImageShown(EventImage, frozen=True, kw_only=True, tag_field="type", tag="image"):
    index: int
    image: ImageBlock


class NodeStored(MessageStored, frozen=True, kw_only=True, tag="message_stored"):
    parent: str | None


class StepPriced(StepFinished, frozen=True, kw_only=True, tag="step_finished"):
    usd: float | None
    """Null if the price is not known."""


class ToolCallEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=TOOL_CALL):
    """A tool has run. If its result contains images, the fields of the first one are repeated here."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    result: ToolResult
    seconds: float
    is_error: bool
    images: tuple[EventImage, ...]
    image_id: str = ""
    url: str = ""
    media_type: str = ""
    mime: Annotated[str, OLDER_NAME] = ""
    width: int | None = None
    height: int | None = None
    alt: str = ""
    source: str = ""
    preview: str = ""


class WatchFailed(ProblemText, frozen=True, kw_only=True):
    """The watch has failed. `slow_client`: join again with this `after`."""

    session: str = ""
    after: int = 0


class Joined(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply to `join`. `seq` is the number of the session's last event."""

    ok: bool
    seq: int = 0
    error: ProblemText | None = None


def asyncapi_document(version: str = "") -> dict[str, Any]:
    """Return the document that is served as `/asyncapi.json`."""
    sent = _data_schemas()
    kinds = [*sent.values(), ListedSession, WatchFailed, Join, Joined]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFS)
    data: dict[str, dict[str, Any]] = dict(zip(sent, schemas, strict=False))
    envelopes = {name: _message(name, _envelope(name, schema)) for name, schema in data.items()}
    others = {
        "session": _message("session", _ref("ListedSession"), "An entry of the session list changed."),
        "error": _message("error", _ref("WatchFailed"), "Why the stream ended."),
        "join": _message("join", _ref("Join"), "Watch a session, or the list of sessions. Acknowledged with `Joined`."),
        "leave": _message("leave", _ref("Join"), "Stop watching it."),
    }
    socket = [*envelopes, "session", "error", "join", "leave"]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Loom events",
            "version": version or "1",
            "description": "Events of a session have growing numbers. Pieces of a text that follow each other may be"
            " sent as one, with the number of the last: numbers may be skipped, text is never lost. A client that"
            " reconnects sends the last number that it received. Fields that are left out have their default.",
        },
        "channels": {
            "socket": {
                "address": NAMESPACE,
                "description": "A Socket.IO namespace. The event's name is the message's.",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in socket},
            },
            "stream": {
                "address": "/v1/sessions/{session}/events?after={seq}",
                "description": "Server-sent events: `id` is the number, `data` the envelope; `Last-Event-ID` works.",
                "parameters": {"session": {"description": "Its id."}, "seq": {"description": "The last number seen."}},
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in envelopes},
            },
        },
        "operations": {
            "watch": _operation("send", "socket", [*envelopes, "session", "error"]),
            "ask": _operation("receive", "socket", ["join", "leave"]),
            "read": _operation("send", "stream", list(envelopes)),
        },
        "components": {"schemas": components, "messages": {**envelopes, **others}},
    }


def _data_schemas() -> dict[str, Any]:
    """Return the schema of `data` by the type of the envelope."""
    richer: dict[Any, Any] = {
        ImageAdded: ImageShown,
        MessageStored: NodeStored,
        StepFinished: StepPriced,
        ToolFinished: ToolCallEvent,
    }
    kinds = [richer.get(kind, kind) for kind in get_args(Event)]
    return {str(kind.__struct_config__.tag): kind for kind in kinds}


def _envelope(name: str, data: dict[str, Any]) -> dict[str, Any]:
    fields = {"seq": {"type": "integer", "minimum": 1}, "type": {"const": name}, "session": {"type": "string"}}
    return {"type": "object", "properties": {**fields, "data": data}, "required": [*fields, "data"]}


def _message(name: str, payload: dict[str, Any], summary: str = "") -> dict[str, Any]:
    found = summary or _SUMMARY.get(name, "")
    return {"name": name, **({"summary": found} if found else {}), "payload": payload}


def _operation(action: str, channel: str, names: list[str]) -> dict[str, Any]:
    messages = [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in names]
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "messages": messages}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REFS.format(name=name)}
