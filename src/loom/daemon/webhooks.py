"""Webhooks: notify other programs, over HTTP, that a turn has ended or that an approval is pending.

Requests are signed as https://www.standardwebhooks.com describes: `webhook-signature` is an HMAC-SHA256 of the id, the
time and the body, so that a receiver can verify the sender and refuse replays. Every hook has a bounded queue and a
task of its own: a receiver that is down delays no other. Messages that do not fit into the queue are dropped, with a
warning in the log.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import random
import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from loom.config.schema import WebhookEvent
from loom.content.blocks import clean_text
from loom.daemon.background_tasks import start_task
from loom.errors import ConfigError, LoomError, NotFound, Unsupported
from loom.events import ApprovalRequested, TurnFailed, TurnFinished, decode_event
from loom.runtime import Runtime
from loom.tools.download import egress_backend
from loom.tools.egress import Egress, destination_of

QUEUE_LENGTH: Final = 500
ATTEMPTS: Final = 6
BACKOFF_SECONDS: Final = (1.0, 5.0, 30.0, 120.0, 600.0)
DEADLINE_SECONDS: Final = 15.0
MAX_TEXT_CHARS: Final = 2_000
KEY_PREFIX: Final = "whsec_"
_TRY_AGAIN: Final = (408, 425, 429)

_log = logging.getLogger(__name__)


class WebhookMessage(msgspec.Struct, frozen=True):
    """An event of a session. The rest of the request body is read from the store when it is sent."""

    id: str
    event: str
    session: str
    happened_at: float
    facts: dict[str, Any]


class _Hook:
    def __init__(self, name: str, url: str, key: bytes, events: Sequence[WebhookEvent]) -> None:
        self.name = name
        self.url = url
        self.key = key
        self.events = frozenset(events)
        self.queue: asyncio.Queue[WebhookMessage] = asyncio.Queue(QUEUE_LENGTH)
        self.dropped = 0


class Webhooks:
    def __init__(self, runtime: Runtime, *, backoff: Sequence[float] = BACKOFF_SECONDS) -> None:
        self._runtime = runtime
        self._backoff = backoff
        self._egress = Egress(allow=runtime.config.tools.allow_hosts)
        self._hooks: list[_Hook] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Read the settings and subscribe to the events of this process."""
        config = self._runtime.config
        for name, entry in config.webhooks.items():
            try:
                url = destination_of(config.secret("webhooks", name, "url")).url
                key = signing_key(config.secret("webhooks", name, "secret"))
            except LoomError as error:
                _log.error("the webhook %s is not used: %s", name, error.message)
                continue
            self._hooks.append(_Hook(name, url, key, entry.events))
        if self._hooks:
            self._runtime.dispatch.events.subscribe(self._on_events)
        self._tasks = [start_task(self._deliver_all(hook), f"the webhook {hook.name}") for hook in self._hooks]

    async def stop(self) -> None:
        """End all deliveries. Queued messages are not sent."""
        if self._hooks:
            self._runtime.dispatch.events.unsubscribe(self._on_events)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._hooks, self._tasks = [], []

    def _on_events(self, session_id: str, _: int, events: Sequence[tuple[str, bytes]]) -> None:
        for kind, data in events:
            hooks = [hook for hook in self._hooks if kind in hook.events]
            if not hooks:
                continue
            facts = _facts(decode_event(data))
            message = WebhookMessage(f"msg_{secrets.token_hex(12)}", kind, session_id, time.time(), facts)
            for hook in hooks:
                try:
                    hook.queue.put_nowait(message)
                except asyncio.QueueFull:
                    hook.dropped += 1
                    if hook.dropped == 1:
                        _log.warning("the webhook %s does not keep up: messages are dropped", hook.name)

    async def _deliver_all(self, hook: _Hook) -> None:
        while True:
            message = await hook.queue.get()
            try:
                body = await self._body(message)
            except NotFound:
                continue  # the session was deleted meanwhile
            except LoomError as error:
                _log.warning("a message for the webhook %s was dropped: %s", hook.name, error.message)
                continue
            if not await self._deliver(hook, message, body):
                _log.warning("the webhook %s did not get %s (%s)", hook.name, message.id, message.event)
            elif hook.dropped:
                _log.warning("the webhook %s responds again; %d messages were dropped", hook.name, hook.dropped)
                hook.dropped = 0

    async def _body(self, message: WebhookMessage) -> bytes:
        info = await self._runtime.library.info(message.session)
        members = await self._runtime.session_users.list(message.session)
        data = {
            "session": message.session,
            "title": info.title,
            "owners": [name for name, access in members.items() if access == "own"],
            **message.facts,
        }
        happened = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(message.happened_at))
        return msgspec.json.encode({"type": message.event, "timestamp": happened, "data": data})

    async def _deliver(self, hook: _Hook, message: WebhookMessage, body: bytes) -> bool:
        """Return whether the receiver accepted the message. Temporary failures are retried with backoff."""
        for attempt in range(ATTEMPTS):
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    status = await self._send(hook, message.id, body)
            except Unsupported as error:
                _log.warning("the webhook %s: %s; name the host in tools.allow_hosts", hook.name, error.message)
                return False
            except (LoomError, TimeoutError):
                status = 0
            if 200 <= status < 300:
                return True
            if 300 <= status < 500 and status not in _TRY_AGAIN:
                _log.warning("the webhook %s refuses messages with HTTP %d", hook.name, status)
                return False
            if attempt + 1 < ATTEMPTS:
                await asyncio.sleep(self._backoff[min(attempt, len(self._backoff) - 1)] * random.uniform(0.8, 1.2))  # noqa: S311  jitter, not a secret
        return False

    async def _send(self, hook: _Hook, message_id: str, body: bytes) -> int:
        """Return the status of one request; 0 if there was no response. Redirects are not followed."""
        import httpcore2

        place, now = destination_of(hook.url), str(int(time.time()))
        headers = [
            ("Host", place.origin),
            ("User-Agent", "Loom"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            ("webhook-id", message_id),
            ("webhook-timestamp", now),
            ("webhook-signature", sign(hook.key, message_id, now, body)),
        ]
        try:
            async with (
                httpcore2.AsyncConnectionPool(network_backend=egress_backend(self._egress)) as pool,
                pool.stream("POST", place.url, headers=headers, content=body) as response,
            ):
                return response.status
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
            return 0


def sign(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the value of `webhook-signature`."""
    signed = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(signed).decode()


def signing_key(secret: str) -> bytes:
    """Return the key in a secret: base64 behind `whsec_`, or the text itself. Raise `ConfigError` if it is too short or
    not valid base64."""
    key = secret.encode()
    if secret.startswith(KEY_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(KEY_PREFIX), validate=True)
        except binascii.Error:
            raise ConfigError("The part of the secret after whsec_ is not valid base64") from None
    if len(key) < 16:
        raise ConfigError("The secret is too short", hint="Use 24 random bytes: openssl rand -base64 24")
    return key


def _facts(event: object) -> dict[str, Any]:
    match event:
        case TurnFinished(turn=turn, stop=stop, usage=usage):
            return {"turn": turn, "stop": stop, "usage": msgspec.to_builtins(usage)}
        case TurnFailed(turn=turn, code=code, text=text):
            return {"turn": turn, "code": code, "text": clean_text(text)[:MAX_TEXT_CHARS]}
        case ApprovalRequested(approval=approval, call=call, action=action):
            return {"approval": approval, "tool": call.name, "action": clean_text(action)[:MAX_TEXT_CHARS]}
        case _:
            return {}
