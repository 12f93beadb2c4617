"""Interfaces use `Library` and `Session`; only a few places, each with its reason, reach a store through `Runtime`."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parents[1] / "src" / "loom"
INTERFACES: Final = ("cli", "daemon", "tui", "acp", "client")
STORES: Final = frozenset(
    {"sessions", "forest", "events", "queue", "leases", "requests", "database", "media", "derived", "renditions"}
)

ALLOWED: Final = {
    "cli/doctor.py": "verifies and mends the stores themselves",
    "cli/store.py": "backup, restore and sweep copy and clean the stores themselves",
    "daemon/readiness.py": "checks that the stores can be written",
}
"""Modules that may use a store of a runtime, and why."""
NOT_MOVED: Final = frozenset(
    {
        "cli/ask.py",
        "cli/context.py",
        "cli/import_.py",
        "cli/line_chat.py",
        "cli/log.py",
        "cli/screen_chat.py",
        "cli/sessions.py",
        "cli/shared/daemon_lookup.py",
        "cli/shared/footer.py",
        "cli/shared/options.py",
        "cli/shared/pending_approvals.py",
        "cli/shared/plan.py",
        "cli/shared/session_lookup.py",
        "cli/shared/session_options.py",
        "cli/shared/turns.py",
        "daemon/gateway/exchange.py",
    }
)
"""Modules that still do. The set only shrinks: take a module out when it uses `runtime.library` instead."""


def test_interfaces_reach_no_store_through_the_runtime() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for file in (file for room in INTERFACES for file in sorted((SOURCE / room).rglob("*.py"))):
        name = file.relative_to(SOURCE).as_posix()
        found[name].update(_stores_in(ast.parse(file.read_text(encoding="utf-8"))))
    used = {name: sorted(stores) for name, stores in found.items() if stores}
    assert {name: stores for name, stores in used.items() if name not in ALLOWED.keys() | NOT_MOVED} == {}
    assert ALLOWED.keys() | NOT_MOVED <= used.keys(), "an entry of a list that is no longer needed"


def _stores_in(tree: ast.Module) -> Iterator[str]:
    """Yield the stores that a module takes from something called runtime."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in STORES:
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name.lstrip("_") == "runtime":
                yield node.attr


def test_the_check_sees_a_store() -> None:
    found = _stores_in(ast.parse("async def f(daemon):\n    await daemon.runtime.sessions.get('x')\n"))
    assert list(found) == ["sessions"]
    assert list(_stores_in(ast.parse("runtime.library.sessions()"))) == []
