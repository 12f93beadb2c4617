"""Single hard cases of reading older shapes."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from msgspec.structs import replace

from content.tiny_media import PNG, WAV, fetch, lift, pdf, png, wav
from loom.content.blocks import Opaque, TextBlock, ThinkingBlock, ToolCall, ToolResult, UnknownBlock
from loom.content.codec import encode_message
from loom.content.messages import Message, assistant, text_of, tool, user
from loom.errors import ContentError, Newer
from loom.importers import UpgradedConversation, upgrade
from loom.importers.forms import OriginalForms

B64 = base64.b64encode(PNG).decode()


def read(data: Any) -> UpgradedConversation:
    """What was read; how it came is the subject of `test_identity`."""
    return replace(upgrade(data, lift=lift, fetch=fetch), originals=OriginalForms(), head=())


def content(*blocks: Any) -> tuple[Any, ...]:
    """What the blocks of one user message become."""
    found = read([{"role": "user", "content": list(blocks)}])
    return found.messages[0].blocks if found.messages else ()


def nested(levels: int) -> Any:
    value: Any = "core"
    for level in range(levels):
        value = [value] if level % 2 else {"type": "text", "content": value}
    return value


# --- what is a conversation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "described"),
    [
        (None, "nothing"),
        (3, "a number or a boolean"),
        ("[]", "a string"),
        ({}, "an empty object"),
        ({"a": 1, "b": 2}, "an object with the keys a, b"),
        ([1, "x"], "a list without messages"),
        ({"messages": "hi"}, "an object with the keys messages"),
        ({"messages": None}, "an object with the keys messages"),
    ],
)
def test_what_is_no_conversation_is_refused_and_named(data: Any, described: str) -> None:
    with pytest.raises(ContentError, match=f"Expected a conversation, got {described}.*is a list of messages"):
        read(data)


@pytest.mark.parametrize("data", [[], {"messages": []}, {"input": []}, {"contents": []}])
def test_an_empty_conversation_is_empty(data: Any) -> None:
    assert read(data) == UpgradedConversation()


@pytest.mark.parametrize(
    "data",
    [
        {"role": "user", "content": "hi"},
        [{"role": "user", "content": "hi"}],
        {"messages": [{"role": "human", "content": "hi"}]},
        {"input": "hi"},
        {"contents": "hi"},
        {"contents": {"parts": [{"text": "hi"}]}},
        {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
        [{"uuid": "1", "type": "user", "message": {"role": "user", "content": "hi"}}],
        {"v": 1, "role": "user", "blocks": [{"type": "text", "text": "hi"}]},
        [{"v": 1, "role": "user", "blocks": [{"type": "text", "text": "hi"}]}],
    ],
)
def test_a_greeting_is_the_same_in_every_envelope(data: Any) -> None:
    assert read(data) == UpgradedConversation(messages=(user("hi"),))


def test_a_newer_loom_is_never_guessed_at() -> None:
    for newer in (
        {"loom": "conversation", "v": 3, "messages": []},
        {"loom": "conversation", "v": 3, "messages": [{"blocks": [7]}]},
        {"loom": "conversation", "v": 1, "messages": [{"v": 2, "role": "user", "blocks": [7]}]},
        [{"v": 2, "role": "user", "blocks": [{"type": "text", "text": "hi"}]}],
        [{"v": 2, "role": "user", "blocks": ["a shape of tomorrow"]}],
    ):
        with pytest.raises(Newer):
            read(newer)


def test_a_damaged_message_of_ours_keeps_what_is_whole() -> None:
    data = json.loads(encode_message(user("one", replace(png("a.png"), alt="dot"))))
    data["blocks"].append({"type": "text", "text": " "})
    assert read([data]).messages == (user("one", replace(png("a.png"), alt="dot")),)
    broken = {"v": 1, "role": "tool", "blocks": [{"type": "tool_result", "call_id": "a", "blocks": []}]}
    assert read({"loom": "conversation", "v": 1, "messages": [broken]}).messages == (
        tool(ToolResult("a", (TextBlock("(no output)"),))),
    )


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": ["text"], "text": "hi"}],
        ["hi"],
        [7, {"type": "text", "text": "hi"}],
        [{"text": "hi"}],
        {"type": "text", "text": "hi"},
        [{"type": "tool_result", "call_id": "a", "blocks": ["hi"]}],
        [{"type": "tool_result", "call_id": "a", "blocks": "hi"}, {"type": "new"}],
        [{"type": "tool_result", "call_id": "a", "blocks": [{"type": "tool_result", "call_id": "b", "blocks": "hi"}]}],
    ],
)
def test_blocks_of_ours_that_are_out_of_shape_still_say_what_they_say(blocks: Any) -> None:
    for role in ("user", "assistant", "tool"):
        stored = {"v": 1, "role": role, "blocks": blocks}
        for data in ([stored], {"loom": "conversation", "v": 1, "messages": [stored]}):
            assert "hi" in "".join(encode_message(message).decode() for message in read(data).messages)


def test_what_is_no_message_among_messages_is_kept_as_text() -> None:
    found = read([{"role": "user", "content": "hi"}, "loose words", None, 7, {"content": "no role"}])
    assert found.messages == (user("hi"), user("loose words"), user("7"), user("no role"))
    assert "message 2: not a message; imported as user text" in found.notices
    assert "message 5: a message without a role was imported as a user message" in found.notices


def test_the_words_of_an_unknown_role_say_whose_they_are() -> None:
    found = read([{"role": "critic", "content": "weak"}])
    assert found.messages == (user("[critic] weak"),)
    assert found.notices == ("message 1: a message of the unknown role 'critic' was imported as a user message",)


def test_leading_system_messages_form_the_prompt_and_later_ones_do_not() -> None:
    found = read(
        {
            "system": "zero",
            "messages": [
                {"role": "system", "content": "one"},
                {"role": "system", "content": ""},
                {"role": "developer", "content": [{"type": "text", "text": "two"}]},
                {"role": "user", "content": "hi"},
                {"role": "system", "content": [{"type": "image", "source_path": "shots/photo.png"}]},
            ],
        }
    )
    assert found.system == "zero\n\none\n\ntwo"
    assert found.messages == (user("hi"), user("[system]", png("photo.png")))


# --- calls and results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parsed", "raw"),
    [
        ("", {}, None),
        (None, {}, None),
        ("null", {}, None),
        ("{}", {}, None),
        ('{"a": [1, 2.5, null, "é"]}', {"a": [1, 2.5, None, "é"]}, None),
        ({"a": 1}, {"a": 1}, None),
        ({"a": float("nan"), "b": 2**70}, {"a": "NaN", "b": str(2**70)}, None),
        ("[1]", {}, "[1]"),
        ("3", {}, "3"),
        ('{"a": NaN}', {}, '{"a": NaN}'),
        ('{"a": ', {}, '{"a": '),
        (f'{{"n": {2**70}}}', {}, f'{{"n": {2**70}}}'),
        ([1, {"x": 2}], {}, '[1,{"x":2}]'),
        (True, {}, "true"),
    ],
)
def test_arguments_are_parsed_or_kept_raw(arguments: Any, parsed: dict[str, Any], raw: str | None) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert read([{"role": "assistant", "tool_calls": [call]}]).messages == (
        assistant(ToolCall("a", "f", parsed, raw_arguments=raw)),
    )


def test_a_second_result_for_a_call_follows_the_first_and_a_copy_of_the_first_does_not() -> None:
    found = read(
        [
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "a", "content": "two", "is_error": True},
            {"role": "tool", "tool_call_id": "a", "content": "one"},
        ]
    )
    said = ("one", "[another error for this call]", "two")
    assert found.messages[1] == tool(ToolResult("a", tuple(TextBlock(text) for text in said)))
    assert found.notices == ("message 2: the call 'a' had more than one result; they were joined",)


def test_calls_that_share_an_id_are_told_apart_and_so_are_their_results() -> None:
    found = read(
        [
            {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": name}} for name in "fgf"]},
            {"role": "tool", "tool_call_id": "x", "content": "of f"},
            {"role": "tool", "tool_call_id": "x", "content": "of g"},
        ]
    )
    assert found.messages == (
        assistant(ToolCall("x", "f"), ToolCall("x~2", "g")),
        tool(ToolResult("x", (TextBlock("of f"),)), ToolResult("x~2", (TextBlock("of g"),))),
    )


def test_results_without_a_call_stay_results() -> None:
    found = read([{"role": "tool", "tool_call_id": "lost", "content": "x"}, {"role": "tool", "content": "y"}])
    assert [result.call_id for result in found.messages[0].results] == ["lost", "result_2_1"]


def test_results_that_name_their_call_are_matched_before_those_that_do_not() -> None:
    found = read(
        [
            {"role": "assistant", "tool_calls": [{"id": i, "function": {"name": "f"}} for i in "ab"]},
            {"role": "tool", "tool_name": "f", "content": "nameless"},
            {"role": "tool", "tool_call_id": "a", "content": "for a"},
        ]
    )
    assert [result.call_id for result in found.messages[1].results] == ["b", "a"]


def test_an_empty_message_between_results_does_not_part_them() -> None:
    found = read(
        [
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "user", "content": " "},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
        ]
    )
    assert [message.role for message in found.messages] == ["tool"]


def test_a_call_that_is_stored_both_in_content_and_beside_it_is_one_call() -> None:
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
    call = {"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}
    assert read([{"role": "assistant", "content": [block], "tool_calls": [call]}]).messages == (
        assistant(ToolCall("a", "f", {"x": 1})),
    )


def test_messages_that_were_one_are_joined_by_their_id() -> None:
    pieces = [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "a", "name": "f", "input": {}}]
    lines = [{"message": {"id": "msg_1", "role": "assistant", "content": [piece]}} for piece in pieces]
    assert read(lines).messages == (assistant(ThinkingBlock("hm"), ToolCall("a", "f")),)
    for at, line in enumerate(lines):
        line["message"]["id"] = f"msg_{at}"
    assert len(read(lines).messages) == 2


def test_blocks_in_a_role_that_cannot_hold_them_go_to_one_that_can() -> None:
    blocks = [
        {"type": "text", "text": "words"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "tool_result", "tool_use_id": "a", "content": "done"},
    ]
    done = tool(ToolResult("a", (TextBlock("done"),)))
    assert read([{"role": "assistant", "content": [*blocks, "more"]}]).messages == (
        assistant("words", ToolCall("a", "f")),
        done,
        assistant("more"),
    )
    assert read([{"role": "user", "content": blocks}]).messages == (done, assistant(ToolCall("a", "f")), user("words"))


def test_a_call_inside_a_result_is_kept_as_text() -> None:
    inner = [{"type": "tool_use", "id": "b", "name": "g", "input": {"q": 1}}, {"type": "thinking", "thinking": "hm"}]
    found = read([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": inner}]}])
    assert found.messages == (tool(ToolResult("a", (TextBlock('[b] [tool call: g({"q":1})]'), TextBlock("hm")))),)


def test_signatures_that_came_through_a_chat_route_are_kept_for_their_maker() -> None:
    call = {"id": "a", "function": {"name": "f"}, "extra_content": {"google": {"thought_signature": "s"}}}
    owed = Opaque(provider="gemini", model="gemini-3", data={"thoughtSignature": "s"})
    message = {"role": "assistant", "model": "gemini-3", "tool_calls": [call]}
    assert read([message]).messages == (assistant(ToolCall("a", "f", opaque=owed)),)


# --- text that only looks like structure -----------------------------------------------------------------------------

LOOKS = [
    '{"type":"image","source_path":"/etc/passwd"}',
    '{"lc":1,"type":"secret"}',
    '[{"type":"tool_use","id":"a","name":"rm","input":{}}]',
    '{"success":true,"output":"x","content_blocks":[]}',
    f"data:image/png;base64,{B64}",
    B64,
]


@pytest.mark.parametrize("text", LOOKS)
def test_words_that_look_like_structure_stay_words(text: str) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("nothing is fetched or lifted for words")

    for said in (text, [text], [{"type": "text", "text": text}]):
        for role, build in (("user", user), ("assistant", assistant)):
            found = upgrade([{"role": role, "content": said}], lift=refuse, fetch=refuse)
            assert found.messages == (build(text),)


def test_an_old_result_may_point_at_files_only_through_the_callers_fetch() -> None:
    asked: list[str] = []
    old = {"success": True, "output": "", "content_blocks": [{"type": "image", "source_path": "/etc/shadow"}]}
    found = upgrade(
        [{"role": "tool", "tool_call_id": "a", "content": json.dumps(old)}],
        lift=lift,
        fetch=asked.append,
    )
    assert asked == ["/etc/shadow"]
    assert found.messages == (tool(ToolResult("a", (TextBlock("[image: shadow: the file is not available]"),))),)


def test_a_tools_own_json_is_not_taken_for_blocks() -> None:
    listing = [{"type": "directory", "entries": 3}, {"image": {"width": 3}}, {"text": "x", "score": 1}]
    found = read([{"role": "tool", "tool_call_id": "a", "content": {"files": listing}}])
    assert found.messages == (
        tool(ToolResult("a", (TextBlock(json.dumps({"files": listing}, separators=(",", ":"))),))),
    )


# --- media -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": B64}},
        {"type": "image", "data": B64, "mimeType": "image/png"},
        {"type": "image_url", "image_url": f"data:image/png;base64,{B64}"},
        {"type": "image_url", "image_url": {"url": f"DATA:image/png;charset=binary;BASE64,{B64}"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{B64.replace('+', '%2B')}"}},
        {"type": "image_url", "image_url": {"url": B64}},
        {"type": "input_image", "image_url": f"data:;base64,{B64}"},
        {"type": "image", "image": f"data:image/png;base64,{B64}"},
        {"type": "image", "source": f"data:image/png;base64,{B64}"},
        {"inline_data": {"mime_type": "image/png", "data": B64}},
        {"image": {"format": "png", "source": {"bytes": B64}}},
        {"type": "image", "source": {"data": B64[:40] + "\n  " + B64[40:]}},
        {"type": "image", "source": {"data": B64.rstrip("=").replace("+", "-").replace("/", "_")}},
        {"type": "resource", "resource": {"uri": "file:///x.png", "mimeType": "image/png", "blob": B64}},
    ],
)
def test_inline_pictures_of_every_shape_are_lifted(block: dict[str, Any]) -> None:
    assert content(block) == (png(),)


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (
            {"type": "image", "source": {"type": "base64", "data": "?!"}},
            "[image: its base64 data could not be decoded]",
        ),
        (
            {"type": "image", "source": {"media_type": "image/png", "data": "Z2FyYmFnZQ=="}, "name": "a.png"},
            "[image: a.png, image/png, 7 bytes: these bytes are no picture]",
        ),
        ({"type": "input_audio", "input_audio": {"data": "Z2FyYmFnZQ=="}}, "[audio, 7 bytes: it could not be read]"),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,?!"}},
            "[image: its base64 data could not be decoded]",
        ),
        ({"type": "image_url", "image_url": {"url": "data:nonsense"}}, "[image: its base64 data could not be decoded]"),
        ({"type": "image_url", "image_url": {"url": "data:image/png,"}}, "[image: it was empty]"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}},
            "[image: it was empty]",
        ),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "[image at file:///etc/passwd]"),
        (
            {"type": "image_url", "image_url": "https://e.example/a.png", "alt": "a cat"},
            "[image at https://e.example/a.png]\na cat",
        ),
        (
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            "[image: file file_1, stored by a provider]",
        ),
        ({"type": "document", "source_path": "/gone.pdf", "text_fallback": "its words"}, "its words"),
        ({"type": "document", "source_path": "C:\\tmp\\gone.pdf"}, "[document: gone.pdf: the file is not available]"),
        ({"type": "resource_link", "uri": "https://e.example/x", "name": "x"}, "[file at https://e.example/x]"),
        ({"type": "image"}, '{"type":"image"}'),
    ],
)
def test_media_that_cannot_be_had_becomes_a_text_that_says_so(block: dict[str, Any], text: str) -> None:
    assert content(block) == (TextBlock(text),)


@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"source": "user"},
        {"url": "https://e.example/photo.png"},
        {"file": "photo.png"},
        {"image": "photo.png", "media_type": "image/png"},
        {"data": "not base64!!"},
        {"url": "data:image/png;base64,?!"},
        {"url": "data:image/png,"},
        {"image_id": "abc"},
    ],
)
def test_the_file_of_a_block_is_read_whatever_stands_beside_its_path(beside: dict[str, Any]) -> None:
    assert content({"type": "image", "source_path": "shots/photo.png", **beside}) == (png("photo.png"),)


def test_bytes_in_a_block_come_before_its_file_and_links_after() -> None:
    for held in ({"data": B64}, {"url": f"data:image/png;base64,{B64}"}, {"image": B64}):
        assert content({"type": "image", "source_path": "docs/report.pdf", **held}) == (png("report.pdf"),)
    gone = {"type": "image", "source_path": "/gone.png"}
    assert content({**gone, "url": "https://e.example/a.png"}) == (TextBlock("[image at https://e.example/a.png]"),)
    assert content({**gone, "data": "?!"}) == (TextBlock("[image: gone.png: its base64 data could not be decoded]"),)


def test_text_in_a_data_url_is_read_in_its_own_encoding() -> None:
    url = "data:text/plain;charset=iso-8859-1,caf%E9"
    assert content({"type": "input_file", "filename": "a.txt", "file_data": url}) == (TextBlock("café"),)


def test_links_in_a_conversation_are_told_and_not_followed() -> None:
    found = read([{"role": "user", "content": [{"type": "image", "source": {"url": "http://169.254.169.254/"}}]}])
    assert found.notices == ("message 1: image at http://169.254.169.254/ was not fetched",)


def test_pictures_are_lifted_out_of_a_tools_json() -> None:
    answer = {"shots": [{"png": B64}, {"sound": f"data:audio/wav;base64,{base64.b64encode(WAV).decode()}"}], "n": 1}
    for said in (answer, json.dumps(answer), [{"type": "text", "text": json.dumps(answer)}]):
        (message,) = read([{"role": "tool", "tool_call_id": "a", "content": said}]).messages
        text, *media = message.results[0].blocks
        assert media == [png(), wav()]
        assert text == TextBlock(
            '{"shots":[{"png":"[image: image/png, 2×1, 72 bytes]"},'
            '{"sound":"[audio: audio/wav, 0.0 s, 52 bytes]"}],"n":1}'
        )


def test_base64_that_only_begins_like_a_picture_stays_in_a_tools_json() -> None:
    text = json.dumps({"path": "/9j/" + "abcd" * 30})
    (message,) = read([{"role": "tool", "tool_call_id": "a", "content": text}]).messages
    assert message.results[0].blocks == (TextBlock(text),)


def test_a_documents_stored_text_is_left_out_with_a_notice() -> None:
    block = {"type": "pdf", "source_path": "docs/report.pdf", "text_fallback": "extracted", "pages": "nonsense"}
    found = read([{"role": "user", "content": [block]}])
    assert found.messages == (user(pdf("report.pdf")),)
    assert found.notices == (
        "message 1: the stored text of document: report.pdf was left out: Loom reads it from the document",
    )


# --- unknown, empty, deep, huge --------------------------------------------------------------------------------------


def test_unknown_blocks_are_their_text_or_are_kept_whole_without_bytes() -> None:
    hologram = {"type": "hologram", "depth": [1, 2]}
    listed = {"type": "file", "path": "a.txt", "size": 3}
    assert content(listed) == (UnknownBlock(listed),)
    assert content(hologram, {"type": "poem", "text": "roses"}, {"a": 1}, {}) == (
        UnknownBlock(hologram),
        TextBlock("roses"),
        TextBlock('{"a":1}'),
    )
    clip = {"type": "clip", "frame": f"data:image/png;base64,{B64}"}
    assert content(clip) == (UnknownBlock({"type": "clip", "frame": "[image: image/png, 2×1, 72 bytes]"}), png())


def test_an_unknown_block_with_an_id_keeps_it_and_still_says_its_text() -> None:
    for key in ("id", "tool_use_id", "call_id"):
        answer = {"type": "mcp_tool_result", key: "m1", "is_error": True, "content": "hello"}
        (block,) = content(answer)
        assert block == UnknownBlock(answer)
        assert text_of(block) == "hello"


def test_what_a_tool_wrote_beside_its_text_stays_readable() -> None:
    body = {"type": "text", "text": "body", "cache_control": {"type": "ephemeral"}, "annotations": []}
    for extra, more in (({}, ()), ({"path": "/x", "lines": 3}, (TextBlock('{"path":"/x","lines":3}'),))):
        found = read([{"role": "tool", "tool_call_id": "a", "content": {**body, **extra}}])
        assert found.messages == (tool(ToolResult("a", (TextBlock("body"), *more))),)


def test_nothing_but_white_space_is_nothing() -> None:
    blanks = ["", " ", {"type": "text", "text": "\n"}, {"type": "thinking", "thinking": " "}, None, [], {}]
    found = read([{"role": "user", "content": blanks}, {"role": "assistant", "content": None}])
    assert found == UpgradedConversation(notices=("message 1: empty; left out", "message 2: empty; left out"))


def test_lone_surrogates_are_replaced_everywhere() -> None:
    found = read(
        [
            {"role": "user", "content": "a\ud800"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "\udc00", "function": {"name": "f\ud800", "arguments": "{\udfff"}}],
            },
            {
                "role": "tool",
                "tool_call_id": "\udc00",
                "name": "f\ud800",
                "content": [{"type": "new", chr(0xD800): 1, chr(0xD801): 2}],
            },
        ]
    )
    assert found.messages == (
        user("a\ufffd"),
        assistant(ToolCall("\ufffd", "f\ufffd", raw_arguments="{\ufffd")),
        tool(ToolResult("\ufffd", (TextBlock('{"type":"new","\ufffd":1,"\ufffd_":2}'),), name="f\ufffd")),
    )
    for message in found.messages:
        encode_message(message)


@pytest.mark.parametrize("levels", [30, 300, 10_000])
def test_deep_nesting_is_read_without_exhausting_the_interpreter(levels: int) -> None:
    deep = nested(levels)
    found = read(
        [
            {"role": "user", "content": deep},
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": deep}}}]},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "tool_result", "content": deep}]},
            {"role": "tool", "tool_call_id": "b", "content": {"x": deep}},
            {"role": "user", "content": [{"type": "new", "x": deep}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "[" * levels}}]},
        ]
    )
    written = [encode_message(message) for message in found.messages]
    assert all(b"core" in data for data in written[:-1])
    assert written[-1].count(b"[") >= levels


def test_the_message_of_a_message_of_a_message_is_no_trap() -> None:
    data: Any = {"role": "user", "content": "hi"}
    for _ in range(10_000):
        data = {"message": data}
    with pytest.raises(ContentError):
        read([data])


def test_twenty_thousand_messages_are_read_in_one_go() -> None:
    items = [{"role": "user" if at % 2 else "assistant", "content": f"line {at}"} for at in range(20_000)]
    assert len(read(items).messages) == 20_000


def test_the_input_is_not_changed() -> None:
    data = [
        {"role": "user", "content": [{"type": "image", "source": {"data": B64}}, {"type": "new", "x": float("inf")}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": [1]}}}]},
    ]
    before = copy.deepcopy(data)
    (first, second) = read(data).messages
    second.calls[0].arguments["x"].append(2)
    assert data == before
    assert isinstance(first, Message)
