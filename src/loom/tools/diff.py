"""The changes of a text, as a unified diff. Pure, and fast on any text: only the lines between the first and the last
difference are compared; if those are too many, they are shown as removed and added."""

from __future__ import annotations

import io
from difflib import SequenceMatcher
from typing import Final, TypeAlias

import msgspec

CONTEXT_LINES: Final = 3
_MAX_COMPARED: Final = 4_000_000
"""The maximum product of the line counts of both sides."""
_Change: TypeAlias = tuple[int, int, int, int]
"""Lines a to b of the old text become lines c to d of the new one, counted from zero, end exclusive."""


class Diff(msgspec.Struct, frozen=True):
    text: str
    """Empty if nothing changed."""
    added: int
    removed: int


def unified_diff(old: str, new: str, name: str) -> Diff:
    """Return the diff. `name` is in the header of new and changed files alike."""
    before, after = list(io.StringIO(old, newline="\n")), list(io.StringIO(new, newline="\n"))
    changes = _changes(before, after)
    added = sum(d - c for _, _, c, d in changes)
    removed = sum(b - a for a, b, _, _ in changes)
    if not changes:
        return Diff("", 0, 0)
    head = [f"--- {'a/' + name if before else '/dev/null'}", f"+++ b/{name}"]
    lines = [line for group in _groups(changes) for line in _hunk(group, before, after)]
    return Diff("\n".join([*head, *lines]) + "\n", added, removed)


def _changes(before: list[str], after: list[str]) -> list[_Change]:
    start = 0
    shortest = min(len(before), len(after))
    while start < shortest and before[start] == after[start]:
        start += 1
    end = 0
    while end < shortest - start and before[-1 - end] == after[-1 - end]:
        end += 1
    left, right = before[start : len(before) - end], after[start : len(after) - end]
    if not left and not right:
        return []
    if not left or not right or len(left) * len(right) > _MAX_COMPARED:
        return [(start, start + len(left), start, start + len(right))]
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    return [(start + a, start + b, start + c, start + d) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]


def _groups(changes: list[_Change]) -> list[list[_Change]]:
    """Group changes that are so near that their contexts touch."""
    groups = [[changes[0]]]
    for change in changes[1:]:
        if change[0] - groups[-1][-1][1] <= 2 * CONTEXT_LINES:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _hunk(group: list[_Change], before: list[str], after: list[str]) -> list[str]:
    lead = min(CONTEXT_LINES, group[0][0])
    trail = min(CONTEXT_LINES, len(before) - group[-1][1])
    a, b = group[0][0] - lead, group[-1][1] + trail
    c, d = group[0][2] - lead, group[-1][3] + trail
    lines = [f"@@ -{_span(a, b)} +{_span(c, d)} @@"]
    at = a
    for first, last, new_first, new_last in group:
        lines += _mark_lines(" ", before[at:first])
        lines += _mark_lines("-", before[first:last])
        lines += _mark_lines("+", after[new_first:new_last])
        at = last
    return lines + _mark_lines(" ", before[at:b])


def _span(first: int, last: int) -> str:
    count = last - first
    start = first + 1 if count else first
    return f"{start}" if count == 1 else f"{start},{count}"


def _mark_lines(sign: str, lines: list[str]) -> list[str]:
    marked: list[str] = []
    for line in lines:
        marked.append(sign + line.rstrip("\r\n"))
        if not line.endswith("\n"):
            marked.append("\\ No newline at end of file")
    return marked
