"""The cached prefix stands still: between two moves of the watermark, every request extends the one before it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compile.world import all_known, report, screenshot
from flow.judge import encode
from loom.compile.policy import DetachedMessage, Policy, Request, Watermark
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import Opaque, TextBlock, ThinkingBlock, ToolCall, ToolResult
from loom.content.messages import Message, assistant, tool, user
from loom.models import Model
from loom.prompt import ToolSpec
from loom.providers.catalog import model
from wire.rules import plain

TURNS = 60
LOOK = ToolSpec(name="look", description="See it again.", parameters={"type": "object"})
REQUEST = Request(system="You are brief.", tools=(LOOK,))
TARGETS = (
    "anthropic/claude-opus-5-5",
    "bedrock/anthropic.claude-sonnet-4-5",
    "openai/gpt-5.5",
    "openai-chat/gpt-5.5",
    "gemini/gemini-4-argon",
    "ollama/llava",
    "deepseek/deepseek-flash",
    "mistral/mistral-large-latest",
    "compatible/qwen3-vl",
)


def thought(target: Model, number: int) -> ThinkingBlock:
    data = {"signature": f"s{number}", "field": "reasoning_content", "thoughtSignature": "c2ln"}
    data |= {"id": f"rs_{number}", "summary": [], "encrypted_content": "e"} if target.opaque_owner == "openai" else {}
    return ThinkingBlock(f"thought {number}", opaque=Opaque(provider=target.opaque_owner, model=target.name, data=data))


def turn(number: int, target: Model) -> list[list[Message]]:
    """What is new before each request: a question, sometimes with a PDF; then one or two steps of parallel calls."""
    asked = [report(5_000 + number, pages=6)] if number % 7 == 3 else []
    new: list[list[Message]] = [[user(f"Question {number}", *asked)]]
    for step in range(1 + number % 2):
        shots, logs = f"shot_{number}_{step}", f"log_{number}_{step}"
        calls = (ToolCall(shots, "screenshot", {"n": number}), ToolCall(logs, "log", {"lines": 50}))
        shown = (TextBlock("taken"), screenshot(number * 2 + step))
        log = TextBlock("a line of a log\n" * 50)
        answers = tool(ToolResult(shots, shown, name="screenshot"), ToolResult(logs, (log,), name="log"))
        new.append([assistant(thought(target, number), "I look.", *calls), answers])
    return new


class Session:
    """A session as the runtime keeps it: a growing path, stored facts, a stored watermark."""

    def __init__(self, target: Model, policy: Policy) -> None:
        self.target = target
        self.policy = policy
        self.messages: list[Message] = []
        self.known = all_known()
        self.mark = Watermark()

    def ask(self, *new: Message, **options: Any) -> Prepared:
        self.messages += new
        path = [DetachedMessage(f"n{at}", message) for at, message in enumerate(self.messages)]
        told = {"policy": self.policy, "request": REQUEST, "watermark": self.mark, "known": self.known} | options
        found = prepare(path, self.target, **told)
        self.mark = found.watermark
        return found


def wire_messages(prepared: Prepared) -> list[bytes]:
    """Every message as it goes out, but for the marks of the cache, which may move."""
    body = plain(encode(prepared.prompt))
    messages = body.get("messages") or body.get("contents") or body["input"]
    return [msgspec.json.encode(_unmarked(message)) for message in messages]


def _unmarked(value: Any) -> Any:
    match value:
        case dict():
            return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
        case list():
            return [_unmarked(item) for item in value]
        case _:
            return value


AGE = ("low_before", "text_before")


def borders(mark: Watermark, *without: str) -> dict[str, Any]:
    return {
        name: value
        for name, value in msgspec.structs.asdict(mark).items()
        if name.endswith(("_before", "_cap")) and name not in without
    }


@pytest.mark.parametrize("reference", TARGETS)
def test_a_long_session_is_rewritten_only_where_the_watermark_moves(reference: str) -> None:
    session = Session(model(reference), Policy())
    before: list[bytes] = []
    mark = Watermark()
    rewrites = requests = 0
    for number in range(TURNS):
        for step, new in enumerate(turn(number, session.target)):
            prepared = session.ask(*new)
            now = wire_messages(prepared)
            moved = borders(prepared.watermark) != borders(mark)
            if now[: len(before)] != before:
                assert moved, f"turn {number}, step {step}: rewritten without a move"
                by_age = borders(prepared.watermark, *AGE) == borders(mark, *AGE)
                assert step == 0 or not by_age, f"turn {number}, step {step}: age moved while a tool loop was open"
                rewrites += 1
            before, mark = now, prepared.watermark
            requests += 1
        session.messages.append(assistant(f"Turn {number} is done."))
    assert requests == TURNS * 5 // 2
    if session.target.cache.mode != "none":
        assert rewrites <= TURNS / 2


@pytest.mark.parametrize("reference", TARGETS)
def test_the_receipt_says_which_rows_the_last_request_held(reference: str) -> None:
    """The line ends where the last request did, or where the first old message was rewritten."""
    session = Session(model(reference), Policy())
    before: Prepared | None = None
    whole = 0
    for number in range(TURNS // 2):
        for new in turn(number, session.target):
            prepared = session.ask(*new)
            line = prepared.receipt.cached_rows
            if before is None or session.target.cache.mode == "none":
                assert line == 0
            else:
                sent, now = before.receipt.rows, prepared.receipt.rows
                assert [(row.message, row.rendition, row.tokens) for row in now[:line]] == [
                    (row.message, row.rendition, row.tokens) for row in sent[:line]
                ]
                assert line == len(sent) or borders(prepared.watermark) != borders(before.watermark)
                whole += line == len(sent)
            before = prepared
        session.messages.append(assistant(f"Turn {number} is done."))
    if session.target.cache.mode != "none":
        assert whole > TURNS / 2


def test_nothing_is_cached_for_another_path_another_prompt_or_another_model() -> None:
    path = [DetachedMessage(f"n{at}", message) for at, message in enumerate([user("a"), assistant("b"), user("c")])]
    target = model("anthropic/claude-opus-5")
    mark = prepare(path[:1], target).watermark
    assert prepare(path, target, watermark=mark).receipt.cached_rows == 1
    assert prepare(path, target).receipt.cached_rows == 0, "it was never asked"
    assert prepare(path, target, watermark=mark, request=Request(system="Other.")).receipt.cached_rows == 0
    edited = [DetachedMessage("edited", user("a!")), *path[1:]]
    assert prepare(edited, target, watermark=mark).receipt.cached_rows == 0


@pytest.mark.parametrize("reference", TARGETS)
def test_without_ageing_and_within_the_budgets_nothing_is_ever_rewritten(reference: str) -> None:
    wide = msgspec.structs.replace(
        model(reference).limits, context_tokens=10**7, max_images=None, max_request_bytes=None
    )
    session = Session(
        msgspec.structs.replace(model(reference), limits=wide), Policy(aging="off", max_images_per_session=999)
    )
    before: list[bytes] = []
    for number in range(8):
        for new in turn(number, session.target):
            now = wire_messages(session.ask(*new))
            assert now[: len(before)] == before
            before = now
        session.messages.append(assistant(f"Turn {number} is done."))


def test_a_cache_mark_ends_where_the_last_request_ended() -> None:
    session = Session(model("anthropic/claude-opus-5"), Policy(aging="off"))
    before = 0
    for number in range(4):
        for new in turn(number, session.target):
            prompt = session.ask(*new).prompt
            assert prompt.stable_messages == before
            before = len(prompt.messages)
        session.messages.append(assistant("done"))


# Thinking that is bound to its prefix --------------------------------------------------------------------------------


def thoughts(prepared: Prepared) -> int:
    return sum(isinstance(block, ThinkingBlock) for message in prepared.prompt.messages for block in message.blocks)


def bound_session() -> Session:
    session = Session(model("anthropic/claude-opus-5-5"), Policy(aging="off"))
    for number in range(3):
        for new in turn(number, session.target):
            session.ask(*new)
        session.messages.append(assistant(thought(session.target, 90 + number), "done"))
    return session


def test_bound_thinking_stays_while_the_prefix_stands() -> None:
    assert thoughts(bound_session().ask(user("next"))) == 7


@pytest.mark.parametrize(
    "change",
    [
        {"quarantine": frozenset({screenshot(0).media.digest})},
        {"overrides": {"n2/0/1": "omitted"}},
        {"request": Request(system="You are verbose.", tools=(LOOK,))},
        {"request": Request(system="You are brief.", tools=(LOOK, msgspec.structs.replace(LOOK, name="read")))},
        {"policy": Policy(aging="off", max_side_px=512)},
    ],
    ids=["quarantined", "hidden", "system", "tools", "resolution"],
)
def test_bound_thinking_goes_when_anything_before_it_changed_and_later_thinking_stays(change: dict[str, Any]) -> None:
    session = bound_session()
    assert thoughts(session.ask(user("next"), **change)) == 0
    session.messages.append(assistant(thought(session.target, 99), "done"))
    assert thoughts(session.ask(user("and now?"), **change)) == 1


def test_bound_thinking_goes_when_a_picture_is_gone() -> None:
    session = bound_session()
    session.known = msgspec.structs.replace(session.known, missing=frozenset({screenshot(2).media.digest}))
    assert thoughts(session.ask(user("next"))) == 0
