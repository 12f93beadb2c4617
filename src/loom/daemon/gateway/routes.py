"""The routes of the gateway. They check the key themselves, because errors have the format of the caller's protocol."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from loom.daemon.dispatch import Call, headers_of, json_response
from loom.daemon.gateway import files
from loom.daemon.gateway.body import GatewayFault, gateway_body
from loom.daemon.gateway.clients import GatewayClient
from loom.daemon.gateway.exchange import Exchange, GatewayCall
from loom.daemon.gateway.models import gateway_model
from loom.daemon.gateway.protocol import ANTHROPIC, CHAT, RESPONSES, GatewayProtocol
from loom.daemon.gateway.targets import RequestFacts, target_models
from loom.daemon.problems import Forbidden, RequestError, status_of
from loom.errors import LoomError, TooLarge
from loom.importers.request_body import read_request_body
from loom.wire.answer_errors import AnswerFault, fault_of, make_fault, unknown_model

_GONE: Final = 499
_log = logging.getLogger(__name__)


async def messages(call: Call[None, None]) -> Response:
    return await _respond(call, ANTHROPIC, _answer)


async def chat_completions(call: Call[None, None]) -> Response:
    return await _respond(call, CHAT, _answer)


async def responses(call: Call[None, None]) -> Response:
    return await _respond(call, RESPONSES, _answer)


async def count_tokens(call: Call[None, None]) -> Response:
    return await _respond(call, ANTHROPIC, _count)


async def get_response(call: Call[None, None]) -> Response:
    return await _respond(call, RESPONSES, _stored_response)


async def delete_response(call: Call[None, None]) -> Response:
    return await _respond(call, RESPONSES, _delete_response)


async def receipt(call: Call[None, None]) -> Response:
    """Return the receipt of an answer: what was reduced, and why."""
    return await _respond(call, CHAT, _receipt)


async def upload_file(call: Call[None, None]) -> Response:
    return await _respond(call, files.files_protocol(call), files.upload_file)


async def list_files(call: Call[None, None]) -> Response:
    return await _respond(call, files.files_protocol(call), files.list_files)


async def get_file(call: Call[None, None]) -> Response:
    return await _respond(call, files.files_protocol(call), files.get_file)


async def file_content(call: Call[None, None]) -> Response:
    return await _respond(call, files.files_protocol(call), files.file_content)


async def delete_file(call: Call[None, None]) -> Response:
    return await _respond(call, files.files_protocol(call), files.delete_file)


async def get_model(call: Call[None, None]) -> Response:
    return await _respond(call, CHAT, _model)


async def _respond(call: Call[None, None], protocol: GatewayProtocol, handle: Any) -> Response:
    try:
        client = await _client(call)
        return await handle(call, protocol, client)
    except GatewayFault as error:
        return _fault_response(protocol, error.fault)
    except TooLarge as error:
        return _fault_response(protocol, make_fault(413, str(error)))
    except RequestError as error:
        return _fault_response(protocol, make_fault(status_of(error), str(error)))
    except LoomError as error:
        return _fault_response(protocol, fault_of(error))
    except ClientDisconnect:
        return Response(status_code=_GONE)
    except Exception:  # noqa: BLE001  outermost handler: a bug is logged, and reported to the client
        _log.exception("a gateway request failed")
        return _fault_response(protocol, make_fault(500, "Loom failed on this request. See its log."))


async def _client(call: Call[None, None]) -> GatewayClient:
    """Return the client that sent the request; raise `GatewayFault` for an unknown key."""
    visitor = call.visitor
    if visitor.bearer and (found := call.daemon.gateway_clients.find(visitor.bearer)) is not None:
        return found
    identity = await call.daemon.sign_in.check(call.request.method, visitor)
    if not identity.may("user"):
        raise Forbidden(f"This needs the role user; {identity.name} is a {identity.role}.")
    return GatewayClient(f"@{identity.name}", account=identity.account) if identity.account else GatewayClient()


@asynccontextmanager
async def _exchange(
    call: Call[None, None], protocol: GatewayProtocol, client: GatewayClient
) -> AsyncGenerator[Exchange]:
    config = call.daemon.runtime.config
    most = config.gateway.max_request_bytes
    async with gateway_body(call.request, config.data_folder(), most, call.daemon.held) as (raw, inline):
        if not isinstance(raw.get("model", ""), str | None):
            raise GatewayFault(make_fault(400, "`model` must be the name of a model, as text."))
        body = read_request_body(raw, protocol.name)
        headers = headers_of(call.request)
        made = GatewayCall(protocol=protocol, client=client, raw=raw, inline=inline, body=body, headers=headers)
        yield Exchange(call.daemon, made)


async def _answer(call: Call[None, None], protocol: GatewayProtocol, client: GatewayClient) -> Response:
    async with _exchange(call, protocol, client) as exchange:
        await exchange.place()
    stream = exchange.run()
    try:
        first = await anext(stream)
    except BaseException:
        await stream.aclose()
        await exchange.finish_storing()
        raise
    if exchange.is_stream:
        headers = {"Cache-Control": "no-store", **exchange.response_headers}
        return StreamingResponse(_all(first, stream), headers=headers, media_type="text/event-stream")
    async with aclosing(stream):
        async for _ in stream:
            pass
    if (error := exchange.failure) is not None:
        raise GatewayFault(fault_of(error))
    usd = exchange.cost_usd
    cost = {"x-loom-cost-usd": f"{usd:.6f}"} if usd is not None else {}
    return json_response(exchange.to_object(), headers=exchange.response_headers | cost)


async def _all(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield everything; close `rest`, which ends the request, when the client disconnects."""
    async with aclosing(rest):
        yield first
        async for data in rest:
            yield data


async def _count(call: Call[None, None], protocol: GatewayProtocol, client: GatewayClient) -> Response:
    async with _exchange(call, protocol, client) as exchange:
        return json_response({"input_tokens": await exchange.count_tokens()})


async def _model(call: Call[None, None], _: GatewayProtocol, __: GatewayClient) -> Response:
    name = call.path("model")
    config = call.daemon.runtime.config
    targets = target_models(name, config.gateway, RequestFacts(), default=name, price=lambda _, __: None)
    try:
        call.daemon.runtime.models.resolve(targets[0])
    except LoomError as error:
        raise GatewayFault(unknown_model(str(error))) from None
    return json_response(gateway_model(name))


async def _stored_response(call: Call[None, None], _: GatewayProtocol, client: GatewayClient) -> Response:
    found = await call.daemon.runtime.conversations.answer(call.path("response"))
    if found is None or not found.response or found.client != client.name:
        raise GatewayFault(make_fault(404, f"Response {call.path('response')!r} not found."))
    return json_response(msgspec.Raw(found.response.encode()))


async def _delete_response(call: Call[None, None], _: GatewayProtocol, client: GatewayClient) -> Response:
    answer_id = call.path("response")
    found = await call.daemon.runtime.conversations.answer(answer_id)
    is_own = found is not None and found.client == client.name
    if not is_own or not await call.daemon.runtime.conversations.records.delete_response(answer_id):
        raise GatewayFault(make_fault(404, f"Response {answer_id!r} not found."))
    return json_response({"id": answer_id, "object": "response", "deleted": True})


async def _receipt(call: Call[None, None], _: GatewayProtocol, client: GatewayClient) -> Response:
    found = await call.daemon.runtime.conversations.answer(call.path("answer"))
    if found is None or (client.name and found.client != client.name):
        raise GatewayFault(make_fault(404, f"Receipt {call.path('answer')!r} not found."))
    body = {
        "id": found.id,
        "session": found.session_id,
        "node": found.node_id,
        "model": found.model,
        "usd": found.usd,
        "system": await call.daemon.runtime.conversations.records.system(found.system_digest),
        "receipt": msgspec.Raw(found.receipt.encode()),
    }
    return json_response(body)


def _fault_response(protocol: GatewayProtocol, fault: AnswerFault) -> Response:
    headers: Mapping[str, str] = {}
    if fault.retry_after is not None:
        headers = {"Retry-After": str(max(1, round(fault.retry_after)))}
    return json_response(protocol.error(fault), fault.status, headers)
