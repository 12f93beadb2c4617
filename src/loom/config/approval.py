"""Which tool calls run: the user's rules decide, and a project's rules can only make the decision stricter."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from loom.config.schema import Action, Approval, Rule, Section

_STRICTNESS: Final[dict[Action, int]] = {"allow": 0, "ask": 1, "deny": 2}


class ProjectApproval(Section, frozen=True, kw_only=True):
    """What a project file says about approvals. Without a word of its own it restricts nothing."""

    default: Action = "allow"
    rules: tuple[Rule, ...] = ()


def decide(user: Approval, project: ProjectApproval, tool: str, subjects: Iterable[str]) -> Action:
    """The strictest answer over both policies and all subjects."""
    return strictest(
        _answer(policy.default, policy.rules, tool, subject) for subject in subjects for policy in (user, project)
    )


def strictest(actions: Iterable[Action]) -> Action:
    return max(actions, key=_STRICTNESS.__getitem__)


def _answer(default: Action, rules: tuple[Rule, ...], tool: str, subject: str) -> Action:
    for rule in reversed(rules):
        if fnmatchcase(tool, rule.tool) and fnmatchcase(subject, rule.pattern):
            return rule.action
    return default
