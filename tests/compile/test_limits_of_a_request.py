"""When something does not fit or does not belong: what gives way, in which order, and what is said about it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile.world import all_known, report, said, screenshot, tool_turn
from flow.judge import encode, problems
from loom.compile.cost import page_tokens
from loom.compile.limits import PAGE_TEXT_TOKENS
from loom.compile.policy import Policy, Request, Watermark, override_key
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import DocumentBlock, Opaque, TextBlock, ThinkingBlock, ToolCall, ToolResult, page_label
from loom.content.messages import Message, assistant, tool, user
from loom.content.recipes import Slice
from loom.models import Model
from loom.prompt import ShownMedia, ShownResult, ToolSpec
from loom.providers.catalog import model
from loom.sampling import Sampling
from wire.rules import body_bytes

CLAUDE = model("anthropic/claude-opus-5")
OLD_CLAUDE = model("anthropic/claude-sonnet-4-5")
CHAT = model("openai-chat/gpt-5.5")
MISTRAL = model("mistral/mistral-large-latest")
OFF = Policy(aging="off")
TOOLS = Request(tools=(ToolSpec(name="look", description="See it again.", parameters={"type": "object"}),))


def windowed(target: Model, tokens: int) -> Model:
    return msgspec.structs.replace(target, limits=msgspec.structs.replace(target.limits, context_tokens=tokens))


def compiled(messages: list[Message], target: Model, **told: Any) -> Prepared:
    prepared = prepare(said(*messages), target, **{"known": all_known(), "request": TOOLS, "policy": OFF} | told)
    assert problems(prepared) == []
    return prepared


def words(prepared: Prepared) -> str:
    found: list[str] = []
    for message in prepared.prompt.messages:
        for block in message.blocks:
            inside = block.blocks if isinstance(block, ShownResult) else (block,)
            found += [inner.text for inner in inside if isinstance(inner, TextBlock)]
    return "\n".join(found)


def pictures(prepared: Prepared) -> list[str]:
    return [ref.digest for ref in prepared.prompt.media()]


def loop(steps: int, *, text: str = "a result", shot: bool = False) -> list[Message]:
    """One turn with so many steps."""
    messages = [user("the question of this turn")]
    for step in range(steps):
        content = (TextBlock(f"{text} {step}"), *((screenshot(step),) if shot else ()))
        messages += [assistant(f"step {step}", ToolCall(f"c{step}", "run")), tool(ToolResult(f"c{step}", content))]
    return messages


# A turn that outgrows the window -----------------------------------------------------------------------------------


def test_a_turn_that_outgrows_the_window_loses_its_first_steps_and_keeps_its_question() -> None:
    prepared = compiled([user("before"), assistant("fine"), *loop(300)], windowed(CHAT, 6_000))
    text = words(prepared)
    assert prepared.receipt.totals.tokens <= prepared.receipt.budgets.tokens
    assert "the question of this turn" in text
    assert "a result 299" in text
    assert "a result 3\n" not in text
    assert "[1 earlier turn is not shown]" in text
    assert "earlier steps are not shown]" in text


def test_after_that_the_next_steps_extend_the_request() -> None:
    target, mark, before = windowed(CHAT, 6_000), Watermark(), []
    moves = 0
    for steps in range(280, 300):
        prepared = compiled(loop(steps), target, watermark=mark)
        now = encode(prepared.prompt)["messages"]
        moves += now[: len(before)] != before
        before, mark = now, prepared.watermark
    assert moves <= 3, "twenty steps, a rewrite for every fifth of the window"


def test_pictures_of_a_long_loop_give_way_oldest_first_with_headroom_for_the_next_steps() -> None:
    policy = Policy(aging="off", max_images=20)
    kept = pictures(compiled(loop(25, shot=True), CLAUDE, policy=policy))
    assert kept == [screenshot(step).media.digest for step in range(25 - len(kept), 25)]
    assert len(kept) == 16


@pytest.mark.parametrize(("reference", "at_least"), [("anthropic/claude-sonnet-4-5", 8), ("openai/gpt-5.4", 6)])
def test_a_full_window_is_rewritten_only_once_in_many_requests(reference: str, at_least: int) -> None:
    """Four requests a turn, a fifth or a third of the window a turn: of three turns, two are always kept."""
    target, mark = windowed(model(reference), 32_000), Watermark()
    messages: list[Message] = []
    before: list[tuple[object, ...]] = []
    requests = rewritten = 0
    for turn in range(24):
        for message in (user(f"turn {turn}"), *loop(3, text="word " * 150, shot=True)[1:]):
            messages.append(message)
            if message.role == "assistant":
                continue
            prepared = prepare(said(*messages), target, watermark=mark, request=TOOLS)
            now = [(row.message, row.block, row.inner, row.rendition) for row in prepared.receipt.rows]
            mark, is_extended = prepared.watermark, now[: len(before)] == before
            before = now
            if turn >= 12:
                requests, rewritten = requests + 1, rewritten + (not is_extended)
        messages.append(assistant("done"))
    assert rewritten <= requests / at_least


def test_without_a_cache_no_room_is_left_over() -> None:
    assert len(pictures(compiled(loop(12, shot=True), MISTRAL))) == 8


# What is said of it ------------------------------------------------------------------------------------------------


def test_a_full_window_says_by_how_much_and_what_each_cut_saved_and_says_it_once() -> None:
    messages = [said for n in range(6) for said in (user(f"q{n} " + "word " * 4_000, screenshot(n)), assistant("ok"))]
    target = windowed(CHAT, 24_000)
    prepared = compiled([*messages, user("and now?")], target)
    (full,) = [notice for notice in prepared.receipt.notices if "Reduced to fit" in notice]
    number = r"-[\d.]+k?"
    assert re.fullmatch(
        rf"[\d.]+k > [\d.]+k tokens: the window of openai-chat/gpt-5.5 is full\. Reduced to fit:"
        rf" media reduced \({number}\) · turns 1-\d left out \({number}\)\.",
        full,
    ), full
    after = compiled([*messages, user("and now?"), assistant("ok"), user("on")], target, watermark=prepared.watermark)
    assert not [notice for notice in after.receipt.notices if "Reduced to fit" in notice]


def test_too_many_pictures_are_said_as_such() -> None:
    messages = [said for n in range(9) for said in (user(f"q{n}", screenshot(n)), assistant("ok"))]
    (told,) = compiled([*messages, user("compare")], MISTRAL).receipt.notices
    assert told == (
        "9 > 8 images: mistral/mistral-large-latest does not accept more in one request."
        " Reduced to fit: media reduced (-1)."
    )


# What is newest ----------------------------------------------------------------------------------------------------


def test_eight_of_ten_new_pictures_are_shown_where_eight_are_allowed() -> None:
    prepared = compiled([user("compare", *[screenshot(n) for n in range(10)])], MISTRAL)
    assert len(pictures(prepared)) == 8
    assert [row.detail for row in prepared.receipt.rows if row.rendition == "text"] == [
        "over 8 images in one message"
    ] * 2


def test_what_is_old_gives_way_before_what_is_new() -> None:
    messages = [m for n in range(9) for m in (user(f"q{n}", screenshot(n)), assistant("ok"))]
    question = user("compare", *[screenshot(100 + n) for n in range(6)])
    kept = pictures(compiled([*messages, question], MISTRAL))
    assert kept[-6:] == [screenshot(100 + n).media.digest for n in range(6)]
    assert len(kept) == 8


def test_a_newest_text_that_is_too_long_is_cut_before_older_turns_of_the_last_two_are_lost() -> None:
    small = windowed(CLAUDE, 20_000)
    prepared = compiled([user("my name is Ada"), assistant("hello"), user("read: " + "word " * 60_000)], small)
    assert "my name is Ada" in words(prepared)
    assert "characters are left out here" in words(prepared)
    (row,) = [row for row in prepared.receipt.rows if row.rendition == "text"]
    assert (row.reason, row.detail) == ("budget", "cut in the middle")
    assert any("were cut" in notice for notice in prepared.receipt.notices)


def test_arguments_that_fill_the_window_are_cut_and_still_an_object() -> None:
    call = ToolCall("c", "write_file", {"path": "a.txt", "content": "line\n" * 100_000, "rows": list(range(50))})
    messages = [user("write"), assistant(call), tool(ToolResult("c", (TextBlock("written"),)))]
    prepared = compiled(messages, windowed(CLAUDE, 20_000))
    (sent,) = [b for m in prepared.prompt.messages for b in m.blocks if isinstance(b, ToolCall)]
    assert sent.arguments["path"] == "a.txt"
    assert len(sent.arguments["content"]) < 60_000
    numbers = ToolCall("c", "plot", {"points": list(range(100_000))})
    messages = [user("plot"), assistant(numbers), tool(ToolResult("c", (TextBlock("plotted"),)))]
    (sent,) = [
        b
        for m in compiled(messages, windowed(CLAUDE, 20_000)).prompt.messages
        for b in m.blocks
        if isinstance(b, ToolCall)
    ]
    assert list(sent.arguments) == ["left_out"]


@pytest.mark.parametrize("most", [40_000, 200_000, 1_000_000])
def test_a_budget_of_bytes_is_held_to_the_last(most: int) -> None:
    text = "größer\n" * 100_000
    messages = [user(text, screenshot(1), report(2, pages=5)), assistant(text), *loop(4, text=text, shot=True)]
    prepared = compiled(messages, CLAUDE, policy=Policy(aging="off", max_bytes=most))
    assert body_bytes(encode(prepared.prompt)) <= prepared.receipt.totals.wire_bytes <= most


def test_what_is_pinned_yields_when_nothing_else_is_left_and_that_is_said() -> None:
    messages = [m for n in range(12) for m in (user(f"q{n}", screenshot(n)), assistant("ok"))]
    pins: dict[str, Any] = {override_key(f"n{2 * n}", 1): "full" for n in range(12)}
    prepared = compiled([*messages, user("now")], MISTRAL, overrides=pins)
    assert len(pictures(prepared)) == 8
    assert any("pinned" in notice.lower() for notice in prepared.receipt.notices)
    few = {key: pins[key] for key in list(pins)[:3]}
    kept = compiled([*messages, user("now")], MISTRAL, overrides=few)
    assert pictures(kept)[:3] == [screenshot(n).media.digest for n in range(3)]
    assert not any("pinned" in notice.lower() for notice in kept.receipt.notices)


def test_a_bound_that_breaks_a_budget_is_settled_before_anything_is_given_up() -> None:
    messages = [user("compare", *[screenshot(n, size_bytes=9_000_000, width=1_900) for n in range(6)])]
    guessed = prepare(said(*messages), CLAUDE, policy=OFF)
    assert any(row.rendition != "full" for row in guessed.receipt.rows), "six bounds of nine megabytes are too much"
    assert {need.digest for need in guessed.needs} == {screenshot(n).media.digest for n in range(6)}
    assert all(row.rendition == "full" for row in compiled(messages, CLAUDE).receipt.rows)


def test_messages_of_dropped_turns_cost_nothing() -> None:
    messages = [message for number in range(3_000) for message in (user("q"), assistant("a"))]
    prepared = compiled([*messages, user("now")], windowed(CHAT, 8_000))
    assert prepared.receipt.totals.tokens <= 6_000
    assert "now" in words(prepared)


# Documents ---------------------------------------------------------------------------------------------------------


def test_of_a_long_pdf_the_pages_that_fit_into_half_of_the_window_are_sent() -> None:
    prepared = compiled([user("read", report(1, pages=400))], OLD_CLAUDE)
    (document,) = [b for b in prepared.prompt.messages[0].blocks if isinstance(b, ShownMedia)]
    count = document.ref.pages or 0
    assert document.ref.recipe == Slice(f"1-{count}")
    assert 0.7 < prepared.receipt.totals.tokens / (OLD_CLAUDE.limits.context_tokens / 2) <= 1
    assert f"[pages {count + 1}-400 are not shown;" in words(prepared)
    (row,) = [row for row in prepared.receipt.rows if row.kind == "document"]
    assert (row.rendition, row.reason, row.detail) == ("full", "limit", f"pages 1-{count} only")
    assert f"gets report1.pdf, pages 1-{count} only" in prepared.receipt.notices[-1]


@given(window=st.integers(12_000, 120_000), pages=st.integers(2, 90), said=st.integers(0, 30_000))
def test_a_pdf_is_never_one_line_while_a_page_of_it_fits(window: int, pages: int, said: int) -> None:
    target = windowed(CLAUDE, window)
    prepared = compiled([user("word " * (said // 5) + ".", report(1, pages=pages))], target)
    totals, budgets = prepared.receipt.totals, prepared.receipt.budgets
    (row,) = [row for row in prepared.receipt.rows if row.kind == "document"]
    shown = [b for b in prepared.prompt.messages[0].blocks if isinstance(b, ShownMedia)]
    count = shown[0].ref.pages or 0
    assert totals.tokens <= budgets.tokens
    assert row.rendition == "full" and (count == pages or row.detail == f"pages {page_label(1, count)} only")
    left, each = budgets.tokens - totals.tokens, page_tokens(target.tokens) + PAGE_TEXT_TOKENS
    is_filled = left < 0.2 * budgets.tokens + each * (count // 4 + 2) or count == window // 2 // each
    assert count == pages or is_filled, "a fifth is left for the next question, not more"


def test_a_pdf_that_filled_the_window_loses_pages_and_not_all_of_them_when_the_conversation_goes_on() -> None:
    target, mark = windowed(CLAUDE, 60_000), Watermark()
    messages = [user("word " * 9_000, report(1, pages=40))]
    counts: list[int] = []
    for number in range(8):
        prepared = compiled(messages, target, watermark=mark, policy=Policy(aging="off"))
        mark = prepared.watermark
        counts += [b.ref.pages or 0 for b in prepared.prompt.messages[0].blocks if isinstance(b, ShownMedia)][:1]
        messages += [assistant("An answer. " * 200), user(f"question {number} " + "word " * 500)]
    assert len(counts) >= 2 and counts == sorted(counts, reverse=True) and counts[1] > 1


def test_pages_beyond_the_end_mean_the_last_page() -> None:
    prepared = compiled([user("read", report(1, pages=4, shown="90-120"))], CLAUDE)
    (document,) = [b for b in prepared.prompt.messages[0].blocks if isinstance(b, ShownMedia)]
    assert document.ref.recipe == Slice("4")


def test_a_pdf_of_unknown_length_is_read_as_words_where_pages_are_limited() -> None:
    found = report(1)
    unknown = DocumentBlock(msgspec.structs.replace(found.media, pages=None))
    assert "the words of" in words(compiled([user("read", unknown)], CLAUDE))
    assert len(pictures(compiled([user("read", unknown)], model("openai/gpt-5.5")))) == 1


def test_of_a_pdf_with_too_many_bytes_the_pages_that_fit_are_sent() -> None:
    prepared = prepare(said(user("read", report(1, pages=90, size_bytes=60_000_000))), CLAUDE)
    (document,) = [b for b in prepared.prompt.messages[0].blocks if isinstance(b, ShownMedia)]
    assert 20 <= (document.ref.pages or 0) < 45
    assert prepared.receipt.totals.wire_bytes <= prepared.receipt.budgets.wire_bytes


def test_a_pdf_larger_than_a_request_is_shown_as_pages() -> None:
    prepared = compiled([user("read", report(1, pages=6, size_bytes=30_000_000))], CLAUDE)
    assert [row.rendition for row in prepared.receipt.rows if row.kind == "document"] == ["pages"]


# Tools, pairs, names -----------------------------------------------------------------------------------------------


def test_a_model_without_tools_reads_calls_and_results_as_text() -> None:
    target = model("openai-chat/gpt-6.1-sol")
    prepared = compiled([*tool_turn(1), user("and?")], target)
    assert [message.role for message in prepared.prompt.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert "[tool call: screenshot(" in words(prepared)
    assert "[a result of screenshot]" in words(prepared)
    assert len(pictures(prepared)) == 1


def test_where_calls_need_their_tools_and_there_are_none_left_their_names_stand_alone() -> None:
    prepared = compiled([*tool_turn(1), user("and?")], CLAUDE, request=Request())
    assert [tool.name for tool in prepared.prompt.tools] == ["screenshot"]
    assert encode(prepared.prompt)["tool_choice"] == {"type": "none"}
    assert compiled([*tool_turn(1), user("and?")], CHAT, request=Request()).prompt.tools == ()


def test_results_that_came_in_several_messages_answer_their_calls_together() -> None:
    calls = assistant(ToolCall("a", "run"), ToolCall("b", "run"))
    path = [user("go"), calls, tool(ToolResult("b", (TextBlock("two"),))), tool(ToolResult("a", (TextBlock("one"),)))]
    prepared = compiled(path, CHAT)
    results = [b for b in prepared.prompt.messages[2].blocks if isinstance(b, ShownResult)]
    assert [(result.call_id, result.is_error) for result in results] == [("a", False), ("b", False)]
    assert prepared.receipt.notices == ()


def test_a_hundred_interrupted_calls_are_within_the_bytes_that_the_receipt_names() -> None:
    calls = [ToolCall(f"call_{n}", "a_tool_with_quite_a_long_name") for n in range(100)]
    compiled([user("go"), assistant(*calls)], CLAUDE)


def test_a_message_of_which_everything_is_hidden_leaves_its_place() -> None:
    path = [user("a"), assistant("b"), user("secret"), assistant("c"), user("d")]
    prepared = compiled(path, CLAUDE, overrides={override_key("n2", 0): "omitted"})
    assert "secret" not in words(prepared)
    assert [message.role for message in prepared.prompt.messages] == ["user", "assistant"] * 2 + ["user"]


# Thinking ----------------------------------------------------------------------------------------------------------


def thought(target: Model, data: Any) -> ThinkingBlock:
    return ThinkingBlock("hm", opaque=Opaque(provider=target.opaque_owner, model=target.name, data=data))


@pytest.mark.parametrize("data", [{}, None, [], "text", {"signature": ""}, {"other": 1}])
def test_thinking_whose_opaque_data_are_not_whole_stays_here(data: Any) -> None:
    prepared = compiled([user("a"), assistant(thought(CLAUDE, data), "b"), user("c")], CLAUDE)
    assert [row.reason for row in prepared.receipt.rows if row.kind == "thinking"] == ["repair"]


def test_thinking_that_nothing_follows_or_that_stands_behind_text_is_not_sent_to_claude() -> None:
    own = thought(CLAUDE, {"signature": "s"})
    for blocks in ((own,), ("text", own, "more"), ("text", own)):
        compiled([user("a"), assistant(*blocks), user("c")], CLAUDE)
    joined = compiled([user("a"), assistant("b"), assistant(own, "c"), user("d")], CLAUDE)
    assert [row.reason for row in joined.receipt.rows if row.kind == "thinking"] == ["repair"]


def test_a_claude_with_a_thinking_budget_is_not_asked_to_think_between_calls_that_were_made_without() -> None:
    request = msgspec.structs.replace(TOOLS, sampling=Sampling(thinking="high", max_tokens=8_000))
    foreign = compiled(tool_turn(1)[:3], OLD_CLAUDE, request=request)
    assert foreign.prompt.sampling.thinking == ""
    assert any("Thinking is off for" in notice for notice in foreign.receipt.notices)
    assert compiled([user("a")], OLD_CLAUDE, request=request).prompt.sampling.thinking == "high"
    cramped = msgspec.structs.replace(request, sampling=Sampling(thinking="high", max_tokens=1_000))
    assert compiled([user("a")], OLD_CLAUDE, request=cramped).prompt.sampling.thinking == ""


def test_no_more_output_is_asked_for_than_the_model_can_give() -> None:
    request = Request(sampling=Sampling(max_tokens=10**6))
    assert compiled([user("a")], OLD_CLAUDE, request=request).prompt.sampling.max_tokens == 64_000


def test_a_watermark_of_a_longer_path_never_drops_what_is_newest() -> None:
    mark = Watermark(dropped_before=900, text_before=900, media_before=900)
    prepared = compiled([*tool_turn(1), user("now", screenshot(5))], CLAUDE, watermark=mark)
    assert "now" in words(prepared)
