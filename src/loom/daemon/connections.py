"""Timeouts for connections that send no request or do not read their response, and the log line when file handles run
out."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

FIRST_REQUEST_SECONDS: Final = 20.0
"""A new connection that has not sent the headers of a request by then is closed."""
UNREAD_SECONDS: Final = 20.0
"""A client that reads nothing of its response for this long is disconnected."""
CLOSING_SECONDS: Final = 1.0
"""How long a response may take to end when the daemon stops; the server would cancel it after two seconds, with a
traceback."""
LOG_SECONDS: Final = 60.0
"""The minimum interval between two log lines about exhausted file handles."""
_log = logging.getLogger(__name__)


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP protocol with timeouts for clients that send no request or do not read the response. Idle
    keep-alive connections have uvicorn's own timeout."""

    first_request_seconds = FIRST_REQUEST_SECONDS
    unread_seconds = UNREAD_SECONDS
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.first_request_seconds, self._end_silent)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the headers of a request have arrived
            self._cancel_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._cancel_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_unread()
        super().resume_writing()

    def shutdown(self) -> None:
        """Shut down; a response that the client does not read is cut off. The client can reconnect to another
        daemon."""
        super().shutdown()
        self._cancel_unread()
        self._unread = self.loop.call_later(CLOSING_SECONDS, self.transport.abort)

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_silent(self) -> None:
        """Close the connection, unless it has become a WebSocket, which has another protocol object."""
        self._deadline = None
        if not self.transport.is_closing() and self.transport.get_protocol() is self:
            self.transport.close()


class AcceptFailures:
    """The exception handler of the event loop. It logs exhausted file handles as one line per minute, and leaves
    everything else to the default handler. The loop accepts connections again a second later by itself."""

    def __init__(self) -> None:
        self._logged_at = float("-inf")

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "out of system resource" not in str(context.get("message", "")):
            loop.default_exception_handler(context)
            return
        now = time.monotonic()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            _log.warning("out of file handles: new connections wait until some are free (see ulimit -n)")
