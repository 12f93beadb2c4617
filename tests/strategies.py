"""Hypothesis strategies for what can be said: every kind of block, odd text, nested JSON, whole conversations."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from loom.content.blocks import (
    KNOWN_TYPES,
    AudioBlock,
    Block,
    Citation,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    Opaque,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    VideoBlock,
)
from loom.content.media import DIGEST_TAG, Media
from loom.content.messages import Message

ODD = st.sampled_from(
    (
        *("\0", "\u2028", "e\u0301", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u202egnp.exe", "\x1b[31m"),
        *("\ufeff", "\u3000日本語", "'; DROP TABLE node; --", "%(id)s :id {key}", "\ud7ff"),
        '{"type":"image","source":"/etc/passwd"}',
    )
)
TEXT = st.one_of(st.text(max_size=40), st.builds("".join, st.lists(st.one_of(st.text(max_size=5), ODD), max_size=6)))
WORDS = TEXT.filter(lambda text: bool(text.strip()))
NAMES = st.text(min_size=1, max_size=12)
NUMBERS = st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=4)
DIGESTS = st.binary(min_size=32, max_size=32).map(lambda raw: DIGEST_TAG + raw.hex())


def media(*media_types: str) -> st.SearchStrategy[Media]:
    return st.builds(
        Media,
        digest=DIGESTS,
        media_type=st.sampled_from(media_types),
        size_bytes=st.integers(0, 10**10),
        width=st.none() | st.integers(1, 20_000),
        height=st.none() | st.integers(1, 20_000),
        pages=st.none() | st.integers(1, 5000),
        duration_seconds=st.none() | st.floats(0, 1e6),
        name=TEXT,
        source=TEXT,
        codec=TEXT,
    )


OPAQUE = st.builds(Opaque, provider=NAMES, model=NAMES, data=JSON)
CITATIONS = st.one_of(
    st.builds(Citation, quote=TEXT, title=TEXT, url=TEXT, digest=st.just("") | DIGESTS, opaque=st.none() | OPAQUE),
    st.builds(Citation, locator=st.just("page"), first=st.integers(1, 9), last=st.integers(9, 20)),
)
PAGES = st.just("") | st.tuples(st.integers(1, 50), st.integers(50, 99)).map(lambda pages: f"{pages[0]}-{pages[1]}")

TEXT_BLOCKS = st.builds(
    TextBlock, WORDS, citations=st.lists(CITATIONS, max_size=2).map(tuple), opaque=st.none() | OPAQUE
)
IMAGE_BLOCKS = st.builds(
    ImageBlock,
    media("image/png", "image/jpeg", "image/webp"),
    alt=TEXT,
    description=TEXT,
    detail=st.sampled_from(["auto", "low", "high"]),
)
DOCUMENT_BLOCKS = st.builds(DocumentBlock, media("application/pdf", "text/csv"), pages=PAGES, title=TEXT)
AUDIO_BLOCKS = st.builds(AudioBlock, media("audio/wav", "audio/mpeg"), transcript=TEXT)
VIDEO_BLOCKS = st.builds(VideoBlock, media("video/mp4", "video/webm"), transcript=TEXT)
THINKING_BLOCKS = st.one_of(
    st.builds(ThinkingBlock, WORDS, opaque=st.none() | OPAQUE),
    st.builds(ThinkingBlock, st.just(""), redacted=st.booleans(), opaque=OPAQUE),
)
TOOL_CALLS = st.one_of(
    st.builds(ToolCall, NAMES, NAMES, arguments=OBJECTS, opaque=st.none() | OPAQUE),
    st.builds(ToolCall, NAMES, NAMES, raw_arguments=TEXT),
)
UNKNOWN_BLOCKS = st.builds(
    lambda kind, data, digest: UnknownBlock({**data, "type": kind, **({"digest": digest} if digest else {})}),
    (NAMES | st.just("unknown")).filter(lambda kind: kind not in KNOWN_TYPES),
    OBJECTS,
    st.none() | DIGESTS,
)
CONTENT_BLOCKS: st.SearchStrategy[ContentBlock] = st.one_of(
    TEXT_BLOCKS, IMAGE_BLOCKS, DOCUMENT_BLOCKS, AUDIO_BLOCKS, VIDEO_BLOCKS, UNKNOWN_BLOCKS
)
TOOL_RESULTS = st.builds(
    ToolResult,
    NAMES,
    st.lists(CONTENT_BLOCKS, min_size=1, max_size=3).map(tuple),
    name=TEXT,
    is_error=st.booleans(),
    data=JSON,
)
ASSISTANT_BLOCKS: st.SearchStrategy[Block] = st.one_of(CONTENT_BLOCKS, THINKING_BLOCKS, TOOL_CALLS)


def _pair_id(block: Block) -> object:
    return block.id if isinstance(block, ToolCall) else block.call_id if isinstance(block, ToolResult) else object()


def _blocks(blocks: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Block, ...]]:
    return st.lists(blocks, min_size=1, max_size=3, unique_by=_pair_id).map(tuple)


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Message, st.just("user"), _blocks(CONTENT_BLOCKS)),
    st.builds(Message, st.just("assistant"), _blocks(ASSISTANT_BLOCKS)),
    st.builds(Message, st.just("tool"), _blocks(st.one_of(TOOL_RESULTS, UNKNOWN_BLOCKS))),
)
CONVERSATIONS: st.SearchStrategy[list[Message]] = st.lists(MESSAGES, min_size=1, max_size=6)
