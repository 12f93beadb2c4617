"""Spans and metrics of turns by OpenTelemetry's conventions for generative AI.

    invoke_agent                 a turn
    ├─ upload_file               a file is uploaded to the provider
    ├─ chat MODEL                a request to the model, with its retries
    └─ execute_tool NAME         a call; the turns of sub-agents that it starts are below it

An answer of the gateway is a `chat` without a turn. All are made of the turn's events, as they are emitted; the SDK
exports them in a thread of its own.
"""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from time import time_ns
from types import TracebackType
from typing import Final, assert_never

import msgspec
from opentelemetry.context import attach, get_current
from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from loom.agent.turn_answer import CONTINUED
from loom.content.blocks import ToolCall, ToolResult
from loom.content.messages import Message
from loom.errors import LoomError, ToolError
from loom.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    Fold,
    MessageQueued,
    MessageStored,
    ModelEvent,
    NoticeRaised,
    StepFinished,
    StepStarted,
    Stopped,
    StopReason,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    UsageReported,
    is_model_event,
)
from loom.models import Model, Usage
from loom.prompt import MediaRef
from loom.runtime.span_content import content_json, messages_json, result_json

_PROVIDERS: Final = {
    "bedrock-anthropic": "aws.bedrock",
    "bedrock-converse": "aws.bedrock",
    "openai-responses": "openai",
    "openai-chat": "openai",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""The names of platforms in the conventions, where they differ from Loom's."""
_FINISH: Final[dict[StopReason, str]] = {
    "end": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "refusal": "content_filter",
}
"""Finish reasons of the conventions; the others are named as in Loom."""
_TOKEN_BOUNDS: Final = [float(4**power) for power in range(14)]
_SECOND_BOUNDS: Final = [0.01 * 2**power for power in range(14)]
_TURN_BOUNDS: Final = [0.1 * 2**power for power in range(13)]
_CUT_OFF: Final = "incomplete"
"""The error of an answer that ended before it was complete."""
_INTERRUPTED: Final = "turn.interrupted"
_OTHER: Final = "_OTHER"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_TURN_ID: Final = re.compile("(?!0{32})[0-9a-f]{32}")

_running: ContextVar[TurnSpans | None] = ContextVar("loom_turn_spans", default=None)
"""The turn that runs in this task, or that started it."""


class TurnIds(RandomIdGenerator):
    """Generates ids; the trace of a turn that has no parent gets the turn's own id, so that the process that continues
    it after a crash adds to the same trace."""

    def __init__(self) -> None:
        self.next_turn = ""

    def generate_trace_id(self) -> int:
        turn, self.next_turn = self.next_turn, ""
        return int(turn, 16) if _TURN_ID.fullmatch(turn) else super().generate_trace_id()


class Instruments:
    """The metrics."""

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, text: str, bounds: list[float]) -> Histogram:
            return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=bounds)

        self.tokens: Final[Histogram] = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKEN_BOUNDS,
        )
        self.requests: Final = seconds(
            "gen_ai.client.operation.duration", "Duration of a request to a model.", _SECOND_BOUNDS
        )
        self.first_chunk: Final = seconds(
            "gen_ai.client.operation.time_to_first_chunk",
            "Time until the first part of an answer.",
            _SECOND_BOUNDS,
        )
        self.turns: Final = seconds("gen_ai.invoke_agent.duration", "Duration of a turn.", _TURN_BOUNDS)
        self.tools: Final = seconds("gen_ai.execute_tool.duration", "Duration of a tool call.", _SECOND_BOUNDS)
        self.retries: Final[Counter] = meter.create_counter(
            "loom.request.retries", "{request}", "Requests to models that were sent again."
        )
        self.continued: Final[Counter] = meter.create_counter(
            "loom.turn.continued", "{turn}", "Turns that were continued after a restart."
        )


class SpanObservers:
    """Creates the observers of turns. `records_content` adds messages, answers, arguments and results."""

    def __init__(self, tracer: Tracer, meter: Meter, ids: TurnIds, *, records_content: bool) -> None:
        self.tracer: Final = tracer
        self.instruments: Final = Instruments(meter)
        self.ids: Final = ids
        self.records_content: Final = records_content

    def observe_turn(self, session_id: str = "", *, agent: str = "", secrets: Collection[str] = ()) -> TurnSpans:
        """Return the observer of a turn below the current span."""
        return TurnSpans(self, session_id, agent, secrets)

    @contextmanager
    def observe_upload(self, model: Model, media: MediaRef) -> Generator[None]:
        turn = _running.get()
        span = self.tracer.start_span(
            "upload_file",
            turn.context if turn is not None else None,
            SpanKind.CLIENT,
            {
                "gen_ai.operation.name": "upload_file",
                "gen_ai.provider.name": provider_name(model.provider),
                "loom.media.type": media.media_type,
                "loom.media.size": media.size_bytes,
                "loom.media.digest": media.digest,
            },
        )
        try:
            yield
        except BaseException as error:
            _mark_failed(span, error_type(error))
            raise
        finally:
            span.end()


class _RequestSpan:
    """The `chat` span of a request to a model."""

    def __init__(self, span: Span, facts: dict[str, str], started: int, fold: Fold | None) -> None:
        self.span = span
        self.facts = facts
        self.started = self.last = started
        self.first = 0
        self.usage: Usage | None = None
        self.stop: StopReason | None = None
        self.answered_by: dict[str, str] = {}
        self.fold = fold
        self.error = ""
        """The error after which it is sent again."""

    def add(self, event: ModelEvent, now: int) -> None:
        if not self.first:
            self.first, self.error = now, ""
        self.last = now
        if self.fold is not None:
            self.fold.add(event)
        if isinstance(event, UsageReported):
            self.usage = event.usage
        elif isinstance(event, Stopped):
            self.stop = event.reason
            self.answered_by = {
                key: value
                for key, value in (("gen_ai.response.model", event.model), ("gen_ai.response.id", event.response_id))
                if value
            }


class _CallSpan(msgspec.Struct):
    """The `execute_tool` span of a call."""

    span: Span
    name: str
    started: int


class TurnSpans:
    """The spans of one turn, or of one answer of the gateway."""

    def __init__(self, observers: SpanObservers, session_id: str, agent: str, secrets: Collection[str]) -> None:
        self._observers = observers
        self._metrics = observers.instruments
        self._session_id = session_id
        self._agent = {"gen_ai.agent.name": agent} if agent else {}
        self._secrets = secrets
        self._started = time_ns()
        self.context = get_current()
        """The context of the turn's span, once it has one."""
        self._turn: Span | None = None
        self._left_turn = ""
        """The turn that another process left. Its span starts with its first event: it may be over already."""
        self._request: _RequestSpan | None = None
        self._calls: dict[str, _CallSpan] = {}
        self._approvals: dict[str, str] = {}
        """The calls of pending approvals."""
        self._questions: list[Message] = []
        """The user's messages of this turn, if content is recorded."""
        self._new: list[Message] = []
        """The messages since the last answer, if content is recorded."""
        self._answer: Message | None = None
        self._token: Token[TurnSpans | None] | None = None

    def __enter__(self) -> TurnSpans:
        self._token = _running.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what no event has ended: a turn that is left to another process, an answer of the gateway."""
        if self._token is not None:
            _running.reset(self._token)
        code = "" if error is None or isinstance(error, CancelledError) else error_type(error)
        if self._turn is not None:
            self._turn.set_attribute("loom.turn.interrupted", not code)
            self._end_open(code or _INTERRUPTED)
            self._end_turn(code)
        elif self._request is not None:
            self._end_request(code or ("" if self._request.stop is not None else _CUT_OFF))

    def set_session(self, session_id: str) -> None:
        self._session_id = session_id

    def set_parent(self, traceparent: str) -> None:
        if traceparent:
            self.context = _PROPAGATOR.extract({"traceparent": traceparent})

    def take_up(self, turn: str) -> None:
        self._left_turn = turn

    def observe(self, event: Event) -> None:
        now = time_ns()
        if is_model_event(event):
            if self._request is not None:
                self._request.add(event, now)
            return
        if self._left_turn:
            turn, self._left_turn = self._left_turn, ""
            self._start_turn(turn, is_continued=True)
        match event:
            case MessageStored(message=message):
                self._keep(message)
            case TurnStarted() | TurnFinished() | TurnFailed():
                self._observe_turn(event)
            case StepStarted():
                if (refused := self._request) is not None:  # it is sent again with changes
                    self._end_request(refused.error or _OTHER, refused.last)
                self._start_request(event, now)
            case StepFinished():
                self._end_request()
            case ToolStarted() | ToolFinished() | ApprovalRequested() | ApprovalAnswered():
                self._observe_call(event, now)
            case NoticeRaised(code=code):
                self._note(code, now)
            case ToolProgressed() | MessageQueued():
                pass
            case _:
                assert_never(event)

    # Turns -----------------------------------------------------------------------------------------------------------

    def _observe_turn(self, event: TurnStarted | TurnFinished | TurnFailed) -> None:
        match event:
            case TurnStarted():
                self._start_turn(event.turn)
            case TurnFinished():
                self._end_turn(usage=event.usage, stop=event.stop)
            case TurnFailed():
                if self._turn is None:  # it could not start
                    self._start_turn(event.turn)
                self._end_turn(event.code)
            case _:
                assert_never(event)

    def _start_turn(self, turn: str, *, is_continued: bool = False) -> None:
        ids = self._observers.ids
        # The id generator is asked for a trace only if there is no parent.
        ids.next_turn = "" if get_current_span(self.context).get_span_context().is_valid else turn
        self._turn = self._observers.tracer.start_span(
            " ".join(["invoke_agent", *self._agent.values()]),
            self.context,
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "invoke_agent",
                **self._agent,
                "loom.turn.id": turn,
                **({"loom.turn.continued": True} if is_continued else {}),
            },
            start_time=self._started,
        )
        self.context = set_span_in_context(self._turn, self.context)

    def _end_turn(self, error: str = "", *, usage: Usage | None = None, stop: StopReason | None = None) -> None:
        if self._turn is None:
            return
        self._end_open(error)
        now = time_ns()
        span, self._turn = self._turn, None
        self._describe(span, usage, stop, self._questions, self._answer)
        if error:
            _mark_failed(span, error)
        span.end(now)
        self._metrics.turns.record((now - self._started) / 1e9, {**self._agent, **_error(error)})

    def _end_open(self, error: str) -> None:
        """End the request and the calls that no event has ended."""
        self._end_request(error)
        for call_id in list(self._calls):
            self._end_call(call_id, time_ns(), error or _OTHER, None)

    # Requests --------------------------------------------------------------------------------------------------------

    def _start_request(self, event: StepStarted, now: int) -> None:
        platform, _, name = event.model.partition("/")
        facts = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_name(platform),
            "gen_ai.request.model": name,
        }
        if self._turn is not None:
            self._turn.set_attributes({key: facts[key] for key in ("gen_ai.provider.name", "gen_ai.request.model")})
        span = self._observers.tracer.start_span(
            f"chat {name}",
            self.context,
            SpanKind.CLIENT,
            {**facts, "gen_ai.request.stream": True, "loom.step": event.step},
            start_time=now,
        )
        self._request = _RequestSpan(span, facts, now, Fold() if self._observers.records_content else None)

    def _end_request(self, error: str = "", ended: int = 0) -> None:
        """End the request at `ended`, by default at its last event, or now if it had none."""
        request, self._request = self._request, None
        if request is None:
            return
        ended = ended or (request.last if request.first else time_ns())
        answer = request.fold.result().message if request.fold is not None else None
        self._describe(request.span, request.usage, request.stop, self._new, answer)
        request.span.set_attributes(request.answered_by)
        self._new = []
        self._answer = answer or self._answer
        if error:
            _mark_failed(request.span, error)
        if request.first:
            seconds = (request.first - request.started) / 1e9
            request.span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
            self._metrics.first_chunk.record(seconds, request.facts)
        request.span.end(ended)
        self._metrics.requests.record((ended - request.started) / 1e9, {**request.facts, **_error(error)})
        if request.usage is not None:
            for kind, tokens in (("input", request.usage.input_tokens), ("output", request.usage.output_tokens)):
                self._metrics.tokens.record(tokens, {**request.facts, "gen_ai.token.type": kind})

    def _note(self, code: str, now: int) -> None:
        """Note a retry: a notice about a request that has no answer yet, or whose answer was cut off."""
        request = self._request
        if request is None:
            if code == CONTINUED:
                self._metrics.continued.add(1, self._agent)
        elif code == CONTINUED:
            self._metrics.retries.add(1, {**request.facts, **_error(_CUT_OFF)})
            self._end_request(_CUT_OFF)
        elif not request.first and code.startswith(("provider", "store")):
            request.error, request.last = code, now
            request.span.add_event("retry", _error(code), now)
            self._metrics.retries.add(1, {**request.facts, **_error(code)})

    # Calls -----------------------------------------------------------------------------------------------------------

    def _observe_call(self, event: ToolStarted | ToolFinished | ApprovalRequested | ApprovalAnswered, now: int) -> None:
        match event:
            case ToolStarted(call=call):
                self._start_call(call, now)
            case ToolFinished(result=result):
                self._end_call(result.call_id, now, ToolError.code if result.is_error else "", result)
            case ApprovalRequested():
                self._approvals[event.approval] = event.call.id
                self._note_approval(event.approval, "approval.requested", {})
            case ApprovalAnswered():
                self._note_approval(event.approval, "approval.answered", {"loom.approval.answer": event.answer})
                self._approvals.pop(event.approval, None)
            case _:
                assert_never(event)

    def _start_call(self, call: ToolCall, now: int) -> None:
        span = self._observers.tracer.start_span(
            f"execute_tool {call.name}",
            self.context,
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.name,
                "gen_ai.tool.call.id": call.id,
                "gen_ai.tool.type": "function",
            },
            start_time=now,
        )
        if self._observers.records_content:
            span.set_attribute("gen_ai.tool.call.arguments", content_json(call.arguments, self._secrets))
        self._calls[call.id] = _CallSpan(span, call.name, now)
        # A call has a task of its own, and this runs in it: what the tool starts is below its span. The task ends with
        # the call, so there is nothing to detach.
        attach(set_span_in_context(span))

    def _end_call(self, call_id: str, now: int, error: str, result: ToolResult | None) -> None:
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        if self._session_id:
            call.span.set_attribute("gen_ai.conversation.id", self._session_id)
        if error:
            _mark_failed(call.span, error)
        if self._observers.records_content and result is not None:
            call.span.set_attribute("gen_ai.tool.call.result", result_json(result, self._secrets))
        call.span.end(now)
        facts = {"gen_ai.tool.name": call.name, "gen_ai.tool.type": "function", **self._agent, **_error(error)}
        self._metrics.tools.record((now - call.started) / 1e9, facts)

    def _note_approval(self, approval: str, name: str, facts: dict[str, str]) -> None:
        call = self._calls.get(self._approvals.get(approval, ""))
        if call is not None:
            call.span.add_event(name, facts)

    # Attributes ------------------------------------------------------------------------------------------------------

    def _keep(self, message: Message) -> None:
        if not self._observers.records_content:
            return
        if message.role == "user":
            self._questions.append(message)
        if message.role != "assistant":
            self._new.append(message)

    def _describe(
        self, span: Span, usage: Usage | None, stop: StopReason | None, asked: list[Message], answer: Message | None
    ) -> None:
        if self._session_id:
            span.set_attribute("gen_ai.conversation.id", self._session_id)
        if usage is not None:
            span.set_attributes(usage_attributes(usage))
        finish = "" if stop is None else _FINISH.get(stop, stop)
        if finish:
            span.set_attribute("gen_ai.response.finish_reasons", [finish])
        if self._observers.records_content:
            if asked:
                span.set_attribute("gen_ai.input.messages", messages_json(asked, self._secrets))
            if answer is not None:
                span.set_attribute("gen_ai.output.messages", messages_json([answer], self._secrets, finish=finish))


def provider_name(platform: str) -> str:
    return _PROVIDERS.get(platform, platform)


def error_type(error: BaseException) -> str:
    return error.code if isinstance(error, LoomError) else type(error).__name__


def usage_attributes(usage: Usage) -> dict[str, int]:
    """Return the tokens of an answer; the parts of a total only if there are any."""
    parts = {
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.thinking_tokens,
    }
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        **{name: tokens for name, tokens in parts.items() if tokens},
    }


def _mark_failed(span: Span, code: str) -> None:
    """Mark a span as failed. Messages of errors are left out: providers quote the request in them."""
    span.set_attribute("error.type", code)
    span.set_status(StatusCode.ERROR, code)


def _error(code: str) -> dict[str, str]:
    return {"error.type": code} if code else {}
