"""The three protocols of the gateway: how a body is read, which writer encodes the answer, the format of errors."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from loom.importers.request_body import RequestBody
from loom.wire.answer import AnswerHead, AnswerWriter, SignThinking
from loom.wire.answer_errors import AnswerFault, anthropic_error, openai_error
from loom.wire.anthropic_answer import MessagesWriter
from loom.wire.chat_answer import ChatWriter
from loom.wire.responses_answer import ResponsesWriter

PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
COMMENT: Final = b": waiting\n\n"
_NOT_SENT: Final = frozenset(("n", "background", "previous_response_id", "conversation"))
_ECHOED: Final = ("instructions", "metadata", "parallel_tool_calls", "previous_response_id", "temperature", "top_p")


GatewayProtocolName: TypeAlias = Literal["anthropic", "openai_chat", "openai_responses"]


class GatewayProtocol(msgspec.Struct, frozen=True, kw_only=True):
    name: GatewayProtocolName
    owner: str
    """The provider whose opaque data its clients keep unchanged."""
    signature: str
    """The field of that data that clients send back with thinking."""
    prefix: str
    """The prefix of answer ids."""
    keep_alive: bytes
    """What is sent while the model has not sent anything."""
    session_headers: tuple[str, ...]
    """Headers that contain the client's id of a conversation."""
    headers: tuple[str, ...]
    """Headers that are passed on to the protocol's own provider."""
    error: Callable[[AnswerFault], dict[str, Any]]

    def writer(self, body: RequestBody, raw: Mapping[str, Any], head: AnswerHead, sign: SignThinking) -> AnswerWriter:
        match self.name:
            case "anthropic":
                return MessagesWriter(head, sign)
            case "openai_chat":
                return ChatWriter(head, sign, includes_usage=body.includes_usage)
            case "openai_responses":
                echo = {name: raw[name] for name in _ECHOED if raw.get(name) is not None}
                return ResponsesWriter(head, sign, echo=echo)

    def head(self, body: RequestBody, model: str) -> AnswerHead:
        return AnswerHead(
            id=f"{self.prefix}{secrets.token_hex(12)}",
            model=body.model or model,
            created_at=int(time.time()),
            tools=body.foreign_tools,
        )


def own_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to pass on to the request's own provider, without those for several answers, background
    responses and conversations that the provider stores."""
    return {name: value for name, value in fields.items() if name not in _NOT_SENT}


ANTHROPIC: Final = GatewayProtocol(
    name="anthropic",
    owner="anthropic",
    signature="signature",
    prefix="msg_",
    keep_alive=PING,
    session_headers=("x-claude-code-session-id", "x-session-id"),
    headers=("anthropic-version", "anthropic-beta"),
    error=anthropic_error,
)
CHAT: Final = GatewayProtocol(
    name="openai_chat",
    owner="openai",
    signature="",
    prefix="chatcmpl-",
    keep_alive=COMMENT,
    session_headers=("x-session-id",),
    headers=("openai-beta",),
    error=openai_error,
)
RESPONSES: Final = GatewayProtocol(
    name="openai_responses",
    owner="openai",
    signature="encrypted_content",
    prefix="resp_",
    keep_alive=COMMENT,
    session_headers=("thread-id", "session-id", "x-session-id"),
    headers=("openai-beta",),
    error=openai_error,
)
