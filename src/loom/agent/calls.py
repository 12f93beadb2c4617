"""Tool calls: approve them, run them, report failures. Every call of a message gets exactly one result, in the order of
the calls."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from loom.agent.approvals import Action, Approvals, ApprovalSubject, GivenAnswer, action_subject, path_label, subject_of
from loom.agent.custom_blocks import expand_custom_blocks
from loom.agent.gate import Allow, ApprovalRequest, Ask, Deny
from loom.agent.hooks import ToolHooks
from loom.agent.ingest import FileBytes, Prerender, ingest
from loom.agent.results import (
    TEXT_CAP_BYTES,
    blocks_of,
    fit_text,
    kept_text,
    kept_texts,
    with_kept,
)
from loom.compile.assemble import INTERRUPTED as CUT_OFF
from loom.compile.measure import elide_middle
from loom.compile.policy import LOOK
from loom.compile.ports import MediaAccess
from loom.content.blocks import ContentBlock, TextBlock, ToolCall, ToolResult, clean_text
from loom.content.inputs import Attachment, Content, flatten
from loom.content.json_values import arguments_problem
from loom.content.media import Media, digest_of
from loom.content.messages import Message, media_of, tool
from loom.errors import LoomError, NotFound, ToolError
from loom.events import ApprovalRequested, Event, ToolFinished, ToolProgressed, ToolStarted
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.models import Capabilities
from loom.tools.background import BackgroundProcesses
from loom.tools.base import Tool
from loom.tools.file_edits import files_as_written, record_rewrites
from loom.tools.file_records import FileRecords, RecordsChanges
from loom.tools.input_schema import describe_arguments, repair_arguments
from loom.tools.secret_mask import mask_blocks, mask_result, mask_secrets
from loom.tools.workspace import OpenFile, open_file, read_whole
from loom.work_types import FileChange

INTERRUPTED: Final = "Interrupted: the call may or may not have taken effect. Check before you repeat it."
"""The result of a call that was running when its turn or its process ended, and that may be unsafe to run again."""
NOT_STARTED: Final = "Not started: the turn was interrupted before this call."
PARTIAL_CHARS: Final = 8_000
"""The longest text that a call which is cut off adds to its result."""
READ: Final = "read_file"
CHANGED: Final = "(The user changed the arguments of this call: {})"
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


class CallServices(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies that all calls of a turn share."""

    tools: Mapping[str, Tool]
    workspace: Path
    media: MediaAccess
    limits: IntakeLimits
    prerender: Prerender
    """Renders images that tools return while they are stored."""
    approvals: Approvals
    emit: Callable[[Event], Awaitable[None]]
    emit_now: Callable[[Event], Awaitable[None]]
    """Like `emit`, but the event is on disk when it returns."""
    store_changes: Callable[[str, Sequence[FileChange]], Awaitable[None]]
    """Stores the changes of files that a call, given by its id, has made so far."""
    caller: RecordsChanges | None = None
    """The call of another session for which the turn runs. It records the changes of files, too."""
    messages: Callable[[], Awaitable[Sequence[Message]]]
    """Returns the messages of the session's path."""
    on_finished: Callable[[ToolCall, ToolResult], Awaitable[None]]
    """Called after each call has run, before its result is stored."""
    session_id: str
    model: str
    """The reference of the model that made the calls."""
    hooks: ToolHooks
    background: BackgroundProcesses
    """The background processes of the session."""
    records: FileRecords
    """The files that the model has read, for checks before edits."""
    text_cap_bytes: int = TEXT_CAP_BYTES
    secrets: frozenset[str] = frozenset()
    """Values to mask in every result: configured keys, and secrets of the environment."""


class CallContext:
    """The ToolContext of one call. `changes` are those of files that an earlier run of the call has made."""

    def __init__(
        self, services: CallServices, call: ToolCall, capabilities: Capabilities, changes: Iterable[FileChange] = ()
    ) -> None:
        self._services = services
        self._call = call
        self.capabilities = capabilities
        self.workspace = services.workspace
        self._root = os.path.realpath(services.workspace)
        self.limits = services.limits
        self.injected: list[ContentBlock] = []
        self.partial = ""
        """What the call has found out so far, for the case that it is cut off."""
        self.changes = list(changes)
        """The changes of files that the call has made so far."""
        self.gate: Action | None = None
        """The action of the user's rules for this call, decided before it ran."""
        self.was_asked = False
        """Whether the user approved the call before it ran."""
        self.is_allowed = False
        """Whether the program's `approve` function allowed the call, including approvals that the tool requests while
        it runs."""

    async def attach(
        self, data: bytes | Path, *, name: str = "", source: str = "", pages: str = ""
    ) -> Sequence[ContentBlock]:
        if isinstance(data, Path):
            found = await self.read(data)
            data, name, source = found.data, name or found.name, source or found.source
        admitted = await asyncio.to_thread(accept, data, name, source=source, pages=pages, limits=self.limits)
        if admitted.data is not None:
            await self._services.media.put(admitted.data)
        return [admitted.block, *(TextBlock(f"({notice})") for notice in admitted.notices)]

    async def read(self, path: Path) -> FileBytes:
        """Return the bytes of a file that a tool passes on. Files of the workspace and files in the temporary folder
        are read directly; the model may have chosen the name, so any other file needs an approval."""
        with open_file(self.workspace, str(path)) as opened:
            is_made = not opened.inside and opened.path.is_relative_to(_temporary_folder())
            why = ""
            if not opened.inside and not is_made:
                why = f"{opened.path} is outside the workspace"
            elif opened.sensitive:
                why = f"{opened.path.name} may contain secrets"
            if why or not is_made:
                await self.approve_file(opened, f"read {path}", why=why)
            data = await asyncio.to_thread(read_whole, opened, self.limits)
            return FileBytes(data, opened.path.name, str(opened.path))

    async def ingest_content(self, content: Content) -> list[ContentBlock]:
        """Store the bytes of `content` and return its blocks, with notices as text blocks. Bytes without a name get the
        name of the tool."""
        named = [
            Attachment(source=leaf, name=self._call.name) if isinstance(leaf, bytes) else leaf
            for leaf in flatten(expand_custom_blocks(content))
        ]
        services = self._services
        found = await ingest(named, services.media, limits=self.limits, read=self.read, prerender=services.prerender)
        return [*found.blocks, *(TextBlock(f"({notice})") for notice in found.notices)]

    async def inject(self, *content: Content) -> None:
        self.injected.extend(mask_blocks(await self.ingest_content(list(content)), self._services.secrets))

    async def emit(self, text: str, *, fraction: float | None = None) -> None:
        text = mask_secrets(text, self._services.secrets)
        await self._services.emit(ToolProgressed(call_id=self._call.id, text=text, fraction=fraction))

    async def approve(self, action: str, *, why: str, url: str = "") -> None:
        await self._ask(action_subject(self._call, self.workspace, action, why, url=url))

    async def approve_file(self, opened: OpenFile, action: str, *, why: str) -> None:
        if why or not self.may_read(opened.path):
            why = why or f"it is {opened.path}"
            await self._ask(action_subject(self._call, self.workspace, action, why, file=opened.path))

    async def _ask(self, asked: ApprovalSubject) -> None:
        if not self.is_allowed:
            await self._services.approvals.ask(self._call, asked, needed=True)

    def may_read(self, *places: Path) -> bool:
        subjects = {path_label(self._root, place) for place in places}
        return self.is_allowed or self._services.approvals.covers(self.gate, self._call.name, subjects)

    @property
    def reads_all(self) -> bool:
        return self.is_allowed or not self._services.approvals.restricts(self._call.name)

    async def confirm(self, action: str, *, why: str, schema: dict[str, Any] | None = None) -> str:
        asked = action_subject(self._call, self.workspace, action, why)
        return await self._services.approvals.confirm(self._call, asked, schema)

    async def forward_approval(
        self, asked: ApprovalRequested, *, why: str, answered: asyncio.Future[GivenAnswer]
    ) -> GivenAnswer:
        shown = f"{asked.call.name}, {why}:\n{asked.action}"
        about = ApprovalSubject(subjects=(), pattern=asked.pattern, shown=shown)
        return await self._services.approvals.forward(self._call, about, asked.values, answered)

    async def media(self) -> Sequence[Media]:
        found: list[Media] = []
        for message in await self._services.messages():
            found += [*media_of(message), *kept_texts(message)]
        return found

    async def load(self, digest: str) -> bytes:
        """Return the bytes of a medium; raise `NotFound` for a digest that this session does not refer to."""
        if all(media.digest != digest for media in await self.media()):
            raise NotFound(f"This session has no medium {digest[:80]}")
        return await self._services.media.load(digest)

    @property
    def session_id(self) -> str:
        return self._services.session_id

    @property
    def model(self) -> str:
        return self._services.model

    @property
    def tool_names(self) -> Collection[str]:
        return tuple(self._services.tools)

    @property
    def background(self) -> BackgroundProcesses:
        return self._services.background

    @property
    def file_records(self) -> FileRecords:
        return self._services.records

    def may_show(self, path: Path) -> bool:
        rule = self._services.approvals.decide_subjects(READ, {path_label(self._root, path)})
        is_guarded = any(hook.means(READ) for hook in self._services.hooks.before)
        return READ in self._services.tools and rule in (None, "allow") and not is_guarded

    async def keep_bytes(self, data: bytes) -> str:
        return await self._services.media.put(data) if data else digest_of(data)

    async def record_change(self, change: FileChange) -> None:
        if self._services.caller is not None:
            await self._services.caller.record_change(change)
        self.changes.append(change)
        await self._services.store_changes(self._call.id, self.changes)

    async def drop_change(self, change: FileChange) -> None:
        self.changes.remove(change)
        await self._services.store_changes(self._call.id, self.changes)
        if self._services.caller is not None:
            await self._services.caller.drop_change(change)

    def keep_partial(self, text: str) -> None:
        self.partial = text

    async def keep(self, text: str) -> Media:
        data = text.encode()
        return kept_text(await self._services.media.put(data), len(data), self._call.name)


def _temporary_folder() -> str:
    return os.path.realpath(tempfile.gettempdir())


class CallsResult(msgspec.Struct, frozen=True):
    """The results in the order of the calls, and the blocks that tools added to the conversation."""

    results: tuple[ToolResult, ...]
    injected: tuple[ContentBlock, ...]


class EarlierCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier process already did for the calls of a message."""

    begun: frozenset[str] = frozenset()
    results: Mapping[str, ToolResult] = msgspec.field(default_factory=dict[str, ToolResult])
    changes: Mapping[str, Sequence[FileChange]] = msgspec.field(default_factory=dict[str, Sequence[FileChange]])
    """The changes of files that calls without a result have made, by call id."""


async def run_calls(
    calls: Sequence[ToolCall],
    services: CallServices,
    capabilities: Capabilities,
    earlier: EarlierCalls,
    *,
    done: dict[str, ToolResult],
    running: dict[str, str],
) -> CallsResult:
    """Run the calls of a message in order; neighbouring calls that only read run concurrently. `done` receives each
    result as soon as it is available, `running` the text of the result for the case that the call is cut off. A call
    that `earlier` started and that is not repeatable gets the result `INTERRUPTED`."""
    services.records.begin_step()
    contexts = {call.id: CallContext(services, call, capabilities, earlier.changes.get(call.id, ())) for call in calls}
    done.update(earlier.results)
    for group in _groups(calls, services.tools):
        pending = [call for call in group if call.id not in done]
        for call in [call for call in pending if call.id in earlier.begun]:
            tool_ = services.tools.get(call.name)
            if tool_ is None or not tool_.repeatable:
                done[call.id] = _interrupted_result(call, INTERRUPTED, contexts[call.id].changes)
        runs = [call for call in pending if call.id not in done]
        try:
            async with asyncio.TaskGroup() as tasks:
                for call in runs:
                    tasks.create_task(_run(call, services, contexts[call.id], done, running))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
    injected = tuple(block for call in calls for block in contexts[call.id].injected)
    return CallsResult(tuple(done[call.id] for call in calls), injected)


def _groups(calls: Sequence[ToolCall], tools: Mapping[str, Tool]) -> Iterator[list[ToolCall]]:
    """Split the calls into groups that may run concurrently."""
    for reads_only, group in groupby(calls, lambda call: call.name in tools and tools[call.name].reads_only):
        if reads_only:
            yield list(group)
        else:
            yield from ([call] for call in group)


def unanswered_results(
    calls: Sequence[ToolCall],
    done: Mapping[str, ToolResult] | None = None,
    changes: Mapping[str, Sequence[FileChange]] | None = None,
    running: Mapping[str, str] | None = None,
) -> Message:
    """Return the message that answers the calls of a turn that is ending: calls without a result are reported as
    interrupted, with the `changes` of files that they have made, or as not started if they are not `running`."""
    done, changes = done or {}, changes or {}
    made = {call.id: changes.get(call.id, ()) for call in calls}
    other = CUT_OFF if running is None else NOT_STARTED
    texts = {call.id: (running or {}).get(call.id) or (INTERRUPTED if made[call.id] else other) for call in calls}
    return tool(*(done.get(it.id) or _interrupted_result(it, texts[it.id], made[it.id]) for it in calls))


def _interrupted_result(call: ToolCall, text: str, changes: Sequence[FileChange]) -> ToolResult:
    return _with_changes(ToolResult(call.id, (TextBlock(text),), name=call.name, is_error=True), changes)


def _with_changes(result: ToolResult, changes: Sequence[FileChange]) -> ToolResult:
    """Return the result with the changes of files that its call has made, as `undo` finds them."""
    if not changes:
        return result
    found: Any = result.data
    data = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return msgspec.structs.replace(result, data={**data, "changes": msgspec.to_builtins(list(changes))})


async def _run(
    call: ToolCall,
    services: CallServices,
    context: CallContext,
    done: dict[str, ToolResult],
    running: dict[str, str],
) -> None:
    started = time.monotonic()
    found = services.tools.get(call.name)
    if found is not None:
        arguments = repair_arguments(found.spec.parameters, call.arguments)
        call = msgspec.structs.replace(call, arguments=arguments)
    # Write the start of a call that must not run twice to disk first, so that another process does not repeat it.
    emit = services.emit if found is not None and found.repeatable else services.emit_now
    await emit(ToolStarted(call=call))
    try:
        approved = await approve_call(call, services, context)
        running[call.id] = CUT_OFF if found is not None and found.repeatable else INTERRUPTED
        result = await run_approved(approved, services, context, is_changed=approved is not call)
    except LoomError as error:
        result = await _failed_result(call, str(error), services)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            if context.partial and call.id in running:
                running[call.id] += f" {elide_middle(mask_secrets(context.partial, services.secrets), PARTIAL_CHARS)}"
            raise
        result = await _failed_result(call, _describe_crash(call, error), services)  # the tool cancelled itself
    except (Exception, SystemExit) as error:  # noqa: BLE001  foreign code: any error is a result for the model
        result = await _failed_result(call, _describe_crash(call, error), services)
    result = _with_changes(result, context.changes)
    if services.secrets:
        result = mask_result(result, services.secrets)
    done[call.id] = result
    await services.on_finished(call, result)
    await services.emit(ToolFinished(result=result, seconds=time.monotonic() - started))


async def approve_call(call: ToolCall, services: CallServices, context: CallContext) -> ToolCall:
    """Check a call and wait until it may run. Return it, with other arguments if the program's `approve` replaced them.
    Raise `ToolError` if it is invalid or denied."""
    found = services.tools.get(call.name)
    if found is None:
        known = ", ".join(sorted(services.tools)) or "none"
        raise ToolError(f"Tool {call.name!r} not found; available: {known}")
    if call.raw_arguments is not None:
        problem = arguments_problem(call.raw_arguments, f"the arguments of {call.name}")
        raise ToolError(f"{problem}. Expected one object: ({describe_arguments(found.spec.parameters)})")
    arguments = found.check_arguments(call.arguments)
    if found.precheck is not None:  # before asking for approval: a call that can only fail needs none
        await asyncio.to_thread(found.precheck, context, arguments)
    changed = await _check_approval(call, found, services, context)
    if changed is None:
        return call
    call = ToolCall(call.id, call.name, changed)
    arguments = found.check_arguments(call.arguments)
    if found.precheck is not None:
        await asyncio.to_thread(found.precheck, context, arguments)
    return call


async def run_approved(
    call: ToolCall, services: CallServices, context: CallContext, *, is_changed: bool = False
) -> ToolResult:
    """Run a call that `approve_call` returned, with the user's hooks; `is_changed` adds a note about its arguments.
    Raise `ToolError` if a hook refuses it."""
    found = services.tools[call.name]
    place = (services.workspace, services.session_id, context.emit)
    before = await services.hooks.run_before(call, *place)
    if before.question and not (context.is_allowed or context.was_asked):
        shown = subject_of(call, services.workspace, found.parameters).shown
        await context.confirm(f"{call.name}: {shown}", why=f"your hook: {before.question}")
    value = await found.run(context, call.arguments)
    made = await blocks_of(value, context.ingest_content)
    response = "\n".join(block.text for block in made if isinstance(block, TextBlock))
    written = await files_as_written(context, context.changes) if services.hooks.after else []
    try:
        after = await services.hooks.run_after(call, response, *place)
    finally:  # a hook that is cut off may have changed files, too
        rewrites = await record_rewrites(context, written)
    notes = [TextBlock(CHANGED.format(msgspec.json.encode(call.arguments).decode()))] if is_changed else []
    hints = [TextBlock(f"[The user's hook reports: {hint}]") for hint in (before.context, after) if hint]
    hints += [TextBlock(f"[The user's hook changed {difference}]") for difference in rewrites]
    # Mask secrets before truncating: a long text is stored in full, and a cut could split a key.
    blocks = mask_blocks([*notes, *made, *hints], services.secrets)
    keep = context.keep if LOOK in services.tools else None
    shown, kept = await fit_text(blocks, most_bytes=services.text_cap_bytes, keep=keep)
    is_error, data = (value.is_error, value.data) if isinstance(value, ToolResult) else (False, None)
    return ToolResult(call.id, shown, name=call.name, is_error=is_error, data=with_kept(data, kept))


async def _check_approval(
    call: ToolCall, found: Tool, services: CallServices, context: CallContext
) -> dict[str, Any] | None:
    """Wait until the call may run. Return the arguments to use instead if the program's `approve` replaced them, else
    None; raise `ToolError` if the call is denied, or if its effect changed while the user was deciding."""
    plain = subject_of(call, services.workspace, found.parameters)
    shown = await _describe_effect(call, found, services.workspace, plain.shown)
    asked = msgspec.structs.replace(plain, shown=shown)
    approvals = services.approvals
    context.gate = approvals.check_denied(call, asked)
    request = ApprovalRequest(
        tool=call.name,
        arguments=call.arguments,
        action=shown,
        workspace=services.workspace,
        danger=found.danger,
        call=call.id,
        session=services.session_id,
    )
    verdict = await approvals.decide_by_code(request)
    match verdict:
        case Deny(reason):
            raise ToolError(f"{call.name} was denied{f': {reason}' if reason else ''}")
        case Allow(arguments):
            context.is_allowed = True
            return dict(arguments) if arguments is not None and dict(arguments) != call.arguments else None
        case Ask() | None:
            needed = verdict is not None or found.danger == "ask"
    context.was_asked = await approvals.ask(call, asked, needed=needed, is_gate=True)
    if context.was_asked and shown != await _describe_effect(call, found, services.workspace, plain.shown):
        raise ToolError("it was changed while the approval was pending", hint="Read it again before you retry.")
    return None


async def _describe_effect(call: ToolCall, found: Tool, workspace: Path, arguments: str) -> str:
    """Return the text that the user reads before deciding. If the effect cannot be previewed, the text includes the
    reason."""
    if found.preview is None:
        return arguments
    try:
        return await asyncio.to_thread(found.preview, workspace, found.check_arguments(call.arguments))
    except LoomError as error:
        return f"{arguments}\n\n({error.message})"


def _describe_crash(call: ToolCall, error: BaseException) -> str:
    """Return the error text for an exception of a tool, without the memory addresses of objects."""
    return _ADDRESS.sub("", f"{call.name} failed: {type(error).__name__}: {error}")


async def _failed_result(call: ToolCall, words: str, services: CallServices) -> ToolResult:
    words = clean_text(words).strip() or f"{call.name} failed"
    shown, _ = await fit_text([TextBlock(words)], most_bytes=services.text_cap_bytes)
    return ToolResult(call.id, shown, name=call.name, is_error=True)
