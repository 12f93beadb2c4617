"""One request of a gateway client: its conversation is stored as a session, the request is compiled for the model, and
the answer is streamed in the client's protocol."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.agent.ingest import ingest
from loom.agent.learned_facts import learned_change, next_input, watermark_change
from loom.agent.observer import TurnObserver
from loom.agent.services import Services
from loom.agent.step import ModelAnswer, StepOutput, ask_model
from loom.compile.policy import DetachedMessage, Placed
from loom.compile.request import LearnedLimits, RequestInput, RequestOptions, Snapshot, request_input
from loom.content.blocks import ContentBlock, Opaque, ThinkingBlock
from loom.content.json_values import get_object, get_text, parse_json
from loom.content.messages import Message
from loom.daemon.gateway.body import GatewayFault
from loom.daemon.gateway.clients import GatewayClient
from loom.daemon.gateway.handles import ThinkingHandle, make_handle, read_handle
from loom.daemon.gateway.protocol import GatewayProtocol, own_fields
from loom.daemon.gateway.restored_thinking import FORGED, RestoredConversation, restore_thinking, thinking_at
from loom.daemon.gateway.targets import RequestFacts, request_facts, target_models
from loom.errors import ContentError, LoomError, ProviderError
from loom.events import Event, Folded, MessageStored, TextDelta, is_model_event
from loom.importers.request_body import RequestBody, server_tool_names
from loom.models import Model, Usage
from loom.prompt import Receipt, ToolSpec
from loom.runtime.conversations import INLINE_NOTICE, PlacedHistory, has_notice
from loom.runtime.inline_media import InlineMedia, StoredPart
from loom.sampling import Sampling
from loom.session import SessionChange
from loom.store.gateway import ANSWER_KEY, GatewayAnswer
from loom.struct_types import convert
from loom.tools.input_schema import flatten_root
from loom.wire.answer import AnswerHead, AnswerWriter
from loom.wire.answer_errors import fault_of, make_fault, unknown_model

if TYPE_CHECKING:
    from loom.daemon.services import Daemon

START_SECONDS: Final = 10.0
"""A stream starts after this long even if the model has not sent anything. Before that, a failure has its own status,
and a fallback model can be tried."""
KEEP_ALIVE_SECONDS: Final = 10.0


class PlacedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A client's conversation as it is stored: its session, and the node of its last message."""

    history: PlacedHistory | None = None
    """None if nothing is stored."""
    snapshot: Snapshot
    """The session down to the last message of the request."""
    system: str
    messages: tuple[Message, ...]
    notices: tuple[str, ...]
    earlier: int
    """The number of messages before those of the request."""
    restored: RestoredConversation
    head: tuple[Any, ...]
    """System prompts among the messages, in the client's own form."""


class GatewayCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it was received: `raw` is the whole body, `body` its fields besides the conversation. Header names
    are in lower case."""

    protocol: GatewayProtocol
    client: GatewayClient
    raw: dict[str, Any]
    inline: InlineMedia
    body: RequestBody
    headers: Mapping[str, str]


class Exchange:
    def __init__(self, daemon: Daemon, call: GatewayCall) -> None:
        self._daemon = daemon
        self._runtime = daemon.runtime
        self._conversations = daemon.runtime.conversations
        self._protocol = call.protocol
        self._client = call.client
        self._raw = call.raw
        self._inline = call.inline
        self._body = call.body
        self._headers = call.headers
        self._secret = b""
        self._facts = RequestFacts()
        self._places: dict[int, int] = {}
        self._storing: asyncio.Task[None] | None = None
        self._first_sent = asyncio.Event()
        """Set when the start of the answer was sent: the rest of what the model has sent waits for it."""
        self.head: AnswerHead | None = None
        self.answer: ModelAnswer | None = None
        self.writer: AnswerWriter | None = None
        self.placed: PlacedConversation | None = None
        self.node = ""
        """The node of the stored answer; empty until then."""

    @property
    def is_stream(self) -> bool:
        return self._body.is_stream

    @property
    def failure(self) -> LoomError | None:
        """The error that ended an answer after its stream had started."""
        return self.answer.error if self.answer is not None else None

    def to_object(self) -> dict[str, Any]:
        """Return the complete answer as one object. Requires that `run` has ended."""
        if self.writer is None:
            raise AssertionError("the request was answered")
        return self.writer.to_object()

    # Read ------------------------------------------------------------------------------------------------------------

    async def read(self) -> PlacedConversation:
        """Read the conversation. Only its media are stored."""
        self._secret = await self._conversations.records.secret()
        await self._inline.take(self._raw, self._find_file)
        before = await self._earlier_messages()
        try:
            found = await self._conversations.read(self._raw, self._protocol.name, self._inline)
        except ContentError as error:
            raise GatewayFault(make_fault(400, str(error))) from None
        own = await restore_thinking(found, self._find_thinking)
        if not own.messages and not before:
            raise GatewayFault(make_fault(400, "The conversation contains no message."))
        return PlacedConversation(
            snapshot=Snapshot(calibrations=await self._runtime.models.calibrations.load()),
            system=found.system,
            messages=(*before, *own.messages),
            notices=(*found.notices, *self._body.notices, *([FORGED] if own.is_forged else [])),
            earlier=len(before),
            restored=own,
            head=found.head,
        )

    async def place(self) -> PlacedConversation:
        """Read the conversation and start to store its new messages."""
        found = await self.read()
        key = self._key(found.messages)
        history = await self._conversations.place(key, found.system, found.messages, model=self._body.model)
        self.placed = msgspec.structs.replace(found, history=history, snapshot=history.snapshot)
        self._storing = asyncio.create_task(self._store(history))
        return self.placed

    async def _store(self, history: PlacedHistory) -> None:
        session = await history.stored
        if self._client.account:
            await self._runtime.session_users.members.set(session, self._client.account, "own")
        await self._daemon.turns.announce_change(session)

    async def finish_storing(self) -> None:
        """Wait until the new messages are on disk, even if the client has disconnected. Raise the error of the store,
        if any."""
        if self._storing is not None:
            await asyncio.shield(self._storing)

    async def _find_file(self, file_id: str) -> StoredPart | None:
        return await self._conversations.file_part(self._client.name, file_id)

    async def _earlier_messages(self) -> tuple[Message, ...]:
        """Return the messages down to the response that this request continues. Its instructions are not carried
        over."""
        previous = self._raw.get("previous_response_id")
        if not isinstance(previous, str) or not previous:
            return ()
        found = await self._conversations.answer(previous)
        if found is None or not found.node_id or found.client != self._client.name:
            text = f"Response {previous!r} not found. Send the whole conversation instead."
            raise GatewayFault(make_fault(404, text, code="previous_response_not_found"))
        return await self._conversations.path(found.node_id)

    async def _find_thinking(self, text: str) -> ThinkingBlock | None:
        handle = read_handle(self._secret, text)
        found = await self._conversations.answer(handle.answer) if handle is not None else None
        if handle is None or found is None or not found.node_id:
            return None
        message = await self._conversations.message(found.node_id)
        return thinking_at(message, handle.index) if message is not None else None

    def _key(self, messages: Sequence[Message]) -> str:
        """Return the key of the conversation: from the client's own name for it, or from its first message."""
        named = next((self._headers[name] for name in self._protocol.session_headers if self._headers.get(name)), "")
        named = named or self._body.sampling.cache_key or _claude_session(self._raw)
        if named:
            return hashlib.sha256(f"{self._client.name}\0named\0{named}".encode()).hexdigest()
        first = msgspec.json.encode(messages[0]) if messages else b""
        return hashlib.sha256(f"{self._client.name}\0first\0".encode() + first).hexdigest()

    # Request ---------------------------------------------------------------------------------------------------------

    async def inputs(self, placed: PlacedConversation) -> list[tuple[Model, RequestInput]]:
        """Return the compiler's input for each model to try, in order."""
        config = self._runtime.config
        default = config.model or await self._runtime.models.default()
        tools = msgspec.json.encode(self._body.tools).decode()
        self._facts = request_facts(placed.messages, placed.system, tools)
        names = target_models(self._body.model, config.gateway, self._facts, default=default, price=self._price)
        found: list[tuple[Model, RequestInput]] = []
        for name in names:
            try:
                model = await self._runtime.models.resolve_live(name)
            except LoomError as error:
                raise GatewayFault(unknown_model(str(error))) from None
            found.append((model, self._input(placed, model)))
        lacking = [self._lacks_capability(model) for model, _ in found]
        return found[lacking.index(False) :] if False in lacking else found

    def _lacks_capability(self, model: Model) -> bool:
        """Return whether the model does not support what the request contains. Such models are skipped if a later one
        of the chain supports it."""
        able = model.capabilities
        return (self._facts.has_images and not able.vision) or (bool(self._body.tools) and not able.tools)

    def _price(self, name: str, tokens: int) -> float | None:
        """Return the price of `tokens` of input; None if the price or the model is not known."""
        try:
            return self._runtime.models.cost_by_name(name, Usage(input_tokens=tokens))
        except LoomError:
            return None

    def _input(self, placed: PlacedConversation, model: Model) -> RequestInput:
        policy = self._runtime.gateway_services().policy
        is_own = (model.wire, model.opaque_owner) == (self._protocol.name, self._protocol.owner)
        tools = self._body.tools if is_own else tuple(map(_with_plain_schema, self._body.tools))
        options = RequestOptions(policy=policy, tools=tools, sampling=self._sampling(model))
        draft = () if placed.history is not None else placed.messages
        made = request_input(placed.snapshot, model, options, draft=draft)
        if not is_own:
            return msgspec.structs.replace(made, system=placed.system)
        form = self._body.form(placed.head)
        body = msgspec.structs.replace(form, fields=own_fields(form.fields))
        return msgspec.structs.replace(made, system=placed.system, path=_path_as_sent(placed, model), body=body)

    def _sampling(self, model: Model) -> Sampling:
        """Return the client's options, merged over the model's configured ones."""
        own = msgspec.to_builtins(self._body.sampling)
        configured = self._runtime.services().sampling(model)
        merged = convert({**msgspec.to_builtins(configured), **own}, Sampling)
        if model.opaque_owner != self._protocol.owner:
            return merged
        headers = {name: self._headers[name] for name in self._protocol.headers if self._headers.get(name)}
        return msgspec.structs.replace(merged, extra_headers={**headers, **merged.extra_headers})

    async def count_tokens(self) -> int:
        """Return the estimated tokens of the request."""
        _, request = (await self.inputs(await self.read()))[0]
        services = self._runtime.gateway_services()
        return (await services.settle(request, "estimate")).receipt.totals.tokens

    def _sign(self, index: int, opaque: Opaque | None) -> str:
        """Return the producer's own signature if the client's protocol is the producer's, else a handle."""
        if opaque is not None and opaque.provider == self._protocol.owner and self._protocol.signature:
            own = opaque.data.get(self._protocol.signature) or opaque.data.get("data")
            if isinstance(own, str):
                return own
        place = self._places.setdefault(index, len(self._places))
        answer = self.head.id if self.head is not None else ""
        return make_handle(self._secret, ThinkingHandle(answer, place))

    async def run(self) -> AsyncGenerator[bytes]:
        """Try the models in order, and yield the answer as a stream in the client's protocol. Raise `GatewayFault` only
        before the first yield; the conversation is stored even then."""
        placed = self.placed or await self.place()
        inputs = await self.inputs(placed)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        last: ProviderError | None = None
        for number, (model, request) in enumerate(inputs):
            if self._client.name:
                named = self._body.model or model.reference
                if fault := await self._daemon.gateway_clients.check(self._client, named):
                    raise GatewayFault(fault)
            self.answer = ModelAnswer(request=request)
            writer = self._begin(model)
            asking = asyncio.create_task(self._ask(placed, writer, queue))
            self._daemon.gateway_answers.add(asking)
            asking.add_done_callback(self._daemon.gateway_answers.discard)
            if self._client.key.max_usd_per_day is not None:
                usd = self._price(model.alias or model.reference, self._facts.tokens) or 0.0
                self._daemon.gateway_clients.reserve(self._client, usd, asking)
            try:
                first = await self._first(asking, queue)
                if first is None and asking.done():
                    last = _provider_error(asking)
                    if number + 1 < len(inputs) and (last is not None or self._is_refused):
                        continue
                    if last is not None:
                        raise GatewayFault(fault_of(last))
                await self.finish_storing()
                yield self._start(writer) + (first or b"")
                self._first_sent.set()
                async for data in self._remaining_chunks(asking, queue):
                    yield data
                yield await self._finish(asking, writer)
                return
            finally:
                self._first_sent.set()
                # The task stores the partial answer itself, because this generator may be cancelled several times.
                asking.cancel()
        raise GatewayFault(fault_of(last) if last is not None else make_fault(500, "No model is configured."))

    def _begin(self, model: Model) -> AnswerWriter:
        self._places.clear()
        self.head = self._protocol.head(self._body, model.reference)
        self.writer = self._protocol.writer(self._body, self._raw, self.head, self._sign)
        return self.writer

    async def _ask(self, placed: PlacedConversation, writer: AnswerWriter, queue: asyncio.Queue[bytes | None]) -> None:
        """Request an answer and store it, even if the client has disconnected."""
        services = self._runtime.gateway_services()
        with services.observers.observe_turn(secrets=services.secrets) as observer:
            observer.set_parent(self._headers.get("traceparent", ""))
            if placed.messages:
                observer.observe(MessageStored(node=placed.snapshot.head, message=placed.messages[-1]))
            await self._ask_model(placed, writer, queue, services, observer)

    async def _ask_model(
        self,
        placed: PlacedConversation,
        writer: AnswerWriter,
        queue: asyncio.Queue[bytes | None],
        services: Services,
        observer: TurnObserver,
    ) -> None:
        """Request an answer and write it to `queue`, then store it. None in `queue` marks the end, also after an
        error."""
        answer = self._required_answer
        has_begun = False

        async def emit(event: Event) -> None:
            nonlocal has_begun
            observer.observe(event)
            if not is_model_event(event):
                return
            notice = b"" if has_begun else self._inline_notice(writer)
            has_begun = True
            if data := notice + writer.write(event):
                queue.put_nowait(data)
                await self._first_sent.wait()

        async def announce(_: Sequence[str]) -> None:
            """Do nothing: notices are in the receipt."""

        async def keep_media(data: bytes) -> ContentBlock:
            return (await ingest(data, services.media, limits=services.limits)).blocks[0]

        try:
            await ask_model(answer, 1, services, StepOutput(emit=emit, announce=announce, keep_media=keep_media))
        finally:
            if data := writer.flush():
                queue.put_nowait(data)
            try:
                await asyncio.sleep(0)  # let queued data be sent first
                await self.finish_storing()
                if placed.history is not None:
                    observer.set_session(placed.history.session)
                await self._keep(placed, answer, services)
            finally:
                queue.put_nowait(None)

    @property
    def _is_refused(self) -> bool:
        """Return whether the model refused, without any text."""
        folded = self._required_answer.result
        return folded is not None and folded.message is None and folded.stop == "refusal"

    @property
    def _required_answer(self) -> ModelAnswer:
        if self.answer is None:
            raise AssertionError("no model was asked")
        return self.answer

    async def _first(self, asking: asyncio.Task[None], queue: asyncio.Queue[bytes | None]) -> bytes | None:
        """Return the first data; None if the answer ended without any, or takes long to start."""
        try:
            async with asyncio.timeout(START_SECONDS):
                first = await queue.get()
        except TimeoutError:
            return None
        if first is None:
            queue.put_nowait(None)
            await asyncio.wait([asking])
        return first

    async def _remaining_chunks(
        self, asking: asyncio.Task[None], queue: asyncio.Queue[bytes | None]
    ) -> AsyncGenerator[bytes]:
        """Yield the data in `queue` until the answer ends, with keep-alive messages while there is none."""
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    data = await queue.get()
            except TimeoutError:
                yield self._protocol.keep_alive
                continue
            if data is None:
                await asyncio.wait([asking])
                return
            yield data

    async def _finish(self, asking: asyncio.Task[None], writer: AnswerWriter) -> bytes:
        error = _provider_error(asking) or (self.answer.error if self.answer is not None else None)
        if error is not None:
            return writer.flush() + writer.fail(error)
        return writer.finish()

    def _start(self, writer: AnswerWriter) -> bytes:
        receipt = self.receipt
        if receipt is not None:
            usage = Usage(input_tokens=receipt.totals.tokens)
            writer.head = msgspec.structs.replace(writer.head, usage=usage)
        return writer.start()

    def _inline_notice(self, writer: AnswerWriter) -> bytes:
        """Return a line about the first notice, if inline notices are configured and no earlier answer of the
        conversation had one. Answers that the client names by id are not read again: they count as if one had."""
        receipt, placed = self.receipt, self.placed
        if self._runtime.config.gateway.notices != "inline" or receipt is None or not receipt.notices or placed is None:
            return b""
        if any(map(has_notice, placed.messages)) or any(
            message.role == "assistant" for message in placed.messages[: placed.earlier]
        ):
            return b""
        text = receipt.notices[0].replace("\n", " ").replace("]", ")")
        return writer.write(TextDelta(index=-1, text=INLINE_NOTICE.format(text)))

    # Result ----------------------------------------------------------------------------------------------------------

    @property
    def receipt(self) -> Receipt | None:
        prepared = self.answer.prepared if self.answer is not None else None
        return prepared.receipt if prepared is not None else None

    @property
    def is_passed(self) -> bool:
        """Return whether the request was passed through in the client's own form."""
        prepared = self.answer.prepared if self.answer is not None else None
        return prepared is not None and prepared.prompt.is_as_it_came

    @property
    def response_headers(self) -> dict[str, str]:
        """Return headers for the receipt, the model and the number of reduced blocks."""
        receipt, head = self.receipt, self.head
        if receipt is None or head is None:
            return {}
        losses = sum(1 for row in receipt.rows if row.reason)
        return {"x-loom-receipt": head.id, "x-loom-model": receipt.model, "x-loom-losses": str(losses)}

    @property
    def cost_usd(self) -> float | None:
        folded = self.answer.result if self.answer is not None else None
        if self.answer is None or folded is None:
            return None
        return self._runtime.models.cost(self.answer.request.model, folded.usage)

    async def _keep(self, placed: PlacedConversation, answer: ModelAnswer, services: Services) -> None:
        """Store the answer, complete or not, its receipt, and the limits that were learned from it or from refusals.
        All writes are queued together to share a commit, because the client waits for it."""
        folded, history = answer.result, placed.history
        if history is None:
            raise AssertionError("the conversation was placed")
        jobs = [services.learn(answer.request.model, kind) for kind in answer.refused_kinds]
        if (change := _change_to_store(history.snapshot, answer)) is not None:
            jobs.append(self._conversations.learn(history.session, change))
        if folded is not None and (folded.message is not None or folded.complete):
            jobs += self._answer_writes(placed, history, answer, folded)
            self._daemon.metrics.count_gateway_answer(self._client.name, folded.usage, self.cost_usd or 0.0)
        await asyncio.gather(*jobs)
        if self.node:
            await self._daemon.turns.announce_change(history.session)

    def _answer_writes(
        self, placed: PlacedConversation, history: PlacedHistory, answer: ModelAnswer, folded: Folded
    ) -> list[Coroutine[Any, Any, None]]:
        """Return the writes that store an answer: its message, calibration, cost and receipt."""
        if self.head is None or self.receipt is None:
            return []
        model = answer.request.model
        jobs: list[Coroutine[Any, Any, None]] = []
        if folded.message is not None:
            meta = {**answer.meta, "answer": self.head.id}
            self.node, append = self._conversations.answer_write(history, folded.message, meta)
            jobs.append(append)
        if folded.complete and (learned := next_input(answer).calibration) != answer.request.calibration:
            jobs.append(self._runtime.models.calibrations.keep(model.reference, learned))
        if self._client.account:
            jobs.append(self._runtime.charge(history.session, model, folded.usage))
        is_kept = self._protocol.name == "openai_responses" and self._raw.get("store") is not False
        response = msgspec.json.encode(self.writer.to_object()).decode() if is_kept and self.writer is not None else ""
        notices = (*self.receipt.notices, *placed.notices, *self._omission_notices())
        receipt = {
            **msgspec.to_builtins(self.receipt),
            "notices": list(dict.fromkeys(notices)),
            "way": "passed through" if self.is_passed else "compiled",
            ANSWER_KEY: answer.meta,
        }
        record = GatewayAnswer(
            self.head.id,
            history.session,
            self.node,
            self._client.name,
            model.reference,
            self.cost_usd,
            msgspec.json.encode(receipt).decode(),
            response,
            0.0,
        )
        jobs.append(self._conversations.records.keep_answer(record, system=placed.system))
        return jobs

    def _omission_notices(self) -> list[str]:
        """Return notices about fields and tools of the request that this model's provider does not support."""
        prepared, owner = self.answer.prepared if self.answer is not None else None, self._protocol.owner
        if prepared is None or prepared.prompt.body is not None:
            return []
        left_out = [f"{name}: a field that only {owner} supports, left out" for name in own_fields(self._body.extra)]
        if prepared.prompt.model.opaque_owner != owner:
            left_out += [
                f"{name}: a tool that only {owner} supports, left out"
                for name in server_tool_names(self._body.server_tools)
            ]
        return left_out


def _with_plain_schema(tool: ToolSpec) -> ToolSpec:
    """Return the tool with a flat root schema: some platforms refuse every request with a schema that they do not
    support."""
    schema = flatten_root(tool.parameters)
    return tool if schema is tool.parameters else msgspec.structs.replace(tool, parameters=schema)


def _change_to_store(snapshot: Snapshot, answer: ModelAnswer) -> SessionChange | None:
    """Return the limits and watermarks to store with the session; None if nothing was learned."""
    folded, request = answer.result, answer.request
    if answer.prepared is not None and folded is not None and folded.complete:
        return watermark_change(snapshot, next_input(answer))
    if request.limits != snapshot.limits.get(request.model.reference, LearnedLimits()):
        return learned_change(snapshot, request)
    return None


def _path_as_sent(placed: PlacedConversation, model: Model) -> tuple[Placed, ...]:
    """Return the path with the forms of this request: a client may move its cache marks with each request."""
    path: list[Placed] = [*placed.snapshot.path]
    for position, form in placed.restored.forms().items():
        start = placed.earlier + position
        for at in range(start, min(start + form.messages, len(path))):
            stored, own = path[at], form if at == start else None
            path[at] = DetachedMessage(stored.id, _sign_by(stored.message, model), stored.is_blind, own)
    return tuple(path)


def _sign_by(message: Message, model: Model) -> Message:
    """Return the message with its thinking attributed to `model`: a client has its own names for models, and sends
    signatures back to the model that it names."""
    if not any(isinstance(block, ThinkingBlock) for block in message.blocks):
        return message
    return Message(
        message.role,
        tuple(
            msgspec.structs.replace(block, opaque=msgspec.structs.replace(block.opaque, model=model.name))
            if isinstance(block, ThinkingBlock) and block.opaque and block.opaque.provider == model.opaque_owner
            else block
            for block in message.blocks
        ),
    )


def _provider_error(asking: asyncio.Task[None]) -> ProviderError | None:
    if not asking.done() or asking.cancelled():
        return None
    error = asking.exception()
    if error is None or isinstance(error, ProviderError):
        return error
    raise error


def _claude_session(raw: Mapping[str, Any]) -> str:
    """Return the session id that Claude Code sends as JSON text in `metadata.user_id`; empty if there is none."""
    text = get_text(get_object(raw.get("metadata")).get("user_id"))
    return get_text(get_object(parse_json(text)).get("session_id")) if "session_id" in text else ""
