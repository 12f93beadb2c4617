"""Rules for places hold for every tool that gets there: by another argument, by searching, by a link, by a redirect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.events import ApprovalRequested
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.base import Tool, ToolContext, tool
from loom.tools.builtin import builtin_tools
from loom.tools.egress import Egress
from loom.tools.file_read import read_file
from tools.server import page, redirect, serving

MODEL = "anthropic/claude-opus-5"
DENIED = "the user's policy does not allow"


def rule(action: str, pattern: str = "private/*", tool: str = "*") -> dict[str, str]:
    return {"tool": tool, "pattern": pattern, "action": action}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "plan.txt").write_text("the secret PLAN\n")
    (tmp_path / "private" / "page.html").write_text("<html><body>the secret PLAN")
    (tmp_path / "public.txt").write_text("a public PLAN\n")
    (tmp_path / "alias").symlink_to("private")
    return tmp_path


async def acted(
    calls: Sequence[ToolCall], rules: Sequence[dict[str, str]], workspace: Path, *, answer: Any = "deny", **more: Tool
) -> tuple[list[str], list[str]]:
    """What the calls gave, and what the user was asked."""
    async with memory_runtime(
        {"approval": {"rules": list(rules)}},
        providers={"anthropic": ScriptedProvider([list(calls), "done"])},
        tools={**builtin_tools(), **more},
    ) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(workspace))
        asked: list[str] = []
        async for event in session.stream("go"):
            if isinstance(event, ApprovalRequested):
                asked.append(event.action)
                await session.answer(event.approval, answer)
        return [text_of(result) for result in (await session.path())[2].results], asked


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c1", "read_file", {"path": "private/plan.txt"}),
        ToolCall("c1", "look", {"media": "private/plan.txt"}),
        ToolCall("c1", "look", {"media": "alias/plan.txt"}),
        ToolCall("c1", "screenshot", {"url": "./private/page.html"}),
        ToolCall("c1", "screenshot", {"url": "alias/page.html"}),
        ToolCall("c1", "search_files", {"pattern": "PLAN", "path": "alias/plan.txt"}),
    ],
    ids=lambda call: f"{call.name}-{list(call.arguments.values())[-1]}",
)
async def test_what_a_rule_denies_no_argument_of_another_name_opens(call: ToolCall, workspace: Path) -> None:
    (text,), asked = await acted([call], [rule("deny")], workspace)
    assert text == f"{DENIED} {call.name} here"
    assert asked == []


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize("path", [".", "private", "alias"])
async def test_a_search_and_a_list_leave_out_what_a_rule_keeps_and_say_so(
    path: str, action: str, workspace: Path
) -> None:
    calls = [
        ToolCall("c1", "search_files", {"pattern": "PLAN", "path": path}),
        ToolCall("c2", "list_files", {"path": path}),
    ]
    (found, listed), asked = await acted(calls, [rule(action)], workspace)
    assert asked == []
    assert "secret" not in found
    assert "(2 files left out by the user's rules: name one as path to search it)" in found
    assert "plan.txt" not in listed
    assert "(2 left out by the user's rules)" in listed
    if path == ".":
        assert "public.txt:1: a public PLAN" in found
        assert "public.txt" in listed


async def test_a_rule_for_a_name_that_is_a_link_holds_for_what_is_found_below_it(workspace: Path) -> None:
    calls = [ToolCall(f"c{at}", "search_files", {"pattern": "PLAN", "path": path}) for at, path in enumerate("ab")]
    (workspace / "a").symlink_to("private")
    (workspace / "b").symlink_to("private")
    (kept, found), _ = await acted(calls, [rule("deny", "a/*")], workspace)
    assert "secret" not in kept
    assert "secret" in found


async def test_a_yes_to_a_search_that_a_rule_asks_for_holds_for_its_files_but_for_none_that_is_denied(
    workspace: Path,
) -> None:
    search = ToolCall("c1", "search_files", {"pattern": "PLAN"})
    (found,), asked = await acted([search], [rule("ask", "*")], workspace, answer="once")
    assert len(asked) == 1
    assert "secret PLAN" in found
    (found,), asked = await acted([search], [rule("ask", "*"), rule("deny")], workspace, answer="once")
    assert len(asked) == 1
    assert "public PLAN" in found
    assert "secret" not in found


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_a_link_that_is_swapped_after_the_rules_were_asked_leads_nowhere(action: str, workspace: Path) -> None:
    (workspace / "link.txt").symlink_to("public.txt")

    @tool
    async def swap_and_read(context: ToolContext, path: str) -> Any:
        """Read a file, when what it is called leads elsewhere already."""
        (workspace / "link.txt").unlink()
        (workspace / "link.txt").symlink_to("private/plan.txt")
        return await read_file(context, path)

    call = ToolCall("c1", "swap_and_read", {"path": "link.txt"})
    (text,), asked = await acted([call], [rule(action)], workspace, swap_and_read=swap_and_read)
    assert "secret" not in text
    assert asked == ([f"read link.txt (it is {workspace}/private/plan.txt)"] if action == "ask" else [])


async def test_a_file_that_a_tool_hands_over_is_under_the_rules_too(workspace: Path) -> None:
    @tool
    def hand_over(name: str) -> Path:
        """Give a file."""
        return Path(name)

    calls = [
        ToolCall(f"c{at}", "hand_over", {"name": name}) for at, name in enumerate(["public.txt", "private/plan.txt"])
    ]
    (given, kept), _ = await acted(calls, [rule("deny")], workspace, hand_over=hand_over)
    assert "public PLAN" in given
    assert kept == f"[not shown: {DENIED} hand_over here]"


async def test_a_page_does_not_see_neighbours_that_a_rule_keeps(workspace: Path) -> None:
    (workspace / "page.html").write_text("""<!doctype html><title>-</title><script>
const seen = [];
const tried = name => fetch(name).then(found => found.ok && seen.push(name)).catch(() => {});
tried("private/plan.txt").then(() => tried("public.txt")).then(() => document.title = "saw " + seen.join(" "));
</script>""")
    (text,), asked = await acted([ToolCall("c1", "screenshot", {"url": "page.html"})], [rule("deny")], workspace)
    assert 'title "saw public.txt"' in text
    assert asked == []


async def test_a_redirect_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    fetch = builtin_tools(Egress(allow=("127.0.0.0/8",), resolve=resolve))["fetch_url"]
    with serving({"*": page("far words")}) as far:
        there = f"http://far.example:{far.port}/?told"
        with serving({"*": redirect(there)}) as near:
            call = ToolCall("c1", "fetch_url", {"url": f"http://near.example:{near.port}/"})
            allowed = rule("allow", "http://near.example*")
            _, asked = await acted([call], [allowed], tmp_path, fetch_url=fetch)
            assert asked == [f"fetch from far.example:{far.port} (the address is sent to that host)"]
            (text,), asked = await acted([call], [allowed, rule("deny", "*far.example*")], tmp_path, fetch_url=fetch)
            assert (text, asked) == (f"{DENIED} fetch_url here", [])
            assert far.connections == 0
            (text,), asked = await acted([call], [rule("allow", "http://*")], tmp_path, fetch_url=fetch)
            assert "far words" in text
            assert asked == []
