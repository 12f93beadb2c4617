"""Structs are decoded in any thread, also when several threads are the first to decode a type."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from loom.struct_types import convert, decode_json, decode_msgpack, json_decoder, msgpack_decoder

SOURCE: Final = Path(__file__).parents[1] / "src" / "loom"
# In a process of its own, because without `struct_types` it ends with a segmentation fault.
RACE: Final = """
import sys, threading
import msgspec
from loom import struct_types

sys.setswitchinterval(1e-6)
VALUE = {"inner": {"most": {"numbers": [1]}, "names": {"a": "b"}}}
JSON, PACKED = msgspec.json.encode(VALUE), msgspec.msgpack.encode(VALUE)
HOWS = [
    lambda kind: struct_types.convert(VALUE, kind),
    lambda kind: struct_types.decode_json(JSON, kind),
    lambda kind: struct_types.decode_msgpack(PACKED, kind),
    lambda kind: struct_types.json_decoder(kind).decode(JSON),
    lambda kind: struct_types.msgpack_decoder(kind).decode(PACKED),
]

def new_type():
    most = msgspec.defstruct("Most", [("numbers", "list[int]"), ("text", "str | None", None)])
    inner = msgspec.defstruct("Inner", [("most", most), ("names", "dict[str, str]", {})])
    return msgspec.defstruct("Outer", [("inner", inner), ("others", tuple[inner, ...], ())])

def decode(how, kinds, start):
    for kind in kinds:
        start.wait()
        assert msgspec.to_builtins(how(kind))["inner"]["most"]["numbers"] == [1]

kinds = [new_type() for _ in range(400)]
start = threading.Barrier(len(HOWS))
threads = [threading.Thread(target=decode, args=(how, kinds, start)) for how in HOWS]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_decode_a_type_for_the_first_time_do_not_disturb_each_other() -> None:
    ran = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


class Size(msgspec.Struct):
    width: int


def test_values_that_do_not_match_are_refused() -> None:
    assert convert({"width": "3"}, Size, strict=False) == Size(3)
    assert decode_json(b'{"width": 3}', Size) == json_decoder(Size).decode(b'{"width": 3}') == Size(3)
    packed = msgspec.msgpack.encode({"width": 3})
    assert decode_msgpack(packed, Size) == msgpack_decoder(Size).decode(packed) == Size(3)
    with pytest.raises(msgspec.ValidationError, match="width"):
        convert({"width": "3"}, Size)
    with pytest.raises(msgspec.ValidationError, match="width"):
        decode_json(b"{}", Size)


def decodes_into_type(call: ast.Call) -> bool:
    """Whether a call decodes into a type without `struct_types`."""
    match ast.unparse(call.func):
        case "msgspec.convert":
            return True
        case "msgspec.json.decode" | "msgspec.msgpack.decode":
            return any(keyword.arg == "type" for keyword in call.keywords)
        case "msgspec.json.Decoder" | "msgspec.msgpack.Decoder":
            return bool(call.args or call.keywords)
        case _:
            return False


def test_nothing_decodes_into_types_by_itself() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.name != "struct_types.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and decodes_into_type(node)
    ]
    assert not found, f"use loom.struct_types in {found}"
