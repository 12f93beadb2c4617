"""screenshot: a web page as a real browser shows it."""

from __future__ import annotations

import asyncio
import importlib.util
import mimetypes
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from loom.content.blocks import ContentBlock, TextBlock
from loom.errors import ExtraMissing, MediaError, ToolError, Unreadable, Unsupported
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import SVG
from loom.formats.text import encoding_of
from loom.struct_types import decode_json
from loom.tools.base import Tool, ToolContext
from loom.tools.egress import Egress, destination_of, is_address, is_this_machine
from loom.tools.processes import start_program
from loom.tools.proxy import FILES_HOST, GuardProxy, ServeFile, guard_proxy
from loom.tools.screenshot_job import FACTS, PICTURE, ScreenshotJob, ScreenshotResult
from loom.tools.workspace import open_file, visible_name

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
DEADLINE_SECONDS: Final = 60.0
MAX_HEIGHT_PX: Final = 8_000
_LOAD_SECONDS: Final = 20.0
_CONNECT_SECONDS: Final = 3.0
_WIDTHS: Final = (200, 3_840)
_HEIGHTS: Final = (200, 4_320)
_PLACE_CHARS: Final = 40
_SERVED_BYTES: Final = 20_000_000
_HEAD_BYTES: Final = 65_536
_MAX_OUTPUT_BYTES: Final = 65_536
_OUTPUT_SECONDS: Final = 0.2
_HOST: Final = re.compile(r"(?:localhost|\d+\.\d+\.\d+\.\d+)(?::\d+)?(?:/|$)")
_EXTRA: Final = "pip install 'loom-runtime[browser]'"


class ScreenshotTarget(msgspec.Struct, frozen=True):
    """The page to open, the gate, and the name in the result."""

    url: str
    shown: str
    egress: Egress
    files: ServeFile | None = None


def screenshot_tool(egress: Egress) -> Tool:
    """Return the tool with its own gate."""

    async def screenshot(
        context: ToolContext, url: str, *, full_page: bool = False, width: int = 1280, height: int = 800
    ) -> list[ContentBlock]:
        """Open a web page in a real browser and see how it looks.

        url: an http or https address, or the path of an HTML file of the workspace
        full_page: the whole page, not only what fits into the window
        width: of the window, in pixels
        height: of the window, in pixels
        """
        if not (_WIDTHS[0] <= width <= _WIDTHS[1] and _HEIGHTS[0] <= height <= _HEIGHTS[1]):
            raise ToolError(f"width is {_WIDTHS[0]} to {_WIDTHS[1]} pixels, height {_HEIGHTS[0]} to {_HEIGHTS[1]}")
        return await take_screenshot(context, url, egress, full_page=full_page, width=width, height=height)

    return Tool(screenshot, reads_only=True)


async def take_screenshot(
    context: ToolContext, url: str, egress: Egress, *, full_page: bool, width: int, height: int
) -> list[ContentBlock]:
    if importlib.util.find_spec("playwright") is None:
        raise ExtraMissing("Screenshots need Playwright.", hint=f"Install it: {_EXTRA}")
    if _HOST.match(url):
        raise ToolError(f"{url} is not a URL", hint=f"Write http://{url}")
    target = await (_web(context, url, egress) if is_address(url) else _file(context, url, egress))
    with tempfile.TemporaryDirectory(
        prefix="loom-browser-", dir=_short_temporary_folder(), ignore_cleanup_errors=True
    ) as folder:
        async with guard_proxy(target.egress, target.files) as proxy:
            job = ScreenshotJob(
                url=target.url,
                folder=folder,
                browser=next(filter(None, map(shutil.which, BROWSERS)), ""),
                proxy_port=proxy.port,
                proxy_user=proxy.user,
                proxy_password=proxy.password,
                width=width,
                height=height,
                full_page=full_page,
                max_height_px=MAX_HEIGHT_PX,
                load_ms=int(_LOAD_SECONDS * 1000),
            )
            shot = await _run_browser(job, target)
            _check(shot, proxy, target)
        picture = (Path(folder) / PICTURE).read_bytes()
    name = f"screenshot of {target.shown.partition('://')[2] or target.shown}"[:120]
    blocks = await context.attach(picture, name=f"{name.replace('/', ' ').strip()}.png", source=target.shown)
    return [TextBlock(_label(shot, target, proxy, job)), *blocks]


def _short_temporary_folder() -> str | None:
    """Return `/tmp` if the default folder for temporary files has a long path, else None: the browser creates sockets
    in its folder, and the path of a socket is limited to some hundred characters."""
    return "/tmp" if len(tempfile.gettempdir()) > _PLACE_CHARS and Path("/tmp").is_dir() else None  # noqa: S108  a folder of our own in it


async def _web(context: ToolContext, url: str, egress: Egress) -> ScreenshotTarget:
    """Return a page of this machine or of the internet: the user approves the host, and the gate opens for it. A host
    name can leak data that was read elsewhere, so none is resolved before the approval."""
    place = destination_of(url)
    is_local = is_this_machine(place.host)
    if not is_local:
        egress.check_known(place.host, place.port)
    why = "it is on this machine" if is_local else "the address is sent to that host"
    await context.approve(f"open {place.origin}", why=why)
    if is_local:
        await _check_listening(place.host, place.port)
    opened = await egress.allow_this_machine(place.host, place.port)
    if opened is None:
        await egress.addresses(place.host, place.port)
        return ScreenshotTarget(place.url, place.url, egress)
    if not is_local:
        await context.approve(f"open {place.origin} on this machine", why="its name resolves to this machine")
    return ScreenshotTarget(place.url, place.url, opened)


async def _check_listening(host: str, port: int) -> None:
    """Raise ToolError if nothing listens there: a browser would only show a blank page."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # TimeoutError is an OSError
        raise ToolError(
            f"nothing listens on {host}:{port} (connection refused)",
            hint="Start the server with start_process and network=true, and use the port that it announces.",
        ) from None
    writer.close()


async def _file(context: ToolContext, path: str, egress: Egress) -> ScreenshotTarget:
    """Return a page of the workspace. It can load its siblings, but neither the rest of the disk nor the network."""
    root, page, is_hidden = await asyncio.to_thread(_page, context.workspace, path)
    if is_hidden:
        await context.approve(f"open {path}", why=f"{page.name} may contain secrets")
    relative = page.relative_to(root).as_posix()

    def serve(asked: str) -> tuple[bytes, str] | None:
        return _serve_file(root, asked, page, context.may_read)

    return ScreenshotTarget(f"http://{FILES_HOST}/{quote(relative)}", relative, egress, serve)


def _page(workspace: Path, path: str) -> tuple[Path, Path, bool]:
    """Return the real paths of the workspace and the page, and whether the page may contain secrets."""
    root = Path(os.path.realpath(workspace))
    with open_file(root, path) as opened:
        if not opened.inside:
            raise ToolError(f"{path} is outside the workspace, and only pages inside are opened")
        kind = sniff(opened.file.read(_HEAD_BYTES), opened.path.name).media_type
    if kind not in ("text/html", "text/xml", SVG):
        raise ToolError(f"{path} is not an HTML page", hint="read_file shows other files.")
    return root, opened.path, opened.sensitive


def _serve_file(root: Path, asked: str, page: Path, may_read: Callable[[Path], bool]) -> tuple[bytes, str] | None:
    try:
        with open_file(root, asked.lstrip("/")) as opened:
            hidden = opened.sensitive or ".git" in opened.path.parts
            if not opened.inside or (hidden and opened.path != page) or opened.size_bytes > _SERVED_BYTES:
                return None
            if not may_read(opened.path):
                return None
            data = opened.file.read(_SERVED_BYTES)
    except MediaError:
        return None
    kind = mimetypes.guess_type(opened.path.name)[0] or sniff(data, opened.path.name).media_type
    codec = encoding_of(data) if kind.startswith("text/") or kind.endswith(("javascript", "json")) else None
    return data, f"{kind}; charset={codec.removesuffix('-sig')}" if codec else kind


async def _run_browser(job: ScreenshotJob, target: ScreenshotTarget) -> ScreenshotResult:
    """Run the browser in processes without our environment, in a folder that is removed with them."""
    command = [sys.executable, "-P", "-m", "loom.tools.screenshot_job"]
    try:
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            start_program(
                command, folder=Path(job.folder), extra=_variables(job.folder), stdin=asyncio.subprocess.PIPE
            ) as running,
        ):
            await running.process.communicate(msgspec.json.encode(job))
            output = await _read_available(running.output)
    except TimeoutError:
        raise ToolError(f"{target.shown} could not be rendered within {DEADLINE_SECONDS:.0f} s") from None
    return _result(Path(job.folder) / FACTS, output, target)


async def _read_available(output: asyncio.StreamReader) -> bytes:
    """Return the output so far: a browser that has not ended yet would keep the pipe open."""
    try:
        async with asyncio.timeout(_OUTPUT_SECONDS):
            return await output.read(_MAX_OUTPUT_BYTES)
    except TimeoutError:
        return b""


def _result(facts: Path, output: bytes, target: ScreenshotTarget) -> ScreenshotResult:
    if not facts.exists():
        last = output.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        raise ToolError(f"the browser ended before it had rendered {target.shown}: {last or 'it was killed'}")
    return decode_json(facts.read_bytes(), ScreenshotResult)


def _variables(folder: str) -> dict[str, str]:
    """Return variables that direct everything that the browser writes to its own folder."""
    own = dict.fromkeys(("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), folder)
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    # Playwright searches for its own browsers below HOME, which is not passed on.
    browsers = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or str(Path("~/.cache/ms-playwright").expanduser())
    return own | {"PYTHONPATH": path, "PLAYWRIGHT_BROWSERS_PATH": browsers}


def _check(shot: ScreenshotResult, proxy: GuardProxy, target: ScreenshotTarget) -> None:
    if shot.no_browser:
        raise ExtraMissing(
            "Screenshots need Chromium.", hint="Install it: apt install chromium, or playwright install chromium"
        )
    main = destination_of(shot.url).origin if shot.url.startswith(("http://", "https://")) else ""
    if main and main in proxy.unreachable:
        raise Unreadable(
            f"{target.shown} cannot be opened: nothing answers at {main}",
            hint="Start the server first (start_process), or check the port.",
        )
    if main and main in proxy.refused:
        raise Unsupported(f"{target.shown} redirects to {main}, which is blocked")
    if shot.problem:
        raise ToolError(f"{target.shown} cannot be rendered: {shot.problem}")


def _label(shot: ScreenshotResult, target: ScreenshotTarget, proxy: GuardProxy, job: ScreenshotJob) -> str:
    height = min(shot.page_height_px, MAX_HEIGHT_PX) if job.full_page else job.height
    facts = [f"screenshot of {target.shown}", f"{job.width}×{height}"]
    if shot.title:
        facts.append(f'title "{visible_name(shot.title)}"')
    if shot.status is not None and shot.status >= 400:
        facts.append(f"HTTP {shot.status}")
    said = [f"[{', '.join(facts)}]"]
    if target.files is None and shot.url.rstrip("/") != target.url.rstrip("/"):
        said.append(f"(redirected to {shot.url[:300]})")
    if shot.still_loading:
        said.append("(it was still loading)")
    if shot.page_height_px > height:
        more = f"the page is {shot.page_height_px} px high"
        said.append(f"({more})" if job.full_page else f"({more}: full_page=true shows all of it)")
    if proxy.unreachable:
        said.append(f"(not loaded, nothing answers: {', '.join(sorted(proxy.unreachable)[:5])})")
    if proxy.refused:
        hosts = ", ".join(sorted(proxy.refused)[:5])
        why = "a page from a file has no network access" if target.files is not None else "blocked addresses"
        said.append(f"(not loaded, {why}: {hosts})")
    return "\n".join(said)
