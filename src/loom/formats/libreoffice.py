"""Office files through LibreOffice: to PDF, and legacy formats to current ones.

LibreOffice needs seconds to start and tenths of a second to convert a letter. So `OfficePrograms` keeps up to two
processes running: a process that has a document open stays, and executes what a second start with the same profile
would do. Each is replaced after a number of files, after a crash and at a deadline, and ends with the worker pool or
with this process.

LibreOffice follows links to templates, images and data, and could run macros. So each process gets a profile of its own
that forbids both, no network if the system permits removing it, an allow-list of environment variables, and limits of
memory and time; and it gets only files whose content matches their type (it would read HTML under any name).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from loom.content.media import size_label
from loom.errors import ExtraMissing, TooLarge, Unreadable, Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.worker import current_pool, environment
from loom.formats.worker.program import end_group, run_program

INSTALL_HINT: Final = "Install it: apt install libreoffice-writer libreoffice-impress libreoffice-calc"
PDF: Final = "application/pdf"
_OOXML: Final = "application/vnd.openxmlformats-officedocument"
_ODF: Final = "application/vnd.oasis.opendocument"
_XLSB: Final = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
MODERN: Final = {
    "application/msword": f"{_OOXML}.wordprocessingml.document",
    "application/vnd.ms-powerpoint": f"{_OOXML}.presentationml.presentation",
    "application/vnd.ms-excel": f"{_OOXML}.spreadsheetml.sheet",
    _XLSB: f"{_OOXML}.spreadsheetml.sheet",
    f"{_ODF}.spreadsheet": f"{_OOXML}.spreadsheetml.sheet",
}
"""The target type of a conversion for our own readers: always, or only if they refuse the original file."""

FOREIGN: Final = {
    "application/vnd.visio": PDF,
    "application/vnd.ms-publisher": PDF,
    f"{_ODF}.graphics": PDF,
    "application/vnd.sun.xml.draw": PDF,
    "application/vnd.sun.xml.writer": f"{_OOXML}.wordprocessingml.document",
    "application/vnd.sun.xml.calc": f"{_OOXML}.spreadsheetml.sheet",
    "application/vnd.sun.xml.impress": f"{_OOXML}.presentationml.presentation",
    f"{_ODF}.text-flat-xml": f"{_ODF}.text",
    f"{_ODF}.spreadsheet-flat-xml": f"{_ODF}.spreadsheet",
    f"{_ODF}.presentation-flat-xml": f"{_ODF}.presentation",
    "application/vnd.wordperfect": f"{_OOXML}.wordprocessingml.document",
    "application/vnd.ms-works": f"{_OOXML}.wordprocessingml.document",
    "application/x-mswrite": f"{_OOXML}.wordprocessingml.document",
    "application/x-hwp": f"{_OOXML}.wordprocessingml.document",
    "application/vnd.lotus-1-2-3": f"{_OOXML}.spreadsheetml.sheet",
    "application/x-quattro-pro": f"{_OOXML}.spreadsheetml.sheet",
}
"""Types that only LibreOffice reads, and their target types: text and sheets for our own readers, drawings as pages."""

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ZIP: Final = b"PK\x03\x04"
_FLAT: Final = (b"<?xml", b"\xef\xbb\xbf<?xml", b"<office:document")
_MEMORY_SHARE: Final = 4
"""The factor for the memory limit: LibreOffice maps 1.3 GB before it has read anything."""
_SIZE: Final = 2
"""Two processes, because one slow document must not delay the others."""
_MAX_FILES: Final = 50
_IDLE_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.02
_KEPT_OPEN: Final = "open.txt"
_LOCK_OF_OPEN: Final = ".~lock.open.txt#"
"""The lock of a document that stays open, because LibreOffice ends after a conversion if there is none. Its existence
means that LibreOffice is ready."""
_GUARDED: Final = """ulimit -v "$1"; ulimit -c 0; folder=$2; shift 2; exec 3<&0
(cat <&3 >/dev/null; rm -rf "$folder"; kill -9 0) &
"$@" 3<&- </dev/null & wait $!; kill -9 0"""
"""The shell ends LibreOffice when the pipe to this process closes, even after a crash, and ends itself when LibreOffice
ends."""


class _Source(NamedTuple):
    suffix: str
    magic: bytes | tuple[bytes, ...]


_SOURCES: Final = {
    "application/msword": _Source("doc", _OLE),
    "application/vnd.ms-powerpoint": _Source("ppt", _OLE),
    "application/vnd.ms-excel": _Source("xls", _OLE),
    f"{_OOXML}.wordprocessingml.document": _Source("docx", _ZIP),
    f"{_OOXML}.presentationml.presentation": _Source("pptx", _ZIP),
    f"{_OOXML}.spreadsheetml.sheet": _Source("xlsx", _ZIP),
    _XLSB: _Source("xlsb", _ZIP),
    f"{_ODF}.text": _Source("odt", _ZIP),
    f"{_ODF}.presentation": _Source("odp", _ZIP),
    f"{_ODF}.spreadsheet": _Source("ods", _ZIP),
    "application/rtf": _Source("rtf", b"{\\rtf"),
    "application/vnd.visio": _Source("vsd", _OLE),
    "application/vnd.ms-publisher": _Source("pub", _OLE),
    f"{_ODF}.graphics": _Source("odg", _ZIP),
    "application/vnd.sun.xml.draw": _Source("sxd", _ZIP),
    "application/vnd.sun.xml.writer": _Source("sxw", _ZIP),
    "application/vnd.sun.xml.calc": _Source("sxc", _ZIP),
    "application/vnd.sun.xml.impress": _Source("sxi", _ZIP),
    f"{_ODF}.text-flat-xml": _Source("fodt", _FLAT),
    f"{_ODF}.spreadsheet-flat-xml": _Source("fods", _FLAT),
    f"{_ODF}.presentation-flat-xml": _Source("fodp", _FLAT),
    "application/vnd.wordperfect": _Source("wpd", b"\xffWPC"),
    "application/vnd.ms-works": _Source("wps", _OLE),
    "application/x-mswrite": _Source("wri", (b"1\xbe\0\0", b"2\xbe\0\0")),
    "application/x-hwp": _Source("hwp", b"HWP Document File"),
    "application/vnd.lotus-1-2-3": _Source("123", (b"\0\0\2\0", b"\0\0\x1a\0")),
    "application/x-quattro-pro": _Source("wb2", b"\0\0\2\0"),
}

_SETTINGS: Final = (
    ("Office.Common/Security/Scripting", "BlockUntrustedRefererLinks", "true"),
    ("Office.Common/Security/Scripting", "DisableMacrosExecution", "true"),
    ("Office.Common/Security/Scripting", "MacroSecurityLevel", "3"),
    ("Office.Common/Security/Scripting", "DisableActiveContent", "true"),
    ("Office.Writer/Content/Update", "Link", "0"),
    ("Office.Calc/Content/Update", "Link", "2"),
    ("Office.Java/VirtualMachine", "Enable", "false"),
    ("Office.Common/Misc", "CrashReport", "false"),
)


def is_available() -> bool:
    """Return whether LibreOffice is installed."""
    return _soffice() is not None


def to_pdf(data: bytes, media_type: str, limits: IntakeLimits) -> bytes:
    """Return an office file as a PDF, with the pages as printed."""
    return _convert(data, media_type, "pdf", limits)


def to_office(data: bytes, media_type: str, target: str, limits: IntakeLimits) -> bytes:
    """Convert an office file to the media type `target`, for instance `MODERN[media_type]`."""
    if target not in _SOURCES:
        raise Unsupported(f"Office files are not converted to {target}.")
    return _convert(data, media_type, _SOURCES[target].suffix, limits)


def _convert(data: bytes, media_type: str, suffix: str, limits: IntakeLimits) -> bytes:
    source = _SOURCES.get(media_type)
    if source is None:
        raise Unsupported(f"{media_type} is not an office file that can be converted.")
    if not data.startswith(source.magic):
        raise Unreadable(f"The content is not that of a .{source.suffix} file.")
    if len(data) > limits.max_office_bytes:
        size, allowed = size_label(len(data)), size_label(limits.max_office_bytes)
        raise TooLarge(f"The file is {size}; the limit for office files is {allowed}.")
    program = _soffice()
    if program is None:
        raise ExtraMissing(f"Converting .{source.suffix} files needs LibreOffice.", hint=INSTALL_HINT)
    converted = current_pool().keep(OfficePrograms).convert(program, data, source.suffix, suffix, limits)
    if converted is None:
        raise Unreadable(
            f"LibreOffice could not convert the .{source.suffix} file.", hint="It may be damaged or encrypted."
        )
    return converted


class OfficePrograms:
    """The LibreOffice processes of a worker pool. Calls come from any thread; each borrows one process."""

    def __init__(self) -> None:
        self._slots = threading.Semaphore(_SIZE)
        self._lock = threading.Lock()
        self._idle: list[_WarmOffice] = []
        self._all: list[_WarmOffice] = []
        self._is_closed = False
        self._timer: threading.Timer | None = None

    def convert(self, program: str, data: bytes, suffix: str, target: str, limits: IntakeLimits) -> bytes | None:
        """Return the file as `target`, or None if LibreOffice wrote nothing. Raise `TooLarge` at the deadline.

        A process that has converted other files before may have failed because of them, so the conversion is retried in
        a new one.
        """
        with self._slots:
            deadline = time.monotonic() + limits.conversion_seconds
            office = self._take()
            if office is not None:
                result = self._convert_with(office, data, suffix, target, limits=limits, deadline=deadline)
                if result is not None or office.is_running:
                    return result
            memory_bytes = _MEMORY_SHARE * limits.worker_memory_bytes
            office = _WarmOffice(program, memory_bytes)
            with self._lock:
                self._all.append(office)
            return self._convert_with(office, data, suffix, target, limits=limits, deadline=deadline)

    def pids(self) -> tuple[int, ...]:
        """Return the process groups of the running processes."""
        with self._lock:
            return tuple(office.pid for office in self._all if office.is_running)

    def close(self) -> None:
        """End all processes, also those that are converting a file."""
        with self._lock:
            self._is_closed = True
            every, self._all, self._idle = self._all, [], []
            if self._timer is not None:
                self._timer.cancel()
        for office in every:
            office.end()

    def forget(self) -> None:
        """Release the processes in a fork: they belong to the parent."""
        for office in self._all:
            office.disown()
        self.__init__()

    def _take(self) -> _WarmOffice | None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return self._idle.pop() if self._idle else None

    def _convert_with(
        self, office: _WarmOffice, data: bytes, suffix: str, target: str, *, limits: IntakeLimits, deadline: float
    ) -> bytes | None:
        keep = False
        try:
            result = office.convert(data, suffix, target, limits.max_expanded_bytes, deadline)
            keep = office.is_running and office.files < _MAX_FILES
            return result
        except TimeoutError:
            seconds = f"{limits.conversion_seconds:g} s"
            raise TooLarge(f"Converting the .{suffix} file takes longer than {seconds}.") from None
        finally:
            with self._lock:
                keep = keep and not self._is_closed
                if keep:
                    self._idle.append(office)
                    self._timer = threading.Timer(_IDLE_SECONDS, self._end_idle)
                    self._timer.daemon = True
                    self._timer.start()
                elif office in self._all:
                    self._all.remove(office)
            if not keep:
                office.end()

    def _end_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
            self._all = [office for office in self._all if office not in idle]
        for office in idle:
            office.end()


class _WarmOffice:
    """One LibreOffice process with its own profile and folder, which are removed with it."""

    def __init__(self, program: str, memory_bytes: int) -> None:
        self.files = 0
        self._memory_bytes = memory_bytes
        self._folder = Path(tempfile.mkdtemp(prefix="loom-office-"))
        profile = self._folder / "profile"
        _write_profile(profile)
        (self._folder / _KEPT_OPEN).write_text("open")
        self._command = [
            *_without_network(),
            program,
            f"-env:UserInstallation={profile.as_uri()}",
            *("--headless", "--norestore", "--nolockcheck", "--nologo"),
        ]
        name = "".join(f"{byte:x}" for byte in hashlib.md5(profile.as_uri().encode("utf-16-le")).digest())  # noqa: S324 - the name that LibreOffice gives its socket, not a secret
        self._socket = f"OSL_PIPE_*_SingleOfficeIPC_{name}"
        limits = ["sh", str(memory_bytes // 1024), str(self._folder)]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARDED, *limits, *self._command, str(self._folder / _KEPT_OPEN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment() | {"HOME": str(self._folder), "TMPDIR": str(self._folder)},
            cwd=self._folder,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def convert(self, data: bytes, suffix: str, target: str, max_bytes: int, deadline: float) -> bytes | None:
        """Return the file that LibreOffice wrote; its exit code is always success. Raise TimeoutError at the
        `deadline`.

        If no LibreOffice is listening, the new process converts the file itself, which takes as long as a start.
        """
        patience = (time.monotonic() + deadline) / 2
        while self.is_running and not (self._folder / _LOCK_OF_OPEN).exists() and time.monotonic() < patience:
            time.sleep(_POLL_SECONDS)
        self.files += 1
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            document = Path(name, f"document.{suffix}")
            document.write_bytes(data)
            result = Path(name, "out", f"document.{target}")
            command = [*self._command, "--nodefault", "--convert-to", target, "--outdir", str(result.parent)]
            run_program(
                [*command, str(document)],
                folder=self._folder,
                memory_bytes=self._memory_bytes,
                seconds=max(0.1, deadline - time.monotonic()),
            )
            if not result.is_file() or result.stat().st_size == 0:
                return None
            if result.stat().st_size > max_bytes:
                size = size_label(result.stat().st_size)
                raise TooLarge(f"The converted .{suffix} file is too large ({size}).")
            return result.read_bytes()

    def end(self) -> None:
        end_group(self._process)
        self.disown()
        shutil.rmtree(self._folder, ignore_errors=True)
        for left in Path("/tmp").glob(self._socket):  # noqa: S108 - the path that LibreOffice uses
            left.unlink(missing_ok=True)

    def disown(self) -> None:
        """Close the pipe that keeps the process running, and drop a process that this one may not wait for."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.returncode = self._process.returncode or 0


def _soffice() -> str | None:
    return shutil.which("soffice") or shutil.which("libreoffice")


def _without_network() -> list[str]:
    """Return the command prefix that removes the network, or an empty list if the system does not permit that."""
    unshare = shutil.which("unshare")
    return _sandbox_command(unshare) if unshare else []


@cache
def _sandbox_command(unshare: str) -> list[str]:
    ways = [[unshare, "--net"]] if os.geteuid() == 0 else []
    for way in [
        *ways,
        [unshare, "--user", "--map-current-user", "--net"],
        [unshare, "--user", "--map-root-user", "--net"],
    ]:
        if subprocess.run([*way, "true"], check=False, capture_output=True, timeout=10).returncode == 0:
            return way
    return []


def _write_profile(profile: Path) -> None:
    items = "".join(
        f'<item oor:path="/org.openoffice.{path}"><prop oor:name="{name}" oor:op="fuse">'
        f"<value>{value}</value></prop></item>"
        for path, name, value in _SETTINGS
    )
    user = profile / "user"
    user.mkdir(parents=True)
    (user / "registrymodifications.xcu").write_text(
        '<?xml version="1.0" encoding="UTF-8"?><oor:items xmlns:oor="http://openoffice.org/2001/registry" '
        'xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        f"{items}</oor:items>"
    )
