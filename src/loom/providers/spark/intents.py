"""Plain wishes that an offered tool can fulfil: "read a.png", "list the files", "make a chart of 3, 5, 8"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from loom.prompt import ToolSpec
from loom.providers.spark.directives import numbers_in
from loom.providers.spark.turn import ShownImage, ShownLabel, SparkTurn

MAX_CALLS: Final = 4
_READ: Final = re.compile(
    r"\b(?:read|open|show|view|look (?:at|into)|describe|summari[sz]e|check|load|display|inspect|what(?: i|')s in)\b",
    re.IGNORECASE,
)
_LIST: Final = re.compile(
    r"^\s*(?:ls|dir)\b|\b(?:list|show|what|which|see)\b[^.?!\n]*\b(?:files|folders?|directory|directories|workspace)\b",
    re.IGNORECASE,
)
_CHART: Final = re.compile(r"\b(?:chart|plot|graph|bars?|histogram)\b", re.IGNORECASE)
_SHOT: Final = re.compile(r"\bscreen ?shot\b", re.IGNORECASE)
_AGAIN: Final = re.compile(r"\b(?:picture|image|photo|screenshot|again|look|see|show)\b", re.IGNORECASE)
_URL: Final = re.compile(r"https?://[^\s<>\"'`)\]]+[^\s<>\"'`)\].,;:!?]")
_QUOTED: Final = re.compile(r"[`\"“']([^`\"”'\n]{1,200})[`\"”']")
_BORDERS: Final = re.compile(r"[\s,;()<>|]+")
_FILE: Final = re.compile(r"(?:.*/)?[^/]*\w\.[A-Za-z]\w{0,5}")
_FOLDER: Final = re.compile(r"(?:/|~/|\.\.?/).*|[\w.-]+(?:/[\w.-]+)*/?")
_NO_PATH: Final = re.compile(r".*@.*|(?:e\.g|i\.e|a\.m|p\.m)|.*\.(?:com|org|net|io|dev)", re.IGNORECASE)

_READERS: Final = ("read_file", "read", "open_file", "view")
_LISTERS: Final = ("list_files", "list_dir", "list_directory", "ls", "glob")
_CHARTERS: Final = ("make_chart", "draw_chart", "chart", "plot")
_SHOOTERS: Final = ("screenshot", "browser_screenshot", "take_screenshot")


class ToolIntent(msgspec.Struct, frozen=True):
    """A call to make, and the sentence that announces it."""

    tool: str
    arguments: dict[str, Any]
    announcement: str


def tool_intents(turn: SparkTurn, tools: Sequence[ToolSpec]) -> tuple[ToolIntent, ...]:
    """What the words ask for and an offered tool can do. What is already shown is not read again."""
    words = turn.words
    offered = {tool.name: tool for tool in tools}
    numbers = chart_numbers(words)
    if (charter := _first(offered, _CHARTERS)) and numbers:
        shown = ", ".join(f"{number:g}" for number in numbers)
        return (ToolIntent(charter.name, fill_arguments(charter, numbers, shown), f"I will draw a chart of {shown}."),)
    if (shooter := _first(offered, _SHOOTERS)) and _SHOT.search(words) and (url := _URL.search(words)):
        return (ToolIntent(shooter.name, fill_arguments(shooter, url[0]), f"I will take a screenshot of {url[0]}."),)
    recalled = _recall_intent(turn, offered)
    if recalled is not None:
        return (recalled,)
    if (lister := _first(offered, _LISTERS)) and _LIST.search(words):
        where = _folder(words)
        said = f"I will list the files in {where}." if where else "I will list the files."
        return (ToolIntent(lister.name, fill_arguments(lister, where or ".", only_required=not where), said),)
    reader = _first(offered, _READERS)
    paths = _files(words, frozenset(thing.name for thing in (*turn.things, *turn.earlier)))
    if reader is not None and paths and _READ.search(words):
        return tuple(
            ToolIntent(reader.name, fill_arguments(reader, path), f"I will read {path}.") for path in paths[:MAX_CALLS]
        )
    return ()


def chart_numbers(words: str) -> tuple[float, ...]:
    """The numbers of a chart that is asked for; none where none is."""
    numbers = numbers_in(words)
    return numbers if _CHART.search(words) and len(numbers) >= 2 else ()


def fill_arguments(
    tool: ToolSpec, value: str | tuple[float, ...], text: str = "", *, only_required: bool = False
) -> dict[str, Any]:
    """Arguments with the value in the first parameter that takes it, required ones first; the other required ones get
    the least that their schema allows."""
    properties = _properties(tool)
    required = [name for name in cast("list[str]", tool.parameters.get("required") or []) if name in properties]
    others = [] if only_required else [name for name in properties if name not in required]
    plain: Any = value if isinstance(value, str) else [int(n) if n.is_integer() else n for n in value]
    wanted = "string" if isinstance(value, str) else "array"
    names = [name for name in (*required, *others) if _takes(properties[name], wanted)]
    if not names and wanted == "array":
        names = [name for name in (*required, *others) if _takes(properties[name], "string")]
        plain = text
    arguments: dict[str, Any] = {names[0]: plain} if names else {}
    for name in required:
        arguments.setdefault(name, _least(properties[name], text or str(plain)))
    return arguments


def _properties(tool: ToolSpec) -> dict[str, dict[str, Any]]:
    """Every parameter with its schema; a schema may also be `true`, which allows anything."""
    found = cast("dict[str, Any]", tool.parameters.get("properties") or {})
    return {name: schema if isinstance(schema, dict) else {} for name, schema in found.items()}


def _takes(schema: dict[str, Any], kind: str) -> bool:
    if "enum" in schema or "const" in schema:
        return False
    said = schema.get("type")
    if said is None:
        options = cast("list[dict[str, Any]]", schema.get("anyOf") or schema.get("oneOf") or [])
        return not options or any(_takes(option, kind) for option in options)
    return kind in said if isinstance(said, list) else said == kind


def _least(schema: dict[str, Any], text: str) -> Any:
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    said = schema.get("type")
    kind = cast("list[str]", said)[0] if isinstance(said, list) else said
    least: dict[Any, Any] = {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}, "null": None}
    return least.get(kind, text)


def _first(offered: dict[str, ToolSpec], names: Sequence[str]) -> ToolSpec | None:
    return next((offered[name] for name in names if name in offered), None)


def _files(words: str, known: frozenset[str]) -> list[str]:
    """What looks like the path of a file, in order, less web addresses and what is shown already."""
    text = _URL.sub(" ", words)
    quoted = [found for found in _QUOTED.findall(text) if _FILE.fullmatch(found)]
    bare = [_bare(token) for token in _BORDERS.split(_QUOTED.sub(" ", text))]
    found = dict.fromkeys((*quoted, *(token for token in bare if _FILE.fullmatch(token))))
    return [
        path
        for path in found
        if not _NO_PATH.fullmatch(path) and path not in known and path.rpartition("/")[2] not in known
    ]


def _folder(words: str) -> str:
    """The folder behind "in", or the one with a slash in its name; nothing where none is named."""
    tokens = [_bare(token) for token in _BORDERS.split(_URL.sub(" ", words))]
    for before, token in zip(["", *tokens], tokens, strict=False):
        if (
            "/" in token
            and _FOLDER.fullmatch(token)
            and before.lower() in ("in", "of", "under", "ls", "folder", "directory")
        ):
            return token
    return ""


def _bare(token: str) -> str:
    return token.lstrip("`\"'“‘[{").rstrip("`\"'”’]}.:!?…")


def _recall_intent(turn: SparkTurn, offered: dict[str, ToolSpec]) -> ToolIntent | None:
    """A picture that is shown as text only can be called back by the tool that its text names."""
    things = turn.things or turn.earlier
    labels = [thing for thing in things if isinstance(thing, ShownLabel) and thing.look and thing.look[0] in offered]
    words = turn.words.lower()
    if not labels or not _AGAIN.search(words):
        return None
    named = [label for label in labels if label.name.lower() in words]
    is_first = "first" in words and isinstance(things[0], ShownLabel)
    if not named and not is_first and any(isinstance(thing, ShownImage) for thing in things):
        return None
    chosen = named[0] if named else labels[0] if is_first else labels[-1]
    tool, media = chosen.look or ("", "")
    return ToolIntent(tool, {"media": media}, f"I will look at {chosen.name} again.")
