"""Whatever can be built can be written and read back: no value ends the session that it is said in."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

import loom
from content.tiny_media import PDF, media, pdf, png, wav
from loom.content.blocks import (
    AudioBlock,
    Block,
    Citation,
    ImageBlock,
    Opaque,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    check_json,
    clean_text,
)
from loom.content.codec import decode_message, encode_stored
from loom.content.media import Media, digest_of
from loom.content.messages import Message, assistant, text_of, tool, user
from loom.errors import ContentError
from loom.events import ToolProgressed, decode_event, encode_event
from loom.store.database import open_database
from loom.store.forest import Forest
from loom.store.queue import MessageQueue
from loom.store.sessions import Sessions
from loom.testing import ScriptedProvider, memory_runtime, sample_png


class Markup(str):
    """A string as template engines and HTML parsers hand it out."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"<Markup {self!r}>"


class Measured(float):
    """A number as numerical libraries hand it out."""


class Counted(int):
    pass


class Color(enum.StrEnum):
    RED = "red"


OWED = Opaque(provider="anthropic", model="claude", data={"signature": "x"})
CITED = Citation(quote="q", locator="page", first=1, last=2, start=0, end=3)
JUNK = (
    *(None, True, 0, -1, 1.5, math.nan, math.inf, 10**400, "", "x", "low", "\ud800", b"x", Markup("low"), Color.RED),
    *(Measured(2.5), Counted(7), (), [], {}, [1], {"a": 1}, {1: 2}, ("hi",), [Markup("x")], object()),
    *(TextBlock("x"), (TextBlock("x"),), [TextBlock("x")], (ThinkingBlock("x"),), (ToolCall("a", "f"),), (OWED,)),
    *(OWED, CITED, (CITED,), [CITED], media(PDF, "application/pdf"), {"type": Markup("new"), "b": [Counted(1)]}),
)
WHOLE: tuple[Block, ...] = (
    TextBlock("x", (CITED,), OWED),
    ImageBlock(png().media, "alt", "description", "low"),
    pdf(),
    AudioBlock(wav().media, "words"),
    ThinkingBlock("x", redacted=False, opaque=OWED),
    ToolCall("a", "f", {"x": 1}, None, OWED),
    ToolCall("a", "f", {}, "{", OWED),
    ToolResult("a", (TextBlock("x"),), "f", data={"x": 1}),
    UnknownBlock({"type": "new"}),
)


def said(block: Block) -> Message:
    return tool(block) if isinstance(block, ToolResult) else assistant(block)


def reads_back(build: Callable[[], Block]) -> bool:
    """Whether it can be built; what can be built must come back equal, in plain values."""
    try:
        message = said(build())
    except ContentError:
        return False
    stored = encode_stored(message)
    assert decode_message(stored) == message
    assert repr(decode_message(stored)) == repr(message)
    return True


@pytest.mark.parametrize("block", WHOLE, ids=lambda block: type(block).__name__)
def test_every_field_of_a_block_takes_what_comes_back_and_nothing_else(block: Block) -> None:
    outcomes = {
        reads_back(lambda field=field, value=value: msgspec.structs.replace(block, **{field: value}))
        for field in block.__struct_fields__
        for value in JUNK
    }
    assert outcomes == {True, False}


@pytest.mark.parametrize("part", [CITED, OWED])
def test_every_field_of_what_is_inside_text_takes_what_comes_back_and_nothing_else(part: Citation | Opaque) -> None:
    def build(field: str, value: Any) -> Block:
        changed = msgspec.structs.replace(part, **{field: value})
        return TextBlock("x", (changed,)) if isinstance(changed, Citation) else TextBlock("x", (), changed)

    outcomes = {reads_back(partial(build, field, value)) for field in part.__struct_fields__ for value in JUNK}
    assert outcomes == {True, False}


@pytest.mark.parametrize("block", [png(), pdf(), wav()], ids=lambda block: type(block).__name__)
def test_every_field_of_media_takes_what_comes_back_and_nothing_else(block: Any) -> None:
    def build(field: str, value: Any) -> Block:
        return msgspec.structs.replace(block, media=msgspec.structs.replace(block.media, **{field: value}))

    outcomes = {reads_back(partial(build, field, value)) for field in Media.__struct_fields__ for value in JUNK}
    assert outcomes == {True, False}


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: ToolCall("a", "f", None), "ToolCall.arguments is a dict, not None"),
        (lambda: ToolCall("a", "f", [1]), r"ToolCall.arguments is a dict, not \[1\]"),
        (lambda: ToolResult("a", ("hi",)), "ToolResult.blocks is made of TextBlock, .*, not 'hi'"),
        (lambda: ToolResult("a", (ToolCall("b", "f"),)), "ToolResult.blocks is made of .*, not ToolCall"),
        (lambda: ToolResult("a", (png(),), is_error=None), "ToolResult.is_error is True or False, not None"),
        (lambda: ImageBlock(png().media, alt=None), "ImageBlock.alt is a string, not None"),
        (
            lambda: ImageBlock(png().media, detail="original"),
            "ImageBlock.detail is one of auto, low, high, not 'original'",
        ),
        (lambda: ImageBlock("a.png"), "ImageBlock.media is a Media, not 'a.png'"),
        (lambda: TextBlock("x", ("foo",)), "TextBlock.citations is made of Citation, not 'foo'"),
        (lambda: TextBlock("x", opaque={}), "TextBlock.opaque is an Opaque, not {}"),
        (lambda: msgspec.structs.replace(png().media, width=1.5), "Media.width is a whole number, not 1.5"),
        (
            lambda: msgspec.structs.replace(wav().media, duration_seconds=math.nan),
            "Media.duration_seconds is a finite number, not nan",
        ),
        (lambda: loom.image(b"x", detail="original"), "Attachment.detail is one of auto, low, high, not 'original'"),
        (lambda: loom.image(b"x", alt=None), "Attachment.alt is a string, not None"),
        (lambda: loom.document(b"x", pages=3), "Attachment.pages is a string, not 3"),
        (lambda: loom.audio(bytearray(b"x")), r"a Path, bytes or an http\(s\) URL, not bytearray"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused_where_it_is_built(build: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ContentError, match=sentence):
        build()


def test_strings_and_numbers_of_a_subclass_become_plain() -> None:
    text = TextBlock(Markup("héllo"))
    assert (type(text.text), text.text) == (str, "héllo")
    assert type(clean_text(Markup("hello"))) is type(clean_text(Markup("héllo"))) is str

    data = check_json({Markup("k"): [Markup("x"), Measured(1.5), Counted(2), Color.RED, None, True]}, "data")
    assert data == {"k": ["x", 1.5, 2, "red", None, True]}
    assert [type(item) for item in (*data, *data["k"])] == [str, str, float, int, str, type(None), bool]
    plain = {"a": [1]}
    assert check_json(plain, "data") is plain

    size = Media(
        digest=digest_of(b""), media_type=Markup("image/png"), size_bytes=Counted(3), duration_seconds=Measured(2)
    )
    assert [type(size.media_type), type(size.size_bytes), type(size.duration_seconds)] == [str, int, float]
    with pytest.raises(ContentError, match="contain nan, which JSON cannot represent"):
        check_json([Measured("nan")], "data")


def test_a_list_of_blocks_becomes_a_tuple() -> None:
    assert ToolResult("a", [TextBlock("x")]) == ToolResult("a", (TextBlock("x"),))
    assert hash(TextBlock("x", [Citation(quote="q")]))


@pytest.mark.parametrize("change", [Measured(1), {"deep": math.inf}, 2**80, "\ud800", object()])
async def test_what_was_changed_after_it_was_checked_is_refused_and_never_stored(change: Any) -> None:
    nested: Any = change
    for _ in range(250 if isinstance(change, dict) else 0):
        nested = [nested]
    call = ToolCall("a", "f", {"x": 1})
    call.arguments["x"] = nested
    database = await open_database(":memory:")
    sessions, queue = Sessions(database), MessageQueue(database)
    session = await sessions.create()
    with pytest.raises(ContentError):
        await sessions.append_to_head(session.id, [user("go"), assistant(call)])
    with pytest.raises(ContentError):
        await queue.put(session.id, "", assistant(call))
    assert await queue.list(session.id) == ()
    (node,) = await sessions.append_to_head(session.id, [user("still here")])
    assert [node.message for node in await Forest(database).path(node.id)] == [None, user("still here")]
    await database.close()


def title() -> Any:
    """Do it."""
    return Markup("Hello")


def table() -> Any:
    """Do it."""
    return ToolResult("-", (TextBlock(Markup("x")),), data={"mean": Measured(1.5), "by": Markup("me")})


def thought() -> Any:
    """Do it."""
    return ToolResult("-", (ThinkingBlock("x"),))


def words() -> Any:
    """Do it."""
    return ToolResult("-", ("hello",))


def picture() -> Any:
    """Do it."""
    return loom.image(sample_png(), detail="ultra")


async def named(context: loom.ToolContext) -> Any:
    """Do it."""
    await context.emit(Markup("reading"), fraction=Measured(0.5))
    await context.emit("caf\udce9.txt")
    return "read"


@pytest.mark.parametrize(
    ("function", "is_error", "said"),
    [
        (title, False, "Hello"),
        (table, False, "x"),
        (thought, True, "ToolResult.blocks is made of"),
        (words, True, "ToolResult.blocks is made of"),
        (picture, True, "Attachment.detail is one of auto, low, high"),
        (named, False, "read"),
    ],
)
async def test_whatever_a_tool_returns_the_session_goes_on(
    function: Callable[..., Any], is_error: bool, said: str
) -> None:
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([ToolCall("a", "odd"), "Done.", "Still here."])},
        tools={"odd": loom.tool(name="odd")(function)},
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        await session.send(Markup("go"))
        again = await runtime.session(session.id)
        assert (await again.send("again")).text == "Still here."
        (result,) = [result for message in await again.path() for result in message.results]
        assert result.is_error is is_error
        assert text_of(result).startswith(said)


def test_the_progress_of_a_tool_can_always_be_recorded() -> None:
    event = ToolProgressed(call_id="a", text=Markup("caf\udce9"), fraction=Counted(1))
    assert event == ToolProgressed(call_id="a", text="caf\ufffd", fraction=1.0)
    assert decode_event(encode_event(event)) == event
    with pytest.raises(ContentError, match=r"ToolProgressed.text is a string, not None"):
        ToolProgressed(call_id="a", text=None)
    with pytest.raises(ContentError, match="The progress of a tool must be a number, not 'half'"):
        ToolProgressed(call_id="a", text="x", fraction="half")
