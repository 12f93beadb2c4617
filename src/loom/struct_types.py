"""Decode into structs from any thread.

msgspec describes a struct type when it is first decoded, and publishes the description before it is complete: another
thread that decodes the same type meanwhile reads a null pointer, which ends the process. So the first use of each type
happens here, in one thread at a time. `tests/test_struct_types.py` checks that nothing else decodes into types.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

import msgspec

T = TypeVar("T")
DecodeHook: TypeAlias = Callable[[type, Any], Any]
"""Converts values to types that msgspec does not know."""
_lock: Final = threading.RLock()
_described: Final[set[Any]] = set()


@overload
def convert(value: object, kind: type[T], *, strict: bool = True, dec_hook: DecodeHook | None = None) -> T: ...
@overload
def convert(value: object, kind: Any, *, strict: bool = True, dec_hook: DecodeHook | None = None) -> Any: ...
def convert(value: object, kind: Any, *, strict: bool = True, dec_hook: DecodeHook | None = None) -> Any:
    """Convert plain values, such as those of JSON, to `kind`. Raise msgspec.ValidationError if they do not match."""
    _describe(kind)
    return msgspec.convert(value, kind, strict=strict, dec_hook=dec_hook)


@overload
def decode_json(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: type[T]) -> T: ...
@overload
def decode_json(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: Any) -> Any: ...
def decode_json(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: Any) -> Any:
    """Decode JSON. Raise msgspec.DecodeError if it is malformed, msgspec.ValidationError if it does not match."""
    _describe(kind)
    return msgspec.json.decode(data, type=kind)


@overload
def decode_msgpack(data: bytes | bytearray | memoryview, kind: type[T]) -> T: ...
@overload
def decode_msgpack(data: bytes | bytearray | memoryview, kind: Any) -> Any: ...
def decode_msgpack(data: bytes | bytearray | memoryview, kind: Any) -> Any:
    """Decode MessagePack, as `decode_json` decodes JSON."""
    _describe(kind)
    return msgspec.msgpack.decode(data, type=kind)


@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    with _lock:
        return msgspec.json.Decoder(kind)


@overload
def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    with _lock:
        return msgspec.msgpack.Decoder(kind)


def _describe(kind: Any) -> None:
    """Let msgspec describe a type and all types in it, if this is its first use."""
    if kind not in _described:
        with _lock:
            msgspec.msgpack.Decoder(kind)
            _described.add(kind)
