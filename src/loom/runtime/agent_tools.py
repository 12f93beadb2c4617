"""The tools `recall`, which searches the whole conversation, and `ask_agent`, which hands tasks to other agents."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from loom.agent.approvals import GivenAnswer
from loom.content.blocks import ThinkingBlock, ToolResult, UnknownBlock, is_content_block
from loom.content.messages import text_of
from loom.errors import ApprovalGone, LoomError, NotFound, ToolError
from loom.events import (
    ApprovalAnswered,
    ApprovalRequested,
    NoticeRaised,
    TextDelta,
    ToolStarted,
    TurnFailed,
)
from loom.runtime.agents import AGENT, CALLER, agent_model, find_agent
from loom.runtime.session import LocalSession
from loom.session import PARENT_SESSION
from loom.store.nodes import Node
from loom.tools.base import KeepsPartialResult, Tool, ToolContext, text_result
from loom.tools.file_records import RecordsChanges

if TYPE_CHECKING:
    from mcp_types import CreateMessageResult

    from loom.runtime import Runtime
    from loom.tools.mcp.questions import SampleRequest

MAX_TASKS: Final = 8
MAX_FOUND: Final = 20
_AROUND_CHARS: Final = 200
_SHORT_NODE: Final = 12


@runtime_checkable
class SessionContext(RecordsChanges, Protocol):
    """A tool context that belongs to a session."""

    @property
    def session_id(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def tool_names(self) -> Collection[str]:
        """The names of the tools that the turn may call."""
        ...

    async def forward_approval(
        self, asked: ApprovalRequested, *, why: str, answered: asyncio.Future[GivenAnswer]
    ) -> GivenAnswer:
        """Ask the user what another session asks, and return the answer: the one that is given here, or `answered`,
        which was given there."""
        ...


def recall_tool(runtime: Runtime) -> Tool:
    """Return the tool that searches all messages of the session, on all branches."""

    async def recall(context: ToolContext, query: str = "", message: str = "") -> ToolResult:
        """Find earlier messages of this conversation that are no longer in view: on all branches, including those that
        a summary replaced. Give words to search for, or the id of a message to read all of it.

        query: words that the message contains, in any order
        message: the id of a message, from a search result
        """
        session_id = _session_of(context).session_id
        nodes = [node for node in (await runtime.stores.forest.read_tree(session_id)).nodes if node.message is not None]
        if message:
            return text_result(_message_text(nodes, message))
        words = query.casefold().split()
        if not words:
            raise ToolError("expected words to search for, or the id of a message")
        found = [(node, text) for node in nodes if all(word in (text := _words(node)).casefold() for word in words)]
        if not found:
            return text_result(f"no earlier message contains {query!r}")
        lines = [
            f"{node.id.rpartition(':')[2][:_SHORT_NODE]} {node.source}: {_snippet(text, words)}"
            for node, text in found[-MAX_FOUND:]
        ]
        more = f"\n({len(found) - MAX_FOUND} earlier matches are not listed)" if len(found) > MAX_FOUND else ""
        return text_result("\n".join(lines) + more)

    return Tool(recall, reads_only=True)


def _words(node: Node) -> str:
    message = node.message
    blocks = message.blocks if message is not None else ()
    return "\n".join(text_of(block) for block in blocks if not isinstance(block, ThinkingBlock | UnknownBlock))


def _message_text(nodes: Sequence[Node], wanted: str) -> str:
    digits = wanted.rpartition(":")[2]
    found = [node for node in nodes if node.id.rpartition(":")[2].startswith(digits)] if len(digits) >= 8 else []
    if len(found) != 1:
        raise ToolError(f"Message {wanted[:80]!r} not found in this conversation")
    return _words(found[0])


def _snippet(text: str, words: Sequence[str]) -> str:
    at = max(0, text.casefold().find(words[0]) - _AROUND_CHARS // 2)
    cut = " ".join(text[at : at + _AROUND_CHARS * 2].split())
    return f"{'…' if at else ''}{cut}{'…' if at + _AROUND_CHARS * 2 < len(text) else ''}"


def ask_agent_tool(runtime: Runtime) -> Tool:
    """Return the tool that hands tasks to sub-agents, each in a session of its own."""

    async def ask_agent(context: ToolContext, tasks: list[str], agent: str = "", session: str = "") -> ToolResult:
        """Hand tasks to other agents and get their answers. Each works in a session of its own, with its own tools and
        budget, sees nothing of this conversation, and cannot ask you questions: include everything it must know.
        Several tasks run at the same time, so they must not change the same files.

        tasks: what to do and what to answer, each complete in itself
        agent: the name of an agent from the list of agents; empty means one like you
        session: continue an earlier session of an agent with one task, by the id that it returned
        """
        if not 1 <= len(tasks) <= MAX_TASKS:
            raise ToolError(f"{len(tasks)} tasks; 1 to {MAX_TASKS} can be given to agents at once")
        if session and len(tasks) > 1:
            raise ToolError("a session runs one task at a time")
        try:
            sessions = [await _open(runtime, context, agent, session, task) for task in tasks]
        except LoomError as error:
            raise ToolError(error.message, hint=error.hint) from None
        if isinstance(context, KeepsPartialResult):
            ids = ", ".join(opened.id for opened in sessions)
            context.keep_partial(f"Continue with ask_agent(tasks=[…], session=…). Sessions of the agents: {ids}")
        async with asyncio.TaskGroup() as group:
            jobs = [
                group.create_task(_run_task(context, opened, task))
                for opened, task in zip(sessions, tasks, strict=True)
            ]
        parts = [f"[session {opened.id}]\n{job.result()}" for opened, job in zip(sessions, jobs, strict=True)]
        return text_result("\n\n".join(parts), data={"kind": "agents", "sessions": [opened.id for opened in sessions]})

    return Tool(ask_agent)


def _session_of(context: ToolContext) -> SessionContext:
    if not isinstance(context, SessionContext):
        raise ToolError("this tool works inside a session only")
    return context


async def _open(runtime: Runtime, context: ToolContext, agent: str, session: str, task: str) -> LocalSession:
    """Open the session of a sub-agent: an earlier one that the same session started, or a new one. A sub-agent has only
    tools that the calling turn has, keeps to the rules of the calling agent, and cannot call further agents."""
    asking = _session_of(context)
    parent = await runtime.stores.sessions.get(asking.session_id)
    tools = [name for name in asking.tool_names if name != "ask_agent"]
    if session:
        stored = await runtime.stores.sessions.get(session)
        if stored.settings.get(PARENT_SESSION) != parent.id:
            raise NotFound("That session does not belong to one of your agents.", hint="Use the id from ask_agent.")
        return await runtime.session(session, tools=tools)
    caller = str(parent.settings.get(AGENT, ""))
    model = ""
    if agent:
        chosen = await asyncio.to_thread(find_agent, runtime.config, agent, context.workspace)
        if not chosen.is_subagent:
            raise ToolError(f"The agent {agent!r} is for the user only; give the task to another agent")
        model, notice = agent_model(chosen, runtime.models, instead="the model of the calling agent")
        if notice:
            await context.emit(notice)
    opened = await runtime.sessions.begin(
        title=task,
        model=model or asking.model,
        workspace=str(context.workspace),
        tools=tools,
        agent=agent or caller,
        settings={PARENT_SESSION: parent.id, **({CALLER: caller} if caller else {})},
    )
    await runtime.session_users.members.copy_owners(parent.id, opened.id)
    return opened


async def sample_for_server(runtime: Runtime, context: ToolContext, request: SampleRequest) -> CreateMessageResult:
    """Answer a sampling request of an MCP server with the model of the turn. The request is a session of its own, below
    the one that called the server, so it is stored, counted and visible like any other."""
    from mcp_types import CreateMessageResult, TextContent

    caller = _session_of(context)
    created = await runtime.stores.sessions.create(
        title=f"Request from MCP server {request.server!r}",
        model=caller.model,
        system=request.system,
        settings={PARENT_SESSION: caller.session_id},
    )
    await runtime.session_users.members.copy_owners(caller.session_id, created.id)
    *earlier, question = request.messages
    if earlier:
        await runtime.conversations.append(created.id, earlier)
    session = await runtime.session(created.id, tools=())
    reply = await session.send(*filter(is_content_block, question.blocks), options=request.options)
    stop = {"max_tokens": "maxTokens", "stop_sequence": "stopSequence"}.get(reply.stop or "", "endTurn")
    answer = TextContent(text=reply.text)
    return CreateMessageResult(role="assistant", content=answer, model=caller.model, stop_reason=stop)


async def _run_task(context: ToolContext, session: LocalSession, task: str) -> str:
    """Run one task to its end and return the answer, or why there is none. Show its progress, pass its approval
    requests to the user, and record the files that it changes."""
    session.caller = _session_of(context)
    answer = ""
    try:
        async with asyncio.TaskGroup() as group:
            answer = await _follow(context, session, task, group)
    except* LoomError as failed:
        answer = f"The agent could not finish: {failed.exceptions[0]}"
    return answer


async def _follow(context: ToolContext, session: LocalSession, task: str, group: asyncio.TaskGroup) -> str:
    """Send the task and follow its events; `group` runs what waits for the user."""
    answer: list[str] = []
    requests: dict[str, asyncio.Future[GivenAnswer]] = {}
    try:
        async with session.stream(task) as events:
            async for event in events:
                match event:
                    case TextDelta(text=text):
                        answer.append(text)
                    case ToolStarted(call=call):
                        answer.clear()  # text before a call is not the answer
                        await context.emit(f"{session.id}: {call.name}")
                    case ApprovalRequested():
                        requests[event.approval] = asyncio.get_running_loop().create_future()
                        group.create_task(_pass_on(context, session, event, requests[event.approval]))
                    case ApprovalAnswered(approval=approval) if approval in requests:
                        requests.pop(approval).set_result((event.answer, event.reason, event.by))
                    case NoticeRaised(text=text):
                        await context.emit(f"{session.id}: {text}")
                    case TurnFailed(text=text):
                        return f"The agent could not finish: {text}"
                    case _:
                        pass
    finally:
        for request in requests.values():  # the turn is over, and these have no answer
            request.set_result(("deny", "the agent has ended", ""))
    return "".join(answer).strip() or "The agent gave no answer."


async def _pass_on(
    context: ToolContext, session: LocalSession, asked: ApprovalRequested, answered: asyncio.Future[GivenAnswer]
) -> None:
    """Pass an approval request of a sub-agent to the user, including values to enter, and answer it. The user may also
    answer it in the session of the sub-agent: `answered` has that answer."""
    why = f"requested by an agent (session {session.id})"
    answer, reason, by = await _session_of(context).forward_approval(asked, why=why, answered=answered)
    if not answered.done():
        with suppress(ApprovalGone):  # answered there at the same moment
            await session.answer(asked.approval, answer, reason, by=by)
