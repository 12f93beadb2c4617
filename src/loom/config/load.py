"""Reading the layers: defaults < user < project < environment < flags, into one Config."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from loom.config.approval import ProjectApproval
from loom.config.entries import Entry, Findings, Source, walk_data
from loom.config.environment import walk_environment
from loom.config.merged import Config, Provenance, absolute, require_home
from loom.config.references import leaves_folder
from loom.config.schema import PROTECTED, Settings
from loom.config.shape import as_table, got, key_text, revive
from loom.config.sources import (
    KEYS_NAME,
    USER_NAMES,
    Document,
    find_project_file,
    pick_file,
    read_document,
    shown,
)
from loom.errors import ConfigError


def load_config(
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    strict: bool = False,
) -> Config:
    """The settings in force in `cwd`. `flags` are nested tables or dotted keys; a None in them counts as not given.

    Unknown keys are warnings, or errors when `strict`. Everything that is wrong is told in one ConfigError.
    """
    cwd = _working_directory() if cwd is None else cwd.absolute()
    environ = os.environ if environ is None else environ
    found = Findings()
    for document in _documents(cwd, environ):
        layer = "project" if document.is_project else "user"
        walk_data(document.data, Source(layer=layer, folder=document.file.parent, document=document), found)
    walk_environment(environ, cwd, found)
    walk_data(_nested(flags or {}), Source(layer="flags", folder=cwd), found)
    _raise([*found.faults, *(found.unknown if strict else ())])
    warnings = [str(unknown) for unknown in found.unknown] + _open_keys(cwd, environ)
    return _merge(found.entries, warnings, cwd, environ)


def _merge(entries: list[Entry], warnings: list[str], cwd: Path, environ: Mapping[str, str]) -> Config:
    trusted = _project_is_trusted(entries)
    own = [entry for entry in entries if entry.source.layer != "project"]
    own_models = {entry.path[1] for entry in own if entry.path[0] == "models"}
    merged: dict[tuple[str, ...], Entry] = {}
    project_approval: list[Entry] = []
    ignored: list[Entry] = []
    for entry in entries:
        is_project = entry.source.layer == "project"
        if is_project and entry.path[0] == "approval":
            project_approval.append(entry)
        elif trusted or not is_project:
            merged[entry.path] = entry
        elif _needs_trust(entry, own_models):
            ignored.append(entry)
        else:
            confined = msgspec.structs.replace(entry.source, confined=True)
            merged[entry.path] = msgspec.structs.replace(entry, source=confined)
    settings = msgspec.convert(_tree(merged.values()), Settings, dec_hook=revive)
    _raise(_server_faults(settings, merged))
    return Config(
        **{name: getattr(settings, name) for name in Settings.__struct_fields__},
        warnings=(*warnings, *_ignored_warning(ignored, cwd, environ)),
        project_approval=msgspec.convert(
            {entry.path[-1]: entry.value for entry in project_approval}, ProjectApproval, dec_hook=revive
        ),
        provenance=Provenance(entries=merged, project_entries=tuple(project_approval), environ=environ),
    )


def user_folder(environ: Mapping[str, str], cwd: Path) -> Path:
    """Where the user's own files are: `$LOOM_HOME`, else the usual place of this system."""
    if home := environ.get("LOOM_HOME", "").strip():
        return absolute(home, cwd)
    import platformdirs

    require_home()
    return platformdirs.user_config_path("loom")


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the working directory is gone.", hint="Change into one that exists.") from None


def _documents(cwd: Path, environ: Mapping[str, str]) -> list[Document]:
    """The user's files, then the project's. A file that is both is the user's."""
    folder = user_folder(environ, cwd)
    files = [pick_file(folder, USER_NAMES, cwd), pick_file(folder, (KEYS_NAME,), cwd)]
    documents = [read_document(file, cwd) for file in files if file]
    project = find_project_file(cwd)
    if project and not any(project.samefile(document.file) for document in documents):
        documents.append(read_document(project, cwd, is_project=True))
    return documents


def _open_keys(cwd: Path, environ: Mapping[str, str]) -> list[str]:
    file = pick_file(user_folder(environ, cwd), (KEYS_NAME,), cwd)
    if file is None or os.name != "posix" or not stat.S_IMODE(file.stat().st_mode) & 0o077:
        return []
    name = shown(file, cwd)
    return [f"{name}: other users of this machine may read your keys. Run: chmod 600 {name}"]


def _nested(flags: Mapping[str, object]) -> dict[str, object]:
    """Dotted keys opened into tables (at the top: below it, a name may hold a dot)."""
    tree: dict[str, object] = {}
    for key, value in _given(flags).items():
        _put(tree, key.split("."), value)
    return tree


def _given(flags: Mapping[str, object]) -> dict[str, object]:
    """What is not None, at any depth."""
    given: dict[str, object] = {}
    for key, value in flags.items():
        table = as_table(value)
        if value is not None:
            given[key] = value if table is None else _given(table)
    return given


def _tree(entries: Iterable[Entry]) -> dict[str, object]:
    tree: dict[str, object] = {}
    for entry in entries:
        _put(tree, entry.path, entry.value)
    return tree


def _put(tree: dict[str, object], path: Sequence[str], value: object) -> None:
    """Set one value; a table is added to what is there already."""
    name, below, table = path[0], path[1:], as_table(value)
    if not below and table is None:
        tree[name] = value
        return
    inner = tree.setdefault(name, {})
    if not isinstance(inner, dict):
        raise ConfigError("is given both as a table and as a value", file="flags", key=name)
    inner = cast("dict[str, object]", inner)
    if below:
        _put(inner, below, value)
    elif table:
        for key, item in table.items():
            _put(inner, (key,), item)


def _trusted_folders(entries: list[Entry]) -> list[Path]:
    """From the highest layer that lists them, and never from a project."""
    own = [entry for entry in entries if entry.path == ("trusted_folders",) and entry.source.layer != "project"]
    folders: list[Path] = []
    for written in cast("list[str]", own[-1].value) if own else ():
        if not written.startswith(("/", "~")):
            what = f"expected folders that begin with / or ~/, got {got(written)}"
            raise own[-1].source.fault(own[-1].path, what)
        try:
            folders.append(absolute(written, Path()).resolve())
        except (OSError, RuntimeError, ValueError):  # a link that leads to itself, or a NUL character
            raise own[-1].source.fault(own[-1].path, f"{got(written)} cannot be a folder") from None
    return folders


def _project_is_trusted(entries: list[Entry]) -> bool:
    folders = _trusted_folders(entries)
    documents = (entry.source.document for entry in entries)
    project = next((document for document in documents if document and document.is_project), None)
    return project is not None and any(project.folder.resolve().is_relative_to(folder) for folder in folders)


def _needs_trust(entry: Entry, own_models: set[str]) -> bool:
    """Whether a project file may set this only in a trusted folder."""
    path = entry.path
    if path[0] == "models" and path[2:] == ("provider",) and path[1] in own_models:
        return True  # else a project could send the key of one provider to another
    if path[0] == "agents" and path[-1] == "system" and leaves_folder(entry.value, entry):
        return True
    return any(_covers(name.split("."), path) for name in PROTECTED)


def _covers(pattern: Sequence[str], path: tuple[str, ...]) -> bool:
    return len(path) >= len(pattern) and all(want in ("*", part) for want, part in zip(pattern, path, strict=False))


def _ignored_warning(ignored: list[Entry], cwd: Path, environ: Mapping[str, str]) -> list[str]:
    written = [entry for entry in ignored if not isinstance(entry.value, dict)]
    document = written[0].source.document if written else None
    if document is None:
        return []
    keys = ", ".join(key_text(entry.path) for entry in written)
    own_file = shown(user_folder(environ, cwd) / USER_NAMES[0], cwd)
    how = f'To trust this one, add "{document.folder}" to trusted_folders in {own_file}'
    return [f"{document.name}: ignored {keys}: a project may set this only in a trusted folder. {how}"]


def _server_faults(settings: Settings, merged: Mapping[tuple[str, ...], Entry]) -> list[ConfigError]:
    faults: list[ConfigError] = []
    for name, server in settings.mcp.servers.items():
        if bool(server.command) == bool(server.url):
            path = ("mcp", "servers", name)
            faults.append(merged[path].source.fault(path, "expected either a command or a url"))
    return faults


def _raise(faults: list[ConfigError]) -> None:
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise ConfigError("\n  ".join([f"{len(faults)} things are wrong in the configuration:", *map(str, faults)]))
