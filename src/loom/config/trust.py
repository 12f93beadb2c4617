"""Folder trust: the folders that the user allows to instruct and configure Loom.

A decision applies to one folder with its current files: if a file that instructs models or configures Loom is added or
changed, the decision no longer applies, and the user is asked again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from loom.api_types import FolderFile, FolderTrustView
from loom.atomic_file import write_file_whole
from loom.config.claude_settings import PROJECT_SETTINGS, has_hooks
from loom.config.files import PROJECT_NAMES, folders_upwards, home_folder
from loom.errors import ConfigError, Conflict
from loom.struct_types import decode_json

FolderTrust: TypeAlias = Literal["trusted", "refused", "unknown"]
SKILL_FOLDERS: Final = ("skills", "skill")
AGENT_FOLDERS: Final = ("agents", "agent")
FILE_NAME: Final = "trust.json"
MAX_FILES: Final = 1_000
MAX_BYTES: Final = 16_000_000
MAX_SHOWN_FILES: Final = 40
MAX_SHOWN_BYTES: Final = 4_000


class TrustDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The user's decision about a folder whose files had this digest."""

    digest: str
    is_trusted: bool
    decided_at: float


class TrustRecords:
    """The decisions by the real path of each folder, stored in a file in the user's configuration folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / FILE_NAME

    def list(self) -> dict[str, TrustDecision]:
        """Return all decisions. Raise `ConfigError` if the file cannot be read."""
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}.", file=str(self._file)) from None
        try:
            return decode_json(data, dict[str, TrustDecision])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigError(
                "is damaged.", file=str(self._file), hint="Delete it, and decide about your folders again."
            ) from None

    def find(self, folder: Path) -> FolderTrust:
        """Return the decision about a folder with its current files; "unknown" if there is none."""
        if os.path.realpath(folder) not in self.list():
            return "unknown"
        return self._state(folder, files_digest(self.files(folder)))

    def _state(self, folder: Path, digest: str) -> FolderTrust:
        found = self.list().get(os.path.realpath(folder))
        if found is None or found.digest != digest:
            return "unknown"
        return "trusted" if found.is_trusted else "refused"

    def files(self, folder: Path) -> tuple[Path, ...]:
        """Return the files of a folder that instruct models or configure Loom: project settings, `AGENTS.md` and
        similar files, lists of MCP servers, skills, commands, agents and hooks, from the folder up to the top of its
        project. Files of the user's own folders are left out."""
        own, real = os.path.realpath(self._folder), Path(os.path.realpath(folder))
        found = (file for file in _project_files(real) if os.path.realpath(file.parent) != own)
        return tuple(dict.fromkeys(islice(found, MAX_FILES)))

    def describe(self, folder: Path, *, is_listed: bool) -> FolderTrustView:
        """Return the instructions and settings of a folder. With `is_listed`, it is below one of `trusted_folders`."""
        from loom.agent.approvals import escape_controls
        from loom.tools.workspace import is_foreign

        files, real = self.files(folder), os.path.realpath(folder)
        digest = files_digest(files)
        state: FolderTrust = "trusted" if is_listed else self._state(folder, digest)
        shown: list[FolderFile] = []
        for file in files[:MAX_SHOWN_FILES]:
            try:
                with file.open("rb") as stream:
                    size, beginning = os.fstat(stream.fileno()).st_size, stream.read(MAX_SHOWN_BYTES)
            except OSError:
                size, beginning = 0, b""
            name = str(file.relative_to(real)) if file.is_relative_to(real) else str(file)
            text = escape_controls(beginning.decode("utf-8", "replace").replace("\r\n", "\n"))
            shown.append(FolderFile(name=escape_controls(name), bytes=size, is_foreign=is_foreign(file), text=text))
        return FolderTrustView(
            folder=str(folder),
            state=state,
            needs_decision=state == "unknown" and bool(files) and bool(digest),
            kinds=file_kinds(files),
            digest=digest,
            files=tuple(shown),
            more=len(files) - len(shown),
        )

    def decide_about(self, folder: Path, digest: str, *, is_trusted: bool) -> None:
        """Remember a decision about the files that were shown; raise `Conflict` if others are there now."""
        if digest != files_digest(self.files(folder)):
            raise Conflict(f"The files in {folder} have changed.", hint="Review them, then decide again.")
        self.decide(folder, digest, is_trusted=is_trusted)

    def decide(self, folder: Path, digest: str, *, is_trusted: bool) -> None:
        """Store a decision about a folder whose files have `digest`. Raise `ConfigError` if that is empty because there
        are too many files."""
        if not digest:
            raise ConfigError(f"{folder} has too many files.", hint="Add the folder to trusted_folders instead.")
        made = TrustDecision(digest=digest, is_trusted=is_trusted, decided_at=time.time())
        self._write({**self.list(), os.path.realpath(folder): made})

    def revoke(self, folder: Path) -> bool:
        """Remove the decision about a folder; return whether there was one."""
        kept = self.list()
        found = kept.pop(os.path.realpath(folder), None)
        if found is not None:
            self._write(kept)
        return found is not None

    def _write(self, decisions: Mapping[str, TrustDecision]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file_whole(self._file, msgspec.json.format(msgspec.json.encode(decisions)).decode(), private=True)


def _project_files(folder: Path) -> Iterator[Path]:
    from loom.tools.workspace import COMMAND_FOLDERS, INSTRUCTION_FILES, MCP_FILES, SHARED_FOLDERS

    names = (*PROJECT_NAMES, *INSTRUCTION_FILES, *MCP_FILES)
    for above in folders_upwards(folder):
        yield from (above / name for name in names if (above / name).is_file())
    if folder == home_folder():
        return  # skills, commands and agents there are the user's own
    yield from (folder / name for name in PROJECT_SETTINGS if has_hooks(folder / name))
    for name in SHARED_FOLDERS:
        for kind in (*SKILL_FOLDERS, *COMMAND_FOLDERS, *AGENT_FOLDERS):
            # Links are followed, as when skills are read; MAX_FILES ends a circle of links.
            for root, below, names in os.walk(folder / name / kind, followlinks=True):
                below.sort()
                yield from (Path(root) / found for found in sorted(names))


def file_kinds(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the kinds of these files, in words for users."""
    from loom.tools.workspace import COMMAND_FOLDERS, INSTRUCTION_FILES, MCP_FILES

    kinds = {
        "instructions": any(file.name in INSTRUCTION_FILES for file in files),
        "settings": any(str(file).endswith(tuple(f"/{name}" for name in PROJECT_NAMES)) for file in files),
        "skills": any(file.name == "SKILL.md" for file in files),
        "commands": any(file.suffix == ".md" and _is_below(file, COMMAND_FOLDERS) for file in files),
        "agents": any(file.suffix == ".md" and _is_below(file, AGENT_FOLDERS) for file in files),
        "hooks": any(str(file).endswith(tuple(f"/{name}" for name in PROJECT_SETTINGS)) for file in files),
        "MCP servers": any(str(file).endswith(tuple(f"/{name}" for name in MCP_FILES)) for file in files),
    }
    return tuple(name for name, is_present in kinds.items() if is_present)


def _is_below(file: Path, kinds: Sequence[str]) -> bool:
    """Return whether a file is in a folder such as `.claude/commands`."""
    from loom.tools.workspace import SHARED_FOLDERS

    return any(root in SHARED_FOLDERS and kind in kinds for root, kind in pairwise(file.parts[:-1]))


def files_digest(files: Sequence[Path]) -> str:
    """Return the SHA-256 of names and contents; empty if there are too many files or bytes."""
    digest = hashlib.sha256()
    left = MAX_BYTES
    if len(files) == MAX_FILES:
        return ""
    for file in files:
        try:
            with file.open("rb") as stream:
                data = stream.read(left + 1)
        except OSError:
            data = b""
        left -= len(data)
        if left < 0:
            return ""
        digest.update(msgspec.json.encode([os.fsencode(file).decode("utf-8", "replace"), len(data)]))
        digest.update(data)
    return digest.hexdigest()
