"""OpenTelemetry spans and metrics of turns, as a real collector receives them from the real exporters."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from daemon.gateways import gateway
from daemon.running import TOKEN, serving, until
from flow.far_models import far_model, half, settings, speak
from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.errors import ExtraMissing, LoomError, MediaRefused, Overloaded, Refused
from loom.events import Event, TurnStarted
from loom.runtime import Runtime
from loom.testing import ScriptedAnswer, ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import Tool, tool
from providers.far_side import Reply, Request, far_side, refusal
from runtime.otlp_receiver import ReceivedSpan, Receiver, receiving

MODEL = "anthropic/claude-opus-5"
SECRET = "sk-ant-0123456789abcdef"


@tool
def look_up(word: str) -> str:
    """Look something up."""
    return f"{word}: found, with {SECRET}"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with receiving() as found:
        yield found


def telemetry(collector: Receiver, **more: Any) -> dict[str, Any]:
    return {"telemetry": {"endpoint": collector.url, **more}, "keys": {"anthropic": SECRET}}


@asynccontextmanager
async def scripted(
    collector: Receiver, *answers: ScriptedAnswer, tools: Sequence[Tool | str] = (), more: Any = None, **own: Any
) -> AsyncGenerator[Runtime]:
    given = {**telemetry(collector, **own), **(more or {})}
    async with memory_runtime(given, providers={"anthropic": ScriptedProvider(answers)}, tools=tools) as runtime:
        yield runtime


def only(spans: list[ReceivedSpan]) -> ReceivedSpan:
    (span,) = spans
    return span


# Spans ---------------------------------------------------------------------------------------------------------------


async def test_a_turn_is_a_tree_of_its_requests_and_calls(collector: Receiver) -> None:
    call = ToolCall("call-1", "look_up", {"word": "loom"})
    async with far_model("anthropic", call, "It is found.", more=telemetry(collector), tools=[look_up]) as far:
        session = await far.runtime.session(model="far")
        reply = await session.send("what is a loom?")
    turn = only(collector.named("invoke_agent"))
    assert (turn.parent, turn.is_error, turn.resource["service.name"]) == ("", False, "loom")
    assert [span.name for span in collector.below(turn)] == [
        "chat claude-opus-5",
        "execute_tool look_up",
        "chat claude-opus-5",
    ]
    assert len(collector.spans) == 4
    asked, called, answered = collector.below(turn)
    for request in (asked, answered):
        assert {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "claude-opus-5",
            "gen_ai.response.model": "claude-opus-5-20261101",
            "gen_ai.response.id": "m",
            "gen_ai.conversation.id": session.id,
            "gen_ai.usage.input_tokens": 9,
            "gen_ai.usage.output_tokens": 5,
        }.items() <= request.attributes.items()
        assert 0 <= request.attributes["gen_ai.response.time_to_first_chunk"] <= request.seconds
    assert [span.attributes["gen_ai.response.finish_reasons"] for span in (asked, answered)] == [
        ["tool_calls"],
        ["stop"],
    ]
    assert {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.call.id": "call-1",
    }.items() <= called.attributes.items()
    assert {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-opus-5",
        "gen_ai.conversation.id": session.id,
        "gen_ai.usage.input_tokens": reply.usage.input_tokens,
        "gen_ai.usage.output_tokens": reply.usage.output_tokens,
    }.items() <= turn.attributes.items()
    assert turn.seconds >= asked.seconds + called.seconds + answered.seconds


async def test_the_trace_of_a_turn_has_the_id_of_the_turn(collector: Receiver) -> None:
    events: list[Event] = []
    async with scripted(collector, "Hello.") as runtime:
        session = await runtime.session(model=MODEL)
        events += [event async for event in session.stream("hi")]
    (started,) = [event.turn for event in events if isinstance(event, TurnStarted)]
    turn = only(collector.named("invoke_agent"))
    assert turn.trace == turn.attributes["loom.turn.id"] == started


async def test_a_refused_turn_and_its_request_are_errors(collector: Receiver) -> None:
    async with far_model("anthropic", refusal(401, {"error": "no"}), more=telemetry(collector)) as far:
        session = await far.runtime.session(model="far")
        with pytest.raises(LoomError):
            await session.send("hello")
    turn = only(collector.named("invoke_agent"))
    request = only(collector.below(turn))
    assert turn.is_error and request.is_error
    assert turn.attributes["error.type"] == request.attributes["error.type"] == "provider.not_authorised"
    ((facts, _),) = collector.points("gen_ai.client.operation.duration")
    assert facts["error.type"] == "provider.not_authorised"


async def test_a_request_that_is_changed_and_sent_again_is_a_span_of_its_own(collector: Receiver) -> None:
    refused = MediaRefused("claude-opus-5: cannot process the image", status=400)
    async with scripted(collector, refused, "A picture, I am told.") as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("what is this?", sample_png())
    turn = only(collector.named("invoke_agent"))
    first, second = collector.below(turn)
    assert (first.is_error, first.attributes["error.type"]) == (True, "provider.media_refused")
    assert (second.is_error, turn.is_error) == (False, False)
    ((facts, count),) = collector.points("loom.request.retries")
    assert (facts["error.type"], count) == ("provider.media_refused", 1)


async def test_an_answer_that_is_cut_off_is_an_error_and_its_continuation_another_span(collector: Receiver) -> None:
    answers = [half("anthropic", "It is "), "a loom."]
    async with far_model("anthropic", *answers, more=telemetry(collector)) as far:
        session = await far.runtime.session(model="far")
        await session.send("what is it?")
    first, second = collector.below(only(collector.named("invoke_agent")))
    assert (first.is_error, first.attributes["error.type"]) == (True, "incomplete")
    assert not second.is_error
    ((facts, count),) = collector.points("loom.request.retries")
    assert (facts["error.type"], count) == ("incomplete", 1)


async def test_a_retry_of_the_same_request_is_an_event_of_its_span(collector: Receiver) -> None:
    busy = refusal(529, {"error": {"type": "overloaded_error", "message": "busy"}}, **{"retry-after": "0"})
    async with far_model("anthropic", busy, "Hello.", more=telemetry(collector)) as far:
        session = await far.runtime.session(model="far")
        await session.send("hi")
    request = only(collector.named("chat"))
    assert not request.is_error
    assert request.events == [("retry", {"error.type": Overloaded.code})]
    ((facts, count),) = collector.points("loom.request.retries")
    assert (facts["error.type"], count) == (Overloaded.code, 1)


async def test_a_failed_call_is_an_error_and_its_approval_is_an_event(collector: Receiver) -> None:
    @tool(danger="ask")
    def wipe() -> str:
        """Delete everything."""
        return "wiped"

    async with scripted(collector, ToolCall("a", "wipe"), "As you like.", tools=[wipe]) as runtime:
        session = await runtime.session(model=MODEL)
        async for event in session.stream("wipe it"):
            if event.type == "approval_requested":
                await session.answer(event.approval, "deny")
    call = only(collector.named("execute_tool"))
    assert (call.is_error, call.attributes["error.type"]) == (True, "tool")
    assert call.events == [("approval.requested", {}), ("approval.answered", {"loom.approval.answer": "deny"})]
    assert not only(collector.named("invoke_agent")).is_error


async def test_the_turn_of_a_sub_agent_is_below_the_call_that_started_it(collector: Receiver) -> None:
    agents = {"agents": {"reader": {"system": "You read.", "tools": ["read_file"], "model": MODEL}}}
    hand_over = ToolCall("a", "ask_agent", {"tasks": ["read it"], "agent": "reader"})
    answers = [hand_over, "Read.", "It was read."]
    async with scripted(collector, *answers, tools=["ask_agent", "read_file"], more=agents) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("ask an agent")
    call = only(collector.named("execute_tool ask_agent"))
    below = only(collector.below(call))
    assert (below.name, below.attributes["gen_ai.agent.name"]) == ("invoke_agent reader", "reader")
    assert below.attributes["gen_ai.conversation.id"] != session.id
    assert [span.name for span in collector.below(below)] == ["chat claude-opus-5"]
    assert len({span.trace for span in collector.spans}) == 1


async def test_a_turn_that_another_process_continues_is_marked_and_stays_in_its_trace(
    collector: Receiver, tmp_path: Path
) -> None:
    begun, ends = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await ends.wait()
        return "waited"

    @asynccontextmanager
    async def process(*answers: ScriptedAnswer) -> AsyncGenerator[Runtime]:
        config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags=telemetry(collector))
        provider = ScriptedProvider(answers)
        async with Runtime.open(config, providers={"anthropic": provider}, tools=[wait]) as runtime:
            yield runtime

    async with process(ToolCall("a", "wait")) as one:
        session = await one.session(model=MODEL)
        await session.post("go")
        worker = await one.session(session.id)
        working = asyncio.create_task(_drain(worker.work()))
        await begun.wait()
        await worker.leave()
        await working
    async with process("Done.") as other:
        await _drain((await other.session(session.id)).work())
    left, continued = sorted(collector.named("invoke_agent"), key=lambda span: "loom.turn.continued" in span.attributes)
    assert (left.is_error, left.attributes["loom.turn.interrupted"]) == (False, True)
    assert (continued.is_error, continued.attributes["loom.turn.continued"]) == (False, True)
    assert left.trace == continued.trace == left.attributes["loom.turn.id"] == continued.attributes["loom.turn.id"]
    cut = next(span for span in collector.below(left) if span.name == "execute_tool wait")
    assert (cut.is_error, cut.attributes["error.type"]) == (True, "turn.interrupted")
    assert [count for _, count in collector.points("loom.turn.continued")] == [1]


async def _drain(events: Any) -> None:
    async for _ in events:
        pass


async def test_a_cancelled_turn_ends_all_of_its_spans(collector: Receiver) -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with scripted(collector, ToolCall("a", "wait"), tools=[wait]) as runtime:
        session = await runtime.session(model=MODEL)
        running = asyncio.create_task(_drain(session.stream("wait")))
        await begun.wait()
        await session.cancel()
        await running
    assert sorted(span.name for span in collector.spans) == ["chat claude-opus-5", "execute_tool wait", "invoke_agent"]
    for name in ("execute_tool", "invoke_agent"):
        assert only(collector.named(name)).attributes["error.type"] == "turn.cancelled"


async def test_an_upload_to_a_provider_is_a_span_of_the_turn(collector: Receiver) -> None:
    noise = _noise()
    uploads: list[Request] = []

    def answer(request: Request) -> Reply:
        if request.target == "/v1/files":
            uploads.append(request)
            return Reply(body=b'{"id": "file_1", "type": "file"}', content_type="application/json")
        if request.target.startswith("/v1/messages"):
            return speak("anthropic", "A map.")
        return refusal(404, {"error": "not found"})

    async with (
        far_side(answer) as server,
        memory_runtime({**telemetry(collector), **settings("anthropic", server.url)}) as runtime,
    ):
        session = await runtime.session(model="far")
        await session.send("what is this?", noise)
        await session.send("of what?")
    assert len(uploads) == 1
    upload = only(collector.named("upload_file"))
    first, second = collector.named("invoke_agent")
    assert (upload.parent, upload.trace, upload.is_error) == (second.id, second.trace, False)
    assert upload.attributes["gen_ai.provider.name"] == "anthropic"
    assert upload.attributes["loom.media.size"] > 1_000_000
    assert first.id != second.id


async def test_a_failed_upload_is_an_error_and_the_turn_is_not(collector: Receiver) -> None:
    def answer(request: Request) -> Reply:
        if request.target.startswith("/v1/messages"):
            return speak("anthropic", "A map.")
        return refusal(500 if request.target == "/v1/files" else 404, {"error": "no"})

    async with (
        far_side(answer) as server,
        memory_runtime({**telemetry(collector), **settings("anthropic", server.url)}) as runtime,
    ):
        session = await runtime.session(model="far")
        await session.send("what is this?", _noise())
        await session.send("of what?")
    assert only(collector.named("upload_file")).is_error
    assert not any(span.is_error for span in collector.named("invoke_agent"))


def _noise() -> bytes:
    """A picture of more than a megabyte."""
    import io

    from PIL import Image

    out = io.BytesIO()
    Image.frombytes("RGB", (700, 700), random.Random(7).randbytes(700 * 700 * 3)).save(out, "PNG")
    return out.getvalue()


# Metrics -------------------------------------------------------------------------------------------------------------


async def test_tokens_and_durations_are_counted(collector: Receiver) -> None:
    call = ToolCall("call-1", "look_up", {"word": "loom"})
    async with far_model("anthropic", call, "Found.", more=telemetry(collector), tools=[look_up]) as far:
        session = await far.runtime.session(model="far")
        reply = await session.send("what is a loom?")
    tokens = {facts["gen_ai.token.type"]: tokens for facts, tokens in collector.points("gen_ai.client.token.usage")}
    assert tokens == {"input": reply.usage.input_tokens, "output": reply.usage.output_tokens}
    turn = only(collector.named("invoke_agent"))
    requests, tools = collector.named("chat"), collector.named("execute_tool")
    for metric, spans in (
        ("gen_ai.client.operation.duration", requests),
        ("gen_ai.execute_tool.duration", tools),
        ("gen_ai.invoke_agent.duration", [turn]),
    ):
        ((_, seconds),) = collector.points(metric)
        assert seconds == pytest.approx(sum(span.seconds for span in spans))
    assert collector.points("loom.turn.continued") == []


# Content -------------------------------------------------------------------------------------------------------------


async def content_turn(collector: Receiver, **own: Any) -> None:
    answers = [ToolCall("a", "look_up", {"word": "parrot"}), f"The answer is cuckoo, says {SECRET}."]
    async with scripted(collector, *answers, tools=[look_up], **own) as runtime:
        session = await runtime.session(model=MODEL, system="You are an owl.")
        await session.send("the question is heron", sample_png())


def everything_sent(collector: Receiver) -> bytes:
    return b"".join(body for _, body in collector.bodies)


async def test_content_is_not_recorded_unless_the_user_asks(collector: Receiver) -> None:
    await content_turn(collector)
    assert len(collector.spans) == 4
    for word in (b"heron", b"parrot", b"cuckoo", b"owl", b"found", SECRET.encode()):
        assert word not in everything_sent(collector)


async def test_errors_do_not_quote_the_request_either(collector: Receiver) -> None:
    async with scripted(collector, Refused("cannot answer: the question is heron", status=400)) as runtime:
        session = await runtime.session(model=MODEL)
        with pytest.raises(LoomError):
            await session.send("the question is heron")
    assert only(collector.named("invoke_agent")).is_error
    assert b"heron" not in everything_sent(collector)


async def test_content_is_recorded_if_the_user_asks_with_secrets_masked_and_media_as_references(
    collector: Receiver,
) -> None:
    await content_turn(collector, content=True)
    turn = only(collector.named("invoke_agent"))
    (question,) = json.loads(turn.attributes["gen_ai.input.messages"])
    assert question["role"] == "user"
    text, image = question["parts"]
    assert text == {"type": "text", "content": "the question is heron"}
    assert (image["type"], image["modality"], image["mime_type"]) == ("uri", "image", "image/png")
    assert image["uri"].startswith("sha256:")
    (answer,) = json.loads(turn.attributes["gen_ai.output.messages"])
    assert (answer["role"], answer["finish_reason"]) == ("assistant", "stop")
    assert "cuckoo" in answer["parts"][0]["content"]
    asked, call, answered = collector.below(turn)
    assert json.loads(asked.attributes["gen_ai.input.messages"]) == [question]
    (called,) = json.loads(asked.attributes["gen_ai.output.messages"])
    assert called["parts"] == [{"type": "tool_call", "id": "a", "name": "look_up", "arguments": {"word": "parrot"}}]
    assert json.loads(call.attributes["gen_ai.tool.call.arguments"]) == {"word": "parrot"}
    assert "parrot: found" in call.attributes["gen_ai.tool.call.result"]
    (result,) = json.loads(answered.attributes["gen_ai.input.messages"])
    assert result["parts"][0]["type"] == "tool_call_response"
    assert json.loads(answered.attributes["gen_ai.output.messages"]) == [answer]
    assert SECRET.encode() not in everything_sent(collector)


# The collector -------------------------------------------------------------------------------------------------------


async def test_a_killed_collector_neither_fails_nor_ends_turns_and_is_logged_once(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "5")
    with receiving() as killed:
        runtime_of = scripted(killed, *[f"{number}" for number in range(4)])
        runtime = await runtime_of.__aenter__()
        session = await runtime.session(model=MODEL)
        assert (await session.send("before")).text == "0"
        await until(lambda: len(killed.spans) == 2)
    with caplog.at_level(logging.DEBUG):
        for number in range(1, 4):
            assert (await session.send("after")).text == f"{number}"
        await until(lambda: bool(_warnings(caplog)))
        await runtime_of.__aexit__(None, None, None)
    assert [text.partition("127")[0] for text in _warnings(caplog)] in (
        ["Telemetry (spans) cannot be sent to "],
        ["Telemetry (metrics) cannot be sent to "],
    )


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_collector_that_never_answers_delays_no_turn_and_closing_not_for_long(
    collector: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    collector.answers.clear()
    async with scripted(collector, "one", "two") as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("first")
        await until(collector.asked.is_set)
        assert (await session.send("second")).text == "two"
    assert not collector.answers.is_set(), "the collector has not answered anything, and all of it is over"
    assert len(_warnings(caplog)) == 1


async def test_a_refusal_of_the_collector_is_logged_once(collector: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    collector.status = 403
    async with scripted(collector, "one") as runtime:
        await (await runtime.session(model=MODEL)).send("first")
    (warning,) = _warnings(caplog)
    assert f"127.0.0.1:{collector.server_port}" in warning


# On and off ----------------------------------------------------------------------------------------------------------


async def test_the_variables_of_opentelemetry_switch_it_on_and_name_the_service(
    collector: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=loom",
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_METRICS_EXPORTER": "none",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    await _one_turn(tmp_path, variables)
    assert {span.resource["service.name"] for span in collector.spans} == {"mine"}
    assert {path for path, _ in collector.bodies} == {"/v1/traces"}
    assert collector.headers[0]["x-tenant"] == "loom"

    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    before = len(collector.bodies)
    await _one_turn(tmp_path, {**variables, "OTEL_SDK_DISABLED": "true"})
    assert len(collector.bodies) == before


async def test_the_setting_names_the_service_and_has_priority(
    collector: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "theirs")
    with receiving() as other:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", other.url)
        async with scripted(collector, "Hello.", service_name="ours") as runtime:
            await (await runtime.session(model=MODEL)).send("hi")
        assert other.bodies == []
    assert {span.resource["service.name"] for span in collector.spans} == {"ours"}


async def _one_turn(folder: Path, environ: dict[str, str]) -> None:
    config = load_config(cwd=folder, environ={"LOOM_HOME": str(folder), **environ})
    async with Runtime.open(config, providers={"anthropic": ScriptedProvider(["Hello."])}) as runtime:
        await (await runtime.session(model=MODEL)).send("hi")


_WITHOUT = """
import asyncio, sys
from pathlib import Path
if sys.argv[2] == "missing":
    sys.modules["opentelemetry"] = None
from loom.config import load_config
from loom.errors import LoomError
from loom.runtime import Runtime
from loom.testing import ScriptedProvider

async def main():
    folder = Path(sys.argv[1])
    config = load_config(cwd=folder, environ={"LOOM_HOME": str(folder), **dict(x.split("=", 1) for x in sys.argv[3:])})
    async with Runtime.open(config, providers={"anthropic": ScriptedProvider(["Hello."])}) as runtime:
        print((await (await runtime.session(model="anthropic/claude-opus-5")).send("hi")).text)
try:
    asyncio.run(main())
except LoomError as error:
    print(error)
print(any(name.partition(".")[0] == "opentelemetry" and sys.modules[name] for name in sys.modules))
"""


def _separately(folder: Path, *arguments: str) -> tuple[list[str], str]:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, str(folder), *arguments], capture_output=True, check=True, text=True
    )
    return done.stdout.splitlines(), done.stderr


def test_nothing_is_imported_while_it_is_off(tmp_path: Path) -> None:
    assert _separately(tmp_path, "installed") == (["Hello.", "False"], "")


def test_without_the_extra_the_setting_says_what_to_install(tmp_path: Path) -> None:
    lines, _ = _separately(tmp_path, "missing", "LOOM_TELEMETRY__ENDPOINT=http://127.0.0.1:9")
    assert lines[0] == (
        "Telemetry is configured, but OpenTelemetry is not installed. Run: pip install 'loom-runtime[otel]'"
    )
    assert issubclass(ExtraMissing, LoomError)


def test_without_the_extra_the_variables_of_other_programs_fail_nothing(tmp_path: Path) -> None:
    lines, logged = _separately(tmp_path, "missing", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9")
    assert lines[0] == "Hello."
    assert logged.count("pip install 'loom-runtime[otel]'") == 1


# The daemon ----------------------------------------------------------------------------------------------------------


async def test_an_answer_of_the_gateway_is_a_span_below_that_of_its_client(collector: Receiver) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with gateway("anthropic", "Hello.", **telemetry(collector)) as served:
        await served.anthropic.messages.create(
            model="far",
            max_tokens=100,
            messages=[{"role": "user", "content": "hi"}],
            extra_headers={"traceparent": f"00-{trace}-{parent}-01"},
        )
        (stored,) = await served.runtime.stores.sessions.list(limit=5)
    request = only(collector.spans)
    assert (request.name, request.trace, request.parent) == ("chat claude-opus-5", trace, parent)
    assert request.attributes["gen_ai.conversation.id"] == stored.id
    assert request.attributes["gen_ai.usage.output_tokens"] == 5
    assert request.attributes["gen_ai.response.finish_reasons"] == ["stop"]


async def test_a_refused_answer_of_the_gateway_is_an_error(collector: Receiver) -> None:
    async with gateway("anthropic", refusal(401, {"error": "no"}), **telemetry(collector)) as served:
        answer = await served.http.post(
            "/v1/messages", json={"model": "far", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        )
        assert answer.status_code >= 400
    request = only(collector.spans)
    assert (request.is_error, request.attributes["error.type"]) == (True, "provider.not_authorised")


async def test_a_turn_of_the_daemon_is_below_the_span_of_the_request_that_posted_it(collector: Receiver) -> None:
    trace, parent, other = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
    async with scripted(collector, "Hello.") as runtime, serving(runtime) as served:
        session = await runtime.session(model=MODEL)
        async with httpx2.AsyncClient(base_url=served.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            posted = [
                await http.post(
                    f"/v1/sessions/{session.id}/messages",
                    json={"text": "hi"},
                    headers={"Idempotency-Key": "k", "traceparent": f"00-{trace}-{span}-01"},
                )
                for span in (parent, other)
            ]
        assert [answer.status_code for answer in posted] == [202, 202]
        await until(lambda: served.app.daemon.turns.active == 0)
    turn = only(collector.named("invoke_agent"))
    assert (turn.trace, turn.parent) == (trace, parent), "the second request is the first one, sent again"


async def test_turns_of_the_daemon_are_observed(collector: Receiver) -> None:
    async with scripted(collector, "Hello.") as runtime, serving(runtime) as served, served.client() as client:
        session = await client.session(model=MODEL)
        assert (await session.send("hi")).text == "Hello."
    assert only(collector.named("chat")).parent == only(collector.named("invoke_agent")).id
