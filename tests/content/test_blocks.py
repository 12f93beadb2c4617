"""Blocks enforce what they promise, and say so in sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from content.tiny_media import PDF, PNG, WAV, media, pdf, png, wav
from loom.content.blocks import (
    MEDIA_TYPES,
    AudioBlock,
    Citation,
    DocumentBlock,
    ImageBlock,
    Opaque,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    block_tag,
    check_json,
    clean_text,
    page_label,
    page_range,
)
from loom.content.media import Media, digest_of, is_digest, size_label
from loom.content.media_kinds import MEDIA_KIND_NAMES, MEDIA_KINDS, media_kind
from loom.errors import ContentError, LoomError
from loom.models import Capabilities
from loom.providers.catalog import ModelOverrides
from loom.providers.endpoints import EndpointFacts

OWED = Opaque(provider="anthropic", model="claude", data={"signature": "x"})


@pytest.mark.parametrize("text", ["", " ", "\n\t\u2003"])
def test_text_is_never_blank(text: str) -> None:
    with pytest.raises(ContentError, match="Text must not be blank"):
        TextBlock(text)


def test_text_with_a_lone_surrogate_is_refused_with_the_way_out() -> None:
    with pytest.raises(ContentError, match="lone surrogate at position 2: pass it through clean_text"):
        TextBlock("ab\ud800")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain", "plain"),
        ("é ✓ 😀 \ufeff", "é ✓ 😀 \ufeff"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("end\ud83d", "end\ufffd"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_clean_text_repairs_only_what_cannot_be_written(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    TextBlock(clean)


def test_media_blocks_hold_only_their_kind() -> None:
    with pytest.raises(ContentError, match=r"an ImageBlock cannot contain application/pdf"):
        ImageBlock(media(PDF, "application/pdf"))
    with pytest.raises(ContentError, match=r"an AudioBlock cannot contain image/png"):
        AudioBlock(media(PNG, "image/png"))
    for data, media_type in ((PNG, "image/png"), (WAV, "audio/wav")):
        with pytest.raises(ContentError, match=f"a DocumentBlock cannot contain {media_type}"):
            DocumentBlock(media(data, media_type))
    assert DocumentBlock(media(PDF, "application/pdf"), pages="2-3").pages == "2-3"


def test_thinking_needs_words_or_opaque_data() -> None:
    with pytest.raises(ContentError, match="Thinking needs its text or its opaque data"):
        ThinkingBlock(" ")
    with pytest.raises(ContentError, match="Redacted thinking needs its opaque data"):
        ThinkingBlock("x", redacted=True)
    assert ThinkingBlock(opaque=OWED).text == ""


def test_calls_and_results_need_their_ids() -> None:
    for call_id, name in (("", "f"), ("a", "")):
        with pytest.raises(ContentError, match="A tool call needs an id and a name"):
            ToolCall(call_id, name)
    with pytest.raises(ContentError, match="parsed arguments or raw ones, not both"):
        ToolCall("a", "f", {"x": 1}, raw_arguments="{")
    with pytest.raises(ContentError, match="A tool result needs the id of its call"):
        ToolResult("", (TextBlock("x"),))
    with pytest.raises(ContentError, match=r"must not be empty: use '\(no output\)'"):
        ToolResult("a", ())
    for build in (
        lambda: ToolCall("\ud800", "f"),
        lambda: ToolCall("a", "\ud800"),
        lambda: ToolResult("\ud800", (png(),)),
    ):
        with pytest.raises(ContentError, match="lone surrogate"):
            build()


@pytest.mark.parametrize("data", [{}, {"type": ""}, {"type": 3}, {"type": "text", "text": "x"}, {"type": "tool_call"}])
def test_an_unknown_block_is_of_a_kind_that_this_version_does_not_know(data: dict[str, Any]) -> None:
    with pytest.raises(ContentError, match="a type that this version does not know"):
        UnknownBlock(data)
    assert UnknownBlock({"type": "hologram"}).kind == "hologram"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (float("nan"), "contain nan, which JSON cannot represent"),
        (float("-inf"), "contain -inf, which JSON cannot represent"),
        (b"x", "contain a bytes, which JSON cannot represent"),
        ((1, 2), "contain a tuple"),
        ({1: 2}, "have a key that is not a string: 1"),
        (2**64, "an integer beyond 64 bits: send it as a string"),
        (-(2**63) - 1, "an integer beyond 64 bits"),
        ({"a": ["\udfff"]}, "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
    ],
)
def test_data_that_json_cannot_give_back_is_refused(value: Any, sentence: str) -> None:
    for build in (
        lambda: ToolCall("a", "f", {"x": value}),
        lambda: ToolResult("a", (TextBlock("x"),), data=[value]),
        lambda: UnknownBlock({"type": "new", "x": value}),
        lambda: Opaque(provider="p", model="m", data=value),
    ):
        with pytest.raises(ContentError, match=sentence):
            build()


def test_data_may_be_two_hundred_levels_deep_and_no_deeper() -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    check_json(nested(200), "data")
    with pytest.raises(ContentError, match="data are nested deeper than 200 levels"):
        check_json(nested(201), "data")


def test_opaque_data_names_its_producer() -> None:
    for provider, model in (("", "m"), ("p", "")):
        with pytest.raises(ContentError, match="must name the provider and the model"):
            Opaque(provider=provider, model=model, data=1)


def test_a_citation_has_a_whole_locator_or_none() -> None:
    for broken in ({"locator": "page"}, {"locator": "page", "first": 1}, {"first": 1, "last": 2}):
        with pytest.raises(ContentError, match="A citation with a locator needs first and last, and only then"):
            Citation(**broken)
    assert Citation(locator="page", first=1, last=1).last == 1


@pytest.mark.parametrize(("pages", "expected"), [("7", (7, 7)), ("21-40", (21, 40)), (" 3-3 ", (3, 3))])
def test_page_ranges_count_from_one_and_include_their_end(pages: str, expected: tuple[int, int]) -> None:
    assert page_range(pages) == expected
    assert page_range(page_label(*expected)) == expected


@pytest.mark.parametrize("pages", ["", "0", "0-3", "3-", "-3", "1,2", "a", "1-2-3", "٣", "1" * 9])
def test_what_is_no_page_range_is_refused(pages: str) -> None:
    with pytest.raises(ContentError, match="Write 3 or 21-40; pages count from one"):
        page_range(pages)


def test_a_page_range_does_not_run_backwards() -> None:
    with pytest.raises(ContentError, match="Pages '9-2' end before they begin"):
        DocumentBlock(media(PDF, "application/pdf"), pages="9-2")


def test_blocks_are_values() -> None:
    assert png("a.png") == png("a.png") != png("b.png")
    assert hash(pdf()) == hash(pdf())
    with pytest.raises(AttributeError):
        wav().transcript = "x"  # type: ignore[misc]


def test_a_content_error_is_a_loom_error_and_a_value_error() -> None:
    with pytest.raises(LoomError) as caught:
        TextBlock("")
    assert isinstance(caught.value, ValueError)
    assert caught.value.code == "content.invalid"


def test_media_is_checked_when_it_is_built() -> None:
    good = digest_of(b"x")
    assert is_digest(good)
    assert not is_digest(good + "\n")
    with pytest.raises(ContentError, match="A digest is 'sha256:' and 64 hex digits"):
        Media(digest="sha256:abc", media_type="image/png", size_bytes=1)
    with pytest.raises(ContentError, match="A media type looks like 'image/png', not 'PNG'"):
        Media(digest=good, media_type="PNG", size_bytes=1)
    with pytest.raises(ContentError, match="size_bytes cannot be negative"):
        Media(digest=good, media_type="image/png", size_bytes=-1)


@pytest.mark.parametrize(
    ("facts", "label"),
    [
        ({"name": "photo.png", "width": 640, "height": 480, "size_bytes": 24_000}, "photo.png, 640×480, 24 KB"),
        ({"media_type": "image/gif", "frames": 12, "size_bytes": 312}, "image/gif, 12 frames, 312 bytes"),
        (
            {"name": "r.pdf", "media_type": "application/pdf", "pages": 47, "size_bytes": 1_830_000},
            "r.pdf, 47 pages, 1.8 MB",
        ),
        (
            {"name": "one.pdf", "media_type": "application/pdf", "pages": 1, "size_bytes": 999},
            "one.pdf, 1 page, 999 bytes",
        ),
        (
            {"name": "a.wav", "media_type": "audio/wav", "duration_seconds": 2.04, "size_bytes": 1000},
            "a.wav, 2.0 s, 1 KB",
        ),
        (
            {"name": "b.wav", "media_type": "audio/wav", "duration_seconds": 125.2, "size_bytes": 1000},
            "b.wav, 2:05 min, 1 KB",
        ),
    ],
)
def test_labels_tell_a_text_only_reader_what_is_there(facts: dict[str, Any], label: str) -> None:
    assert Media(**{"digest": digest_of(b""), "media_type": "image/png", **facts}).label == label


@pytest.mark.parametrize(
    ("size", "label"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (999_499, "999 KB"),
        (999_500, "1.0 MB"),
        (12_400_000, "12 MB"),
        (5_000_000_000, "5.0 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_are_written_as_file_managers_do(size: int, label: str) -> None:
    assert size_label(size) == label


@pytest.mark.parametrize(
    "build",
    [
        TextBlock,
        lambda text: ToolCall("a", "b", {}, raw_arguments=text),
        lambda text: ToolCall("a", text),
        lambda text: ToolCall("a", "b", {"c": [text]}),
        lambda text: ToolResult("a", (TextBlock("x"),), name=text),
        lambda text: Citation(quote=text),
        lambda text: Opaque(provider=text, model="m", data={}),
        lambda text: Media(digest="sha256:" + "0" * 64, media_type="image/png", size_bytes=1, name=text),
    ],
)
def test_no_value_takes_text_that_cannot_be_written(build: Callable[[str], object]) -> None:
    with pytest.raises(ContentError, match="lone surrogate"):
        build("half \ud83d of a pair")


def test_each_media_kind_has_its_block_flag_and_override() -> None:
    names = {block_tag(block) for block in MEDIA_TYPES}
    assert names == set(MEDIA_KINDS) == set(MEDIA_KIND_NAMES)
    for kind in MEDIA_KINDS.values():
        assert kind.capability in ModelOverrides.__struct_fields__
        assert kind.capability in EndpointFacts.__struct_fields__
        assert getattr(Capabilities(accepts=kind.usual_types), kind.capability)
        assert all(media_kind(media_type) is kind for media_type in kind.usual_types)
