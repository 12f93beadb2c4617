"""The built-in model and tools: plain wishes become calls, and what comes back is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from loom.compile.policy import Policy, Request
from loom.content.blocks import ContentBlock, ImageBlock, TextBlock, ToolResult
from loom.content.messages import Message, assistant, tool, user
from loom.prompt import ToolSpec
from loom.providers.samples import samples
from loom.sampling import Sampling
from providers.spark_world import Shelf, answered

LOGIN, RECEIPT, LEAFLET = samples()


def spec(name: str, required: list[str] | None = None, **properties: Any) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": required or []}
    return ToolSpec(name=name, description=f"{name}.", parameters=parameters)


TEXT = {"type": "string"}
READ_FILE = spec("read_file", ["path"], path=TEXT, pages=TEXT)
LIST_FILES = spec("list_files", path=TEXT)
LOOK = spec("look", ["media"], media=TEXT)
SCREENSHOT = spec("screenshot", ["url"], url=TEXT)
ALL = Request(tools=(READ_FILE, LIST_FILES, LOOK, SCREENSHOT))


async def first_calls(words: str, request: Request = ALL, *blocks: ContentBlock) -> list[tuple[str, dict[str, Any]]]:
    message = await answered(Shelf(), user(words, *blocks), request=request)
    return [(call.name, call.arguments) for call in message.calls]


def returned(reply: Message, *blocks: ContentBlock, is_error: bool = False) -> Message:
    call = reply.calls[0]
    return tool(ToolResult(call.id, blocks, name=call.name, is_error=is_error))


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("read a.png", [("read_file", {"path": "a.png"})]),
        ("Please open ./docs/report.pdf.", [("read_file", {"path": "./docs/report.pdf"})]),
        ("look at `my photo.jpg`", [("read_file", {"path": "my photo.jpg"})]),
        ("describe a.png and src/b.jpeg!", [("read_file", {"path": "a.png"}), ("read_file", {"path": "src/b.jpeg"})]),
        ("what is in /tmp/x/notes.txt?", [("read_file", {"path": "/tmp/x/notes.txt"})]),
        ("list the files", [("list_files", {})]),
        ("which files are in this folder?", [("list_files", {})]),
        ("ls", [("list_files", {})]),
    ],
)
async def test_plain_wishes_become_calls(words: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert await first_calls(words) == calls


@pytest.mark.parametrize(
    "words", ["What is in these files?", "which files are these?", "list the files", "show the files"]
)
async def test_files_that_are_attached_are_those_that_a_message_is_about(words: str) -> None:
    shelf = Shelf()
    attached = [shelf.attach(sample.data, sample.name) for sample in (LOGIN, LEAFLET)]
    reply = await answered(shelf, user(words, *attached), request=ALL)
    assert not reply.calls and LOGIN.name in reply.text and LEAFLET.name in reply.text


@pytest.mark.parametrize(
    "words",
    [
        "how do I read a book?",
        "read me a story, e.g. a short one",
        "open your mind and/or heart",
        "write to ana@example.org about it",
        "show https://example.org/picture.png",
        "python 3.11 is fine",
        "what is a bar?",
        "hello",
    ],
)
async def test_other_words_call_nothing(words: str) -> None:
    assert await first_calls(words) == []


async def test_tool_choice_is_respected() -> None:
    none = Request(tools=(READ_FILE,), sampling=Sampling(tool_choice="none"))
    any_ = Request(tools=(READ_FILE,), sampling=Sampling(tool_choice="any"))

    assert await first_calls("read a.png", none) == []
    assert await first_calls("hello", any_) == [("read_file", {"path": "hello"})]


async def test_what_is_attached_is_not_read_again() -> None:
    shelf = Shelf()

    message = await answered(shelf, user("read login.png", shelf.attach(LOGIN.data, "login.png")), request=ALL)

    assert not message.calls
    assert message.text.startswith("A bright screenshot")


async def test_a_call_is_announced_and_a_picture_in_its_result_is_described() -> None:
    shelf = Shelf()
    asked = user("read login.png")
    reply = await answered(shelf, asked, request=ALL)
    result = returned(reply, TextBlock("login.png, 6 KB"), shelf.attach(LOGIN.data, "login.png"))

    final = await answered(shelf, asked, reply, result, request=ALL)

    assert reply.text == "I will call read_file."
    assert final.text.startswith("read_file returned: login.png, 6 KB\n\nA bright screenshot or diagram")
    assert not final.calls


async def test_a_document_in_a_result_is_quoted_with_its_pages() -> None:
    shelf = Shelf()
    asked = user("read leaflet.pdf: which pages mention timeouts?")
    reply = await answered(shelf, asked, request=ALL)

    final = await answered(shelf, asked, reply, returned(reply, shelf.attach(LEAFLET.data, "leaflet.pdf")), request=ALL)

    assert "Pages 1 and 2 of leaflet.pdf mention “timeouts”" in final.text


async def test_a_failed_call_is_told() -> None:
    shelf = Shelf()
    asked = user("read gone.png")
    reply = await answered(shelf, asked, request=ALL)

    final = await answered(shelf, asked, reply, returned(reply, TextBlock("no such file"), is_error=True), request=ALL)

    assert final.text == "read_file failed: no such file"


async def test_short_text_is_shown_and_long_text_is_searched() -> None:
    shelf = Shelf()
    asked = user("read notes.txt: where is the treasure?")
    reply = await answered(shelf, asked, request=ALL)
    short = returned(reply, TextBlock("     1\tone\n     2\ttwo"))
    lines = [f"{number:>6}\tLine {number} is dull." for number in range(1, 400)] + [
        "   400\tThe treasure is under the oak."
    ]

    shown = await answered(shelf, asked, reply, short, request=ALL)
    searched = await answered(shelf, asked, reply, returned(reply, TextBlock("\n".join(lines))), request=ALL)

    assert shown.text == "read_file returned 2 lines:\n\n```text\n     1\tone\n     2\ttwo\n```"
    assert "“The treasure is under the oak.”" in searched.text
    assert "dull" not in searched.text


async def test_several_results_are_told_one_after_another() -> None:
    shelf = Shelf()
    asked = user("read a.png and b.jpg")
    reply = await answered(shelf, asked, request=ALL)
    first, second = reply.calls
    results = tool(
        ToolResult(first.id, (shelf.attach(LOGIN.data, "a.png"),), name="read_file"),
        ToolResult(second.id, (shelf.attach(RECEIPT.data, "b.jpg"),), name="read_file"),
    )

    final = await answered(shelf, asked, reply, results, request=ALL)

    assert final.text.index("900×500") < final.text.index("640×800")


async def test_an_old_picture_that_is_only_text_is_called_back_and_seen() -> None:
    shelf = Shelf()
    picture = shelf.attach(LOGIN.data, "login.png")
    assert isinstance(picture, ImageBlock)
    path = [user("look", picture), assistant("I see")]
    for _ in range(4):
        path += [user("thanks"), assistant("you are welcome")]
    asked = user("and the first picture again?")
    policy = Policy(aging="every-turn")

    reply = await answered(shelf, *path, asked, request=ALL, policy=policy)
    final = await answered(shelf, *path, asked, reply, returned(reply, picture), request=ALL, policy=policy)

    assert reply.text == "I will call look."
    assert [(call.name, call.arguments) for call in reply.calls] == [("look", {"media": picture.media.digest[7:19]})]
    assert "A bright screenshot" in final.text


async def test_ids_of_calls_differ_from_step_to_step() -> None:
    shelf = Shelf()
    first = await answered(shelf, user("read a.png"), request=ALL)
    path = [user("read a.png"), first, returned(first, TextBlock("done")), assistant("done"), user("read a.png")]

    second = await answered(shelf, *path, request=ALL)

    assert first.calls[0].id != second.calls[0].id
