"""The format for each media type: the built-in ones, and those of installed packages (entry points)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec

from loom.formats.format import Format
from loom.formats.sniff.kinds import KINDS, RAW_TYPES, SVG, FileKind

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "loom.formats"
_BY_CATEGORY: Final = {
    "text": "loom.formats.builtin:TEXT",
    "image": "loom.formats.builtin:IMAGE",
    "audio": "loom.formats.builtin:AUDIO",
    "video": "loom.formats.video:VIDEO",
    "pdf": "loom.formats.builtin:PDF",
    "office": "loom.formats.builtin:OFFICE",
}
"""The format of a category, unless `_BY_TYPE` has another one for the type."""
_RAW: Final = "loom.formats.image.camera_raw:CAMERA_RAW"
_DOCUMENTS: Final = "loom.formats.documents.builtin"
_BY_TYPE: Final[dict[str, str]] = {
    SVG: "loom.formats.builtin:TEXT",
    **dict.fromkeys(RAW_TYPES, _RAW),
    "text/html": f"{_DOCUMENTS}:HTML",
    "text/rtf": f"{_DOCUMENTS}:RTF",
    "message/rfc822": f"{_DOCUMENTS}:EML",
    "application/vnd.ms-outlook": f"{_DOCUMENTS}:MSG",
    "application/x-ipynb+json": f"{_DOCUMENTS}:NOTEBOOK",
    "application/epub+zip": f"{_DOCUMENTS}:EPUB",
    "application/zip": f"{_DOCUMENTS}:ZIP",
    "application/java-archive": f"{_DOCUMENTS}:ZIP",
    "application/vnd.android.package-archive": f"{_DOCUMENTS}:ZIP",
    "application/x-tar": f"{_DOCUMENTS}:TAR",
    "application/gzip": f"{_DOCUMENTS}:COMPRESSED",
    "application/x-bzip2": f"{_DOCUMENTS}:COMPRESSED",
    "application/x-xz": f"{_DOCUMENTS}:COMPRESSED",
    "application/vnd.sqlite3": f"{_DOCUMENTS}:SQLITE",
    "application/vnd.apache.parquet": f"{_DOCUMENTS}:PARQUET",
    "application/vnd.ms-visio.drawing": f"{_DOCUMENTS}:VISIO",
    "application/vnd.apple.iwork": f"{_DOCUMENTS}:IWORK",
    "application/vnd.jgraph.mxfile": f"{_DOCUMENTS}:DRAWIO",
}
_log = logging.getLogger("loom.formats")


class InstalledFormat(msgspec.Struct, frozen=True):
    """An entry point of the group: `problem` is the reason why it is not used, empty if it is used."""

    name: str
    package: str
    problem: str = ""


class _Installed(msgspec.Struct, frozen=True):
    formats: tuple[Format, ...]
    by_type: Mapping[str, Format]
    kinds: Mapping[str, FileKind]
    listed: tuple[InstalledFormat, ...]


def format_of(media_type: str) -> Format | None:
    """Return the format that reads this media type, or None if there is none."""
    where = _BY_TYPE.get(media_type)
    if where is None and (kind := KINDS.get(media_type)) is not None:
        where = _BY_CATEGORY.get(kind.category)
    if where is not None:
        return _load_format(where)
    found = _plugin_formats().by_type.get(media_type)
    if found is None and media_type.startswith("text/"):
        return _load_format(_BY_CATEGORY["text"])
    return found


def detect(data: bytes, name: str) -> str | None:
    """Return the media type that an installed format recognizes, or None if none does."""
    for found in _plugin_formats().formats:
        media_type = found.detect(data, name)
        if media_type is not None:
            return media_type
    return None


def installed_kinds() -> Mapping[str, FileKind]:
    """Return the media types that installed packages add."""
    return _plugin_formats().kinds


def installed_formats() -> tuple[InstalledFormat, ...]:
    """Return every entry point of the group, for a listing: those in use, and the others with the reason."""
    return _plugin_formats().listed


def reload() -> None:
    """Search for installed formats again, for instance after a package was installed."""
    _plugin_formats.cache_clear()


@cache
def _load_format(where: str) -> Format:
    module, _, name = where.partition(":")
    found: Format = getattr(import_module(module), name)
    return found


@cache
def _plugin_formats() -> _Installed:
    from importlib.metadata import entry_points  # imported late: takes 50 ms, and few files need an installed format

    return _collect(entry_points(group=GROUP))


def _collect(found: Iterable[EntryPoint]) -> _Installed:
    formats: list[Format] = []
    by_type: dict[str, Format] = {}
    kinds: dict[str, FileKind] = {}
    listed: list[InstalledFormat] = []
    for entry in sorted(found, key=lambda entry: entry.name):
        package = entry.dist.name if entry.dist is not None else ""
        try:
            offered = _load_checked(entry, by_type)
        except Exception as error:  # noqa: BLE001 - a third-party module may raise anything; Loom must still start
            problem = f"{type(error).__name__}: {error}"
            _log.warning("the format %s of %s is not used: %s", entry.name, package or entry.value, problem)
            listed.append(InstalledFormat(entry.name, package, problem))
            continue
        formats.append(offered)
        by_type |= dict.fromkeys(offered.kinds, offered)
        kinds |= offered.kinds
        listed.append(InstalledFormat(entry.name, package))
    return _Installed(tuple(formats), by_type, kinds, tuple(listed))


def _load_checked(entry: EntryPoint, taken: Mapping[str, Format]) -> Format:
    offered = entry.load()
    if not isinstance(offered, Format):
        raise TypeError(f"{entry.value} is not a Format: it lacks kinds, recipes, detect, inspect or render")
    unsupported = {media_type for media_type, kind in KINDS.items() if kind.category == "unsupported"}
    double = (set(offered.kinds) & set(KINDS) - unsupported) | (set(offered.kinds) & set(taken))
    if double:
        raise ValueError(f"{', '.join(sorted(double))} is read by another format already")
    return offered
