"""What a model is shown, for histories of every kind."""

from __future__ import annotations

import msgspec
import pytest

from compile.world import all_known, borders, report, said, screenshot, settled, tool_turn
from loom.compile.policy import Description, Known, Policy, Request, Watermark, override_key
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import ImageBlock, Opaque, TextBlock, ThinkingBlock, ToolCall, ToolResult
from loom.content.messages import Message, assistant, tool, user
from loom.content.recipes import Low, Text, recipe_key
from loom.errors import ContentError
from loom.models import Model
from loom.prompt import ReceiptRow, ShownMedia, ShownMessage, ShownResult, ToolSpec
from loom.providers.catalog import ModelOverrides, model

CLAUDE = model("anthropic/claude-opus-5")
BOUND = model("anthropic/claude-opus-5-5")
CHAT = model("openai-chat/gpt-5.5")
BLIND = model("deepseek/deepseek-v4-pro")
MISTRAL = model("mistral/mistral-large-latest")
LOOK = Request(tools=(ToolSpec(name="look", description="See it again.", parameters={"type": "object"}),))


def media_of(messages: tuple[ShownMessage, ...]) -> list[ShownMedia]:
    found: list[ShownMedia] = []
    for message in messages:
        for block in message.blocks:
            if isinstance(block, ShownMedia):
                found.append(block)
            if isinstance(block, ShownResult):
                found += [inner for inner in block.blocks if isinstance(inner, ShownMedia)]
    return found


def text_of(prepared: Prepared) -> str:
    return "\n".join(
        block.text for message in prepared.prompt.messages for block in message.blocks if isinstance(block, TextBlock)
    )


def row(prepared: Prepared, name: str) -> ReceiptRow:
    return next(found for found in prepared.receipt.rows if found.label.startswith(name))


def test_a_picture_reaches_a_model_that_sees() -> None:
    prepared = prepare(said(user("what is this?", screenshot(1))), CLAUDE)
    (shown,) = media_of(prepared.prompt.messages)
    assert shown.kind == "image"
    assert row(prepared, "shot1.png").rendition == "full"
    assert row(prepared, "shot1.png").tokens == 2691


def test_a_blind_model_gets_the_label_and_the_user_is_told_once() -> None:
    prepared = prepare(said(user("what is this?", screenshot(1))), BLIND)
    assert media_of(prepared.prompt.messages) == []
    assert "[image: shot1.png, 1920×1080, 1.2 MB]" in text_of(prepared)
    assert row(prepared, "shot1.png").reason == "capability"
    assert prepared.receipt.notices == ("deepseek/deepseek-v4-pro gets shot1.png as text.",)


def test_a_picture_comes_back_when_a_seeing_model_returns() -> None:
    path = said(user("look", screenshot(1)), assistant("I got a label"), user("and now?"))
    assert media_of(prepare(path, BLIND).prompt.messages) == []
    assert len(media_of(prepare(path, CLAUDE).prompt.messages)) == 1


def test_a_picture_from_a_tool_stays_in_the_result_where_the_platform_takes_it() -> None:
    prepared = prepare(said(*tool_turn(1)[:3]), CLAUDE)
    result = prepared.prompt.messages[-1].blocks[0]
    assert isinstance(result, ShownResult)
    assert [type(block) for block in result.blocks] == [TextBlock, ShownMedia]


def test_elsewhere_it_is_hoisted_behind_the_whole_group_of_results() -> None:
    path = said(
        user("compare"),
        assistant(ToolCall("a", "shot"), ToolCall("b", "shot")),
        tool(
            ToolResult("a", (TextBlock("first"), screenshot(1)), name="shot"),
            ToolResult("b", (TextBlock("second"), screenshot(2)), name="shot"),
        ),
    )
    prepared = prepare(path, CHAT)
    roles = [message.role for message in prepared.prompt.messages]
    assert roles == ["user", "assistant", "tool", "user"]
    assert [media.name for media in media_of(prepared.prompt.messages[3:])] == ["shot1.png", "shot2.png"]
    assert media_of(prepared.prompt.messages[:3]) == []


def test_where_no_user_may_follow_a_tool_the_picture_stays_and_a_question_waits() -> None:
    prepared = prepare(said(*tool_turn(1)[:3], user("stop, look at this")), MISTRAL)
    roles = [message.role for message in prepared.prompt.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert len(media_of(prepared.prompt.messages[:3])) == 1


def test_a_call_without_a_result_is_shown_as_interrupted() -> None:
    path = said(
        user("go"), assistant(ToolCall("a", "run"), ToolCall("b", "run")), tool(ToolResult("b", (TextBlock("x"),)))
    )
    results = prepare(path, CHAT).prompt.messages[2].blocks
    assert [(r.call_id, r.is_error) for r in results if isinstance(r, ShownResult)] == [("a", True), ("b", False)]


def test_a_result_without_a_call_becomes_text() -> None:
    path = said(user("go"), tool(ToolResult("ghost", (TextBlock("boo"),), name="seance")), user("what was that?"))
    prepared = prepare(path, CLAUDE)
    assert [message.role for message in prepared.prompt.messages] == ["user"]
    assert "boo" in text_of(prepared)
    assert any("without its call" in notice for notice in prepared.receipt.notices)


def test_arguments_that_were_no_object_become_an_empty_object_and_an_error() -> None:
    call = ToolCall("a", "run", {}, raw_arguments='{"command": "ls')
    path = said(user("go"), assistant(call), tool(ToolResult("a", (TextBlock("not run"),))))
    prepared = prepare(path, CLAUDE)
    (sent,) = [block for block in prepared.prompt.messages[1].blocks if isinstance(block, ToolCall)]
    result = prepared.prompt.messages[2].blocks[0]
    assert sent.arguments == {}
    assert sent.raw_arguments is None
    assert isinstance(result, ShownResult)
    assert result.is_error


@pytest.mark.parametrize(
    ("target", "pattern"), [(CLAUDE, "[a-zA-Z0-9_-]{1,64}"), (MISTRAL, "[a-zA-Z0-9]{9}"), (CHAT, ".{1,40}")]
)
def test_ids_are_legal_paired_unique_and_the_same_on_every_request(target: Model, pattern: str) -> None:
    import re

    turns: list[Message] = []
    for number, call_id in enumerate(["functions.shot:0", "call_abc|fc_def", "x" * 90, "dup", "dup"]):
        turns += [user(str(number)), assistant(ToolCall(call_id, "t")), tool(ToolResult(call_id, (TextBlock("ok"),)))]
    first = prepare(said(*turns), target).prompt
    again = prepare(said(*turns, assistant("fine"), user("more")), target).prompt

    def ids(messages: tuple[ShownMessage, ...]) -> tuple[list[str], list[str]]:
        calls = [b.id for m in messages for b in m.blocks if isinstance(b, ToolCall)]
        results = [b.call_id for m in messages for b in m.blocks if isinstance(b, ShownResult)]
        return calls, results

    calls, results = ids(first.messages)
    assert calls == results == ids(again.messages)[0]
    assert len(set(calls)) == 5
    assert all(re.fullmatch(pattern, call_id) for call_id in calls)


def test_thinking_goes_back_only_to_the_model_that_made_it() -> None:
    def thinking(provider: str, name: str) -> ThinkingBlock:
        return ThinkingBlock("hm", opaque=Opaque(provider=provider, model=name, data={"signature": "s"}))

    path = said(
        user("a"),
        assistant(thinking("anthropic", "claude-opus-5"), "one"),
        user("b"),
        assistant(thinking("openai", "gpt-5.5"), "two"),
        user("c"),
        assistant(ThinkingBlock("nobody's"), "three"),
        user("d"),
    )
    prepared = prepare(path, CLAUDE)
    kept = [b for m in prepared.prompt.messages for b in m.blocks if isinstance(b, ThinkingBlock)]
    assert [block.opaque.model for block in kept if block.opaque] == ["claude-opus-5"]
    assert [r.reason for r in prepared.receipt.rows if r.kind == "thinking"] == ["", "other-model", "other-model"]
    assert not any(isinstance(b, ThinkingBlock) for m in prepare(path, CHAT).prompt.messages for b in m.blocks)


def test_a_message_that_was_thinking_alone_disappears_for_others() -> None:
    lone = assistant(ThinkingBlock("hm", opaque=Opaque(provider="anthropic", model="claude-opus-5", data={})))
    prepared = prepare(said(user("a"), lone, user("b")), CHAT)
    assert [message.role for message in prepared.prompt.messages] == ["user"]


def test_thinking_bound_to_its_prefix_is_dropped_from_a_rewrite_on() -> None:
    def answer(number: int) -> Message:
        opaque = Opaque(provider="anthropic", model="claude-opus-5-5", data={"signature": f"s{number}"})
        return assistant(ThinkingBlock("", opaque=opaque), f"answer {number}")

    messages: list[Message] = []
    for number in range(6):
        messages += [user(f"q{number}", screenshot(number)), answer(number)]
    path = said(*messages, user("next"))
    still = prepare(path, BOUND, policy=Policy(aging="off"))
    moved = prepare(path, BOUND, policy=Policy(aging="every-turn"))
    kept = [b for m in still.prompt.messages for b in m.blocks if isinstance(b, ThinkingBlock)]
    left = [b for m in moved.prompt.messages for b in m.blocks if isinstance(b, ThinkingBlock)]
    assert (len(kept), len(left)) == (6, 0)
    longer = said(*messages, user("next"), answer(7), user("go"))
    later = prepare(longer, BOUND, policy=Policy(aging="off"), watermark=moved.watermark)
    assert len([b for m in later.prompt.messages for b in m.blocks if isinstance(b, ThinkingBlock)]) == 1


def test_a_pdf_goes_natively_with_just_the_pages_asked_for() -> None:
    prepared = prepare(said(user("read", report(1, shown="21-40"))), CLAUDE)
    (shown,) = media_of(prepared.prompt.messages)
    assert shown.kind == "document"
    assert shown.ref.pages == 20
    assert prepared.receipt.totals.pages == 20
    assert [(need.recipe.__struct_config__.tag, need.is_for_cost) for need in prepared.needs] == [
        ("text", True),
        ("slice", False),
    ]


def test_eyes_without_pdf_get_page_pictures_and_the_blind_get_the_words() -> None:
    path = said(user("read", report(1, pages=3)))
    seeing = prepare(path, model("ollama/llava"))
    assert row(seeing, "report1.pdf").rendition == "pages"
    assert len(media_of(seeing.prompt.messages)) == 3
    first = prepare(path, BLIND)
    blind = prepare(path, BLIND, known=settled(first.needs))
    assert row(blind, "report1.pdf").rendition == "text"
    assert "the words of the document" in text_of(blind)


def test_missing_and_quarantined_media_degrade_to_text_with_a_reason() -> None:
    path = said(user("look", screenshot(1), screenshot(2)))
    prepared = prepare(
        path,
        CLAUDE,
        known=Known(missing=frozenset({screenshot(1).media.digest})),
        quarantine=frozenset({screenshot(2).media.digest}),
    )
    assert row(prepared, "shot1.png").reason == "missing"
    assert row(prepared, "shot2.png").reason == "quarantine"
    assert media_of(prepared.prompt.messages) == []


def test_overrides_win_over_age_and_can_be_undone() -> None:
    path = said(
        user("q0", screenshot(0)), assistant("a"), user("q1"), assistant("a"), user("q2"), assistant("a"), user("q3")
    )
    policy = Policy(aging="every-turn")
    pinned = prepare(path, CLAUDE, policy=policy, overrides={override_key("n0", 1): "full"})
    hidden = prepare(path, CLAUDE, policy=policy, overrides={override_key("n0", 1): "omitted"})
    plain = prepare(path, CLAUDE, policy=policy)
    assert row(pinned, "shot0.png").rendition == "full"
    assert row(hidden, "shot0.png").rendition == "omitted"
    assert row(plain, "shot0.png").rendition == "low"


def test_the_words_of_the_user_stand_before_all_others_and_the_receipt_says_so() -> None:
    described, sheet = screenshot(1), report(2)
    digests = (described.media.digest, sheet.media.digest)
    path = said(user("look", described, sheet))
    known = Known(
        descriptions={digests[0]: Description("a zebra", "eyes")},
        texts={(digests[1], recipe_key(Text())): "page after page"},
    )
    plain = prepare(path, BLIND, known=known)
    worded = prepare(path, BLIND, known=known, alts={digests[0]: "the login form", digests[1]: "a plan"})
    assert "a zebra" in text_of(plain) and "page after page" in text_of(plain)
    assert "[image: shot1.png, 1920×1080, 1.2 MB: the login form]" in text_of(worded)
    assert "report2.pdf" in text_of(worded) and ": a plan]" in text_of(worded)
    assert "zebra" not in text_of(worded) and "page after page" not in text_of(worded)
    assert all("described by the user" in row(worded, name).detail for name in ("shot1.png", "report2.pdf"))
    seen = prepare(path, CLAUDE, known=known, alts={digests[0]: "the login form"})
    assert "login form" not in text_of(seen), "who sees it needs no words"


def test_what_the_user_chose_since_the_last_request_ends_what_is_cached() -> None:
    path = said(user("q0", screenshot(0)), assistant("a"), user("q1", screenshot(1)), assistant("a"), user("q2"))
    mark = prepare(path[:4], CLAUDE, policy=Policy(aging="off")).watermark
    cached = {
        name: prepare(path, CLAUDE, policy=Policy(aging="off"), watermark=mark, overrides=overrides, alts=alts)
        for name, overrides, alts in (
            ("nothing", {}, {}),
            ("hidden", {override_key("n2", 1): "omitted"}, {}),
            ("worded", {}, {screenshot(1).media.digest: "seen in full, so nothing changes"}),
        )
    }
    assert {name: found.receipt.cached_rows for name, found in cached.items()} == {
        "nothing": 6,
        "hidden": 4,
        "worded": 6,
    }


def test_pictures_age_from_full_to_low_to_text_that_says_how_to_call_them_back() -> None:
    messages: list[Message] = []
    for number in range(5):
        messages += [user(f"q{number}", screenshot(number)), assistant("ok")]
    prepared = prepare(said(*messages, user("now")), CLAUDE, policy=Policy(aging="every-turn"), request=LOOK)
    assert [row(prepared, f"shot{n}.png").rendition for n in range(5)] == ["text", "text", "low", "low", "full"]
    assert 'look(media="000000000000") shows it]' in text_of(prepared)


def test_only_the_newest_pictures_are_read_for_a_model_that_cannot_see() -> None:
    path = said(*(user(f"q{number}", screenshot(number)) for number in range(30)))
    read = {screenshot(number).media.digest for number in range(10, 30)}
    prepared = prepare(path, BLIND)
    assert {need.digest for need in prepared.needs} == read
    texts = {(need.digest, recipe_key(need.recipe)): "Log in" for need in prepared.needs}
    later = prepare((*path, *said(user("more"))), BLIND, known=Known(texts=texts))
    assert later.needs == (), "the others are not read on later requests either: the prefix stands"
    assert text_of(later).count("Log in") == 20


def test_ageing_never_moves_while_a_tool_loop_is_open() -> None:
    messages: list[Message] = []
    for number in range(6):
        messages += [user(f"q{number}", screenshot(number)), assistant("ok")]
    begun = prepare(said(*messages, user("now")), CLAUDE, policy=Policy(aging="every-turn"))
    loop = [user("now"), assistant(ToolCall("a", "t")), tool(ToolResult("a", (screenshot(9),)))]
    inside = prepare(said(*messages, *loop), CLAUDE, policy=Policy(aging="every-turn"), watermark=begun.watermark)
    assert borders(inside.watermark) == borders(begun.watermark)
    assert inside.prompt.messages[: len(begun.prompt.messages)] == begun.prompt.messages


def test_only_ten_pictures_of_a_message_are_shown() -> None:
    prepared = prepare(said(user("all", *[screenshot(n) for n in range(13)])), CLAUDE)
    assert prepared.receipt.totals.images == 10
    assert [r.reason for r in prepared.receipt.rows if r.rendition == "text"] == ["limit"] * 3


def test_no_picture_is_fitted_looser_than_the_count_dependent_limit() -> None:
    prepared = prepare(said(user("big", screenshot(1, width=7000, height=4000))), CLAUDE)
    (shown,) = media_of(prepared.prompt.messages)
    assert max(shown.ref.width or 0, shown.ref.height or 0) == 2000


def test_a_byte_budget_is_kept_by_reducing_the_oldest_results_first() -> None:
    messages = [message for number in range(40) for message in tool_turn(number)]
    path = said(*messages, user("now"))
    policy = Policy(aging="off", max_bytes=20_000_000)
    prepared = prepare(path, CLAUDE, policy=policy)
    assert prepared.receipt.totals.wire_bytes <= 20_000_000
    kept = [r.message for r in prepared.receipt.rows if r.rendition == "full" and r.kind == "image"]
    lost = [r.message for r in prepared.receipt.rows if r.rendition == "text" and r.kind == "image"]
    assert kept
    assert max(lost) < min(kept)


def test_after_a_cut_there_is_headroom_and_the_next_prompts_extend_it() -> None:
    messages = [message for number in range(40) for message in tool_turn(number)]
    policy = Policy(aging="off", max_bytes=20_000_000)
    mark = Watermark()
    prompts: list[Prepared] = []
    for number in range(40, 44):
        messages += tool_turn(number)
        prompts.append(prepare(said(*messages, user("now")), CLAUDE, policy=policy, watermark=mark))
        mark = prompts[-1].watermark
    assert len({borders(prompt.watermark) for prompt in prompts}) == 1


def test_the_last_two_turns_are_kept_and_pairs_are_never_split() -> None:
    messages = [message for number in range(60) for message in tool_turn(number)]
    small = msgspec.structs.replace(CHAT, limits=msgspec.structs.replace(CHAT.limits, context_tokens=4_000))
    prepared = prepare(said(*messages, user("now")), small, policy=Policy(aging="off"))
    assert prepared.receipt.totals.tokens <= prepared.receipt.budgets.tokens
    assert "turn 59" in text_of(prepared)
    assert "earlier turns are not shown" in text_of(prepared)
    calls = [b.id for m in prepared.prompt.messages for b in m.blocks if isinstance(b, ToolCall)]
    results = [b.call_id for m in prepared.prompt.messages for b in m.blocks if isinstance(b, ShownResult)]
    assert calls == results


def test_a_text_too_long_for_the_window_is_cut_in_the_middle_and_said() -> None:
    small = msgspec.structs.replace(CLAUDE, limits=msgspec.structs.replace(CLAUDE.limits, context_tokens=8_000))
    prepared = prepare(said(user("start " + "word " * 40_000 + " end")), small)
    (block,) = prepared.prompt.messages[0].blocks
    assert isinstance(block, TextBlock)
    assert len(block.text) < 25_000
    assert block.text.startswith("start")
    assert block.text.endswith("end")
    assert any("were cut" in notice for notice in prepared.receipt.notices)


def test_neighbouring_messages_of_a_user_are_one_message_on_the_wire() -> None:
    prepared = prepare(said(user("a"), user("b", screenshot(1)), user("c")), CLAUDE)
    assert len(prepared.prompt.messages) == 1


def test_a_conversation_that_begins_or_ends_with_the_assistant_is_bordered() -> None:
    prepared = prepare(said(assistant("hello"), user("hi"), assistant("bye")), CLAUDE)
    assert [message.role for message in prepared.prompt.messages] == ["user", "assistant", "user", "assistant", "user"]


def test_the_same_inputs_give_the_same_prompt() -> None:
    messages = [message for number in range(20) for message in tool_turn(number)]
    one, two = (prepare(said(*messages, user("x")), CHAT) for _ in range(2))
    assert one == two


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ContentError, match="Nothing to prepare"):
        prepare([], CLAUDE)


@pytest.mark.parametrize(
    "reference",
    ["anthropic/claude-opus-5", "ollama/llava", "openai/gpt-5.5", "openai-chat/gpt-5.5", "gemini/gemini-4-argon"],
)
def test_low_detail_is_said_where_a_request_can_say_it_and_otherwise_the_picture_is_small(reference: str) -> None:
    """The picture's own word counts, then the model's."""
    plain = screenshot(1)
    for target, picture in (
        (model(reference, ModelOverrides(detail="low")), plain),
        (model(reference), ImageBlock(plain.media, detail="low")),
    ):
        prepared = prepare(said(user("look", picture)), target, known=all_known())
        (shown,) = [block for block in prepared.prompt.messages[0].blocks if isinstance(block, ShownMedia)]
        (row,) = [row for row in prepared.receipt.rows if row.kind == "image"]
        assert shown.detail == "low"
        if target.has_detail:
            assert (row.rendition, row.reason) == ("full", "")
        else:
            assert (row.rendition, row.reason) == ("low", "override")
            assert isinstance(shown.ref.recipe, Low)
    close = model(reference, ModelOverrides(detail="low"))
    (row,) = prepare(said(user(ImageBlock(plain.media, detail="high"))), close, known=all_known()).receipt.rows
    assert row.rendition == "full"


# Never without a way back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_look", [True, False])
def test_age_alone_makes_text_of_a_picture_only_where_it_can_be_called_back(has_look: bool) -> None:
    path: list[Message] = []
    mark = Watermark()
    request = LOOK if has_look else Request()
    policy = Policy(aging="every-turn")
    told: list[str] = []
    for number in range(12):
        path.append(user(f"turn {number}", screenshot(number)))
        prepared = prepare(said(*path), CLAUDE, watermark=mark, policy=policy, known=all_known(), request=request)
        mark = prepared.watermark
        told += [notice for notice in prepared.receipt.once if "older turns" in notice]
        path.append(assistant(f"answer {number} " + "word " * 20))
    shown = {row.rendition for row in prepared.receipt.rows if row.kind == "image"}
    assert ("text" in shown) == has_look, shown
    assert "low" in shown
    assert told


def test_a_switch_to_a_model_without_eyes_says_what_will_be_text() -> None:
    path = said(user("see", screenshot(1)), assistant("I see."), user("and now?"))
    prepared = prepare(path, BLIND)
    notice = "deepseek/deepseek-v4-pro does not support images: those of earlier turns are sent as text."
    assert notice in prepared.receipt.notices
    assert notice in prepared.receipt.once


def test_a_text_just_over_the_window_loses_just_too_much() -> None:
    text = "word " * 700_000
    prepared = prepare(said(user(text)), CLAUDE)
    assert prepared.receipt.totals.tokens <= prepared.receipt.budgets.tokens
    assert prepared.receipt.totals.tokens > 0.75 * prepared.receipt.budgets.tokens
