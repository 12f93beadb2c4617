"""Interfaces use `Library` and `Session`; only a few places, each with its reason, reach a store through `Runtime`."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from loom.testing import memory_runtime
from source_trees import ONE_PROCESS, SOURCE, tree_of

INTERFACES: Final = ("cli", "daemon", "tui", "acp", "client")
STORES: Final = "stores"
"""The one attribute of `Runtime` through which the stores can be reached."""

ALLOWED: Final = {
    "cli/doctor.py": "verifies and mends the stores themselves",
    "cli/store.py": "backup, restore and sweep copy and clean the stores themselves",
    "daemon/readiness.py": "checks that the stores can be written",
}
"""Modules that may use a store of a runtime, and why."""


@ONE_PROCESS
def test_interfaces_reach_no_store_through_the_runtime() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for file in (file for room in INTERFACES for file in sorted((SOURCE / room).rglob("*.py"))):
        name = file.relative_to(SOURCE).as_posix()
        found[name].update(_stores_in(tree_of(file)))
    used = {name: sorted(stores) for name, stores in found.items() if stores}
    assert {name: stores for name, stores in used.items() if name not in ALLOWED} == {}
    assert ALLOWED.keys() <= used.keys(), "an entry of a list that is no longer needed"


async def test_a_runtime_has_no_other_store() -> None:
    async with memory_runtime() as runtime:
        kept = {id(value) for value in msgspec.structs.asdict(runtime.stores).values()}
        assert [name for name, value in vars(runtime).items() if id(value) in kept] == []


def _stores_in(tree: ast.Module) -> Iterator[str]:
    """Yield the stores that a module takes from something called runtime."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == STORES:
            owner = node.value.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name.lstrip("_") in ("runtime", "library"):
                yield node.attr


def test_the_check_sees_a_store() -> None:
    found = _stores_in(ast.parse("async def f(daemon):\n    await daemon.runtime.stores.sessions.get('x')\n"))
    assert list(found) == ["sessions"]
    assert list(_stores_in(ast.parse("runtime.library.sessions()"))) == []
