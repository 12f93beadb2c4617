"""What users of other systems suffered, one test for each report; the numbers are those of the design's list of pains.

Here are the rows that a compiler decides; those of the door, the store and the faces stand beside their rooms.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from compile.world import all_known, digest, report, said, screenshot, settled
from flow.judge import encode, problems
from loom.compile.assemble import SEEN_AGAIN
from loom.compile.cost import image_tokens
from loom.compile.policy import DerivedFacts, DetachedMessage, Known, Placed, Policy, Request
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import ContentBlock, ImageBlock, Opaque, TextBlock, ThinkingBlock, ToolCall, ToolResult
from loom.content.media import Media
from loom.content.messages import Message, assistant, tool, user
from loom.content.recipes import Fit
from loom.errors import CapabilityMissing, ContentError, ContextOverflow, MediaRefused, TooManyBytes
from loom.models import Model
from loom.prompt import ReceiptRow, ShownMedia, ShownResult, ToolSpec
from loom.providers.catalog import model
from loom.wire import anthropic, gemini, ollama, openai_chat, openai_responses
from wire.rules import body_bytes, embedded

CLAUDE = model("anthropic/claude-opus-5")
OLD_CLAUDE = model("anthropic/claude-sonnet-4-5")
BEDROCK = model("bedrock/anthropic.claude-opus-5")
CHAT = model("openai-chat/gpt-5.5")
RESPONSES = model("openai/gpt-5.5")
GEMINI = model("gemini/gemini-4-argon")
DEEPSEEK = model("deepseek/deepseek-v4-pro")
MISTRAL = model("mistral/mistral-large-latest")
OLLAMA = model("ollama/llava")
EVERYONE = (CLAUDE, OLD_CLAUDE, BEDROCK, CHAT, RESPONSES, GEMINI, DEEPSEEK, MISTRAL, OLLAMA)
TOOLS = Request(tools=(ToolSpec(name="look", description="See it again.", parameters={"type": "object"}),))


def compiled(messages: list[Message], target: Model, **told: Any) -> Prepared:
    prepared = prepare(said(*messages), target, **{"known": all_known(), "request": TOOLS} | told)
    assert problems(prepared) == []
    return prepared


def pictures(prepared: Prepared) -> list[ShownMedia]:
    found: list[ShownMedia] = []
    for message in prepared.prompt.messages:
        for block in message.blocks:
            inside = block.blocks if isinstance(block, ShownResult) else (block,)
            found += [inner for inner in inside if isinstance(inner, ShownMedia)]
    return found


def rows(prepared: Prepared, kind: str) -> list[ReceiptRow]:
    return [row for row in prepared.receipt.rows if row.kind == kind]


def shots(count: int, **facts: int) -> list[Message]:
    """Turns in which the user shows one screenshot each."""
    return [m for n in range(count) for m in (user(f"Look at {n}", screenshot(n, **facts)), assistant("Seen."))]


def tool_shots(count: int, *blocks: ContentBlock) -> list[Message]:
    calls = [ToolCall(f"call_{n}", "shot") for n in range(count)]
    results = [ToolResult(f"call_{n}", (TextBlock(f"shot {n}"), *(blocks or (screenshot(n),)))) for n in range(count)]
    return [user("Take them"), assistant("I do.", *calls), tool(*results)]


def test_pain_01_a_huge_paste_is_fitted_and_the_next_messages_go_through() -> None:
    paste = ImageBlock(
        Media(digest=digest(1), media_type="image/png", size_bytes=60_000_000, width=12_000, height=9_000)
    )
    first = compiled([user("What is this?", paste)], CLAUDE)
    (shown,) = pictures(first)
    assert isinstance(shown.ref.recipe, Fit)
    assert shown.ref.recipe.max_encoded_bytes <= 10_000_000
    later = compiled([user("What is this?", paste), assistant("A map."), user("Thanks")], CLAUDE)
    assert pictures(later)[0].ref == shown.ref


@pytest.mark.parametrize("target", [CLAUDE, OLD_CLAUDE, BEDROCK])
def test_pain_02_every_picture_is_held_to_the_tightest_limit_that_can_apply(target: Model) -> None:
    large = shots(30, width=7_900, height=4_000)
    for count in (2, 40, 60):
        prepared = prepare(said(*large[:count], user("And?")), target, policy=Policy(aging="off"))
        assert all(max(shown.ref.width or 0, shown.ref.height or 0) <= 2_000 for shown in pictures(prepared))


def test_pain_03_a_picture_that_was_taken_is_still_taken_twenty_pictures_later() -> None:
    large = shots(25, width=7_900, height=4_000)
    early = compiled([*large[:2], user("And?")], CLAUDE, policy=Policy(aging="off"))
    late = compiled([*large, user("And?")], CLAUDE, policy=Policy(aging="off"))
    assert len(pictures(late)) == 25
    assert all(isinstance(at := shown.ref.recipe, Fit) and at.max_side_px <= 2_000 for shown in pictures(late))
    assert pictures(early)[0].ref == pictures(late)[0].ref, "not even its bytes changed: the cache holds"


@pytest.mark.parametrize(("target", "most"), [(CLAUDE, 10_000_000), (BEDROCK, 5_000_000)])
def test_pain_04_limits_are_measured_on_the_encoded_field(target: Model, most: int) -> None:
    between = ImageBlock(
        Media(digest=digest(1), media_type="image/jpeg", size_bytes=9_000_000, width=1_900, height=1_900)
    )
    recipe = pictures(compiled([user("See", between)], target))[0].ref.recipe
    assert isinstance(recipe, Fit)
    assert recipe.max_encoded_bytes == most
    tightest = DerivedFacts(media_type="image/jpeg", size_bytes=most * 3 // 4, width=1_900, height=1_900)
    first = prepare(said(user("See", between)), target)
    known = settled(first.needs)
    known = msgspec.structs.replace(known, derived=dict.fromkeys(known.derived, tightest))
    assert embedded(encode(compiled([user("See", between)], target, known=known).prompt))[0].ref.encoded_bytes <= most


def test_pain_05_the_label_is_what_the_encoder_wrote() -> None:
    lying = ImageBlock(Media(digest=digest(1), media_type="image/png", size_bytes=900, width=9, height=9, name="a.gif"))
    jpeg = DerivedFacts(media_type="image/jpeg", size_bytes=700, width=9, height=9)
    for target in (CLAUDE, CHAT, RESPONSES, GEMINI):
        asked = settled(prepare(said(user("See", lying)), target).needs)
        known = Known(derived=dict.fromkeys(asked.derived, jpeg))
        request = encode(compiled([user("See", lying)], target, known=known).prompt)
        written = json.dumps(request, default=lambda found: found.prefix)
        assert "image/jpeg" in written
        assert "image/png" not in written


def test_pain_10_sixty_pictures_stay_within_the_bytes_of_a_request() -> None:
    many = [*shots(63, size_bytes=2_100_000), user("And?")]
    prepared = prepare(said(*many), CLAUDE, policy=Policy(aging="off"))
    assert prepared.receipt.totals.tokens < prepared.receipt.budgets.tokens * 0.4, "tokens alone would say: send it"
    assert prepared.receipt.totals.wire_bytes <= 32_000_000
    assert body_bytes(encode(prepared.prompt)) <= 32_000_000
    assert {row.reason for row in rows(prepared, "image") if row.rendition == "text"} == {"budget"}


def test_pain_11_a_summary_can_be_asked_for_without_any_media() -> None:
    """Whoever summarizes sets the budgets of media to nothing: the compiler gives texts."""
    bare = Policy(max_images=0, max_pages=0)
    for target in EVERYONE:
        prepared = compiled([*shots(5), user("Summarize", report(9))], target, policy=bare)
        assert pictures(prepared) == []
        assert body_bytes(encode(prepared.prompt)) < 20_000


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_11_what_is_left_out_is_still_named_and_can_be_called_back(target: Model) -> None:
    long = [m for n in range(40) for m in (user(f"{n} " + "words " * 400, screenshot(n)), assistant("answer " * 400))]
    prepared = compiled([*long, user("And?")], target, policy=Policy(max_tokens=6_000))
    dropped = [row for row in rows(prepared, "image") if row.rendition == "omitted"]
    assert len(dropped) > 30
    (note,) = [
        block.text
        for message in prepared.prompt.messages
        for block in message.blocks
        if isinstance(block, TextBlock) and "earlier turns are not shown" in block.text
    ]
    newest = dropped[-1]
    assert f"shot{len(dropped) - 1}.png ({newest.digest.removeprefix('sha256:')[:12]})" in note
    assert f"and {len(dropped) - 8} more" in note
    assert "look(media=…) shows one" in note


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected"),
    [
        (413, "request_too_large", "Request exceeds the maximum size", TooManyBytes),
        (413, "", "nginx", TooManyBytes),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000", ContextOverflow),
        (400, "invalid_request_error", "Could not process image", MediaRefused),
        (500, "api_error", "image input is not supported - you may need an mmproj", CapabilityMissing),
    ],
)
def test_pain_12_bytes_tokens_media_and_capability_are_told_apart(
    status: int, kind: str, message: str, expected: type
) -> None:
    for wire in (anthropic, openai_chat, openai_responses, gemini, ollama):
        assert isinstance(wire.fault(status, {"error": {"type": kind, "message": message}}, CLAUDE), expected)


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_13_a_screenshot_of_three_megabytes_costs_what_its_pixels_cost(target: Model) -> None:
    prepared = prepare(said(user("See", screenshot(1, size_bytes=3_000_000))), target)
    assert rows(prepared, "image")[0].tokens < 3_500


def test_pain_14_the_largest_picture_that_a_door_lets_in_is_never_refused_for_tokens() -> None:
    huge = screenshot(1, width=8_000, height=8_000, size_bytes=10_000_000)
    for target in EVERYONE:
        prepared = compiled([user("See", huge)], target)
        assert prepared.receipt.totals.tokens <= prepared.receipt.budgets.tokens
        assert image_tokens(8_000, 8_000, target.tokens) < 100_000
        unmade = prepare(said(user("See", huge)), target)
        assert rows(unmade, "image")[0].tokens < 10_000, "megabytes of base64 are not counted as words"


def test_pain_21_a_picture_from_a_tool_reaches_chat_completions() -> None:
    request = encode(compiled(tool_shots(1), CHAT).prompt)
    kinds = [(message["role"], bool(embedded(message))) for message in request["messages"]]
    assert kinds == [("user", False), ("assistant", False), ("tool", False), ("user", True)]
    assert "from the result of shot" in request["messages"][3]["content"][0]["text"]


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_22_pictures_of_parallel_calls_never_stand_between_their_results(target: Model) -> None:
    prepared = compiled(tool_shots(3), target)
    roles = [message.role for message in prepared.prompt.messages]
    assert roles[:3] == ["user", "assistant", "tool"]
    assert len([block for block in prepared.prompt.messages[2].blocks if isinstance(block, ShownResult)]) == 3


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_23_no_picture_is_ever_text_of_base64(target: Model) -> None:
    prepared = compiled(tool_shots(2), target)
    words = [b.text for m in prepared.prompt.messages for b in m.blocks if isinstance(b, TextBlock)]
    assert max((len(text) for text in words), default=0) < 200
    assert prepared.receipt.totals.tokens < 8_000


def test_pain_24_a_history_full_of_pictures_goes_to_a_text_only_server() -> None:
    request = encode(compiled([*tool_shots(2), user("And?", screenshot(9))], DEEPSEEK).prompt)
    assert embedded(request) == []
    assert all(isinstance(message["content"], str | None) for message in request["messages"])


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_25_switching_is_never_refused_for_what_the_session_contains(target: Model) -> None:
    everything = [*shots(2), user("Read", report(8)), assistant("Read."), *tool_shots(2), user("And now?")]
    assert compiled(everything, target).prompt.messages


def test_pain_26_the_fallback_is_neutral_and_the_picture_comes_back() -> None:
    path = [user("What is this?", screenshot(1)), assistant("A label."), user("And now?")]
    request = str(encode(compiled(path, DEEPSEEK).prompt))
    assert "[image: shot1.png" in request
    assert not any(
        word in request.lower() for word in ("error", "cannot", "unable", "not supported", "inform the user")
    )
    assert len(pictures(compiled(path, CLAUDE))) == 1


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_26_where_pictures_are_visible_again_it_is_said_once_and_stays_said(target: Model) -> None:
    path: list[Placed] = [
        DetachedMessage("n0", user("What is this?", screenshot(1))),
        DetachedMessage("n1", assistant("I cannot see any picture."), is_blind=True),
        DetachedMessage("n2", user("Now you look.")),
        DetachedMessage("n3", assistant("A flag.")),
        DetachedMessage("n4", user("Sure?")),
    ]

    def texts(path: list[Placed]) -> list[str]:
        prepared = prepare(path, target, known=all_known(), policy=Policy(aging="off"))
        assert problems(prepared) == []
        return [b.text for m in prepared.prompt.messages for b in m.blocks if isinstance(b, TextBlock)]

    sees = target.capabilities.vision
    first, later = texts(path[:3]), texts(path)
    assert first.count(SEEN_AGAIN) == later.count(SEEN_AGAIN) == int(sees)
    assert later[: len(first)] == first, "the next request extends this one"
    if sees:
        assert first.index(SEEN_AGAIN) == first.index("Now you look.") - 1


def test_pain_27_a_model_of_unknown_abilities_is_tried_and_the_user_is_told_when_it_is_blind() -> None:
    unknown = model("compatible/some-new-model")
    assert unknown.capabilities.origins["vision"] == "guessed"
    assert len(pictures(compiled([user("See", screenshot(1))], unknown))) == 1
    blind = compiled([user("See", screenshot(1))], model("compatible/smollm2-135m"))
    assert any("shot1.png as text" in notice for notice in blind.receipt.notices)


def test_pain_28_a_signature_never_reaches_another_model() -> None:
    thought = ThinkingBlock("hm", opaque=Opaque(provider="anthropic", model="claude-opus-5", data={"signature": "s"}))
    path = [user("a"), assistant(thought, "b"), user("c")]
    assert "signature" in str(encode(compiled(path, CLAUDE).prompt))
    for target in EVERYONE[1:]:
        prepared = compiled(path, target)
        assert "signature" not in str(encode(prepared.prompt))
        assert rows(prepared, "thinking")[0].reason in ("other-model", "capability")


def test_pain_29_a_thought_signature_stays_on_its_call_and_foreign_calls_carry_the_sentinel() -> None:
    signed = Opaque(provider="gemini", model=GEMINI.name, data={"thoughtSignature": "c2ln"})
    other = Opaque(provider="gemini", model="gemini-3.7-flash", data={"thoughtSignature": "b3RoZXI="})

    def signatures(opaque: Opaque | None) -> list[str | None]:
        path = [user("a"), assistant(ToolCall("1", "t", {}, None, opaque), ToolCall("2", "t"))]
        path.append(tool(ToolResult("1", (TextBlock("x"),)), ToolResult("2", (TextBlock("y"),))))
        parts = encode(compiled(path, GEMINI).prompt)["contents"][1]["parts"]
        return [part.get("thoughtSignature") for part in parts]

    assert signatures(signed) == ["c2ln", None]
    assert signatures(other) == ["skip_thought_signature_validator", None]
    assert signatures(None) == ["skip_thought_signature_validator", None]


def test_pain_30_deepseek_gets_its_reasoning_back_on_every_message_that_called_tools() -> None:
    own = ThinkingBlock(
        "first", opaque=Opaque(provider="deepseek", model=DEEPSEEK.name, data={"field": "reasoning_content"})
    )
    path = [user("a"), assistant(own, ToolCall("1", "t")), tool(ToolResult("1", (TextBlock("x"),)))]
    path += [assistant(own, "done"), user("b"), assistant(ToolCall("2", "t")), tool(ToolResult("2", (TextBlock("y"),)))]
    messages = encode(compiled(path, DEEPSEEK).prompt)["messages"]
    told = [message.get("reasoning_content") for message in messages if message["role"] == "assistant"]
    assert told == ["first", None, ""]


def test_pain_31_citations_go_back_as_they_came_and_not_to_others() -> None:
    from wire.streams import ANTHROPIC, told

    cited = told(anthropic, CLAUDE, ANTHROPIC["citations"]).message
    assert cited is not None
    path = [user("Read", report(1, pages=4)), cited, user("And?")]
    blocks = encode(compiled(path, CLAUDE).prompt)["messages"][1]["content"]
    (citation,) = [found for block in blocks for found in block.get("citations", [])]
    assert citation["type"] == "page_location"
    assert "file_id" not in citation
    for target in EVERYONE[3:]:
        assert "page_location" not in str(encode(compiled(path, target).prompt))
    unread = compiled(path, CLAUDE, overrides={"n0/1": "text"})
    assert "page_location" not in str(encode(unread.prompt)), "the document whose pages it counts is not there"
    theirs = msgspec.convert(json.loads(msgspec.json.encode(cited).replace(b'"anthropic"', b'"openai"')), Message)
    assert "page_location" not in str(encode(compiled([path[0], theirs, path[2]], CLAUDE).prompt))


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_32_nothing_is_ever_empty(target: Model) -> None:
    with pytest.raises(ContentError):
        TextBlock(" \n")
    hidden = {"n0/0": "omitted", "n2/0/0": "omitted", "n2/0/1": "omitted"}
    compiled(tool_shots(1), target, overrides=hidden)


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_33_trimming_never_splits_a_call_from_its_result(target: Model) -> None:
    turns = [message for _ in range(30) for message in (*tool_shots(2), assistant("done " * 200))]
    for tokens in (500, 2_000, 8_000, 30_000):
        compiled([*turns, user("And?")], target, policy=Policy(max_tokens=tokens))
    compiled([user("a"), tool(ToolResult("gone", (TextBlock("x"),))), assistant(ToolCall("never", "t"))], target)


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_34_a_pdf_of_any_length_goes_through_and_says_what_is_not_shown(target: Model) -> None:
    prepared = compiled([user("Read", report(1, pages=1_500)), assistant("Read."), user("And?")], target)
    assert prepared.receipt.totals.pages <= prepared.receipt.budgets.pages
    if target.capabilities.vision:
        words = [b.text for m in prepared.prompt.messages for b in m.blocks if isinstance(b, TextBlock)]
        assert any("are not shown" in text for text in words)


def test_pain_35_document_names_are_legal_whatever_the_file_was_called() -> None:
    names = ("a\nb.pdf", " ", "", "report_v2.final.pdf", "x" * 400, "\x00.pdf", "$(rm -rf).pdf", "\u202efdp.exe")
    blocks = [
        msgspec.structs.replace(
            report(at, pages=2), media=msgspec.structs.replace(report(at, pages=2).media, name=name)
        )
        for at, name in enumerate(names)
    ]
    for target in EVERYONE:
        compiled([user("Read", *blocks)], target)


def test_pain_36_one_picture_too_many_does_not_rewrite_the_conversation_with_every_request() -> None:
    messages = shots(90, size_bytes=100_000)
    policy = Policy(aging="off")
    marks: list[int] = []
    mark = prepare(said(*messages, user("And?")), OLD_CLAUDE, policy=policy).watermark
    for number in range(100, 112):
        messages += [user("Look", screenshot(number, size_bytes=100_000)), assistant("Seen.")]
        prepared = prepare(said(*messages, user("And?")), OLD_CLAUDE, policy=policy, watermark=mark)
        mark = prepared.watermark
        marks.append(mark.media_before)
    assert len(set(marks)) <= 2, "twelve more pictures, at most one rewrite"


@pytest.mark.parametrize(("target", "most"), [(MISTRAL, 8), (OLD_CLAUDE, 100), (CLAUDE, 100), (CHAT, 100)])
def test_pain_37_pictures_are_counted_and_the_newest_are_kept(target: Model, most: int) -> None:
    prepared = compiled(
        [*shots(130), user("And?", *[screenshot(500 + n) for n in range(9)])], target, policy=Policy(aging="off")
    )
    digests = [shown.ref.digest for shown in pictures(prepared)]
    assert 0 < len(digests) <= most
    newest = [screenshot(500 + n).media.digest for n in range(min(9, most))]
    assert digests[-len(newest) :] == newest


def test_pain_38_ollama_gets_pictures_of_tools_where_every_template_shows_them() -> None:
    messages = encode(compiled(tool_shots(2), OLLAMA).prompt)["messages"]
    assert [message["role"] for message in messages if "images" in message] == ["user"]
    assert len(messages[-1]["images"]) == 2


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_39_every_block_is_shown_or_has_a_reason(target: Model) -> None:
    path = [*tool_shots(2), assistant("So."), user("Read", report(8), screenshot(9), "these")]
    prepared = compiled(path, target)
    assert len(prepared.receipt.rows) == 13
    request = encode(prepared.prompt)
    media, words = {place.ref.digest for place in embedded(request)}, str(request)
    for row in prepared.receipt.rows:
        assert row.rendition == "full" or row.reason
        assert row.kind != "text" or row.label in words
        assert not row.digest or row.rendition == "text" or row.digest in media


@pytest.mark.parametrize("target", EVERYONE)
def test_pain_20_a_picture_whose_bytes_are_gone_becomes_text_and_the_session_goes_on(target: Model) -> None:
    gone = Known(missing=frozenset({screenshot(0).media.digest}))
    prepared = compiled([*shots(1), user("And?")], target, known=gone)
    assert rows(prepared, "image")[0].reason == "missing"
