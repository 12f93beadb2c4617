"""Read the layers (defaults < user < project < environment < flags) into one Config."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec

from loom.config.approval import ProjectApproval
from loom.config.effective import Config, Provenance, absolute_path, require_home
from loom.config.environment import walk_environment
from loom.config.files import (
    KEYS_NAME,
    USER_NAMES,
    ConfigFile,
    display_path,
    find_project_file,
    pick_file,
    read_document,
)
from loom.config.layer_values import ConfigFindings, LayerSource, LayerValue, walk_data
from loom.config.schema import LIMITS, PROTECTED, Settings
from loom.config.schema_tree import actual_text, as_table, decode_custom_type, key_text
from loom.config.trust import FolderTrust, TrustRecords
from loom.config.value_references import leaves_folder
from loom.errors import ConfigError
from loom.struct_types import convert

_DEFAULTS: Final = Settings()


def load_config(
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    strict: bool = False,
) -> Config:
    """Return the effective settings in `cwd`. `flags` are nested tables or dotted keys; None counts as unset.

    Unknown keys are warnings, or errors if `strict`. Raise one `ConfigError` that lists all mistakes.
    """
    try:
        cwd = Path.cwd() if cwd is None else cwd.absolute()
    except FileNotFoundError:
        raise ConfigError("The working directory no longer exists.", hint="Change into one that exists.") from None
    environ = os.environ if environ is None else environ
    found = ConfigFindings()
    for document in _documents(cwd, environ):
        layer = "project" if document.is_project else "user"
        walk_data(document.data, LayerSource(layer=layer, folder=document.file.parent, document=document), found)
    walk_environment(environ, cwd, found)
    walk_data(_nest_keys(flags or {}), LayerSource(layer="flags", folder=cwd), found)
    _raise([*found.faults, *(found.unknown if strict else ())])
    warnings = [str(unknown) for unknown in found.unknown] + _open_keys(cwd, environ)
    return _merge(found.entries, warnings, cwd, environ)


def _merge(entries: list[LayerValue], warnings: list[str], cwd: Path, environ: Mapping[str, str]) -> Config:
    decision: FolderTrust = "trusted" if _project_is_trusted(entries) else "unknown"
    if decision == "unknown" and any(entry.source.layer == "project" for entry in entries):
        decision = TrustRecords(user_folder(environ, cwd)).find(cwd)
    own = [entry for entry in entries if entry.source.layer != "project"]
    own_models = {entry.path[1] for entry in own if entry.path[0] == "models"}
    merged: dict[tuple[str, ...], LayerValue] = {}
    project_approval: list[LayerValue] = []
    ignored: list[LayerValue] = []
    for entry in entries:
        is_project = entry.source.layer == "project"
        if is_project and entry.path[0] == "approval":
            project_approval.append(entry)
        elif decision == "trusted" or not is_project:
            merged[entry.path] = entry
        elif decision == "refused":
            continue
        elif _needs_trust(entry, own_models) or _raises_limit(entry, merged) or _is_foreign(entry):
            ignored.append(entry)
        else:
            confined = msgspec.structs.replace(entry.source, confined=True)
            merged[entry.path] = msgspec.structs.replace(entry, source=confined)
    settings = convert(_tree(merged.values()), Settings, dec_hook=decode_custom_type)
    _raise(_server_faults(settings, merged))
    return Config(
        **{name: getattr(settings, name) for name in Settings.__struct_fields__},
        warnings=(*warnings, *_ignored_warning(ignored, cwd, environ)),
        project_approval=convert(
            {entry.path[-1]: entry.value for entry in project_approval}, ProjectApproval, dec_hook=decode_custom_type
        ),
        provenance=Provenance(entries=merged, project_entries=tuple(project_approval), environ=environ),
    )


def user_folder(environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the folder of the user's files: `$LOOM_HOME`, else the default of the operating system."""
    if home := environ.get("LOOM_HOME", "").strip():
        return absolute_path(home, cwd)
    import platformdirs

    require_home()
    return platformdirs.user_config_path("loom")


def _documents(cwd: Path, environ: Mapping[str, str]) -> list[ConfigFile]:
    """Return the user's files, then the project's. A file that is both counts as the user's."""
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
    name = display_path(file, cwd)
    return [f"{name}: other users of this machine can read your keys. Run: chmod 600 {name}"]


def _nest_keys(flags: Mapping[str, object]) -> dict[str, object]:
    """Expand dotted keys into tables, at the top level only: below it, a name may contain a dot."""
    tree: dict[str, object] = {}
    for key, value in _drop_none(flags).items():
        _put(tree, key.split("."), value)
    return tree


def _drop_none(flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags without None, at any depth."""
    given: dict[str, object] = {}
    for key, value in flags.items():
        table = as_table(value)
        if value is not None:
            given[key] = value if table is None else _drop_none(table)
    return given


def _tree(entries: Iterable[LayerValue]) -> dict[str, object]:
    tree: dict[str, object] = {}
    for entry in entries:
        _put(tree, entry.path, entry.value)
    return tree


def _put(tree: dict[str, object], path: Sequence[str], value: object) -> None:
    """Set one value; merge a table into an existing one."""
    name, below, table = path[0], path[1:], as_table(value)
    if not below and table is None:
        tree[name] = value
        return
    inner = tree.setdefault(name, {})
    if not isinstance(inner, dict):
        raise ConfigError("is set both as a table and as a value", file="flags", key=name)
    inner = cast("dict[str, object]", inner)
    if below:
        _put(inner, below, value)
    elif table:
        for key, item in table.items():
            _put(inner, (key,), item)


def _trusted_folders(entries: list[LayerValue]) -> list[Path]:
    """Return the trusted folders of the highest layer that lists them, never of a project."""
    own = [entry for entry in entries if entry.path == ("trusted_folders",) and entry.source.layer != "project"]
    folders: list[Path] = []
    for written in cast("list[str]", own[-1].value) if own else ():
        if not written.startswith(("/", "~")):
            what = f"expected folders that begin with / or ~/, got {actual_text(written)}"
            raise own[-1].source.fault(own[-1].path, what)
        try:
            folders.append(absolute_path(written, Path()).resolve())
        except (OSError, RuntimeError, ValueError):  # a circular link, or a NUL character
            raise own[-1].source.fault(own[-1].path, f"{actual_text(written)} cannot be a folder") from None
    return folders


def _project_is_trusted(entries: list[LayerValue]) -> bool:
    folders = _trusted_folders(entries)
    documents = (entry.source.document for entry in entries)
    project = next((document for document in documents if document and document.is_project), None)
    return project is not None and any(project.folder.resolve().is_relative_to(folder) for folder in folders)


def _needs_trust(entry: LayerValue, own_models: set[str]) -> bool:
    """Return whether a project file may set this only in a trusted folder."""
    path = entry.path
    if path[0] == "models" and path[2:] == ("provider",) and path[1] in own_models:
        return True  # otherwise a project could send the key of one provider to another
    if path[0] in ("agents", "prompt") and path[-1] in ("system", "append") and leaves_folder(entry.value, entry):
        return True
    return any(_matches_path(name.split("."), path) for name in PROTECTED)


def _raises_limit(entry: LayerValue, merged: Mapping[tuple[str, ...], LayerValue]) -> bool:
    """Return whether a project raises a limit above the user's value or the default."""
    if not any(_matches_path(name.split("."), entry.path) for name in LIMITS) or not isinstance(
        entry.value, (int, float)
    ):
        return False
    section, name = entry.path
    default = getattr(getattr(_DEFAULTS, section), name)
    own = merged[entry.path].value if entry.path in merged else default
    return isinstance(own, (int, float)) and entry.value > own


def _is_foreign(entry: LayerValue) -> bool:
    """Return whether another user of this machine wrote the file."""
    from loom.tools.workspace import is_foreign

    document = entry.source.document
    return document is not None and is_foreign(document.file)


def _matches_path(pattern: Sequence[str], path: tuple[str, ...]) -> bool:
    return len(path) >= len(pattern) and all(want in ("*", part) for want, part in zip(pattern, path, strict=False))


def _ignored_warning(ignored: list[LayerValue], cwd: Path, environ: Mapping[str, str]) -> list[str]:
    written = [entry for entry in ignored if not isinstance(entry.value, dict)]
    document = written[0].source.document if written else None
    if document is None:
        return []
    keys = ", ".join(key_text(entry.path) for entry in written)
    own_file = display_path(user_folder(environ, cwd) / USER_NAMES[0], cwd)
    how = f'To trust this one, add "{document.folder}" to trusted_folders in {own_file}, or run: loom trust add'
    return [f"{document.name}: ignored {keys}: a project may set this only in a trusted folder. {how}"]


def _server_faults(settings: Settings, merged: Mapping[tuple[str, ...], LayerValue]) -> list[ConfigError]:
    faults: list[ConfigError] = []
    for name, server in settings.mcp.servers.items():
        if bool(server.command) == bool(server.url):
            path = ("mcp", "servers", name)
            faults.append(merged[path].source.fault(path, "expected either a command or a url"))
    for name, hook in settings.webhooks.items():
        if not (hook.url and hook.secret):
            path = ("webhooks", name)
            faults.append(merged[path].source.fault(path, "expected a url and a secret"))
    return faults


def _raise(faults: list[ConfigError]) -> None:
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise ConfigError("\n  ".join([f"{len(faults)} errors in the configuration:", *map(str, faults)]))
