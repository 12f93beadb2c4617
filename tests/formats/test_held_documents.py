"""A worker parses a document once, holds a bounded number of them, and never past the limits of a task."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.made_office import paragraph, word
from loom.content.recipes import Text
from loom.errors import TooLarge
from loom.formats import inspect, render
from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerPool
from loom.formats.worker.held_documents import HeldDocuments
from loom.formats.worker.loop import Task


def task(digest: str, limits: IntakeLimits = IntakeLimits()) -> Task:
    return Task(digest=digest, limits=limits, memory_bytes=1, seconds=1.0, has_document=True, job=msgspec.Raw(b"\xc0"))


@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(1, 40)), max_size=60), st.integers(1, 4))
def test_what_is_held_stays_within_its_bounds_and_is_closed_once(asked: list[tuple[str, int]], count: int) -> None:
    is_open: dict[int, int] = {}
    closed: list[int] = []

    def parse(_: Task, data: bytes) -> int:
        number = len(is_open) + len(closed)
        is_open[number] = len(data)
        return number

    def close(number: int) -> None:
        closed.append(number)
        del is_open[number]

    held = HeldDocuments(parse, close=close, max_documents=count, max_bytes=50)
    for digest, size in asked:
        found = held.get(task(digest), bytes(size))
        assert found in is_open
        assert held.get(task(digest), None) == found
        assert len(is_open) <= count
        assert sum(is_open.values()) <= 50
    assert len(closed) == len(set(closed))


def test_a_document_that_is_not_held_must_be_sent() -> None:
    held = HeldDocuments(lambda _, data: data)

    assert held.get(task("a"), None) is None
    assert held.get(task("a"), b"1") == b"1"
    assert held.get(task("a"), None) == b"1"
    assert held.get(task("a", IntakeLimits(max_pixels=1)), None) is None, "opened under other limits"


def test_what_was_taken_under_wide_limits_is_refused_under_narrow_ones() -> None:
    data = word("".join(paragraph(f"line {number} " * 20) for number in range(2_000)))
    pool = WorkerPool()
    with pool.use():
        found = inspect(data, "a.docx")
        assert b"line 1999" in render(data, found.media, Text()).data
        with pytest.raises(TooLarge, match="expands"):
            render(data, found.media, Text(), IntakeLimits(max_expanded_bytes=10_000))
        assert b"line 1999" in render(data, found.media, Text()).data
    pool.close()
