"""Switching provider and model in mid-conversation always works, and loses nothing in silence or for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compile.world import all_known, report, screenshot
from flow.judge import WIRES, encode, problems
from loom.compile.assemble import SEEN_AGAIN
from loom.compile.policy import DetachedMessage, Policy, Request, Watermark
from loom.compile.prepare import Prepared, prepare
from loom.config import load_config
from loom.content.blocks import Block, ImageBlock, TextBlock, ThinkingBlock, ToolCall, ToolResult
from loom.content.messages import Message, tool, user
from loom.models import Model
from loom.prompt import ReceiptRow, ShownMedia, ShownResult, ToolSpec
from loom.providers.catalog import model
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_png
from wire.streams import ANTHROPIC, GEMINI, OLLAMA, OPENAI_CHAT, OPENAI_RESPONSES, told

TOOLS = tuple(ToolSpec(name=name, description=name, parameters={"type": "object"}) for name in ("look", "now"))
REQUEST = Request(system="You are brief.", tools=TOOLS)

ROUTE: list[tuple[str, dict[str, bytes], tuple[str, ...]]] = [
    ("anthropic/claude-opus-5", ANTHROPIC, ("calls", "thinking", "citations")),
    ("openai/gpt-5.5", OPENAI_RESPONSES, ("thinking", "citations")),
    ("gemini/gemini-4-argon", GEMINI, ("calls", "signed text", "grounding")),
    ("ollama/llava", OLLAMA, ("calls", "text")),
    ("deepseek/deepseek-v4-pro", OPENAI_CHAT, ("thinking", "text")),
    ("mistral/mistral-large-latest", OPENAI_CHAT, ("calls", "text")),
    ("anthropic/claude-opus-5", ANTHROPIC, ("calls", "thinking")),
]
"""Each model is asked a question, answers as its stream says, and is asked again until its streams are used up."""


class Journey:
    """One conversation, asked of one model after the other; every request is judged before it is 'sent'."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.marks: dict[str, Watermark] = {}
        self.pictures = 0

    def ask(self, target: Model, *new: Message) -> Prepared:
        self.messages += new
        path = [DetachedMessage(f"n{at}", message) for at, message in enumerate(self.messages)]
        prepared = prepare(
            path,
            target,
            policy=Policy(aging="off"),
            request=REQUEST,
            watermark=self.marks.get(target.reference),
            known=all_known(),
        )
        assert problems(prepared) == []
        self.marks[target.reference] = prepared.watermark
        return prepared

    def answer(self, target: Model, stream: bytes) -> Message:
        folded = told(WIRES[target.wire], target, stream)
        assert folded.message is not None
        self.messages.append(folded.message)
        return folded.message

    def results(self, calls: tuple[ToolCall, ...]) -> Message:
        """The first call shows a picture, the others say something."""
        shown: list[ToolResult] = []
        for at, call in enumerate(calls):
            blocks: list[Any] = [TextBlock(f"{call.name} is done")]
            if at == 0:
                self.pictures += 1
                blocks.append(screenshot(100 + self.pictures))
            shown.append(ToolResult(call.id, tuple(blocks), name=call.name))
        return tool(*shown)

    def visit(
        self, reference: str, streams: dict[str, bytes], names: tuple[str, ...], question: Message
    ) -> list[Prepared]:
        target = model(reference)
        asked = [self.ask(target, question)]
        for name in names:
            said = self.answer(target, streams[name])
            following = self.results(said.calls) if said.calls else user("Go on.")
            asked.append(self.ask(target, following))
        self.answer(target, streams["text"])
        return asked


def travelled(stops: int = len(ROUTE)) -> tuple[Journey, list[list[Prepared]]]:
    journey = Journey()
    visits: list[list[Prepared]] = []
    for at, (reference, streams, names) in enumerate(ROUTE[:stops]):
        first = (screenshot(1), report(2, pages=4)) if at == 0 else ()
        visits.append(journey.visit(reference, streams, names, user(f"Question {at}", *first)))
    return journey, visits


def rows(prepared: Prepared, kind: str) -> list[ReceiptRow]:
    return [row for row in prepared.receipt.rows if row.kind == kind]


def shown(prepared: Prepared) -> list[ShownMedia]:
    found: list[ShownMedia] = []
    for message in prepared.prompt.messages:
        for block in message.blocks:
            if isinstance(block, ShownMedia):
                found.append(block)
            if isinstance(block, ShownResult):
                found += [inner for inner in block.blocks if isinstance(inner, ShownMedia)]
    return found


def test_every_request_of_the_journey_is_taken_and_shows_what_the_model_can_see() -> None:
    journey, visits = travelled()
    assert sum(len(visit) for visit in visits) >= 20
    pictures = 1 + journey.pictures
    last = {prepared.prompt.model.reference: prepared for visit in visits for prepared in visit}
    kinds = {name: [media.kind for media in shown(prepared)] for name, prepared in last.items()}
    assert kinds["anthropic/claude-opus-5"].count("image") == pictures
    assert kinds["anthropic/claude-opus-5"].count("document") == 1
    assert kinds["gemini/gemini-4-argon"].count("document") == 1
    assert kinds["deepseek/deepseek-v4-pro"] == []
    assert set(kinds["ollama/llava"]) == {"image"}, "the PDF is there as pictures of its pages"
    assert kinds["mistral/mistral-large-latest"].count("image") <= 8


def test_receipts_list_each_loss() -> None:
    _, visits = travelled()
    blind = visits[4][-1]
    assert {row.rendition for row in rows(blind, "image")} == {"text"}
    assert {row.reason for row in rows(blind, "image")} == {"capability"}
    assert {(row.rendition, row.reason) for row in rows(blind, "document")} == {("text", "capability")}
    makers = {row.detail for row in rows(blind, "thinking") if row.rendition == "omitted"}
    assert {"made by anthropic/claude-opus-5", "made by openai/gpt-5.5", "made by ollama/llava"} <= makers
    for visit in visits:
        for prepared in visit:
            assert all(row.reason for row in prepared.receipt.rows if row.rendition not in ("full", "pages"))


def test_pictures_come_back_when_a_seeing_model_returns() -> None:
    _, visits = travelled()
    returned = visits[-1][0]
    assert {row.rendition for row in rows(returned, "image")} == {"full"}
    assert {row.rendition for row in rows(returned, "document")} == {"full"}


def test_own_thinking_comes_back_to_its_producer_and_to_nobody_else() -> None:
    journey, visits = travelled()
    returned = visits[-1][-1]
    blocks: list[Block] = [block for message in journey.messages for block in message.blocks]
    own = [b for b in blocks if isinstance(b, ThinkingBlock) and b.opaque and b.opaque.model == "claude-opus-5"]
    sent = [b for message in returned.prompt.messages for b in message.blocks if isinstance(b, ThinkingBlock)]
    assert len(own) == 6, "three in each of two answers: with words, redacted, and kept by the provider"
    assert sent == own
    foreign = [row for row in rows(returned, "thinking") if row.rendition == "omitted"]
    assert {row.reason for row in foreign} == {"other-model"}
    assert any(row.detail == "made by gemini/gemini-4-argon" for row in foreign)


def test_citations_go_back_to_their_producer_while_their_document_is_there() -> None:
    _, visits = travelled()

    def cited(prepared: Prepared) -> list[Any]:
        body = encode(prepared.prompt)
        texts = [block for message in body["messages"] for block in message["content"] if block["type"] == "text"]
        return [citation for block in texts for citation in block.get("citations", [])]

    assert [citation["document_index"] for citation in cited(visits[-1][-1])] == [0]
    assert not any("citations" in str(encode(prepared.prompt)["input"]) for prepared in visits[1])


def test_a_model_can_be_switched_between_a_call_and_its_answer() -> None:
    for first, streams, names in ROUTE:
        journey = Journey()
        asked = model(first)
        journey.ask(asked, user("Look", screenshot(1)))
        answers = {name: told(WIRES[asked.wire], asked, streams[name]).message for name in names}
        call = next(name for name, message in answers.items() if message is not None and message.calls)
        said = journey.answer(asked, streams[call])
        journey.messages.append(journey.results(said.calls))
        for second, _, _ in ROUTE:
            prepared = journey.ask(model(second))
            calls = [b for m in prepared.prompt.messages for b in m.blocks if isinstance(b, ToolCall)]
            results = [b for m in prepared.prompt.messages for b in m.blocks if isinstance(b, ShownResult)]
            assert [b.id for b in calls] == [b.call_id for b in results]


@pytest.mark.parametrize("reference", sorted({reference for reference, _, _ in ROUTE}))
def test_the_words_of_everyone_reach_everyone(reference: str) -> None:
    journey, _ = travelled()
    prepared = journey.ask(model(reference), user("What was said?"))
    sent = str(encode(prepared.prompt))
    for message in journey.messages:
        for block in message.blocks:
            if isinstance(block, TextBlock):
                assert block.text.strip() in sent
            if isinstance(block, ImageBlock):
                assert any(row.digest == block.media.digest for row in prepared.receipt.rows)


async def test_a_seeing_model_is_told_that_the_pictures_are_visible_again_also_after_a_restart(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")})
    provider = ScriptedProvider(["I see no picture.", "It is blue.", "Still blue."])
    session_id = ""
    for reference, words in (
        ("deepseek/deepseek-v4-pro", "what color?"),
        *[("anthropic/claude-opus-5", "and now?")] * 2,
    ):
        async with Runtime.open(config, providers={"anthropic": provider, "deepseek": provider}) as runtime:
            session = await runtime.session(session_id, model=reference)
            session_id = session.id
            await session.use(reference)
            await session.send(words, *([] if provider.prompts else [sample_png(320, 200)]))
    blind, *seeing = [repr(prompt.messages) for prompt in provider.prompts]
    assert SEEN_AGAIN not in blind
    assert [words.count(SEEN_AGAIN) for words in seeing] == [1, 1]
