"""What the doctor looks at. Each check gives findings; what is missing names the command that changes it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Final, Literal

import msgspec

from loom.cli import terminal_images
from loom.cli.models import service_without_key
from loom.cli.session_lookup import all_sessions
from loom.cli.terminal import sentence
from loom.config import Config, load_config
from loom.config.key_file import keys_file
from loom.content.media import size_label
from loom.errors import LoomError
from loom.formats import ocr
from loom.providers.catalog import key_env
from loom.runtime import FIRST_CHOICES, UNMATCHED_RULE, Runtime, key_for
from loom.runtime.servers import sandbox_for
from loom.store.session_rows import StoredSession
from loom.tools.number_text import count_text

_EXTRAS: Final = {
    "heif": ("pillow_heif", "HEIC pictures"),
    "svg": ("resvg_py", "SVG rendered as images"),
    "s3": ("obstore", "media in a bucket"),
    "postgres": ("psycopg", "PostgreSQL"),
    "bedrock": ("botocore", "Amazon Bedrock"),
    "browser": ("playwright", "screenshots of web pages"),
}
_MANY: Final = 20
BACKUP: Final = "loom restore puts a backup in its place"


class Finding(msgspec.Struct, frozen=True):
    name: str
    state: Literal["ok", "open", "warning", "problem"]
    text: str
    fix: str = ""


def python() -> Finding:
    text = f"{platform.python_version()} on {platform.system()}"
    return Finding("python", "ok", text) if sys.version_info >= (3, 11) else Finding("python", "problem", text)


def configuration(*, fix: bool) -> list[Finding]:
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


def sandbox(config: Config) -> Finding:
    """What commands and MCP servers are fenced in with."""
    found = sandbox_for(config).state
    if found.kind == "bubblewrap":
        return Finding("sandbox", "ok", found.detail)
    if found.kind == "landlock":
        return Finding("sandbox", "ok", found.detail, "install bubblewrap for own processes and network")
    return Finding("sandbox", "warning", f"commands are not sandboxed: {found.detail}", "install bubblewrap")


async def rules(runtime: Runtime) -> list[Finding]:
    """Approval rules that match no tool: a rule that denies nothing is worse than none."""
    await runtime.mcp.wait_ready()
    return [
        Finding("rules", "warning", UNMATCHED_RULE.format(pattern), "loom mcp list shows the tools of MCP servers")
        for pattern in runtime.unmatched_rules()
    ]


async def store(runtime: Runtime, *, fix: bool) -> list[Finding]:
    """The database's own check, then every message hashed again and its media looked for."""
    salvage = "loom doctor --fix saves what can be read in a new store"
    broken = [Finding("store", "problem", text, salvage) for text in await runtime.database.check()]
    verified = await runtime.forest.verify(exists=runtime.media.exists)
    for problem in verified.problems[:_MANY]:
        state = "warning" if problem.what == "media" else "problem"
        text = f"{problem.node_id.rpartition(':')[2][:12]}: {problem.text}"
        broken.append(Finding("store", state, text, "models get its text instead" if state == "warning" else BACKUP))
    if len(verified.problems) > _MANY:
        broken.append(Finding("store", "problem", f"and {len(verified.problems) - _MANY} more"))
    sessions = [session async for session in all_sessions(runtime)]
    for session in sessions:
        if session.damage:
            broken.append(await _record(runtime, session, fix=fix))
        elif any(problem.what != "media" for problem in verified.problems):
            broken += await _path(runtime, session, fix=fix)
    where = _display_path(runtime.config.data_folder()) if not runtime.config.store.url else runtime.database.label
    if fix:
        await runtime.derived.trim()
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
        await runtime.sessions.mend(session.id)
    except LoomError as error:
        return Finding("store", "problem", error.message, BACKUP)
    return Finding("store", "warning", f"The record of session {session.id} was damaged; its settings were reset")


async def _path(runtime: Runtime, session: StoredSession, *, fix: bool) -> list[Finding]:
    """A session with damage above its head can be read, and go on, from the last sound message. Nothing is deleted."""
    try:
        end = await runtime.forest.last_valid_node(session.head_id)
    except LoomError as error:
        return [Finding("store", "problem", f"Session {session.id}: {error.message}", BACKUP)]
    if end == session.head_id:
        return []
    last = end.rpartition(":")[2][:12]
    if not fix:
        text = f"Session {session.id} cannot be read beyond {last}"
        return [Finding("store", "problem", text, "loom doctor --fix continues it from there")]
    await runtime.sessions.move_head(session.id, session.head_id, end)
    return [Finding("store", "warning", f"Session {session.id} continues from {last}; later messages are kept")]


async def media(runtime: Runtime) -> list[Finding]:
    """Every byte is read again: what the store holds is what was put."""
    count = size = 0
    damaged: list[Finding] = []
    async for stored in runtime.media.listing():
        count += 1
        size += stored.size_bytes
        try:
            async for _ in runtime.media.read_blocks(stored.digest):
                pass
        except LoomError as error:
            damaged.append(Finding("media", "problem", error.message, "attach the file again; it is matched by digest"))
    return damaged[:_MANY] or [
        Finding("media", "ok", f"{count_text(count, 'file')}, {size_label(size)}, all digests valid")
    ]


async def models(runtime: Runtime) -> list[Finding]:
    found = [_answering(runtime, await runtime.default_model()), Finding("spark", "ok", "built in")]
    for service in FIRST_CHOICES:
        if key_for(service, runtime.config):
            found.append(Finding(service, "ok", "has a key"))
        else:
            found.append(Finding(service, "open", "no key", f"loom keys set {service}, or {key_env(service)}"))
    servers = await runtime.local_servers()
    found += [
        Finding(server.kind, "ok", f"{count_text(len(server.models), 'model')} at {server.base_url}")
        for server in servers
    ]
    return found if servers else [*found, Finding("ollama", "open", "not running", "https://ollama.com")]


def _answering(runtime: Runtime, name: str) -> Finding:
    """Who answers where nobody is named, if there is such a model and its service has a key."""
    try:
        service = service_without_key(runtime.model(name), runtime.config)
    except LoomError as error:
        return Finding("model", "problem", sentence(error), "loom models default MODEL")
    if service:
        return Finding("model", "open", f"{name} has no key", f"loom keys set {service}")
    return Finding("model", "ok", f"{name} answers")


def formats() -> list[Finding]:
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


def extras() -> list[Finding]:
    return [
        Finding(extra, "ok", what)
        if importlib.util.find_spec(package)
        else Finding(extra, "open", what, f"pip install 'loom-runtime[{extra}]'")
        for extra, (package, what) in _EXTRAS.items()
    ]


def terminal() -> list[Finding]:
    try:
        chosen = terminal_images.protocol()
    except LoomError as error:
        return [Finding("terminal", "problem", str(error))]
    if chosen == "off":
        return [Finding("terminal", "open", "images shown as labels", "LOOM_IMAGES=halfcell, sixel, kitty or iterm2")]
    return [Finding("terminal", "ok", f"pictures: {chosen}")]


def clipboard() -> Finding:
    """What /paste needs. Pillow asks these programs; on other systems it needs none."""
    if sys.platform != "linux":
        return Finding("clipboard", "ok", "images can be pasted")
    if os.environ.get("SSH_CONNECTION") or not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return Finding("clipboard", "open", "none here", "scp the file and @mention it, or loom web --lan")
    wanted, package = ("wl-paste", "wl-clipboard") if os.environ.get("WAYLAND_DISPLAY") else ("xclip", "xclip")
    if shutil.which(wanted):
        return Finding("clipboard", "ok", f"images can be pasted ({wanted})")
    return Finding("clipboard", "warning", "images cannot be pasted", f"install {package}")


async def daemon(config: Config) -> Finding:
    from loom.client import find

    found = await find(config)
    if found is None:
        return Finding("daemon", "open", "not running", "loom serve, or loom service install")
    await found.close()
    return Finding("daemon", "ok", f"runs at {found.url}")


def _display_path(folder: Path) -> str:
    try:
        return f"~/{folder.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(folder)
