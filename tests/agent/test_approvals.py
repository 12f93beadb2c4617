"""Approvals: what rules are matched with, what an "always" covers, what a person reads, what survives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom.agent.approvals import BUILT_IN, Action, Approvals, action_subject, escape_controls, subject_of
from loom.config import load_config
from loom.config.approval import ApprovalPolicy
from loom.content.blocks import ToolCall
from loom.errors import ToolError
from loom.events import ApprovalAnswered, ApprovalRequested, Event
from loom.runtime import approval_rule
from loom.tools.builtin import builtin_tools


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall("c1", name, arguments)


@pytest.mark.parametrize(
    ("command", "subjects"),
    [
        ("git status", ["git status"]),
        ("git status; rm -rf /", ["git status", "rm -rf /"]),
        ("a && b || c & d | e", ["a", "b", "c", "d", "e"]),
        ("echo $(whoami) `id`", ["echo \0 \0", "whoami", "id"]),
        ("diff <(a) >(b)", ["diff \0 \0", "a", "b"]),
        ("make 2>&1", ["make"]),
        ("a\nb", ["a", "b"]),
        ("cat < /etc/passwd", ["cat", "/etc/passwd"]),
        ("make 2>&1 >&2; ls", ["make", "ls"]),
        ("git log >&2024/../x", ["git log", "2024/../x", "x"]),
        ("git log 2>&1$x", ["git log", "\0"]),
        ("git log >&2'x'", ["git log", "2x"]),
        ("a2>&1", ["a2"]),
        ("env A=1 nice make", ["env A=1 nice make", "make"]),
    ],
)
def test_a_command_is_about_every_command_that_it_joins(command: str, subjects: list[str]) -> None:
    found = subject_of(call("run_command", command=command, timeout=5), Path("/work"))
    assert list(found.subjects) == subjects
    assert found.pattern == command
    assert found.shown == f"command:\n{command}\ntimeout: 5" if "\n" in command else f"command: {command}\ntimeout: 5"


def test_a_path_is_about_where_it_is_written_and_where_it_leads(tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    (workspace / "src").mkdir(parents=True)
    (workspace / "link").symlink_to(tmp_path)
    (tmp_path / "far" / "away").mkdir(parents=True)
    (workspace / "away").symlink_to(tmp_path / "far" / "away")
    places = {
        "src/a.py": ("src/a.py",),
        "./src/../src/a.py": ("src/a.py",),
        str(workspace / "src" / "a.py"): ("src/a.py",),
        "../b.txt": (str(tmp_path / "b.txt"),),
        "link/b.txt": ("link/b.txt", str(tmp_path / "b.txt")),
        "away/../b.txt": ("b.txt", str(tmp_path / "far" / "b.txt")),
        "a\0b": ("a\0b",),
    }
    for path, subjects in places.items():
        found = subject_of(call("read_file", path=path), workspace)
        assert (found.subjects, found.pattern, found.shown) == (subjects, subjects[-1], path)


def test_a_medium_and_a_page_of_the_workspace_are_places_like_a_path(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").symlink_to("private/plan.txt")
    assert subject_of(call("look", media="./plan.txt", pages="3"), tmp_path).subjects == (
        "plan.txt",
        "private/plan.txt",
    )
    page = subject_of(call("screenshot", url="./private/page.html"), tmp_path)
    assert (page.subjects, page.pattern) == (("./private/page.html", "private/page.html"), "private/page.html")
    late = subject_of(call("screenshot", url="./private/../plan.txt?://"), tmp_path)
    assert late.subjects[-1] == "plan.txt?:", "what the tool takes for a file is a place"
    assert subject_of(call("screenshot", url="https://x.org/../a"), tmp_path).subjects == ("https://x.org/../a",)


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "/etc/shadow", "command": "docs/x"},
        {"command": "docs/x", "path": "/etc/shadow"},
        {"url": "docs/x", "path": "/etc/shadow"},
        {"media": "/etc/shadow", "path": "docs/x"},
    ],
)
async def test_no_argument_takes_the_place_of_another_one(arguments: dict[str, Any]) -> None:
    asked = Asked(lambda subject: "deny" if subject.startswith("/etc/") else "allow")
    assert not await asked.ask(call("fs__read", **arguments))
    assert not asked.events
    asked = Asked(lambda subject: "allow" if subject.startswith("docs/") else None, ("deny", ""))
    assert not await asked.ask(call("fs__read", **arguments))
    assert len(asked.events) == 2, "what one rule allows and another does not know is asked for"


@pytest.mark.parametrize("arguments", [{"file": "/etc/shadow", "path": "docs/x"}, {"path": ["/etc"], "url": "docs/x"}])
def test_an_argument_that_nobody_declared_or_that_is_no_text_makes_all_of_them_count(arguments: dict[str, Any]) -> None:
    found = subject_of(call("fs__read", **arguments), Path("/work"), {"file", "url"})
    assert found.subjects[-1] == json.dumps(arguments, separators=(",", ":"))
    declared = subject_of(call("fs__read", path="docs/x", head=3), Path("/work"), {"path", "head"})
    assert declared.subjects == ("docs/x",), "a rule for a path still covers the plain call"


def test_we_know_our_own_tools_by_name() -> None:
    assert frozenset(builtin_tools()) == BUILT_IN


def test_other_calls_are_about_their_address_or_all_of_their_arguments() -> None:
    workspace = Path("/work")
    assert subject_of(call("fetch_url", url="https://x.org/a"), workspace).subjects == ("https://x.org/a",)
    found = subject_of(call("mcp_pay", amount=3, to="Eve"), workspace)
    assert found.subjects == ('{"amount":3,"to":"Eve"}',)
    assert found.shown == "amount: 3\nto: Eve"
    asked = action_subject(
        call("fetch_url", url="https://x.org/a"), workspace, "fetch from https://x.org", "it is told"
    )
    assert (asked.subjects, asked.pattern) == (("https://x.org/a",), "fetch from https://x.org")
    assert asked.shown == "fetch from https://x.org (it is told)"
    assert subject_of(call("now"), workspace).shown == "now"


def test_what_is_approved_is_what_is_seen() -> None:
    hidden = "rm a\u202egnp.txt \x1b[2K\r\u200b\u2028\U000e0041 tab\tline\nÜ 東京 🙂"
    assert escape_controls(hidden) == (
        "rm a\\u{202e}gnp.txt \\u{001b}[2K\\u{000d}\\u{200b}\\u{2028}\\u{e0041} tab\tline\nÜ 東京 🙂"
    )


class Asked:
    """Approvals with a fixed rule, answered by a script."""

    def __init__(self, rule: Action | Callable[[str], Action | None] | None, *answers: tuple[Any, str]) -> None:
        self.events: list[Event] = []
        self._answers = list(answers)
        self.approvals = Approvals(lambda _tool, subject: rule(subject) if callable(rule) else rule, self._store)

    async def _store(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, ApprovalRequested):
            assert event.approval in self.approvals.open
            assert self.approvals.answer(event.approval, *self._answers.pop(0))
            assert not self.approvals.answer(event.approval, "once"), "it is answered once"

    async def ask(self, found: ToolCall, *, needed: bool = True) -> bool:
        try:
            await self.approvals.ask(found, subject_of(found, Path("/work")), needed=needed)
        except ToolError:
            return False
        return True


@pytest.mark.parametrize(
    ("rule", "needed", "asks", "runs"),
    [
        ("allow", True, False, True),
        ("deny", False, False, False),
        ("ask", False, True, True),
        ("ask", True, True, True),
        (None, False, False, True),
        (None, True, True, True),
    ],
)
async def test_the_rule_decides_and_where_it_says_nothing_the_tool_does(
    rule: Action | None, needed: bool, asks: bool, runs: bool
) -> None:
    asked = Asked(rule, ("once", ""))
    assert await asked.ask(call("run_command", command="make"), needed=needed) == runs
    assert bool(asked.events) == asks


async def test_always_covers_the_same_tool_with_the_same_subject_and_nothing_else() -> None:
    asked = Asked(None, ("always", ""), ("deny", "no"), ("deny", ""))
    assert await asked.ask(call("write_file", path="a.txt", content="one"))
    assert await asked.ask(call("write_file", path="./a.txt", content="two"))
    assert not await asked.ask(call("edit_file", path="a.txt", old="one", new="two"))
    assert not await asked.ask(call("write_file", path="a.txt.exe", content="one"))
    assert [type(event) for event in asked.events] == [ApprovalRequested, ApprovalAnswered] * 3
    assert asked.approvals.always == {("write_file", "a.txt")}
    assert len(asked.events) == 6, "an open request and its answer are both stored"


async def test_always_for_a_tool_from_elsewhere_covers_all_of_its_arguments() -> None:
    asked = Asked(None, ("always", ""), *[("deny", "")] * 4)
    assert await asked.ask(call("fs__move", path="a.txt", to="b.txt"))
    assert await asked.ask(call("fs__move", path="./a.txt", to="b.txt")), "a path counts by where it is"
    assert not await asked.ask(call("fs__move", path="a.txt", to="../c.txt"))
    assert not await asked.ask(call("fs__move", path="a.txt"))
    assert not await asked.ask(call("fs__move", command="a.txt"))
    assert not await asked.ask(call("fs__move", path="a.txt", to="b.txt", url="https://x.org"))
    assert asked.approvals.always == {("fs__move", '{"path":"a.txt","to":"b.txt"}')}


async def test_the_clock_of_a_turn_stands_still_while_a_person_is_asked() -> None:
    seen: list[float | None] = []

    async def emit(event: Event) -> None:
        seen.append(approvals.deadline.when() if approvals.deadline else None)
        if isinstance(event, ApprovalRequested):
            approvals.answer(event.approval, "once")

    approvals = Approvals(lambda _tool, _subject: None, emit)
    async with asyncio.timeout(100) as approvals.deadline:
        before = approvals.deadline.when()
        await approvals.ask(call("x"), subject_of(call("x"), Path("/work")), needed=True)
        after = approvals.deadline.when()
    requested, answered = seen
    assert requested is None
    assert before is not None
    assert after is not None
    assert answered == after
    assert 0 <= after - before < 50


@pytest.mark.parametrize(
    ("approval", "tool", "subject", "decided"),
    [
        ({}, "run_command", "make", None),
        ({"default": "allow"}, "run_command", "make", "allow"),
        ({"default": "deny"}, "read_file", "a.txt", "deny"),
        ({"rules": [{"tool": "read_file", "pattern": "*.md", "action": "ask"}]}, "read_file", "a.md", "ask"),
        ({"rules": [{"tool": "read_file", "pattern": "*.md", "action": "ask"}]}, "read_file", "a.txt", None),
        ({"rules": [{"tool": "*", "action": "allow"}]}, "run_command", "make", "allow"),
    ],
)
def test_the_default_ask_leaves_it_to_the_tool_and_a_rule_that_asks_always_asks(
    approval: dict[str, Any], tool: str, subject: str, decided: Action | None, tmp_path: Path
) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags={"approval": approval})
    assert approval_rule(config)(tool, subject) == decided


def test_a_project_can_make_the_rules_stricter_and_never_looser(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (home / "loom.toml").write_text('[[approval.rules]]\ntool = "run_command"\npattern = "git *"\naction = "allow"\n')
    (project / "loom.toml").write_text(
        '[approval]\ndefault = "allow"\n'
        '[[approval.rules]]\ntool = "run_command"\npattern = "*"\naction = "allow"\n'
        '[[approval.rules]]\ntool = "run_command"\npattern = "git push*"\naction = "ask"\n'
    )
    rule = approval_rule(load_config(cwd=project, environ={"LOOM_HOME": str(home)}))
    assert rule("run_command", "git log") == "allow"
    assert rule("run_command", "git push -f") == "ask"
    assert rule("run_command", "make") is None


def test_the_documented_pattern_for_mcp_tools_matches_them_and_rules_for_nothing_are_named(tmp_path: Path) -> None:
    rules = [
        {"tool": "mcp_*", "action": "deny"},
        {"tool": "github__*", "action": "ask"},
        {"tool": "run_comand", "action": "deny"},
    ]
    config = load_config(
        cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags={"approval": {"default": "allow", "rules": rules[:1]}}
    )
    assert approval_rule(config)("srv__get_data", "x") == "deny"
    assert approval_rule(config)("run_command", "x") == "allow"
    config = load_config(
        cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags={"approval": {"default": "allow", "rules": rules}}
    )
    policy = ApprovalPolicy(config.approval, config.project_approval)
    assert policy.unmatched_rules(lambda: ["run_command", "srv__get"]) == ["github__*", "run_comand"]
    assert policy.unmatched_rules(lambda: ["run_command"]) == ["mcp_*", "github__*", "run_comand"]
