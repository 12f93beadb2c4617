"""The servers that the MCP tests talk to, and a tool context that remembers what it was told."""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loom.content.blocks import ContentBlock
from loom.content.media import Media, digest_of
from loom.errors import ToolError
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.models import Capabilities
from loom.tools.mcp.specs import ServerSpec
from made import run
from patience import PATIENCE_SECONDS

HERE = Path(__file__).resolve().parent
NPM = HERE.parent.parent / ".cache" / "npm"
EVERYTHING = NPM / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"


class Context:
    """A ToolContext whose user says yes or no."""

    def __init__(self, *, allow: bool = True) -> None:
        self.workspace = Path.cwd()
        self.limits = IntakeLimits()
        self.capabilities = Capabilities()
        self.told: list[tuple[str, float | None]] = []
        self.asked: list[str] = []
        self.bytes: dict[str, bytes] = {}
        self.answers: list[str] = []
        """What the user writes with an approval."""
        self._allow = allow

    async def attach(
        self, data: bytes | Path, *, name: str = "", source: str = "", pages: str = ""
    ) -> Sequence[ContentBlock]:
        assert isinstance(data, bytes), "nothing that a server says is a path to read"
        admitted = accept(data, name, source=source, pages=pages, limits=self.limits)
        if admitted.data is not None:
            self.bytes[digest_of(admitted.data)] = admitted.data
        return [admitted.block]

    async def emit(self, text: str, *, fraction: float | None = None) -> None:
        self.told.append((text, fraction))

    async def confirm(self, action: str, *, why: str, schema: dict[str, Any] | None = None) -> str:
        await self.approve(action, why=why)
        return self.answers.pop(0) if self.answers else ""

    async def approve(self, action: str, *, why: str) -> None:
        self.asked.append(f"{action} ({why})")
        if not self._allow:
            raise ToolError("the user denied it")

    async def inject(self, *content: Any) -> None:
        raise AssertionError("nothing is injected")

    async def media(self) -> Sequence[Media]:
        return []

    async def load(self, digest: str) -> bytes:
        return self.bytes[digest]


def hostile(
    mode: str = "", *, name: str = "bad", timeout_seconds: float = PATIENCE_SECONDS, **given: Any
) -> ServerSpec:
    args = (str(HERE / "hostile_mcp.py"), *([mode] if mode else []))
    return ServerSpec(name=name, command=sys.executable, args=args, timeout_seconds=timeout_seconds, **given)


def everything(*, timeout_seconds: float = 30) -> ServerSpec:
    """The reference server of the protocol."""
    return npm_server("every", "server-everything", timeout_seconds=timeout_seconds)


def npm_server(name: str, package: str, *args: str, timeout_seconds: float = 60, **given: Any) -> ServerSpec:
    """A server from npm; a name without a scope is one of the protocol's own."""
    package = package if package.startswith("@") else f"@modelcontextprotocol/{package}"
    folder = NPM / "node_modules" / package
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.fail(f"this test runs an MCP server from npm, and {program} is missing: run tests/packages.sh")
    with _locked(NPM):
        if not (folder / "package.json").exists():
            run("npm", "install", "--no-audit", "--no-fund", "--prefix", NPM, package, timeout=600)
    found = json.loads((folder / "package.json").read_text())["bin"]
    script = found if isinstance(found, str) else next(iter(found.values()))
    return ServerSpec(
        name=name, command="node", args=(str(folder / script), *args), timeout_seconds=timeout_seconds, **given
    )


def pypi_server(name: str, package: str, *args: str, **given: Any) -> ServerSpec:
    """A server from PyPI, in an environment of its own: it may need another version of the protocol's SDK."""
    place = NPM.parent / f"pypi-{package}"
    with _locked(place):
        if not (place / "complete").exists():
            run(sys.executable, "-m", "venv", "--clear", place / "venv", timeout=300)
            run(place / "venv" / "bin" / "python", "-m", "pip", "install", "-q", package, timeout=600)
            (place / "complete").touch()
    command = str(place / "venv" / "bin" / package)
    return ServerSpec(name=name, command=command, args=args, timeout_seconds=60, **given)


@contextmanager
def _locked(place: Path) -> Generator[None]:
    """Several test processes install a server once."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_running(process_id: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def is_there(process_id: int) -> bool:
    """Running, or a zombie that nobody reaped."""
    return Path(f"/proc/{process_id}").exists()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for what another process will do."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  it is another process that changes it: there is nothing to wait on
            await asyncio.sleep(0.02)
