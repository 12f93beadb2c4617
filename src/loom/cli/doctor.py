"""`loom doctor`: check the setup and the store, or a foreign transcript, and repair what can be repaired."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shlex
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

import click
import msgspec

from loom.cli.import_ import import_summary, path_with_name, print_import
from loom.cli.models import service_without_key
from loom.cli.shared import terminal_images
from loom.cli.shared.exit_codes import FAILED, exit_code
from loom.cli.shared.terminal import print_line, safe_text, sentence
from loom.cli.store import hold_store_alone, store_file
from loom.config import Config, load_config
from loom.config.key_file import keys_file
from loom.content.media import size_label
from loom.content.messages import media_of
from loom.errors import Corrupt, LoomError
from loom.formats import ocr
from loom.providers.catalog import key_env
from loom.runtime import FIRST_CHOICES, Runtime, key_for
from loom.runtime.clipboard import clipboard_program, missing_clipboard_hint
from loom.runtime.plugins import installed_plugins
from loom.runtime.servers import sandbox_for
from loom.runtime.session_factory import UNMATCHED_RULE
from loom.runtime.transcripts import Transcript, read_transcripts
from loom.store.backup import move_aside
from loom.store.media import open_media
from loom.store.salvage import SalvageReport, salvage
from loom.store.session_rows import StoredSession
from loom.tools.number_text import count_text

_GLYPHS = {"ok": "✔", "open": "○", "warning": "!", "problem": "✖"}


@click.command("doctor")
@click.argument("transcripts", nargs=-1, metavar="[TRANSCRIPT]...")
@click.option("--fix", is_flag=True, help="Repair what can be repaired; a transcript becomes a session.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def doctor_command(transcripts: tuple[str, ...], fix: bool, as_json: bool) -> int:
    """Check the setup and the store. With TRANSCRIPT, check a conversation of another program.

    ✔ works  ○ not installed, with the command that adds it  ! warning  ✖ broken
    """
    if transcripts:
        return asyncio.run(_transcripts(transcripts, fix, as_json))
    return asyncio.run(_set_up(fix, as_json))


async def _set_up(fix: bool, as_json: bool) -> int:
    findings = [check_python(), *check_configuration(fix=fix)]
    try:
        findings += await salvage_store(load_config(), fix=fix)
        async with Runtime.open() as runtime:
            findings += [
                *await check_store(runtime, fix=fix),
                *await check_media(runtime),
                *await check_models(runtime),
                check_sandbox(runtime.config),
                *await check_rules(runtime),
                await check_daemon(runtime.config),
            ]
    except LoomError as error:
        if isinstance(error, Corrupt):
            step = BACKUP if fix else "loom doctor --fix saves what can be read in a new store"
            findings.append(Finding("store", "problem", error.message, step))
        elif any(found.name == "config" and found.state == "problem" for found in findings):
            findings.append(Finding("store", "warning", "not checked: the configuration is invalid"))
        else:
            findings.append(Finding("store", "problem", sentence(error)))
    findings += [
        *check_formats(),
        *check_plugins(),
        *check_extras(),
        *check_terminal(),
        check_clipboard(),
    ]
    for finding in findings:
        click.echo(msgspec.json.encode(finding) if as_json else _row(finding))
    return FAILED if any(finding.state == "problem" for finding in findings) else 0


def _row(finding: Finding) -> str:
    fix = f"  → {finding.fix}" if finding.fix else ""
    return f"{_GLYPHS[finding.state]} {finding.name:<12} {safe_text(finding.text)}{fix}"


async def _transcripts(names: tuple[str, ...], fix: bool, as_json: bool) -> int:
    code = 0
    for name in names:
        file = path_with_name(name)
        try:
            if fix:
                async with Runtime.open() as runtime:
                    await print_import(runtime, file, as_json)
            else:
                for found in await _read_transcripts(file):
                    click.echo(_diagnosis_json(file, found) if as_json else _diagnosis(file, found))
                    code = code or (FAILED if found.repairs or not found.messages else 0)
        except LoomError as error:
            code = exit_code(error)
            print_line(import_summary(file.name, error))
    return code


async def _read_transcripts(file: Path) -> list[Transcript]:
    """Read a transcript with a temporary media store, so that nothing is stored."""
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        return await read_transcripts(file, open_media(Path(folder)), limits=load_config().media_limits())


def _diagnosis(file: Path, found: Transcript) -> str:
    media = {medium.digest: medium for message in found.messages for medium in media_of(message)}
    size = (
        f", {count_text(len(media), 'medium', 'media')} ({size_label(sum(m.size_bytes for m in media.values()))})"
        if media
        else ""
    )
    head = f"{safe_text(file.name)} ({found.kind}): {count_text(len(found.messages), 'message')}{size}"
    repairs = [f"  ~ {safe_text(notice)}" for notice in found.repairs]
    if not found.messages:
        return "\n".join([f"! {head}, nothing to import", *repairs])
    if not repairs:
        return f"✔ {head}, nothing to repair"
    return "\n".join([f"! {head}", *repairs, f"  → loom doctor --fix {shlex.quote(str(file))}"])


def _diagnosis_json(file: Path, found: Transcript) -> bytes:
    return msgspec.json.encode(
        {
            "file": file.name,
            "kind": found.kind,
            "messages": len(found.messages),
            "repairs": found.repairs,
        }
    )


async def salvage_store(config: Config, *, fix: bool) -> list[Finding]:
    """With `fix`, replace a damaged SQLite store by a new one with everything that could be saved."""
    file = store_file(config)
    if not fix or file is None or not await asyncio.to_thread(_is_damaged, file):
        return []
    async with hold_store_alone(config):
        fresh = file.with_name(f"{file.name}.salvaged")
        for suffix in ("", "-wal", "-shm"):
            fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
        report = await asyncio.to_thread(salvage, file, fresh)
        aside = await asyncio.to_thread(move_aside, file, "damaged")
        await asyncio.to_thread(fresh.rename, file)
    return [Finding("store", "warning", _describe_salvage(report, aside))]


def _describe_salvage(report: SalvageReport, aside: Path) -> str:
    sessions = count_text(report.sessions, "session")
    if report.recovered_sessions:
        sessions += f" and {count_text(report.recovered_sessions, 'conversation')} without a record"
    lost = f"; {count_text(report.notes, 'lost message')} marked in place" if report.notes else ""
    rows = count_text(sum(report.rows.values()), "other row")
    return (
        f"The database was damaged. Saved in a new one: {sessions}, {count_text(report.messages, 'message')}, {rows}"
        f"{lost}. The damaged file is kept as {aside.name}"
    )


def _is_damaged(file: Path) -> bool:
    """Return whether SQLite itself reports the file as damaged; a missing or empty file is not."""
    if not file.is_file() or not file.stat().st_size:
        return False
    try:
        with closing(sqlite3.connect(file, timeout=5)) as connection:
            return connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]
    except UnicodeDecodeError:
        return True
    except sqlite3.DatabaseError as error:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


_EXTRAS: Final = {
    "heif": ("pillow_heif", "HEIC images"),
    "svg": ("resvg_py", "SVG rendered as images"),
    "s3": ("obstore", "media in a bucket"),
    "postgres": ("psycopg", "PostgreSQL"),
    "bedrock": ("botocore", "Amazon Bedrock"),
    "browser": ("playwright", "screenshots of web pages"),
}
_MANY: Final = 20
BACKUP: Final = "restore a backup: loom restore FOLDER"


def check_plugins() -> list[Finding]:
    """Return a finding for each plugin of an installed package."""
    return [
        Finding("plugin", "problem", f"{found.group} {found.name} ({found.package}): {found.problem}")
        if found.problem
        else Finding("plugin", "ok", f"{found.group} {found.name} ({found.package})")
        for found in installed_plugins()
    ]


class Finding(msgspec.Struct, frozen=True):
    name: str
    state: Literal["ok", "open", "warning", "problem"]
    text: str
    fix: str = ""


def check_python() -> Finding:
    text = f"{platform.python_version()} on {platform.system()}"
    return Finding("python", "ok", text) if sys.version_info >= (3, 11) else Finding("python", "problem", text)


def check_configuration(*, fix: bool) -> list[Finding]:
    file = keys_file()
    mended: list[Finding] = []
    if fix and os.name == "posix" and file.is_file() and file.stat().st_mode & 0o077:
        file.chmod(0o600)
        mended.append(Finding("keys", "ok", "keys.toml was readable by others; set to 0600"))
    try:
        warnings = load_config().warnings
    except LoomError as error:
        return [*mended, Finding("config", "problem", str(error))]
    return [*mended, *(Finding("config", "warning", warning) for warning in warnings)] or [
        Finding("config", "ok", "valid, no unknown keys")
    ]


def check_sandbox(config: Config) -> Finding:
    """Return which sandbox commands and MCP servers run in."""
    found = sandbox_for(config).state
    if found.kind == "bubblewrap":
        return Finding("sandbox", "ok", found.detail)
    if found.kind == "landlock":
        return Finding("sandbox", "ok", found.detail, "install bubblewrap to isolate processes and network")
    return Finding("sandbox", "warning", f"commands are not sandboxed: {found.detail}", "install bubblewrap")


async def check_rules(runtime: Runtime) -> list[Finding]:
    """Return approval rules that match no tool: a rule that has no effect is worse than none."""
    await runtime.mcp.wait_ready()
    return [
        Finding("rules", "warning", UNMATCHED_RULE.format(pattern), "loom mcp list shows the tools of MCP servers")
        for pattern in runtime.sessions.unmatched_rules()
    ]


async def check_store(runtime: Runtime, *, fix: bool) -> list[Finding]:
    """Check the database, the hashes of all messages and that their media exist; with `fix`, repair sessions."""
    salvage = "loom doctor --fix saves what can be read in a new store"
    broken = [Finding("store", "problem", text, salvage) for text in await runtime.stores.database.check()]
    verified = await runtime.stores.forest.verify(exists=runtime.stores.media.exists)
    for problem in verified.problems[:_MANY]:
        state = "warning" if problem.what == "media" else "problem"
        text = f"{problem.node_id.rpartition(':')[2][:12]}: {problem.text}"
        broken.append(Finding("store", state, text, "models get its text instead" if state == "warning" else BACKUP))
    if len(verified.problems) > _MANY:
        broken.append(Finding("store", "problem", f"and {len(verified.problems) - _MANY} more"))
    sessions = [session async for session in runtime.stores.sessions.list_all()]
    for session in sessions:
        if session.damage:
            broken.append(await _record(runtime, session, fix=fix))
        elif any(problem.what != "media" for problem in verified.problems):
            broken += await _path(runtime, session, fix=fix)
    where = (
        _display_path(runtime.config.data_folder()) if not runtime.config.store.url else runtime.stores.database.label
    )
    if fix:
        await runtime.stores.derived.trim()
    return broken or [
        Finding(
            "store",
            "ok",
            f"{where} ({count_text(len(sessions), 'session')}, {count_text(verified.nodes, 'node')}, all hashes valid)",
        )
    ]


async def _record(runtime: Runtime, session: StoredSession, *, fix: bool) -> Finding:
    if not fix:
        return Finding("store", "problem", session.damage, "loom doctor --fix resets it; messages are kept")
    try:
        await runtime.stores.sessions.repair(session.id)
    except LoomError as error:
        return Finding("store", "problem", error.message, BACKUP)
    return Finding("store", "warning", f"The record of session {session.id} was damaged; its settings were reset")


async def _path(runtime: Runtime, session: StoredSession, *, fix: bool) -> list[Finding]:
    """Check the path of a session. With `fix`, move its head to the last valid message before the damage; nothing is
    deleted."""
    try:
        end = await runtime.stores.forest.last_valid_node(session.head_id)
    except LoomError as error:
        return [Finding("store", "problem", f"Session {session.id}: {error.message}", BACKUP)]
    if end == session.head_id:
        return []
    last = end.rpartition(":")[2][:12]
    if not fix:
        text = f"Session {session.id} cannot be read beyond {last}"
        return [Finding("store", "problem", text, "loom doctor --fix continues it from there")]
    await runtime.stores.sessions.move_head(session.id, session.head_id, end)
    return [Finding("store", "warning", f"Session {session.id} continues from {last}; later messages are kept")]


async def check_media(runtime: Runtime) -> list[Finding]:
    """Read all media again and compare their digests."""
    count = size = 0
    damaged: list[Finding] = []
    async for stored in runtime.stores.media.listing():
        count += 1
        size += stored.size_bytes
        try:
            async for _ in runtime.stores.media.read_blocks(stored.digest):
                pass
        except LoomError as error:
            damaged.append(Finding("media", "problem", error.message, "attach the file again; it is matched by digest"))
    return damaged[:_MANY] or [
        Finding("media", "ok", f"{count_text(count, 'file')}, {size_label(size)}, all digests valid")
    ]


async def check_models(runtime: Runtime) -> list[Finding]:
    found = [_check_default_model(runtime, await runtime.models.default()), Finding("spark", "ok", "built in")]
    for service in FIRST_CHOICES:
        if key_for(service, runtime.config):
            found.append(Finding(service, "ok", "has a key"))
        else:
            found.append(Finding(service, "open", "no key", f"loom keys set {service}, or {key_env(service)}"))
    servers = await runtime.models.local_servers()
    found += [
        Finding(server.kind, "ok", f"{count_text(len(server.models), 'model')} at {server.base_url}")
        for server in servers
    ]
    return found if servers else [*found, Finding("ollama", "open", "not running", "https://ollama.com")]


def _check_default_model(runtime: Runtime, name: str) -> Finding:
    """Return whether the default model exists and has a key."""
    try:
        service = service_without_key(runtime.models.resolve(name), runtime.config)
    except LoomError as error:
        return Finding("model", "problem", sentence(error), "loom models default MODEL")
    if service:
        return Finding("model", "open", f"{name} has no key", f"loom keys set {service}")
    return Finding("model", "ok", f"{name} answers")


def check_formats() -> list[Finding]:
    found = [Finding("pdf", "ok", "read and rendered by pdfium")]
    engine = ocr.is_available()
    if engine:
        found.append(Finding("ocr", "ok", engine))
    else:
        found.append(Finding("ocr", "open", "text in images is not read", "pip install 'loom-runtime[ocr]'"))
    office = shutil.which("soffice") or shutil.which("libreoffice")
    if office:
        found.append(Finding("libreoffice", "ok", "office files are rendered and legacy formats converted"))
    else:
        text = "office files are read as text; pages are not rendered"
        found.append(Finding("libreoffice", "open", text, "install LibreOffice"))
    return found


def check_extras() -> list[Finding]:
    return [
        Finding(extra, "ok", what)
        if importlib.util.find_spec(package)
        else Finding(extra, "open", what, f"pip install 'loom-runtime[{extra}]'")
        for extra, (package, what) in _EXTRAS.items()
    ]


def check_terminal() -> list[Finding]:
    try:
        chosen = terminal_images.choose_protocol()
    except LoomError as error:
        return [Finding("terminal", "problem", str(error))]
    if chosen == "off":
        return [Finding("terminal", "open", "images shown as labels", "LOOM_IMAGES=halfcell, sixel, kitty or iterm2")]
    return [Finding("terminal", "ok", f"images: {chosen}")]


def check_clipboard() -> Finding:
    """Return whether images can be pasted. Only Linux needs a program for it."""
    if sys.platform != "linux":
        return Finding("clipboard", "ok", "images can be pasted")
    if program := clipboard_program():
        return Finding("clipboard", "ok", f"images can be pasted ({program})")
    has_desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return Finding("clipboard", "warning" if has_desktop else "open", "none here", missing_clipboard_hint())


async def check_daemon(config: Config) -> Finding:
    from loom.client import local_client
    from loom.daemon.serve import unresponsive_daemon

    found = await local_client(config)
    if found is None and (pid := unresponsive_daemon(config)) is not None:
        return Finding("daemon", "warning", f"pid {pid} does not respond", "loom stop")
    if found is None:
        return Finding("daemon", "open", "not running", "loom serve, or loom service install")
    await found.close()
    return Finding("daemon", "ok", f"running at {found.url}")


def _display_path(folder: Path) -> str:
    try:
        return f"~/{folder.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(folder)
