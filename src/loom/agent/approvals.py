"""Approvals: which tool calls run without asking, and what the user answers when asked.

The user's rules decide first; where no rule matches, the tool's own default applies. Pending requests and "always"
answers are stored with the session, so that any interface can answer, and an answer still holds after a restart.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import msgspec

from loom.agent.gate import ApprovalRequest, Approve, Verdict, call_gate
from loom.content.blocks import ToolCall
from loom.content.json_values import json_text
from loom.errors import ContentError, LoomError, ToolError
from loom.events import ApprovalAnswered, ApprovalRequested, Event, NoticeRaised
from loom.tools.command_subjects import CommandSubjects, command_subjects
from loom.tools.egress import is_address

Action: TypeAlias = Literal["allow", "ask", "deny"]
ApprovalVerdict: TypeAlias = Literal["once", "always", "deny"]
GivenAnswer: TypeAlias = tuple[ApprovalVerdict, str, str]
"""The verdict, the reason or the values that the user wrote, and who answered."""
Rule: TypeAlias = Callable[[str, str], Action | None]
"""Maps a tool and one subject of its call (a command, a path or a URL) to the action of the user's policy. None leaves
the decision to the tool."""

_STRICTNESS: Final[dict[Action | None, int]] = {"allow": 0, None: 1, "ask": 2, "deny": 3}
_UNSEEN: Final = ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")
_SUBJECTS: Final = ("command", "path", "media", "url")
"""The arguments whose values rules are matched against."""
_WIDENING: Final = ("network", "unsandboxed")
"""Arguments that relax the sandbox of a command: `network: npm install` must be allowed in addition to `npm
install`."""
BUILT_IN: Final = frozenset(
    {
        "read_file",
        "list_files",
        "search_files",
        "write_file",
        "edit_file",
        "multi_edit",
        "run_command",
        "start_process",
        "read_output",
        "stop_process",
        "look",
        "render_slides",
        "fetch_url",
        "screenshot",
        "update_todos",
    }
)
"""Built-in tools whose subject describes the call completely: "always" covers that subject with any other arguments."""


@runtime_checkable
class ExplicitRules(Protocol):
    """A `Rule` that can also report which of its rules match, apart from its default action."""

    def explicit(self, tool: str, subject: str) -> Action | None:
        """Return the action of the rule that matches, or None if no rule matches."""
        ...

    def restricts(self, tool: str) -> bool:
        """Return whether any rule asks for or denies calls of `tool`."""
        ...


class ApprovalSubject(msgspec.Struct, frozen=True, kw_only=True):
    """The things that one approval request is about."""

    subjects: tuple[str, ...]
    """The strings that rules are matched against; the strictest result counts."""
    spellings: tuple[str, ...] = ()
    """Other spellings of the same subjects: a rule can ask or deny by them, but not allow."""
    is_opaque: bool = False
    """Whether the call may do more than its subjects name. If any rule restricts the tool, such a call needs
    approval."""
    pattern: str
    """The exact text that an "always" answer covers, for the same tool."""
    shown: str
    """The text that the user reads before deciding."""


class OpenApproval(msgspec.Struct, frozen=True, kw_only=True):
    """The stored form of a pending request."""

    call: str
    action: str
    pattern: str = ""
    is_gate: bool = False
    """Whether the call has not started yet: if it is answered after a restart, it can still run."""


class Approvals:
    """The approvals of one turn. `store` writes `open` and `always` together with the event that changed them, and
    shows the event only after that: an approval that an interface has shown survives a restart."""

    def __init__(
        self, rule: Rule, store: Callable[[Event], Awaitable[None]], *, approve: Approve | None = None
    ) -> None:
        self._rule = rule
        self._approve = approve
        self._gate = asyncio.Lock()
        self._store = store
        self._waiting: dict[str, asyncio.Future[GivenAnswer]] = {}
        self.open: dict[str, OpenApproval] = {}
        self.taken_up: dict[str, str] = {}
        """Maps the id of each call that was waiting for an answer when its process ended to the id of its approval."""
        self._early: dict[str, GivenAnswer] = {}
        self._answered: set[str] = set()
        self.always: set[tuple[str, str]] = set()
        self.deadline: asyncio.Timeout | None = None
        """The deadline of the running turn. It is paused while an approval is pending."""
        self._left_seconds = 0.0
        self._pauses = 0

    @property
    def left_seconds(self) -> float:
        """Return the seconds left until the turn's deadline; while it is paused, those that were left when the pause
        began."""
        if self._pauses or self.deadline is None:
            return self._left_seconds
        now = asyncio.get_running_loop().time()
        return (self.deadline.when() or now) - now

    async def decide_by_code(self, request: ApprovalRequest) -> Verdict | None:
        """Call the program's `approve` function once and return its verdict, or None if there is no such function.
        Raise `ToolError` if it fails."""
        if self._approve is None:
            return None
        async with self._gate:
            with self._paused_deadline():
                try:
                    return await call_gate(self._approve, request)
                except Exception as error:
                    if isinstance(error, LoomError):
                        raise ToolError(error.message, hint=error.hint) from error
                    why = f"{type(error).__name__}: {error}"
                    notice = f"The approval function failed, and {request.tool} was not run: {why}"
                    await self._store(NoticeRaised(text=notice, code="approval"))
                    raise ToolError(f"the approval function failed, and {request.tool} was not run") from error

    def check_denied(self, call: ToolCall, about: ApprovalSubject) -> Action | None:
        """Return the strictest action that the rules give for the subjects of the call; raise `ToolError` if they deny
        it."""
        if self.decide(call.name, about) == "deny":
            raise _not_allowed(call)
        return self.decide_subjects(call.name, about.subjects)

    async def ask(self, call: ToolCall, about: ApprovalSubject, *, needed: bool, is_gate: bool = False) -> bool:
        """Wait until the call may continue and return whether the user was asked. Raise `ToolError` if it is denied.

        `needed` is the tool's own default; a rule of the user takes precedence over it. `is_gate` means that no part of
        the call has run yet.
        """
        decided = self.decide(call.name, about)
        if decided == "deny":
            raise _not_allowed(call)
        if decided == "allow" or (decided is None and not needed) or (call.name, about.pattern) in self.always:
            return False
        await self._require(call, about, is_gate=is_gate)
        return True

    async def confirm(self, call: ToolCall, about: ApprovalSubject, schema: dict[str, Any] | None = None) -> str:
        """Ask the user even if a rule or an "always" answer would allow the call. Return the text of the answer;
        `schema` describes the values to enter. Raise `ToolError` if the call is denied."""
        if self.decide(call.name, about) == "deny":
            raise _not_allowed(call)
        return await self._require(call, about, is_gate=False, schema=schema)

    async def forward(
        self,
        call: ToolCall,
        about: ApprovalSubject,
        schema: dict[str, Any] | None,
        answered: asyncio.Future[GivenAnswer],
    ) -> GivenAnswer:
        """Ask the user what another session asks, and return the answer. If it is answered there first, `answered`
        has the answer, and this request is closed with it."""
        return await self._request(call, about, is_gate=False, schema=schema, answered=answered)

    async def _require(
        self, call: ToolCall, about: ApprovalSubject, *, is_gate: bool, schema: dict[str, Any] | None = None
    ) -> str:
        answer, reason, _ = await self._request(call, about, is_gate=is_gate, schema=schema)
        if answer == "deny":
            raise ToolError(f"the user denied it{f': {reason}' if reason else ''}")
        return reason

    def decide(self, tool: str, about: ApprovalSubject) -> Action | None:
        """Return the strictest action for a call over all its subjects and their other spellings."""
        decided = self.decide_subjects(tool, about.subjects)
        judge = self._rule.explicit if isinstance(self._rule, ExplicitRules) else self._rule
        for spelling in about.spellings:
            action = judge(tool, spelling)
            if action in ("ask", "deny") and _STRICTNESS[action] > _STRICTNESS[decided]:
                decided = action
        if decided == "allow" and about.is_opaque and self.restricts(tool):
            return "ask"
        return decided

    def decide_subjects(self, tool: str, subjects: Collection[str]) -> Action | None:
        """Return the strictest action that the rules give for any of `subjects`."""
        answers: list[Action | None] = [self._rule(tool, subject) for subject in subjects]
        return max(answers, key=lambda answer: _STRICTNESS[answer])

    def restricts(self, tool: str) -> bool:
        """Return whether a rule may ask for or deny some calls of the tool and not others."""
        return self._rule.restricts(tool) if isinstance(self._rule, ExplicitRules) else True

    def covers(self, gate: Action | None, tool: str, subjects: Collection[str]) -> bool:
        """Return whether a call that passed its gate with the action `gate` may use `subjects` without another
        approval: approving a call that a rule asks about also covers files for which a rule asks, but never those that
        a rule denies."""
        return _STRICTNESS[self.decide_subjects(tool, subjects)] <= max(_STRICTNESS[gate], _STRICTNESS[None])

    async def _request(
        self,
        call: ToolCall,
        about: ApprovalSubject,
        *,
        is_gate: bool,
        schema: dict[str, Any] | None,
        answered: asyncio.Future[GivenAnswer] | None = None,
    ) -> GivenAnswer:
        approval = (self.taken_up.pop(call.id, "") if is_gate else "") or secrets.token_hex(16)
        opened = OpenApproval(
            call=call.id, action=escape_controls(about.shown), pattern=escape_controls(about.pattern), is_gate=is_gate
        )
        with self._open_request(approval, opened) as waiting:
            await self._store(
                ApprovalRequested(
                    approval=approval, call=call, action=opened.action, pattern=opened.pattern, values=schema
                )
            )
            if answered is not None:
                answered.add_done_callback(lambda given: self.answer(approval, *given.result()))
            answer, reason, by = await waiting
        if answer == "always" and answered is None:
            self.always.add((call.name, about.pattern))
        await self._store(ApprovalAnswered(approval=approval, answer=answer, reason=reason, by=by))
        return answer, reason, by

    @contextmanager
    def _open_request(self, approval: str, opened: OpenApproval) -> Generator[asyncio.Future[GivenAnswer]]:
        """Register a pending request, and pause the turn's deadline while it is open."""
        with self._paused_deadline():
            waiting = self._waiting[approval] = asyncio.get_running_loop().create_future()
            self.open[approval] = opened
            if approval in self._early:
                waiting.set_result(self._early.pop(approval))
            try:
                yield waiting
            finally:
                del self.open[approval], self._waiting[approval]

    @contextmanager
    def _paused_deadline(self) -> Generator[None]:
        """Pause the turn's deadline while a person or a function decides."""
        if not self._pauses and self.deadline is not None:
            self._left_seconds = self.left_seconds
            self.deadline.reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and self.deadline is not None and not self.deadline.expired():
                self.deadline.reschedule(asyncio.get_running_loop().time() + self._left_seconds)

    def answer(self, approval: str, answer: ApprovalVerdict, reason: str = "", by: str = "") -> bool:
        """Answer a pending request; return False if it is no longer pending."""
        waiting = self._waiting.get(approval)
        if waiting is None or waiting.done():
            return False
        waiting.set_result((answer, reason, by))
        self._answered.add(approval)
        return True

    def answer_early(self, approval: str, answer: ApprovalVerdict, reason: str = "", by: str = "") -> bool:
        """Answer a request, or keep the answer for a request that a resumed turn is about to open. Return False if it
        was answered before."""
        if self.answer(approval, answer, reason, by):
            return True
        if approval in self._answered:
            return False
        self._early[approval] = (answer, reason, by)
        self._answered.add(approval)
        return True


def check_verdict(answer: ApprovalVerdict) -> None:
    """Raise `ContentError` for an unknown answer, from an untyped program: "no" must not run the call."""
    if answer not in get_args(ApprovalVerdict):
        raise ContentError(
            f"{answer!r} is not an answer to an approval.", hint='Answer with "once", "always" or "deny".'
        )


def _not_allowed(call: ToolCall) -> ToolError:
    return ToolError(f"the user's policy does not allow {call.name} here")


# What a call is about ------------------------------------------------------------------------------------------------


def subject_of(call: ToolCall, workspace: Path, declared: Collection[str] | None = None) -> ApprovalSubject:
    """Return the subjects of a call: every command that a command line runs, every path as written and resolved, every
    URL.

    All arguments together are one more subject if there is none of these, if one of them is not a string, or if an
    argument is not `declared` by the tool, because its effect is unknown. A harmless-looking argument therefore cannot
    hide what a call does.
    """
    named = {name: call.arguments[name] for name in _SUBJECTS if call.arguments.get(name) is not None}
    found = {name: _subjects(name, value, workspace) for name, value in named.items() if isinstance(value, str)}
    subjects = [subject for several in found.values() for subject in several.subjects]
    is_clear = 0 < len(named) == len(found) and (declared is None or call.arguments.keys() <= set(declared))
    if not is_clear:
        subjects.append(json_text(call.arguments))
    widened = [name for name in _WIDENING if call.arguments.get(name) is True and "command" in found]
    subjects += [f"{name}: {named['command']}" for name in widened]
    exact = {name: named[name] if name == "command" else several.subjects[-1] for name, several in found.items()}
    is_enough = is_clear and len(exact) == 1 and call.name in BUILT_IN and not widened
    pattern = next(iter(exact.values())) if is_enough else json_text(call.arguments | exact)
    return ApprovalSubject(
        subjects=tuple(dict.fromkeys(subjects)),
        spellings=tuple(spelling for several in found.values() for spelling in several.spellings),
        is_opaque=any(several.is_opaque for several in found.values()),
        pattern=pattern,
        shown=_lines(call.arguments) or call.name,
    )


def action_subject(
    call: ToolCall, workspace: Path, action: str, why: str, *, url: str = "", file: Path | None = None
) -> ApprovalSubject:
    """Return the subject of an approval that a tool requests while it runs. A URL that the call leads to is judged as
    if it were called directly; an open file is judged by its resolved path in addition to its names."""
    plain = subject_of(call, workspace)
    subjects = (url,) if url else plain.subjects
    if file is not None:
        subjects = (*subjects, path_label(os.path.realpath(workspace), file))
    return ApprovalSubject(
        subjects=subjects,
        spellings=() if url else plain.spellings,
        is_opaque=not url and plain.is_opaque,
        pattern=action,
        shown=f"{action} ({why})" if why else action,
    )


def path_label(root: str, path: str | Path) -> str:
    """Return the path as rules match it: relative to the workspace if it is inside, absolute otherwise. `root` is the
    resolved path of the workspace; links are not followed."""
    place = os.path.normpath(os.path.join(root, path))  # noqa: PTH118  called for every file of a search: Path is slow
    return "." if place == root else place.removeprefix(root.rstrip("/") + "/")


def _subjects(name: str, value: str, workspace: Path) -> CommandSubjects:
    match name:
        case "command":
            return command_subjects(value, workspace)
        case "url":
            return CommandSubjects((value,) if is_address(value) else (value, *_places(value, workspace)))
        case _:
            return CommandSubjects(_places(value, workspace))


def _places(path: str, workspace: Path) -> tuple[str, ...]:
    """Return the path as written and as resolved, each relative to the workspace if it is inside."""
    root = os.path.realpath(workspace)
    try:
        written = Path(root) / Path(path).expanduser()
        real = os.path.realpath(written)  # unnormalized: `..` after a link is relative to its target
    except (ValueError, RuntimeError):  # not a path: the tool reports it
        return (path,)
    return tuple(dict.fromkeys(path_label(root, found) for found in (written, real)))


def _lines(arguments: dict[str, Any]) -> str:
    """Return the arguments for a person to read: strings as they are, everything else as JSON."""
    values = {name: value if isinstance(value, str) else json_text(value) for name, value in arguments.items()}
    if len(values) == 1:
        return next(iter(values.values()))
    return "\n".join(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}" for name, text in values.items())


def escape_controls(text: str) -> str:
    """Replace control, bidirectional and invisible characters with escapes, so that the user approves what they see."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in _UNSEEN
        else f"\\u{{{ord(character):04x}}}"
        for character in text
    )
