"""Approval: decide whether a tool call runs, by the user's rules, which a project's rules can only make stricter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from loom.config.schema import ApprovalAction, ApprovalRule, ApprovalSettings, Section

_STRICTNESS: Final[dict[ApprovalAction, int]] = {"allow": 0, "ask": 1, "deny": 2}


class ProjectApproval(Section, frozen=True, kw_only=True):
    """The approval rules of a project file. The default restricts nothing."""

    default: ApprovalAction = "allow"
    rules: tuple[ApprovalRule, ...] = ()


class ApprovalPolicy:
    """The user's rules and `limits`, such as a project's, as one function of (tool, subject). The strictest counts.

    A rule with `ask` requires approval for every call that it matches. If only the default is `ask`, the result is
    None: the tool decides whether the call needs approval.
    """

    def __init__(self, user: ApprovalSettings, *limits: ProjectApproval) -> None:
        self._user = user
        self._rules_only = msgspec.structs.replace(user, default="allow")
        self._limits = limits
        rules = (user.rules, *(limit.rules for limit in limits))
        self._narrow = tuple(tuple(rule for rule in several if rule.pattern.strip("*")) for several in rules)
        """The user's rules and those of the limits with a specific pattern; a rule for everything is like a default."""

    def __call__(self, tool: str, subject: str) -> ApprovalAction | None:
        decided = strictest(action_of(policy, tool, subject) for policy in (self._user, *self._limits))
        is_default = strictest(action_of(it, tool, subject) for it in (self._rules_only, *self._limits)) == "allow"
        return None if decided == "ask" and is_default else decided

    def explicit(self, tool: str, subject: str) -> ApprovalAction | None:
        """Return the strictest action of the matching rules with a specific pattern; None if there is none."""
        found: list[ApprovalAction | None] = [_match(rules, tool, subject) for rules in self._narrow]
        return max(found, key=lambda action: -1 if action is None else _STRICTNESS[action])

    def restricts(self, tool: str) -> bool:
        """Return whether a rule with a specific pattern requires approval for, or denies, calls of the tool."""
        rules = (rule for several in self._narrow for rule in several)
        is_partial = any(_allows_some(limit.rules, tool) for limit in self._limits)
        return is_partial or any(rule.action != "allow" and names_tool(rule, tool) for rule in rules)

    def unmatched_rules(self, tools: Callable[[], Iterable[str]]) -> list[str]:
        """Return the tool patterns of rules that match none of `tools` and so have no effect. `tools` is called only if
        there are rules: making all tools takes time."""
        rules = [rule for policy in (self._user, *self._limits) for rule in policy.rules]
        known = tuple(tools()) if rules else ()
        return list(dict.fromkeys(rule.tool for rule in rules if not any(names_tool(rule, tool) for tool in known)))


def names_tool(rule: ApprovalRule, tool: str) -> bool:
    """Return whether a rule applies to this tool. A tool of an MCP server (`SERVER__TOOL`) also matches as
    `mcp_SERVER__TOOL`, so that `mcp_*` means all of them."""
    return fnmatchcase(tool, rule.tool) or ("__" in tool and fnmatchcase(f"mcp_{tool}", rule.tool))


def action_of(policy: ApprovalSettings | ProjectApproval, tool: str, subject: str) -> ApprovalAction:
    """Return what one policy says about a call."""
    return _match(policy.rules, tool, subject) or policy.default


def _allows_some(rules: Iterable[ApprovalRule], tool: str) -> bool:
    """Return whether rules forbid or ask about all calls of a tool except some."""
    about = [rule for rule in rules if names_tool(rule, tool)]
    is_broad = any(rule.action != "allow" and not rule.pattern.strip("*") for rule in about)
    return is_broad and any(rule.action == "allow" and rule.pattern.strip("*") for rule in about)


def strictest(actions: Iterable[ApprovalAction]) -> ApprovalAction:
    return max(actions, key=_STRICTNESS.__getitem__)


def _match(rules: tuple[ApprovalRule, ...], tool: str, subject: str) -> ApprovalAction | None:
    for rule in reversed(rules):
        if names_tool(rule, tool) and fnmatchcase(subject, rule.pattern):
            return rule.action
    return None
