"""Office files through LibreOffice: to PDF, and legacy formats to today's.

LibreOffice follows links to templates, pictures and data, and could run macros. So each conversion gets a profile of
its own that forbids both, no network where the system allows taking it away, a whitelist of variables, limits of
memory and time; and only files that are what their type says are given to it (it would read HTML under any name).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from loom.content.media import size_label
from loom.errors import ExtraMissing, TooLarge, Unreadable, Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.worker.program import run_program

INSTALL_HINT: Final = "Install it: apt install libreoffice-writer libreoffice-impress libreoffice-calc"
PDF: Final = "application/pdf"
_OOXML: Final = "application/vnd.openxmlformats-officedocument"
_ODF: Final = "application/vnd.oasis.opendocument"
MODERN: Final = {
    "application/msword": f"{_OOXML}.wordprocessingml.document",
    "application/vnd.ms-powerpoint": f"{_OOXML}.presentationml.presentation",
    "application/vnd.ms-excel": f"{_OOXML}.spreadsheetml.sheet",
}
"""What a legacy type is converted to, so that our own readers can read it."""

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ZIP: Final = b"PK\x03\x04"
_MEMORY_SHARE: Final = 4
"""LibreOffice maps 1.3 GB before it has read anything."""


class _Source(NamedTuple):
    suffix: str
    magic: bytes


_SOURCES: Final = {
    "application/msword": _Source("doc", _OLE),
    "application/vnd.ms-powerpoint": _Source("ppt", _OLE),
    "application/vnd.ms-excel": _Source("xls", _OLE),
    f"{_OOXML}.wordprocessingml.document": _Source("docx", _ZIP),
    f"{_OOXML}.presentationml.presentation": _Source("pptx", _ZIP),
    f"{_OOXML}.spreadsheetml.sheet": _Source("xlsx", _ZIP),
    f"{_ODF}.text": _Source("odt", _ZIP),
    f"{_ODF}.presentation": _Source("odp", _ZIP),
    f"{_ODF}.spreadsheet": _Source("ods", _ZIP),
    "application/rtf": _Source("rtf", b"{\\rtf"),
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
    """Return an office file as a PDF, page by page as it would be printed."""
    return _convert(data, media_type, "pdf", limits)


def to_office(data: bytes, media_type: str, target: str, limits: IntakeLimits) -> bytes:
    """Return an office file as another (`target` is a media type, for instance `MODERN[media_type]`)."""
    if target not in _SOURCES:
        raise Unsupported(f"Office files are not converted to {target}.")
    return _convert(data, media_type, _SOURCES[target].suffix, limits)


def _convert(data: bytes, media_type: str, suffix: str, limits: IntakeLimits) -> bytes:
    source = _SOURCES.get(media_type)
    if source is None:
        raise Unsupported(f"{media_type} is not an office file that can be converted.")
    if not data.startswith(source.magic):
        raise Unreadable(f"The file is not a .{source.suffix} file inside.")
    if len(data) > limits.max_office_bytes:
        size, allowed = size_label(len(data)), size_label(limits.max_office_bytes)
        raise TooLarge(f"The file is {size}; office files up to {allowed} are taken.")
    program = _soffice()
    if program is None:
        raise ExtraMissing(f"Converting .{source.suffix} files needs LibreOffice.", hint=INSTALL_HINT)
    with tempfile.TemporaryDirectory(prefix="loom-convert-") as name:
        folder = Path(name)
        document = folder / f"document.{source.suffix}"
        document.write_bytes(data)
        profile = folder / "profile"
        _write_profile(profile)
        result = folder / "out" / f"document.{suffix}"
        command = [
            *_without_network(),
            program,
            f"-env:UserInstallation={profile.as_uri()}",
            *("--headless", "--norestore", "--nolockcheck", "--nodefault", "--nologo"),
            *("--convert-to", suffix, "--outdir", str(result.parent), str(document)),
        ]
        _run(command, folder, source.suffix, limits)
        return _read(result, source.suffix, limits)


def _run(command: list[str], folder: Path, suffix: str, limits: IntakeLimits) -> None:
    memory_bytes = _MEMORY_SHARE * limits.worker_memory_bytes
    try:
        run_program(command, folder=folder, memory_bytes=memory_bytes, seconds=limits.conversion_seconds)
    except TimeoutError:
        raise TooLarge(f"Converting the .{suffix} file takes longer than {limits.conversion_seconds:g} s.") from None


def _read(result: Path, suffix: str, limits: IntakeLimits) -> bytes:
    """LibreOffice says success whatever happens: only the file that it wrote tells."""
    if not result.is_file() or result.stat().st_size == 0:
        raise Unreadable(f"LibreOffice could not convert the .{suffix} file.", hint="It may be damaged or encrypted.")
    if result.stat().st_size > limits.max_expanded_bytes:
        raise TooLarge(f"The .{suffix} file becomes {size_label(result.stat().st_size)} when it is converted.")
    return result.read_bytes()


def _soffice() -> str | None:
    return shutil.which("soffice") or shutil.which("libreoffice")


def _without_network() -> list[str]:
    """Return the command before the command that leaves it no network, or nothing where the system does not permit
    that."""
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
