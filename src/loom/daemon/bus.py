"""Bus: daemons notify each other of changes of a session. Messages contain only ids and numbers; the contents are read
from the store.

A lost message therefore only causes a delay: subscribers also poll the store from time to time, and every second while
the bus is down.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from loom.config import Config
from loom.errors import ConfigError, ExtraMissing
from loom.struct_types import decode_json

CHANNEL: Final = "loom:sessions"
_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 2.0
_HEALTH_SECONDS: Final = 5
_log = logging.getLogger(__name__)

BusTopic: TypeAlias = Literal["events", "work", "request", "changed", "deleted", "all"]


class BusMessage(msgspec.Struct, frozen=True, array_like=True):
    """`events`: there are events up to `seq`. `work`: a message is queued. `request`: there is a command for the
    running turn. `changed`, `deleted`: the record of the session. `all`: messages may have been lost, check
    everything."""

    what: BusTopic
    session: str = ""
    seq: int = 0


class _MessageBatch(msgspec.Struct, frozen=True, array_like=True):
    sender: str
    messages: tuple[BusMessage, ...]


Listener: TypeAlias = Callable[[BusMessage], None]


class Bus:
    """The bus within one process: messages are delivered at once."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    is_shared: ClassVar = False
    """Whether it reaches all processes that write to the store."""

    @property
    def is_up(self) -> bool:
        return True

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def publish(self, message: BusMessage) -> None:
        """Deliver a message to all listeners. Never blocks."""
        self.dispatch(message)

    def dispatch(self, message: BusMessage) -> None:
        for listener in self.listeners:
            listener(message)


class RedisBus(Bus):
    """A bus that also delivers through Redis to other processes. Messages that accumulate while Redis is slow or
    unavailable are sent as one."""

    is_shared: ClassVar = True

    def __init__(self, url: str) -> None:
        super().__init__()
        self._connect = _connector(url)
        self._me = secrets.token_hex(8)
        self._waiting: dict[tuple[BusTopic, str], BusMessage] = {}
        self._is_waiting = asyncio.Event()
        self._is_subscribed = False
        self._is_missed = False
        self._redis: Any = None
        """The Redis client; untyped."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_up(self) -> bool:
        return self._is_subscribed

    async def start(self) -> None:
        self._redis = self._connect()
        self._tasks = [asyncio.create_task(self._repeat(self._listen)), asyncio.create_task(self._repeat(self._send))]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._redis is not None:
            await self._redis.aclose()
            self._redis = None

    def publish(self, message: BusMessage) -> None:
        self.dispatch(message)
        self._waiting[message.what, message.session] = message
        self._is_waiting.set()

    async def _repeat(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Repeat `work` for ever, with a growing pause after each failure."""
        from redis.exceptions import RedisError

        loop = asyncio.get_running_loop()
        pause = _FIRST_WAIT_SECONDS
        while self._redis is not None:
            began = loop.time()
            try:
                await work(self._redis)
            except (RedisError, OSError) as error:
                self._note(type(error).__name__)
            pause = min(pause * 2, _LONGEST_WAIT_SECONDS)
            if loop.time() - began > _LONGEST_WAIT_SECONDS:
                pause = _FIRST_WAIT_SECONDS
            await asyncio.sleep(pause)

    def _note(self, reason: str = "") -> None:
        """Log when the bus becomes unavailable (`reason`) and when it is back, once each."""
        if reason and not self._is_missed:
            _log.warning("the bus is unavailable (%s): polling sessions every second", reason)
        elif not reason and self._is_missed:
            _log.warning("the bus is available again")
        self._is_missed = bool(reason)

    async def _listen(self, redis: Any) -> None:
        try:
            async with redis.pubsub() as subscriber:
                await subscriber.subscribe(CHANNEL)
                is_pinged = False
                while True:
                    received = await subscriber.get_message(timeout=_HEALTH_SECONDS)
                    if received is not None:
                        is_pinged = False
                        self._take(received)
                    elif is_pinged:
                        raise ConnectionResetError("Redis does not respond")  # an OSError: the caller reconnects
                    else:
                        is_pinged = True
                        await subscriber.ping()
        finally:
            self._is_subscribed = False

    def _take(self, received: dict[str, Any]) -> None:
        if received["type"] == "subscribe":
            self._is_subscribed = True
            self._note()
            self.dispatch(BusMessage("all"))
        elif received["type"] == "message":
            self._read(received["data"])

    def _read(self, data: bytes) -> None:
        try:
            batch = decode_json(data, _MessageBatch)
        except msgspec.DecodeError:
            _log.warning("a message on the bus could not be read; another version of Loom may have sent it")
            return
        if batch.sender != self._me:
            for message in batch.messages:
                self.dispatch(message)

    async def _send(self, redis: Any) -> None:
        while True:
            await self._is_waiting.wait()
            self._is_waiting.clear()
            batch, self._waiting = self._waiting, {}
            try:
                await redis.publish(CHANNEL, msgspec.json.encode(_MessageBatch(self._me, tuple(batch.values()))))
            except BaseException:
                self._waiting = batch | self._waiting
                self._is_waiting.set()
                raise


def open_bus(config: Config) -> Bus:
    """Return the configured bus; without one, a bus for a single daemon."""
    url = config.secret("bus", "url")
    return RedisBus(url) if url else Bus()


def _connector(url: str) -> Callable[[], Any]:
    """Return a function that opens the client. Raise `ExtraMissing` or `ConfigError` now, before the daemon starts to
    listen."""
    try:
        redis: Any = import_module("redis.asyncio")
    except ModuleNotFoundError:
        raise ExtraMissing(
            "A bus between daemons needs redis, which is not installed.", hint="Run: pip install 'loom-runtime[redis]'"
        ) from None
    connect = partial(
        redis.Redis.from_url,
        url,
        socket_connect_timeout=_HEALTH_SECONDS,
        socket_keepalive=True,
        health_check_interval=_HEALTH_SECONDS,
    )
    try:
        connect()
    except ValueError:  # the message would show the password in the URL
        raise ConfigError("is not a Redis URL.", key="bus.url", hint="redis://HOST:6379/0") from None
    return connect
