"""Plugins: tools and providers of installed packages, by their entry points.

    [project.entry-points."loom.tools"]
    weather = "my_package:weather"            # a function, a Tool, or a list of these

    [project.entry-points."loom.providers"]
    echo = "my_package:Echo"                  # a provider as `register_provider` takes it, or its class

Only packages of this installation are loaded, never the workspace. A plugin that fails is listed with the reason
(`loom doctor`) and affects nothing else. Plugins for file formats are loaded by `formats/registry.py`.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from loom.errors import ConfigError
from loom.formats import registry
from loom.runtime.custom_provider import register_provider
from loom.tools.base import Tool, tool

TOOLS: Final = "loom.tools"
PROVIDERS: Final = "loom.providers"


class InstalledPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """An entry point; `problem` is the reason why it is not used."""

    group: str
    name: str
    package: str = ""
    problem: str = ""


class _Loaded(msgspec.Struct, frozen=True):
    objects: tuple[tuple[str, Any], ...]
    listed: tuple[InstalledPlugin, ...]


@cache
def plugin_tools() -> dict[str, Tool]:
    """Return the tools of installed packages, by name."""
    found: dict[str, Tool] = {}
    for _, value in _load(TOOLS).objects:
        for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
            made = item if isinstance(item, Tool) else tool(item)
            found[made.name] = made
    return found


@cache
def register_plugin_providers() -> bool:
    """Register the providers of installed packages; return whether there are any."""
    loaded = _load(PROVIDERS).objects
    for _, value in loaded:
        register_provider(value() if isinstance(value, type) else value)
    return bool(loaded)


def installed_plugins() -> tuple[InstalledPlugin, ...]:
    """Return every entry point for tools, providers and file formats, with the reason if it is not used."""
    formats = (
        InstalledPlugin(group=registry.GROUP, name=found.name, package=found.package, problem=found.problem)
        for found in registry.installed_formats()
    )
    return (*_load(TOOLS).listed, *_load(PROVIDERS).listed, *formats)


def reload_plugins() -> None:
    """Search for plugins again, for instance after a package was installed."""
    for cached in (_load, plugin_tools, register_plugin_providers):
        cached.cache_clear()
    registry.reload()


@cache
def _load(group: str) -> _Loaded:
    if not _is_offered(group):
        return _Loaded((), ())
    from importlib.metadata import entry_points

    objects: list[tuple[str, Any]] = []
    listed: list[InstalledPlugin] = []
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        package = entry.dist.name if entry.dist is not None else ""
        try:
            value = entry.load()
            _check(group, value)
        except Exception as error:  # noqa: BLE001 - a foreign module may fail in any way; Loom must still start
            problem = f"{type(error).__name__}: {error}"
            listed.append(InstalledPlugin(group=group, name=entry.name, package=package, problem=problem))
            continue
        objects.append((entry.name, value))
        listed.append(InstalledPlugin(group=group, name=entry.name, package=package))
    return _Loaded(tuple(objects), tuple(listed))


def _check(group: str, value: Any) -> None:
    if group == TOOLS:
        for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if not isinstance(item, Tool):
                tool(item)
    elif not callable(getattr(value, "stream", None)):
        raise ConfigError("it has no stream method: see loom.register_provider")


def _is_offered(group: str) -> bool:
    """Search the metadata on the path directly: importing the library for it would take ten times as long, on every
    start."""
    mark = f"[{group}]".encode()
    for place in dict.fromkeys(sys.path):
        for file in Path(place or ".").glob("*.dist-info/entry_points.txt"):
            try:
                if mark in file.read_bytes():
                    return True
            except OSError:
                continue
    return False
