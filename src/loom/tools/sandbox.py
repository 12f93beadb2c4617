"""The sandbox of programs that tools start: the workspace is writable, everything else is read-only, files that may
contain secrets are hidden, and there is no network unless it was approved.

Bubblewrap is used if it is installed: own view of the files, own processes, own network. Otherwise Landlock and seccomp
are used as far as the kernel supports them: the same files, no access to other processes, no sockets. `sandbox_state`
returns which one it is; if neither works, approvals mention it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from loom.errors import ToolError
from loom.tools import sandbox_launcher
from loom.tools.workspace import COMMAND_PLACES, SENSITIVE_FOLDERS, STARTER_FILES

SandboxKind: TypeAlias = Literal["bubblewrap", "landlock", "none"]
SandboxMode: TypeAlias = Literal["auto", "require", "off"]

_HIDDEN_IN_HOME: Final = (
    *SENSITIVE_FOLDERS,
    *(".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".config/gcloud", ".config/gh"),
    *(".config/loom", ".local/share/loom", ".local/state/loom", ".cache/loom", ".mozilla", ".config/chromium"),
    *(".config/google-chrome", ".local/share/keyrings", ".terraform.d", ".vault-token", ".bash_history"),
    *(".zsh_history", ".python_history", ".local/share/fish"),
)
_HIDDEN_IN_SYSTEM: Final = (
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    str(Path("/") / "root" / ".ssh"),
)
_PROTECTED: Final = (".git/hooks", *STARTER_FILES, *COMMAND_PLACES)
"""Paths below the workspace that must not be written, because their content is run outside the sandbox later."""
_KEPT_CAPABILITIES: Final = ("CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN")
"""The capabilities that root needs to write files of other users in the workspace."""
_PROCESS_LIMIT: Final = "{{ ulimit -u {0} || ulimit -p {0}; }} 2>/dev/null"
"""bash and dash have different options for it. Root has no such limit."""
_CHECK_SECONDS: Final = 10.0
_scratch_folders: Final[dict[Path, str]] = {}


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The user's settings, and the folders of Loom that no command may see."""

    mode: SandboxMode = "auto"
    network: bool = False
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    max_memory_bytes: int | None = None
    max_processes: int | None = 2_000
    max_file_bytes: int | None = None


class SandboxState(msgspec.Struct, frozen=True):
    """The sandbox that this machine supports, and the reason why there is no better one."""

    kind: SandboxKind
    detail: str


class SandboxedCommand(msgspec.Struct, frozen=True):
    """The command to start, and the descriptors that the child must inherit."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    descriptors: tuple[int, ...] = ()

    def close(self) -> None:
        """Close the descriptors in this process; the child has inherited them."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def sandbox_state() -> SandboxState:
    """Return which sandbox works here."""
    return _test_sandbox(shutil.which("bwrap"))


@cache
def _test_sandbox(bwrap: str | None) -> SandboxState:
    """Test what works, once for each program: an installed one may still be forbidden."""
    why = "bubblewrap is not installed (on Debian and Ubuntu: apt install bubblewrap)"
    if bwrap is not None:
        tried = [bwrap, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all", "true"]
        try:
            run = subprocess.run(tried, capture_output=True, timeout=_CHECK_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = f"bubblewrap cannot be started: {error}"
        else:
            if run.returncode == 0:
                return SandboxState("bubblewrap", f"{bwrap}: isolated files, processes and network")
            words = run.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            why = f"bubblewrap does not work here: {words or f'exit code {run.returncode}'}"
    if sys.platform == "linux" and (version := sandbox_launcher.landlock_version()) > 0:
        return SandboxState("landlock", f"Landlock {version} and seccomp; {why}")
    return SandboxState("none", f"{why}, and the kernel has no Landlock")


class Sandbox:
    """Wraps commands. Each workspace has its own folder for temporary files."""

    def __init__(self, settings: SandboxSettings | None = None, *, state: SandboxState | None = None) -> None:
        self.settings = settings or SandboxSettings()
        self._state = state

    @property
    def state(self) -> SandboxState:
        if self.settings.mode == "off":
            return SandboxState("none", "it is switched off (sandbox.mode)")
        return self._state or sandbox_state()

    @property
    def is_active(self) -> bool:
        return self.state.kind != "none"

    def describe(self, *, network: bool = False, unsandboxed: bool = False) -> str:
        """Return one sentence for the approval about what the command can access."""
        if unsandboxed:
            return "Outside the sandbox: it can read and change everything that you can."
        if not self.is_active:
            return f"Not sandboxed ({self.state.detail}): it can read and change everything that you can."
        reach = "network access" if network or self.settings.network else "no network"
        return f"Sandboxed: it writes only to the workspace, sees no keys, {reach}."

    def wrap(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        network: bool = False,
        unsandboxed: bool = False,
        is_server: bool = False,
    ) -> SandboxedCommand:
        """Return the command to start for `command` in `folder`, which it may write. Raise ToolError if a sandbox is
        required and impossible."""
        if unsandboxed or not self.is_active:
            if self.settings.mode == "require" and not unsandboxed:
                raise ToolError(
                    f"sandbox.mode requires a sandbox, and none is available: {self.state.detail}",
                    hint="Install bubblewrap, or set sandbox.mode.",
                )
            return SandboxedCommand(tuple(command), {})
        network = network or self.settings.network
        root = Path(os.path.realpath(folder))
        if not root.is_dir():
            raise ToolError(f"{command[0]} cannot be started: {folder} is not a folder")
        scratch = _scratch_folder(root)
        limited = command if is_server else self._add_limits(command)
        if self.state.kind == "bubblewrap":
            return self._with_bubblewrap(limited, root, scratch, network=network)
        return self._with_landlock(limited, root, scratch, network=network)

    def _add_limits(self, command: Sequence[str]) -> tuple[str, ...]:
        settings = self.settings
        limits = [
            *([f"ulimit -v {settings.max_memory_bytes // 1024}"] if settings.max_memory_bytes else []),
            *([f"ulimit -f {settings.max_file_bytes // 512}"] if settings.max_file_bytes else []),
            *([_PROCESS_LIMIT.format(settings.max_processes)] if settings.max_processes else []),
        ]
        if not limits:
            return tuple(command)
        return ("/bin/sh", "-c", "; ".join([*limits, 'exec "$@"']), "sh", *command)

    def hidden_paths(self) -> tuple[Path, ...]:
        """Return the existing paths that no command may read."""
        home = Path.home()
        wanted = [*(home / name for name in _HIDDEN_IN_HOME), *map(Path, _HIDDEN_IN_SYSTEM), *self.settings.hidden]
        real = {Path(os.path.realpath(path)) for path in wanted if os.path.lexists(path)}
        return tuple(sorted(path for path in real if not any(parent in real for parent in path.parents)))

    def _writable_paths(self, root: Path) -> list[Path]:
        given = [Path(os.path.realpath(path.expanduser())) for path in self.settings.writable]
        return [root, *(path for path in given if path.exists())]

    def _with_bubblewrap(self, command: Sequence[str], root: Path, scratch: str, *, network: bool) -> SandboxedCommand:
        argv = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--unshare-all"]
        argv += ["--share-net"] if network else []
        if os.geteuid() == 0:
            argv += ["--cap-drop", "ALL"]
            for capability in _KEPT_CAPABILITIES:
                argv += ["--cap-add", capability]
        argv += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", scratch, "/tmp"]  # noqa: S108  inside it is ours alone
        argv += ["--tmpfs", "/run", "--tmpfs", "/dev/shm"]  # noqa: S108  as above
        resolver = os.path.realpath("/etc/resolv.conf")
        if network and resolver.startswith("/run/") and os.path.exists(resolver):  # noqa: PTH110  text is compared too
            argv += ["--ro-bind", resolver, resolver]
        writable = self._writable_paths(root)
        for path in self.hidden_paths():
            if path in writable:
                continue  # the workspace and other writable folders are not hidden
            argv += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
        for path in writable:
            argv += ["--bind", str(path), str(path)]
        for path in self.hidden_paths():
            if any(path.is_relative_to(kept) and path != kept for kept in writable):
                argv += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
        for path in (root / name for name in _PROTECTED):
            if path.exists() and not (path.is_symlink() or path.parent.is_symlink()):
                # The folder is mounted, too, so that it cannot be renamed and created again.
                argv += ["--bind", str(path.parent), str(path.parent)] if path.parent != root else []
                argv += ["--ro-bind", str(path), str(path)]
        program = sandbox_launcher.filter_program(network=True)  # the network is a namespace here
        descriptors = (_open_in_memory(program),) if program else ()
        for descriptor in descriptors:
            argv += ["--seccomp", str(descriptor)]
        argv += ["--chdir", str(root), "--", *command]
        return SandboxedCommand(tuple(argv), _private_variables("/tmp"), descriptors)  # noqa: S108  as above

    def _with_landlock(self, command: Sequence[str], root: Path, scratch: str, *, network: bool) -> SandboxedCommand:
        readable, listable = _readable_paths(self.hidden_paths())
        devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"]
        plan = {
            "command": list(command),
            "network": network,
            "readable": [*readable, "/proc"],
            "listable": listable,
            "writable": [*map(str, self._writable_paths(root)), scratch, *devices],
        }
        descriptor = _open_in_memory(msgspec.json.encode(plan))
        launcher = (sys.executable, "-I", "-S", sandbox_launcher.__file__, str(descriptor))
        return SandboxedCommand(launcher, _private_variables(scratch), (descriptor,))


def _scratch_folder(root: Path) -> str:
    """Return the folder for temporary files of commands in the workspace `root`. It is one for all sandboxes of the
    process, and created again if it was removed: some systems empty `/tmp` while a daemon runs."""
    found = _scratch_folders.get(root)
    if found is None or not os.path.isdir(found):  # noqa: PTH112  a plain string for argv
        if not _scratch_folders:
            atexit.register(_remove_scratch_folders)
        found = _scratch_folders[root] = tempfile.mkdtemp(prefix="loom-commands-")
    return found


def _remove_scratch_folders() -> None:
    while _scratch_folders:
        shutil.rmtree(_scratch_folders.popitem()[1], ignore_errors=True)


def _open_in_memory(data: bytes) -> int:
    """Return the descriptor of a memory file with `data`. An argument of a program is limited to 128 kB, and a plan
    lists every neighbour of a hidden path: a home folder or a `/tmp` with a few thousand entries is longer than
    that."""
    with os.fdopen(os.memfd_create("loom-sandbox", 0), "r+b", closefd=False) as file:
        file.write(data)
        file.seek(0)
        return file.fileno()


def _private_variables(folder: str) -> dict[str, str]:
    """Return variables for private caches, since a command may not write those of the home folder."""
    cache_folder = f"{folder}/.cache"
    return {"TMPDIR": folder, "XDG_CACHE_HOME": cache_folder, "npm_config_cache": f"{cache_folder}/npm"}


def _readable_paths(hidden: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return the whole file system except the hidden paths, as paths to read and to list: Landlock supports only
    permissions. Folders above a hidden path can be listed, and its siblings are allowed one by one."""
    above = {parent for path in hidden for parent in path.parents} | {Path("/")}
    readable: list[str] = []
    for folder in above:
        try:
            entries = list(os.scandir(folder))
        except OSError:  # not readable for this user anyway
            continue
        readable += [
            entry.path
            for entry in entries
            if Path(entry.path) not in above
            and Path(entry.path) not in hidden
            and entry.path != "/proc"
            and not entry.is_symlink()  # the target of a link is allowed where it is, or not at all
        ]
    return readable, [str(folder) for folder in above]


def disable_memory_dumps() -> None:
    """Prevent other processes of this user from reading the memory and environment of this one through /proc."""
    if sys.platform == "linux":
        sandbox_launcher.libc().prctl(sandbox_launcher.PR_SET_DUMPABLE, 0, 0, 0, 0)
