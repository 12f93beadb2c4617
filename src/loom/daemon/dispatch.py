"""Dispatch of requests: a row of the route table names the types of a request and its response; this module
authenticates, decodes, calls the handler and encodes."""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from loom.daemon.compression import compress
from loom.daemon.problems import (
    JSON,
    Forbidden,
    InvalidBody,
    UnreadableRequest,
    WrongType,
    error_response,
    internal_error,
)
from loom.daemon.request_bodies import body_bytes
from loom.daemon.services import Daemon
from loom.daemon.sign_in import OWNER, Identity, Visitor
from loom.errors import ContentError, LoomError
from loom.store.accounts import AccountRole
from loom.struct_types import convert, decode_json

MAX_JSON_BYTES: Final = 4_000_000
_GONE: Final = 499
"""The status that is counted if a client disconnects before its response; it is never sent."""
_log = logging.getLogger(__name__)

Q = TypeVar("Q")
B = TypeVar("B")


class Call(Generic[Q, B]):
    """One decoded request. `query` and `body` have the types that the table names."""

    def __init__(self, daemon: Daemon, request: Request, query: Q, body: B, identity: Identity) -> None:
        self.daemon = daemon
        self.request = request
        self.query = query
        self.body = body
        self.identity = identity
        """The sender. On open routes, which ignore it, this is the owner."""

    def path(self, name: str) -> str:
        return cast("str", self.request.path_params[name])

    @property
    def client(self) -> str:
        return client_of(self.request)

    @property
    def visitor(self) -> Visitor:
        return visitor_of(self.request)


Handle: TypeAlias = Callable[[Call[Any, Any]], Awaitable[Any]]
AsgiEndpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table, from which both the router and the OpenAPI document are made."""

    method: str
    path: str
    handle: Handle
    """Returns a value of the type `answer`, or a complete response."""
    summary: str
    query: Any = None
    body: Any = None
    """The type of a JSON body. If the handler reads the body itself, `body_types` describes it instead."""
    body_types: Mapping[str, Any] = {}
    """Content types of the body → their JSON schema."""
    answer: Any = None
    answer_types: Mapping[str, Any] = {}
    """Content types of a response that is not JSON → their JSON schema."""
    status: int = 200
    also: Mapping[int, str] = {}
    """Other successful responses: status → description."""
    headers: tuple[str, ...] = ()
    """Request headers that the handler reads."""
    is_open: bool = False
    """Whether no authentication is needed."""
    needs: AccountRole | None = None
    """The required role; None means `viewer` to read and `user` to change something."""
    only_reads: bool = False
    """Whether it reads although its method is POST, because the question has a body."""
    is_listed: bool = True
    """Whether the OpenAPI document contains it."""


def client_of(request: Request) -> str:
    return request.client.host if request.client else ""


def headers_of(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def visitor_of(request: Request) -> Visitor:
    is_secure = request.url.scheme in ("https", "wss")
    return Visitor(headers=headers_of(request), client=client_of(request), is_secure=is_secure)


def endpoint(daemon: Daemon, route: Route) -> AsgiEndpoint:
    async def answer(request: Request) -> Response:
        began = time.perf_counter()
        status = _GONE
        try:
            response = await _dispatch_guarded(daemon, route, request)
            status = response.status_code
            return response
        finally:
            daemon.metrics.count_response(route.method, route.path, status, time.perf_counter() - began)

    return answer


async def _dispatch_guarded(daemon: Daemon, route: Route, request: Request) -> Response:
    try:
        return await _dispatch(daemon, route, request)
    except LoomError as error:
        return error_response(error)
    except ClientDisconnect:
        return Response(status_code=_GONE)
    except Exception:  # noqa: BLE001  outermost handler: a bug is logged, and the client gets `internal`
        _log.exception("%s %s failed", route.method, route.path)
        return internal_error()


async def _dispatch(daemon: Daemon, route: Route, request: Request) -> Response:
    identity = OWNER
    if not route.is_open:
        identity = await daemon.sign_in.check(request.method, visitor_of(request))
        needed = route.needs or ("viewer" if route.method in ("GET", "HEAD") else "user")
        if not identity.may(needed):
            raise Forbidden(
                f"This needs the role {needed}; {identity.name} is a {identity.role}.", hint="Ask an administrator."
            )
        if session := request.path_params.get("session"):
            await daemon.access.check(identity, session, "view" if needed == "viewer" else "edit")
    query = _query(request, route.query) if route.query is not None else None
    if route.body is None:
        found = await route.handle(Call(daemon, request, query, None, identity))
    else:
        async with json_body(daemon, request, route.body) as body:
            found = await route.handle(Call(daemon, request, query, body, identity))
    if found is None:
        return Response(status_code=204)
    response = found if isinstance(found, Response) else json_response(found, route.status)
    if route.method == "GET" or route.only_reads:
        await compress(response, request.headers.get("accept-encoding", ""))
    return response


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, {"Cache-Control": "no-store", **(headers or {})}, JSON)


@asynccontextmanager
async def json_body(
    daemon: Daemon, request: Request, kind: Any, *, max_bytes: int = MAX_JSON_BYTES
) -> AsyncGenerator[Any]:
    """Yield the body as a value of type `kind`; raise `WrongType` for another content type than JSON.

    The content type of HTML forms is accepted, too, because `curl -d` sends JSON with it. A page of another origin can
    send it without a preflight request: the guard's check of Origin refuses that, not this function.
    """
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared not in ("", JSON, "application/x-www-form-urlencoded") and not declared.endswith("+json"):
        raise WrongType(f"This route reads JSON, not {declared[:80]!r}.", hint="Send Content-Type: application/json.")
    async with body_bytes(request, max_bytes, daemon.held) as data:
        yield decode_body(data or b"{}", kind)


def decode_body(data: bytes, kind: Any) -> Any:
    try:
        _check_names(_names_in(data), kind, "body")
        return decode_json(data, kind)
    except msgspec.ValidationError as error:
        raise InvalidBody(f"Invalid request body: {error}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise UnreadableRequest("The body is not JSON.", hint="Send UTF-8 JSON.") from None


def _names_in(data: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of a JSON object without decoding their values; empty if it is no object, which is reported
    later."""
    try:
        return decode_json(data, dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}


def _check_names(names: Iterable[str], kind: Any, where: str) -> None:
    """Raise `InvalidBody` for fields that `kind` does not have: a mistyped one would be silently ignored. Blocks are
    not checked: those of a newer version are kept unchanged."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return
    known = kind.__struct_encode_fields__
    unknown = sorted(name for name in names if name not in known)
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
        raise InvalidBody(f"Unknown field {unknown[0][:80]!r} in the {where}.", hint=hint)


def _query(request: Request, kind: Any) -> Any:
    _check_names(request.query_params, kind, "query")
    try:
        return convert(dict(request.query_params), kind, strict=False)
    except (msgspec.ValidationError, ContentError) as error:
        raise InvalidBody(f"Invalid query: {error}") from None
