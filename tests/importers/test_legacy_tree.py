"""Trees of one JSON file per node."""

from __future__ import annotations

import copy
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from content.tiny_media import fetch, lift
from loom.content.blocks import TextBlock, ToolCall, ToolResult
from loom.content.messages import assistant, broken_pairs, tool, user
from loom.errors import ContentError, Newer
from loom.importers import LegacyNode, LegacyTree, upgrade_tree
from loom.importers.tree import seconds_of

SAMPLE = json.loads((Path(__file__).parent / "legacy_samples" / "tree.json").read_text())


def read(nodes: Any) -> LegacyTree:
    return upgrade_tree(nodes, lift=lift, fetch=fetch)


def node(node_id: str, parent_id: str | None, role: str, content: Any, **rest: Any) -> dict[str, Any]:
    return {"id": node_id, "parent_id": parent_id, "role": role, "content": content, **rest}


def called(node_id: str, parent_id: str | None, *ids: str) -> dict[str, Any]:
    calls = [{"id": call_id, "function": {"name": "f"}} for call_id in ids]
    return {"id": node_id, "parent_id": parent_id, "message": {"role": "assistant", "tool_calls": calls}}


def answered(node_id: str, parent_id: str, call_id: str) -> dict[str, Any]:
    return {
        "id": node_id,
        "parent_id": parent_id,
        "message": {"role": "tool", "tool_call_id": call_id, "content": call_id},
    }


def done(*ids: str) -> Any:
    return tool(*(ToolResult(call_id, (TextBlock(call_id),)) for call_id in ids))


def test_a_real_tree_is_read_parents_first_with_its_faults_named() -> None:
    before = copy.deepcopy(SAMPLE)
    tree = read(SAMPLE)
    calls = assistant(ToolCall("a", "f"), ToolCall("b", "g"))
    results = tool(ToolResult("a", (TextBlock("one"),)), ToolResult("b", (TextBlock("two"),)))
    assert tuple(replace(node, created_at=None) for node in tree.nodes) == (
        LegacyNode(id="n0", system="Be Loom."),
        LegacyNode(id="n9", messages=(user("Where am I?"),)),
        LegacyNode(id="c2", messages=(assistant("hen"),)),
        LegacyNode(id="n1", parent_id="n0", messages=(user("Hello"),), system="Be Loom."),
        LegacyNode(id="c1", parent_id="c2", messages=(user("egg"),)),
        LegacyNode(id="n2", parent_id="n1", messages=(calls,), system="Be Loom."),
        LegacyNode(id="n6", parent_id="n1", system="Be Loom."),
        LegacyNode(id="n8", parent_id="n6", messages=(user("Again"),), system="Be Loom."),
        LegacyNode(id="n4", parent_id="n2", messages=(results,), system="Be Loom."),
        LegacyNode(id="n5", parent_id="n4", messages=(assistant("Both."),), system="Be Loom."),
    )
    assert tree.roots == ("n0", "n9", "c2")
    assert tree.head == "n8"
    assert tree.notices == (
        "node 'n9' exists twice; the first one was used",
        "entry 13 is not a node; ignored",
        "node 'n9' names a missing child 'nowhere'",
        "the parent 'lost' of node 'n9' is missing; the node became a root",
        "node 'c2' is its own ancestor; it became a root",
    )
    assert before == SAMPLE


def test_results_that_fork_are_joined_on_every_branch() -> None:
    tree = read(
        [
            called("c", None, "a", "b"),
            answered("ra", "c", "a"),
            answered("rb", "ra", "b"),
            answered("again", "ra", "b"),
            node("u", "ra", "user", "stop"),
        ]
    )
    assert {found.id: (found.parent_id, found.messages) for found in tree.nodes[1:]} == {
        "ra": ("c", (done("a"),)),
        "rb": ("c", (done("a", "b"),)),
        "again": ("c", (done("a", "b"),)),
        "u": ("ra", (user("stop"),)),
    }


def test_results_and_words_of_one_node_become_two_messages() -> None:
    words = [{"type": "text", "text": "go on"}, {"type": "tool_result", "tool_use_id": "a", "content": "a"}]
    tree = read([called("c", None, "a"), node("r", "c", "user", words)])
    assert tree.nodes[1].messages == (done("a"), user("go on"))


def test_results_without_an_id_answer_the_calls_above_them() -> None:
    tree = read([called("c", None, "a"), node("gap", "c", "user", ""), node("r", "gap", "tool", "x")])
    assert tree.nodes[2].messages == (tool(ToolResult("a", (TextBlock("x"),))),)
    path = [message for found in tree.nodes for message in found.messages]
    assert broken_pairs(path) == ()


def test_children_are_found_from_either_side() -> None:
    nodes = [
        {"id": 1, "child_ids": [2], "role": "user", "content": "a"},
        {"id": 2, "role": "assistant", "content": "b"},
    ]
    tree = read(nodes)
    assert [(found.id, found.parent_id) for found in tree.nodes] == [("1", None), ("2", "1")]
    assert tree.head == "2"


def test_the_head_is_the_leaf_that_was_written_last_else_the_deepest() -> None:
    nodes = [
        node("r", None, "user", "r"),
        node("x", "r", "user", "x"),
        node("y", "r", "user", "y"),
        node("z", "y", "user", "z"),
    ]
    assert read(nodes).head == "z"
    dated = [
        {**nodes[0]},
        {**nodes[1], "updated_at": "2024-05-01T00:00:00"},
        nodes[2],
        {**nodes[3], "created_at": 1_600_000_000},
    ]
    assert read(dated).head == "x"


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2024-02-29T23:59:59Z", "2024-03-01T00:00:00Z"),
        ("2024-05-01T12:00:00+02:00", "2024-05-01T10:00:01"),
        ("2024-05-01T10:00:00.250Z", "2024-05-01 10:00:00.5"),
        ("2024-05-01", 1_714_521_601),
        (1_714_521_600, 1_714_521_600_001),
        ("someday", "1970-01-02"),
        (None, "2024-12-31T23:00:00-0100"),
    ],
)
def test_dates_are_compared_however_they_were_written(earlier: Any, later: Any) -> None:
    for at, dates in enumerate(((earlier, later), (later, earlier))):
        leaves = [node(str(leaf), "r", "user", "x", updated_at=date) for leaf, date in enumerate(dates)]
        assert read([node("r", None, "user", "r"), *leaves]).head == str(1 - at)


def test_a_date_is_the_second_that_a_calendar_says() -> None:
    for text in ("1970-01-01T00:00:00Z", "2000-02-29T12:30:45+05:30", "2024-12-31T23:59:59.5Z", "1969-03-01T00:00:00Z"):
        assert seconds_of(text) == datetime.fromisoformat(text).timestamp()


def test_system_messages_below_the_first_words_are_the_users() -> None:
    tree = read(
        [
            node("s", None, "system", "one"),
            node("t", "s", "system", "two"),
            node("u", "t", "user", "hi"),
            node("v", "u", "system", "three"),
        ]
    )
    assert [(found.system, found.messages) for found in tree.nodes] == [
        ("one", ()),
        ("one\n\ntwo", ()),
        ("one\n\ntwo", (user("hi"),)),
        ("one\n\ntwo", (user(TextBlock("[system] three", is_system=True)),)),
    ]


def test_an_empty_leaf_is_left_out_with_a_notice() -> None:
    tree = read([node("a", None, "user", "hi"), node("b", "a", "assistant", " ")])
    assert [found.id for found in tree.nodes] == ["a"]
    assert tree.notices == ("node 'b': empty; left out",)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_ring_of_any_size_is_broken_once(size: int) -> None:
    tree = read([node(str(at), str((at + 1) % size), "user", f"m{at}") for at in range(size)])
    assert len(tree.nodes) == size
    assert len(tree.roots) == 1
    assert sum("its own ancestor" in notice for notice in tree.notices) == 1


def test_a_chain_of_ten_thousand_nodes_is_no_trap() -> None:
    nodes = [node(str(at), str(at - 1) if at else None, "user", f"m{at}") for at in range(10_000)]
    assert read(reversed(nodes)).head == "9999"
    results = [
        called("c", None, "r0"),
        *(answered(f"r{at}", f"r{at - 1}" if at else "c", f"r{at}") for at in range(10_000)),
    ]
    tree = read(results)
    assert [found.id for found in tree.nodes] == ["c", "r9999"]
    assert len(tree.nodes[1].messages[0].results) == 10_000


def test_branches_on_every_result_of_a_long_chain_share_the_results_above_them() -> None:
    size = 300
    ids = [f"r{at}" for at in range(size)]
    tree = read(
        [
            called("c", None, *ids),
            *(answered(now, before, now) for before, now in zip(["c", *ids], ids, strict=False)),
            *(node(f"aside {now}", now, "user", "hm") for now in ids),
        ]
    )
    told = {found.id: found.messages for found in tree.nodes}
    assert all(told[now] == (done(*ids[: at + 1]),) for at, now in enumerate(ids))
    first, last = told[ids[0]][0].results, told[ids[-1]][0].results
    assert last[0] is first[0]


def test_a_second_result_below_a_branch_still_follows_the_first() -> None:
    tree = read(
        [
            called("c", None, "a", "b"),
            answered("r1", "c", "a"),
            node("aside", "r1", "user", "hm"),
            {"id": "r2", "parent_id": "r1", "message": {"role": "tool", "tool_call_id": "a", "content": "more"}},
            {"id": "r3", "parent_id": "r2", "message": {"role": "tool", "content": "unnamed"}},
            node("aside too", "r2", "user", "hm"),
        ]
    )
    again = ToolResult("a", (TextBlock("a"), TextBlock("[another result for this call]"), TextBlock("more")))
    told = {found.id: found.messages for found in tree.nodes}
    assert told["r1"] == (done("a"),)
    assert told["r2"] == (tool(again),)
    assert told["r3"] == (tool(again, ToolResult("b", (TextBlock("unnamed"),))),)
    assert broken_pairs([*told["c"], *told["r3"]]) == ()


def test_no_tree_is_refused_and_an_empty_one_is_empty() -> None:
    assert read([]) == LegacyTree()
    with pytest.raises(ContentError, match=r"it contains no nodes\. A node is an object with id"):
        read([1, {"a": 2}])
    with pytest.raises(Newer):
        read([{"id": "a", "message": {"v": 2, "role": "user", "blocks": []}}])
