"""YAML text → plain data, and the line of each key.

Scalars follow the core schema of YAML 1.2, so that `aging: off` and `1:30` are texts. One exception: `007` is text,
because TOML has no such number. Tags never construct objects. `null` means that the key is not set, because TOML has no
null.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from loom.config.schema_tree import KeyPath
from loom.config.secret import redact
from loom.errors import ConfigError

if TYPE_CHECKING:
    from yaml import MappingNode, Node, SafeLoader

_MAX_DEPTH: Final = 32
_MAX_NODES: Final = 50_000
_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ("~", "n", "N", "")),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    ("int", re.compile(r"(?:[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), "-+0123456789"),
    ("float", re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z"), "-+.0123456789"),
    ("float", re.compile(r"[-+]?(?:0|[1-9][0-9]*)[eE][-+]?[0-9]+\Z"), "-+0123456789"),
    ("float", re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"), "-+."),
)


def parse(text: str, name: str) -> dict[str, object]:
    import yaml

    try:
        node = _compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(redact(error.problem or "this is not YAML") + ".", file=name, key=place) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError("a character that YAML does not allow.", file=name, key=f"line {line}") from None
    reader = _YamlReader(name)
    data = reader.to_plain(node, ()) if node is not None else None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError("expected keys and values, such as `model: …`.", file=name, key="line 1")
    return cast("dict[str, object]", data)


def lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Return the path and line of each key of a text that `parse` accepts."""
    node = _compose(text)
    reader = _YamlReader("")
    if node is not None:
        reader.to_plain(node, ())
    return iter(reader.lines)


def _compose(text: str) -> Node | None:
    return _loader()(text).get_single_node()


@functools.cache
def _loader() -> type[SafeLoader]:
    import yaml

    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, starts in _SCALARS:
        for start in starts:
            resolvers.setdefault(start, []).append((_TAG + tag, pattern))

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = resolvers

    return Loader


class _YamlReader:
    """Convert YAML nodes to plain data. Count them, because aliases can expand a few lines to billions of values."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes = 0
        self.lines: list[tuple[KeyPath, int]] = []

    def to_plain(self, node: Node, path: KeyPath) -> object:
        from yaml import MappingNode, ScalarNode, SequenceNode

        self.nodes += 1
        if self.nodes > _MAX_NODES or len(path) > _MAX_DEPTH:
            raise self._fault(node, "too many values (aliases multiply them).")
        match node:
            case MappingNode():
                return self._mapping(node, path)
            case SequenceNode():
                items: list[object] = []
                for position, item in enumerate(node.value):
                    self.lines.append(((*path, position), item.start_mark.line + 1))
                    items.append(self.to_plain(item, (*path, position)))
                return items
            case ScalarNode():
                return self._scalar(node.tag.removeprefix(_TAG), cast("str", node.value), node)
            case _:
                raise self._fault(node, "this is not a value.")

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, object]:
        values: dict[str, object] = {}
        seen: set[str] = set()
        for key_node, value_node in node.value:
            if key_node.tag != _TAG + "str":
                raise self._fault(key_node, "expected a name before the colon; put it in quotes.")
            key = cast("str", key_node.value)
            if key == "<<" and key_node.style is None:
                raise self._fault(key_node, "<< (merge) is not supported; write the keys out.")
            if key in seen:
                raise self._fault(key_node, f"{redact(key)} is defined twice.")
            seen.add(key)
            self.lines.append(((*path, key), key_node.start_mark.line + 1))
            value = self.to_plain(value_node, (*path, key))
            if value is not None:
                values[key] = value
        return values

    def _scalar(self, tag: str, text: str, node: Node) -> object:
        try:
            match tag:
                case "str":
                    return text
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return int(text, 0)
                case "float":
                    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
                case _:
                    raise self._fault(node, "tags (!…) are not supported.")
        except ValueError:
            raise self._fault(node, "this number cannot be read.") from None

    def _fault(self, node: Node, what: str) -> ConfigError:
        return ConfigError(what, file=self.name, key=f"line {node.start_mark.line + 1}")
