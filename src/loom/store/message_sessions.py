"""Find the sessions that contain given messages, for many messages at once.

Messages of different sessions are walked down to the ends of their sessions. Many messages of the same sessions are
resolved from the links of all messages between them: most messages are followed by their only child, so a long run of
them is read as one row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from loom.store.database import Transaction

_SessionKeys: TypeAlias = frozenset[int]
_NONE: Final[_SessionKeys] = frozenset()
_TOGETHER: Final = 4
"""The messages per session from which on the links between the next messages are read."""
_MOST_BETWEEN: Final = 100
"""The most messages between two given ones, on average, whose links are read."""
_MOST_STOPS: Final = 512

# Walk down from each message of `start` to the ends of the sessions that contain it. A walk ends at a message of
# `stop`, which is known or has its own walk, so that no part of a long conversation is walked twice.
_WALK_DOWN: Final = (
    "WITH RECURSIVE start (key) AS (VALUES {0}), stop (key) AS (VALUES {1}),"
    " down (top, key) AS (SELECT key, key FROM start"
    " UNION SELECT d.top, n.key FROM down d JOIN node n ON n.parent_key = d.key"
    " WHERE d.top = d.key OR d.key NOT IN (SELECT key FROM stop)),"
    " ends (session_key, key) AS (SELECT key, head_key FROM session UNION SELECT session_key, node_key FROM tip)"
    " SELECT d.top, 1, e.session_key FROM down d JOIN ends e ON e.key = d.key"
    " WHERE d.top = d.key OR d.key NOT IN (SELECT key FROM stop)"
    " UNION SELECT d.top, 0, d.key FROM down d WHERE d.top <> d.key AND d.key IN (SELECT key FROM stop)"
)
# Runs of messages that have the next key as a child (the first and the last message of each run), and other children.
_SELECT_LINKS: Final = (
    "SELECT MIN(parent_key), MAX(parent_key), child FROM ("
    "SELECT n.parent_key, CASE WHEN n.key <> n.parent_key + 1 THEN n.key END AS child,"
    " n.parent_key - SUM(CASE WHEN n.key = n.parent_key + 1 THEN 1 ELSE 0 END) OVER (ORDER BY n.parent_key) AS run"
    " FROM node n WHERE n.parent_key >= :low AND n.parent_key < :high"
    ") AS links GROUP BY run, child ORDER BY 1"
)
_SELECT_ENDS: Final = (
    "SELECT head_key, key FROM session WHERE head_key >= :low AND head_key < :high"
    " UNION SELECT node_key, session_key FROM tip WHERE node_key >= :low AND node_key < :high"
)


class MessageSessions:
    """The sessions of messages, as keys. What was found is kept for the next messages, which usually are just below."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._walked: dict[int, _SessionKeys] = {}
        self._ranges: list[_Range] = []
        self._are_together = False
        """Whether the last messages were many of few sessions."""

    def find(self, keys: Sequence[int]) -> dict[int, _SessionKeys]:
        """Return the sessions of each message, in the order of `keys`."""
        missing = [key for key in keys if self._find_known(key) is None]
        if missing:
            low, high = min(missing), max(missing) + 1
            most = _MOST_BETWEEN * len(missing)
            if self._are_together and high - low <= most:
                # Up to the range above if that is near, so that nothing outside has to be walked.
                above = min((known.low for known in self._ranges if known.low >= high), default=high)
                self._ranges.append(self._read_range(low, above if above - low <= most else high))
            else:
                self._walk(missing)
        found = {key: self._find_known(key) or _NONE for key in keys}
        self._are_together = len(_NONE.union(*found.values())) * _TOGETHER <= len(found)
        return found

    def _find_known(self, key: int) -> _SessionKeys | None:
        if key in self._walked:
            return self._walked[key]
        return next((known.sessions_of(key) for known in self._ranges if known.low <= key < known.high), None)

    def _walk(self, keys: Sequence[int]) -> None:
        ends: defaultdict[int, set[int]] = defaultdict(set)
        below: defaultdict[int, set[int]] = defaultdict(set)
        stops = [*keys, *list(self._walked)[-_MOST_STOPS:]]
        for top, is_end, value in self._tx.execute(_WALK_DOWN.format(_values(keys), _values(stops))):
            (ends if is_end else below)[top].add(value)
        for key in sorted(keys, reverse=True):  # descendants have higher keys
            self._walked[key] = frozenset(ends[key]).union(*(self._walked[other] for other in below[key]))

    def _read_range(self, low: int, high: int) -> _Range:
        params = {"low": low, "high": high}
        runs: list[tuple[int, int]] = []
        children: defaultdict[int, set[int]] = defaultdict(set)
        for first, last, child in self._tx.execute(_SELECT_LINKS, params):
            if child is None:
                runs.append((first, last))
            else:
                children[first].add(child)
        ends: defaultdict[int, set[int]] = defaultdict(set)
        for key, session in self._tx.execute(_SELECT_ENDS, params):
            ends[key].add(session)
        below = {child for group in children.values() for child in group if child >= high}
        if runs and runs[-1][1] == high - 1:
            below.add(high)
        if unknown := sorted(key for key in below if self._find_known(key) is None):
            self._walk(unknown)
        found = _Range(low, high, runs, {key: self._find_known(key) or _NONE for key in below})
        for key in sorted(children.keys() | ends.keys() | {last for _, last in runs}, reverse=True):
            found.add_mark(key, ends[key], children[key])
        return found


class _Range:
    """The sessions of all messages with keys from `low` to below `high`. `runs` are the first and last keys of runs of
    messages that are followed by a child. In a run the sessions change only at marks; the last key of each run is a
    mark. `values` are the sessions of children outside the range."""

    def __init__(self, low: int, high: int, runs: Sequence[tuple[int, int]], values: dict[int, _SessionKeys]) -> None:
        self.low = low
        self.high = high
        self._firsts = [first for first, _ in runs]
        self._lasts = [last for _, last in runs]
        self._marks: list[int] = []
        """From the highest to the lowest, negated for `bisect`."""
        self._values = values

    def add_mark(self, key: int, ends: Iterable[int], children: Iterable[int]) -> None:
        """Add a mark below all others: its own sessions and those of its children."""
        followers = [*children, *([key + 1] if self._is_followed(key) else ())]
        self._values[key] = frozenset(ends).union(*map(self.sessions_of, followers))
        self._marks.append(-key)

    def sessions_of(self, key: int) -> _SessionKeys:
        if key in self._values:
            return self._values[key]
        return self._values[-self._marks[bisect_right(self._marks, -key) - 1]] if self._is_followed(key) else _NONE

    def _is_followed(self, key: int) -> bool:
        """Return whether the next key is a child of `key`."""
        at = bisect_right(self._firsts, key) - 1
        return at >= 0 and key <= self._lasts[at]


def _values(keys: Iterable[int]) -> str:
    return ", ".join(f"(CAST({int(key)} AS BIGINT))" for key in keys)
