"""Events over Socket.IO: the namespace `/events`. A client joins sessions, each from its own position.

    join {"session", "after"?, "inline"?}   → {"ok": true, "seq": head}, then the missed events, then new ones
    join {"sessions": true}                 → changes of the list of sessions
    leave {"session"} or {"sessions": true}

The guard checks Host and Origin before a request arrives here. A connection that violates the protocol is closed;
others are not affected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import socketio
from engineio.exceptions import EngineIOError, SocketIsClosedError
from socketio import packet
from socketio.exceptions import ConnectionRefusedError as SocketRefused
from starlette.types import ASGIApp, Receive, Scope, Send

from loom.daemon.background_tasks import start_task
from loom.daemon.envelopes import EncodedEnvelope
from loom.daemon.feeds import Watch
from loom.daemon.previews import INLINE_BYTES
from loom.daemon.problems import InvalidBody, TooMany, UnreadableRequest, error_response
from loom.daemon.session_list import ListedSession, SessionList
from loom.daemon.sign_in import Identity, Visitor
from loom.errors import Corrupt, LoomError, NotFound, StoreError
from loom.runtime.plan_table import problem_text
from loom.struct_types import convert

if TYPE_CHECKING:
    from loom.daemon.services import Daemon

NAMESPACE: Final = "/events"
PATH: Final = "/socket.io/"
MAX_MESSAGE_BYTES: Final = 16_384
MAX_JOINED: Final = 100
SLOW_SECONDS: Final = 10.0
"""A client that does not drain its queue within this time is dropped."""
QUEUED_PACKETS: Final = 16
UNREAD_PACKETS: Final = 1_000
"""A client with more packets than this in its queue, when it sends another one, is disconnected."""
QUEUED_BYTES: Final = 2 * INLINE_BYTES
UNAUTHENTICATED_SECONDS: Final = 20.0
"""A connection that has not joined the namespace by then is closed."""
_MAX_SEQ: Final = 2**53
_log = logging.getLogger(__name__)
_quiet = logging.getLogger(f"{__name__}.engine")
_quiet.setLevel(logging.CRITICAL)  # it would log every packet, with the token in the first


class Join(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    session: str = ""
    after: int | None = 0
    """The number of the last event that the client has; null means from now on."""
    inline: bool = False
    """Whether images are sent with their bytes."""
    sessions: bool = False


_Packet: Any = packet.Packet
_SocketServer: Any = socketio.AsyncServer


class ProtocolViolation(Exception):
    """A packet that none of Loom's clients sends."""


class StrictPacket(_Packet):
    """Decodes only packets that Loom's clients send; raises `ProtocolViolation` for others."""

    def decode(self, encoded_packet: str | bytes) -> int:
        try:
            _Packet.decode(self, encoded_packet)
        except (ValueError, TypeError, IndexError, RecursionError):
            raise ProtocolViolation from None
        kind, data = cast("int", self.packet_type), cast("object", self.data)
        match kind:
            case packet.CONNECT | packet.DISCONNECT | packet.ACK:
                return 0
            case packet.EVENT if isinstance(data, list) and data and isinstance(data[0], str):
                return 0
            case _:
                raise ProtocolViolation


class Connection:
    """An authenticated client."""

    def __init__(self, sid: str, transport: str, identity: Identity) -> None:
        self.sid = sid
        self.identity = identity
        self.transport = transport
        """Its Engine.IO id."""
        self.watches: dict[str, asyncio.Task[None]] = {}
        self.is_listening = False
        """Whether it is subscribed to the list of sessions."""
        self.sizes: list[int] = []
        """Sizes of the packets that may still be queued, oldest first."""


class Sockets:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._connections: dict[str, Connection] = {}
        self._unauthenticated: dict[str, float] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._server = _SocketServer(
            async_mode="asgi",
            async_handlers=False,
            namespaces=[NAMESPACE],
            serializer=StrictPacket,
            max_http_buffer_size=MAX_MESSAGE_BYTES,
            cors_credentials=False,
            logger=_quiet,
            engineio_logger=_quiet,
        )
        self._take = self._server.eio.handlers["message"]
        self._server.eio.on("message", self._count_received)
        self._server.on("connect", self._connect, namespace=NAMESPACE)
        self._server.on("disconnect", self._disconnect, namespace=NAMESPACE)
        self._server.on("join", self._join, namespace=NAMESPACE)
        self._server.on("leave", self._leave, namespace=NAMESPACE)
        self._roll = SessionList(daemon.runtime.dispatch, daemon.bus, self._show)
        daemon.auth.on_rotate.append(self.drop_all)
        daemon.sign_in.on_close.append(self.drop)
        daemon.feeds.on_stop.append(self.stop)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def drop_all(self) -> None:
        """Disconnect all clients: the token has changed, and they have to authenticate again."""
        self._daemon.feeds.end_all()
        for connection in list(self._connections.values()):
            await self._server.disconnect(connection.sid, NAMESPACE)
        for transport in list(self._server.eio.sockets):
            await self._shut(transport)

    async def drop(self, ids: frozenset[str]) -> None:
        """Disconnect the clients of these logins and accounts. All server-sent event streams end, too; clients
        reconnect and are checked then."""
        self._daemon.feeds.end_all()
        for connection in list(self._connections.values()):
            if not ids.isdisjoint((connection.identity.login, connection.identity.account)):
                await self._server.disconnect(connection.sid, NAMESPACE)
                await self._shut(connection.transport)

    async def stop(self) -> None:
        await self.drop_all()
        await self._roll.stop()
        await self._server.shutdown()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._sweeper is None:
            self._sweeper = start_task(self._sweep(), "closing unused connections")
        checked = {**scope, "headers": [header for header in scope["headers"] if header[0] != b"origin"]}
        try:
            await self._server.handle_request(checked, receive, send)
        except (ValueError, LookupError, EngineIOError):  # not a packet, or for a connection that is closed
            for transport, environ in list(self._server.environ.items()):
                if environ["asgi.scope"] is checked:
                    await self._shut(transport)
            if scope["type"] == "http":
                await error_response(UnreadableRequest("This is not Socket.IO, or its connection is closed."))(
                    scope, receive, send
                )

    async def _count_received(self, transport: str, data: str | bytes) -> None:
        found = self._server.eio.sockets.get(transport)
        try:
            if not data or (found is not None and found.queue.qsize() > UNREAD_PACKETS):
                raise ProtocolViolation
            await self._take(transport, data)
        except ProtocolViolation:
            await self._shut(transport)

    # Connections -----------------------------------------------------------------------------------------------------

    async def _connect(self, sid: str, environ: dict[str, Any], auth: object) -> None:
        scope: Scope = environ["asgi.scope"]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        token = cast("dict[str, object]", auth).get("token", "") if isinstance(auth, dict) else ""
        visitor = Visitor(
            headers=headers,
            client=scope["client"][0] if scope.get("client") else "",
            is_secure=scope["scheme"] in ("https", "wss"),
            token=token if isinstance(token, str) else "",
        )
        try:
            identity = await self._daemon.sign_in.identify(visitor) if isinstance(token, str) else None
        except TooMany as error:
            raise SocketRefused(error.message, {"code": error.code, "hint": error.hint}) from None
        if identity is None:
            hint = "Give the daemon's token as auth: {token}, or open the link of `loom web`."
            raise SocketRefused(
                "The token is not valid." if token else "Sign in first.", {"code": "auth.required", "hint": hint}
            )
        transport = self._server.manager.eio_sid_from_sid(sid, NAMESPACE)
        self._connections[sid] = Connection(sid, transport, identity)

    async def _disconnect(self, sid: str, reason: str = "") -> None:
        connection = self._connections.pop(sid, None)
        for task in list(connection.watches.values()) if connection else ():
            if task is not asyncio.current_task():
                task.cancel()
        await self._unsubscribe_if_idle()

    async def _join(self, sid: str, *given: object) -> dict[str, Any]:
        connection = self._connections.get(sid)
        try:
            wanted = convert(given[0] if given else {}, Join)
            if connection is None:
                raise InvalidBody("This connection is closed.")
            if wanted.sessions:
                connection.is_listening = True
                self._roll.start()
                return {"ok": True}
            return await self._begin(connection, wanted)
        except msgspec.ValidationError as error:
            return _error_answer(InvalidBody(f"join expects {{session, after, inline}}: {error}"))
        except LoomError as error:
            if connection is not None and _is_temporary(error):  # a client that reconnects joins again
                await self._shut(connection.transport)
            return _error_answer(error)

    async def _begin(self, connection: Connection, wanted: Join) -> dict[str, Any]:
        if wanted.session not in connection.watches and len(connection.watches) >= MAX_JOINED:
            raise InvalidBody(f"One connection watches at most {MAX_JOINED} sessions.", hint="Leave some.")
        if wanted.after is not None and not 0 <= wanted.after <= _MAX_SEQ:
            raise InvalidBody("`after` is the number of the last event that was seen.")
        await self._daemon.access.check(connection.identity, wanted.session)
        stack = AsyncExitStack()
        watch = await stack.enter_async_context(self._daemon.feeds.watch(wanted.session, wanted.after))
        self._end(connection, wanted.session)
        if self._connections.get(connection.sid) is not connection:  # disconnected during the store access
            await stack.aclose()
            return {"ok": False}
        pump = self._pump(connection, wanted, watch, stack)  # starts when the reply is queued
        connection.watches[wanted.session] = start_task(pump, "sending events to a client")
        return {"ok": True, "seq": watch.head}

    async def _leave(self, sid: str, *given: object) -> dict[str, Any]:
        try:
            wanted = convert(given[0] if given else {}, Join)
        except msgspec.ValidationError as error:
            return _error_answer(InvalidBody(f"leave takes {{session}}: {error}"))
        if connection := self._connections.get(sid):
            connection.is_listening = connection.is_listening and not wanted.sessions
            self._end(connection, wanted.session)
            await self._unsubscribe_if_idle()
        return {"ok": True}

    async def _unsubscribe_if_idle(self) -> None:
        """Unsubscribe from the list when its last reader left."""
        if not any(connection.is_listening for connection in self._connections.values()):
            await self._roll.stop()

    def _end(self, connection: Connection, session_id: str) -> None:
        if earlier := connection.watches.pop(session_id, None):
            earlier.cancel()

    async def _sweep(self) -> None:
        """Close connections that do not authenticate in time, and those of revoked logins."""
        while True:
            await asyncio.sleep(UNAUTHENTICATED_SECONDS / 4)
            known = {connection.transport for connection in self._connections.values()}
            now = time.monotonic()
            unknown = [sid for sid in self._server.eio.sockets if sid not in known]
            self._unauthenticated = {sid: self._unauthenticated.get(sid, now) for sid in unknown}
            for sid in [sid for sid, since in self._unauthenticated.items() if now - since > UNAUTHENTICATED_SECONDS]:
                await self._shut(sid)
            try:
                await self._daemon.sign_in.drop_revoked()
            except LoomError as error:
                _log.warning("logins could not be read: %s", error.code)

    async def _shut(self, transport: str) -> None:
        """Close the connection without waiting for the client, which might keep it open."""
        if found := self._server.eio.sockets.get(transport):
            await found.close(wait=False)
            await found.queue.put(None)

    # Sending ---------------------------------------------------------------------------------------------------------

    async def _pump(self, connection: Connection, wanted: Join, watch: Watch, stack: AsyncExitStack) -> None:
        seen = watch.seq
        async with stack:
            try:
                while page := await watch.take():
                    await self._daemon.feeds.turn()
                    for envelope in page:
                        await self._send(connection, envelope, inline=wanted.inline)
                        seen = envelope.seq
            except TimeoutError:
                await self._drop_slow(connection, wanted.session, seen)
            except EngineIOError:  # the connection is closed
                return
            except LoomError as error:
                await self._say(connection, "error", {**_words(error), "session": wanted.session, "after": seen})
                connection.watches.pop(wanted.session, None)
                if _is_temporary(error):  # a client that reconnects joins again
                    await self._server.disconnect(connection.sid, NAMESPACE)

    async def _drop_slow(self, connection: Connection, session_id: str, seen: int) -> None:
        text = "This client reads events too slowly."
        hint = f"Join again with after={seen}; nothing is lost."
        data = {"code": "slow_client", "message": text, "hint": hint, "session": session_id, "after": seen}
        await self._say(connection, "error", data)
        await self._server.disconnect(connection.sid, NAMESPACE)

    async def _show(self, line: ListedSession) -> None:
        for connection in [connection for connection in self._connections.values() if connection.is_listening]:
            try:
                if not line.deleted and not await self._daemon.access.may_read(connection.identity, line.session):
                    continue
                if self._has_room(connection):
                    await self._say(connection, "session", msgspec.to_builtins(line))
                else:  # the list has no sequence numbers: a client that reconnects reads it again
                    await self._drop_slow(connection, "", 0)
            except EngineIOError:  # the connection has just closed
                continue

    async def _say(self, connection: Connection, name: str, data: dict[str, Any]) -> None:
        await self._put(connection, f'2{NAMESPACE},["{name}",{msgspec.json.encode(data).decode()}]')

    async def _send(self, connection: Connection, envelope: EncodedEnvelope, *, inline: bool) -> None:
        """Send an envelope. Raise `TimeoutError` if the client does not drain its queue in time."""
        if not self._has_room(connection):
            async with asyncio.timeout(SLOW_SECONDS):
                await self._server.eio.sockets[connection.transport].queue.join()
        if inline and envelope.pictures:
            parts = await self._with_bytes(envelope)
            await self._daemon.feeds.turn()
            for part in parts:
                await self._put(connection, part)
        else:
            await self._put(connection, f"2{NAMESPACE},{envelope.socket_json}")

    async def _with_bytes(self, envelope: EncodedEnvelope) -> list[str | bytes]:
        """Return the packet and its binary attachments; the JSON contains a placeholder for each, as the protocol
        requires."""
        sent = msgspec.json.decode(envelope.json)
        data: dict[str, Any] = sent["data"]
        shown: list[dict[str, Any]] = [data, *data.get("images", ())]
        attached: list[bytes] = []
        for media in envelope.pictures:
            made = await self._daemon.feeds.previews.inline(media)
            if made is None or sum(map(len, attached)) + len(made.data) > INLINE_BYTES:
                continue
            mark = {"image_data": {"_placeholder": True, "num": len(attached)}, "image_mime": made.media_type}
            for place in shown:
                if place.get("image_id") == media.digest:
                    place.update(mark)
            attached.append(made.data)
        text = msgspec.json.encode([envelope.type, sent]).decode()
        return [f"5{len(attached)}-{NAMESPACE},{text}" if attached else f"2{NAMESPACE},{text}", *attached]

    async def _put(self, connection: Connection, part: str | bytes) -> None:
        connection.sizes.append(len(part))
        await self._server.eio.send(connection.transport, part)

    def _has_room(self, connection: Connection) -> bool:
        found = self._server.eio.sockets.get(connection.transport)
        if found is None:
            raise SocketIsClosedError
        waiting: int = found.queue.qsize()
        del connection.sizes[: len(connection.sizes) - waiting]
        return waiting < QUEUED_PACKETS and sum(connection.sizes) < QUEUED_BYTES


def socket_app(daemon: Daemon, inner: ASGIApp) -> ASGIApp:
    """Return an ASGI application with Socket.IO at its path and `inner` everywhere else."""
    sockets = Sockets(daemon)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and f"{scope['path']}/".startswith(PATH):
            await sockets(scope, receive, send)
        else:
            await inner(scope, receive, send)

    return app


def _is_temporary(error: LoomError) -> bool:
    """Return whether joining again may succeed: the store is away, but nothing is lost or damaged."""
    return isinstance(error, StoreError) and not isinstance(error, NotFound | Corrupt)


def _words(error: LoomError) -> dict[str, Any]:
    return msgspec.to_builtins(problem_text(error))


def _error_answer(error: LoomError) -> dict[str, Any]:
    return {"ok": False, "error": _words(error)}
