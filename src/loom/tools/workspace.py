"""Files in the workspace: opened through links, checked by their real path, read once.

The file that is checked is the file that is read: it is opened first, and its real path is that of the descriptor, so a
link that is swapped in meanwhile has no effect.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from fnmatch import translate
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import msgspec

from loom.content.media import size_label
from loom.errors import TooLarge, Unreadable
from loom.formats.facts import IntakeLimits

SENSITIVE_NAMES: Final = (
    ".env",
    ".env.*",
    ".envrc",
    "*.env",
    "service-account*.json",
    "service_account*.json",
    "*.jks",
    "*.tfstate",
    "kubeconfig",
    ".dockercfg",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.kdbx",
    "*.keystore",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "credentials*",
    "*credentials.json",
    "secrets.*",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".htpasswd",
    "shadow",
    "keys.toml",
    "token",
)
INSTRUCTION_FILES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Files with instructions for models: in each folder the first of these that exists."""
MCP_FILE: Final = ".mcp.json"
"""The MCP servers of a project."""
MCP_FILES: Final = (MCP_FILE, ".vscode/mcp.json")
"""The files with MCP servers of a project that are read; of servers with one name, that of the first file counts."""
STARTER_FILES: Final = (
    *(*MCP_FILES, "loom.toml", "loom.yaml", "loom.yml"),
    *(".claude/settings.json", ".claude/settings.local.json"),
)
"""Files of a project with programs that Loom starts, outside the sandbox, if the folder is trusted."""
SHARED_FOLDERS: Final = (".loom", ".claude", ".agents", ".codex", ".opencode")
"""Folders with skills, commands and agents of a project; other agents read some of them too."""
COMMAND_FOLDERS: Final = ("commands", "command", "prompts")
"""OpenCode also reads the singular names; Codex calls its commands prompts."""
COMMAND_PLACES: Final = tuple(f"{place}/{folder}" for place in SHARED_FOLDERS for folder in COMMAND_FOLDERS)
"""The folders of slash commands, whose files may contain shell commands and allow them."""
SENSITIVE_FOLDERS: Final = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", "gcloud", ".password-store")
_SENSITIVE_NAME: Final = re.compile("|".join(map(translate, SENSITIVE_NAMES)))
_OWN_FOLDERS: Final = (".config/loom", ".local/share/loom", ".local/state/loom")
_UNSEARCHED: Final = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__"})
"""Folders that are not searched for secrets: they are large, and package managers fill them with hard links."""
MAX_SEARCHED: Final = 50_000
_INODES_SECONDS: Final = 1.0

FileId: TypeAlias = tuple[int, int]
"""Device and inode: the same for every hard link of a file."""


class OpenFile(msgspec.Struct, frozen=True):
    """A regular file that is open for reading, and its facts."""

    file: BinaryIO
    path: Path
    """Its real path, with links resolved."""
    size_bytes: int
    inside: bool
    """Whether its real path is in the workspace."""
    sensitive: bool


@contextmanager
def open_file(workspace: Path, asked: str) -> Generator[OpenFile]:
    """Open the file at `asked`, relative to the workspace. Pipes, devices and folders are refused without waiting."""
    name = Path(asked).name or asked
    descriptor, wanted = _open(workspace, asked, name)
    try:
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            raise Unreadable(f"{asked or '.'} is a folder", name=name, hint="Name a file in it.")
        if not stat.S_ISREG(facts.st_mode):
            raise Unreadable(f"{asked} is a pipe or a device, not a file", name=name, hint="Name a file.")
    except BaseException:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        path = _true_path(descriptor, wanted)
        root = Path(os.path.realpath(workspace))
        sensitive = is_sensitive(path) or is_sensitive(wanted) or is_linked_secret(facts, root)
        yield OpenFile(file, path, facts.st_size, path.is_relative_to(root), sensitive)


class OpenFolder(msgspec.Struct, frozen=True):
    """An open folder, and its facts."""

    descriptor: int
    path: Path
    inside: bool
    sensitive: bool


@contextmanager
def open_folder(workspace: Path, asked: str) -> Generator[OpenFolder]:
    """Open the folder at `asked`. Files opened relative to its descriptor are inside it, even if it is renamed
    meanwhile."""
    descriptor, wanted = _open(workspace, asked, Path(asked).name or asked)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise Unreadable(f"{asked} is not a folder", name=wanted.name, hint="Read it instead.")
        path = _true_path(descriptor, wanted)
        root = Path(os.path.realpath(workspace))
        hidden = is_sensitive(path / "file") or is_sensitive(wanted / "file")
        yield OpenFolder(descriptor, path, path.is_relative_to(root), hidden)
    finally:
        os.close(descriptor)


def local_workspace(written: str) -> Path:
    """Return the folder of a conversation; the current one if it has none on this machine."""
    return Path(written) if written and Path(written).is_dir() else Path.cwd()


def workspace_notice(written: str, *, is_remote: bool = False) -> str:
    """Return what to say about the folder of a conversation that was begun in another one. With `is_remote`, the folder
    may be on another machine."""
    if not written or written == str(Path.cwd()):
        return ""
    if Path(written).is_dir():
        return f"The files of this conversation are in {written}."
    return "" if is_remote else f"The folder of this conversation no longer exists: {written}"


def is_folder(workspace: Path, asked: str) -> bool:
    """Return whether the path is a folder, only to choose an action: opening it checks again."""
    try:
        return (workspace / Path(asked).expanduser()).is_dir()
    except (OSError, ValueError, RuntimeError):  # an invalid path: opening it raises the error
        return False


def starts_programs(path: Path) -> bool:
    """Return whether a file may contain programs that Loom starts."""
    place = f"/{path}".casefold()
    return place.endswith(tuple(f"/{name}" for name in STARTER_FILES)) or any(
        f"/{folder}/" in place for folder in COMMAND_PLACES
    )


def visible_name(name: str) -> str:
    """Return a file name on one line, without characters that could deceive or cannot be written."""
    return "".join(
        character if character.isprintable() and not "\ud800" <= character <= "\udfff" else f"\\u{{{ord(character):x}}}"
        for character in name
    )


def _open(workspace: Path, asked: str, name: str) -> tuple[int, Path]:
    try:
        wanted = workspace / Path(asked).expanduser()
        return os.open(wanted, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), wanted
    except FileNotFoundError:
        if not workspace.is_dir():
            raise Unreadable(f"The workspace no longer exists: {workspace}", name=name) from None
        if (workspace / asked).is_symlink():
            raise Unreadable(f"{asked} is a link to a file that does not exist", name=name) from None
        raise Unreadable(f"File not found: {asked}", name=name, hint="Check the path.") from None
    except PermissionError:
        raise Unreadable(f"{asked} is not readable", name=name, hint="Check its permissions.") from None
    except OSError as error:
        raise Unreadable(f"{asked} cannot be opened: {error.strerror}", name=name, hint="Check the path.") from None
    except (ValueError, RuntimeError):
        raise Unreadable(f"{asked[:200]!r} is not the path of a file", name=name, hint="Check it.") from None


def read_whole(opened: OpenFile, limits: IntakeLimits) -> bytes:
    """Return the whole file, if intake could accept it; a huge file is refused before it is loaded."""
    most = max(
        limits.max_oversize_bytes,
        limits.max_pdf_bytes,
        limits.max_office_bytes,
        limits.max_audio_bytes,
        limits.max_video_bytes,
    )
    try:
        data = opened.file.read(most + 1) if opened.size_bytes <= most else b""
    except OSError as error:
        raise Unreadable(
            f"{opened.path.name} cannot be read: {error.strerror}", name=opened.path.name, hint="Check the disk."
        ) from None
    if opened.size_bytes > most or len(data) > most:
        raise TooLarge(
            f"{opened.path.name} has {size_label(opened.size_bytes)}; at most {size_label(most)} are read",
            name=opened.path.name,
            hint="Search it, or split it into smaller files.",
        )
    return data


def is_sensitive(path: Path) -> bool:
    """Return whether a path has a usual name of keys, passwords or tokens, in any folder."""
    return is_sensitive_name(path.name) or has_sensitive_folder(path.parts[:-1])


def is_sensitive_name(name: str) -> bool:
    return _SENSITIVE_NAME.fullmatch(name.lower()) is not None


def has_sensitive_folder(parts: Iterable[str]) -> bool:
    return any(part.lower() in SENSITIVE_FOLDERS for part in parts)


def is_linked_secret(facts: os.stat_result, root: Path) -> bool:
    """Return whether a file is a hard link to a sensitive one of the workspace at `root` or of the home folder. Return
    True also if the workspace is too large to check."""
    if facts.st_nlink < 2 or stat.S_ISDIR(facts.st_mode):
        return False
    known = secret_inodes(root)
    return known is None or (facts.st_dev, facts.st_ino) in known


def secret_inodes(root: Path) -> frozenset[FileId] | None:
    """Return the files with sensitive names below `root` and in the usual places of the home folder, or None if there
    are too many entries to check."""
    cached = _inodes.get(root)
    now = time.monotonic()
    if cached is None or now - cached[0] > _INODES_SECONDS:
        _inodes.clear()
        cached = _inodes[root] = (now, _find_secret_inodes(root))
    return cached[1]


_inodes: dict[Path, tuple[float, frozenset[FileId] | None]] = {}


def _find_secret_inodes(root: Path) -> frozenset[FileId] | None:
    home = Path.home()
    places = [home / name for name in (*SENSITIVE_FOLDERS, *_OWN_FOLDERS)]
    found: set[FileId] = set()
    left = MAX_SEARCHED
    for start in (*places, root):
        for folder, folders, files in os.walk(start):
            folders[:] = [name for name in folders if name not in _UNSEARCHED]
            left -= len(files) + len(folders)
            if left < 0:
                return None
            hidden = has_sensitive_folder(Path(folder).parts)
            found |= _file_ids(folder, [name for name in files if hidden or is_sensitive_name(name)])
    with suppress(OSError):  # a home folder that does not exist contains nothing
        found |= _file_ids(str(home), [path.name for path in home.iterdir() if is_sensitive_name(path.name)])
    return frozenset(found)


def _file_ids(folder: str, names: Iterable[str]) -> set[FileId]:
    found: set[FileId] = set()
    for name in names:
        with suppress(OSError):  # deleted meanwhile
            facts = os.stat(os.path.join(folder, name))  # noqa: PTH116, PTH118  once per file: a Path is slow
            found.add((facts.st_dev, facts.st_ino))
    return found


def _true_path(descriptor: int, wanted: Path) -> Path:
    """Return the real path of an open file from the kernel; if that is not available, resolve the path and check that
    it is the same file."""
    link = f"/proc/self/fd/{descriptor}"
    if os.path.lexists(link):
        return Path(link).readlink()
    path = Path(os.path.realpath(wanted))
    if not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise Unreadable(f"{wanted.name} changed while it was opened", name=wanted.name, hint="Try again.")
    return path


def is_foreign(file: Path) -> bool:
    """Return whether a file belongs to another user of this machine, neither this one nor root. A file that does not
    exist belongs to no user; nothing is raised."""
    if os.name != "posix":
        return False
    try:
        return file.stat().st_uid not in (os.getuid(), 0)
    except OSError:
        return False
