"""A scripted model works through a real task on a small repository: failing check, search, edit with an approval, a
killed process, the fix, a server, screenshots, a sub-agent, undo, a summary. The whole record is asserted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from flow.day_worker import decide
from loom.config import load_config
from loom.content.blocks import ImageBlock, ToolCall, ToolResult
from loom.content.messages import text_of
from loom.events import ApprovalRequested, Event, NoticeRaised
from loom.prompt import MediaRef, ShownMedia, ShownResult
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.session import EventIterator
from loom.testing import ScriptedProvider

SHOP = "def total(prices):\n    return sum(prices) + 1\n"
CHECK = "from shop import total\n\nassert total([1, 2]) == 3, total([1, 2])\nprint('fine')\n"
PAGE = "<!doctype html><title>Shop</title><h1 style='font: 90px sans-serif'>Shpo</h1>\n"


def lay_out(folder: Path) -> None:
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    (folder / "check.py").write_text(CHECK)
    (folder / "index.html").write_text(PAGE)
    for command in (["git", "init", "-q", "-b", "main"], ["git", "add", "."]):
        subprocess.run(command, cwd=folder, check=True)


def work_until_killed(home: Path, folder: Path) -> str:
    """Run the first half in a process that is killed while an approval is pending; return the session's id."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])}
    command = [sys.executable, "-m", "flow.day_worker", str(home), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        session_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    assert session_id, "it ended before it asked"
    return session_id


async def watch(session: LocalSession, events: EventIterator) -> list[Event]:
    """Allow everything once, and return the events."""
    seen: list[Event] = []
    async for event in events:
        seen.append(event)
        if isinstance(event, ApprovalRequested):
            await session.answer(event.approval, "once")
    return seen


async def results(session: LocalSession) -> dict[str, ToolResult]:
    return {result.call_id: result for message in await session.path() for result in message.results}


def provider_of(runtime: Runtime) -> ScriptedProvider:
    provider = runtime.models.given_providers["anthropic"]
    assert isinstance(provider, ScriptedProvider)
    return provider


def script(runtime: Runtime, *answers: Any) -> None:
    provider_of(runtime).add(*answers)


def media_of_shown(block: object) -> list[MediaRef]:
    """The media that a result shows to the model."""
    return (
        [inner.ref for inner in block.blocks if isinstance(inner, ShownMedia)] if isinstance(block, ShownResult) else []
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


async def test_a_task_is_worked_through_with_a_kill_an_undo_and_a_summary(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "shop"
    lay_out(folder)
    session_id = work_until_killed(home, folder)
    assert (folder / "shop.py").read_text() == SHOP, "nothing is changed before the user allows it"

    environ = {"LOOM_HOME": str(home), "PATH": os.environ["PATH"]}
    config = load_config(cwd=folder, environ=environ, flags={"sandbox.mode": "off"})
    providers = {"anthropic": ScriptedProvider([])}
    port = free_port()
    server = f"exec python3 -u -m http.server {port} --bind 127.0.0.1"
    async with Runtime.open(config, providers=providers, tools="all", approve=decide) as runtime:
        script(
            runtime,
            ToolCall("b1", "run_command", {"command": "python3 check.py"}),
            ToolCall("b2", "start_process", {"command": server, "network": True}),
            [
                ToolCall("b3", "screenshot", {"url": "http://127.0.0.1:9/"}),
                ToolCall("s1", "screenshot", {"url": f"http://127.0.0.1:{port}/"}),
                ToolCall("s2", "read_file", {"path": "index.html"}),
            ],
            ToolCall("s3", "edit_file", {"path": "index.html", "old": "Shpo", "new": "Shop"}),
            ToolCall("s4", "screenshot", {"url": f"http://127.0.0.1:{port}/"}),
            ToolCall("b4", "ask_agent", {"tasks": ["Which branch is this?"]}),
            "It is main.",
            ToolCall("b5", "stop_process", {"process": "p1"}),
            "The check passes.",
        )
        session = await runtime.session(session_id)
        assert [todo.state for todo in await session.todos()] == ["in_progress", "pending", "pending"]
        (pending,) = await session.approvals()
        assert pending.call.name == "edit_file", pending
        await watch(session, session.resume())
        assert (folder / "shop.py").read_text() == SHOP.replace(" + 1", "")

        found = await results(session)
        assert list(found) == [*(f"a{n}" for n in range(1, 6)), "b1", "b2", "b3", "s1", "s2", "s3", "s4", "b4", "b5"]
        assert "AssertionError: 4" in text_of(found["a2"])
        assert "shop.py" in text_of(found["a3"])
        assert "was changed" in text_of(found["a5"])
        assert "fine" in text_of(found["b1"])
        assert found["b2"].data["ports"] == [port]
        assert f"http://localhost:{port}/" in text_of(found["b2"])
        assert "nothing listens on 127.0.0.1:9" in text_of(found["b3"])
        before_fix, after_fix = (
            [block.media for block in found[name].blocks if isinstance(block, ImageBlock)] for name in ("s1", "s4")
        )
        assert [media.media_type for media in (*before_fix, *after_fix)] == ["image/png", "image/png"]
        assert before_fix[0].digest != after_fix[0].digest, "the real browser shows the fix"
        shown = provider_of(runtime).prompts[3].messages[-1].blocks
        assert [ref.digest for block in shown for ref in media_of_shown(block)] == [before_fix[0].digest]
        assert "It is main." in text_of(found["b4"])
        assert "p1 was stopped" in text_of(found["b5"])
        (child,) = found["b4"].data["sessions"]
        assert (await runtime.stores.sessions.get(child)).settings["parent_session"] == session_id
        roles = [message.role for message in await session.path()]
        assert roles == ["user", *["assistant", "tool"] * 11, "assistant"]

        assert (await session.undo()).files == ("index.html was restored",)
        assert (folder / "index.html").read_text() == PAGE
        assert (await session.undo()).files == ("shop.py was restored",)
        assert (folder / "shop.py").read_text() == SHOP
        again = {"path": "shop.py", "old": "sum(prices) + 1", "new": "sum(prices)"}
        script(runtime, ToolCall("c1", "edit_file", again), ToolCall("c2", "edit_file", again), "Done again.")
        session = await runtime.session(session_id)
        await watch(session, session.stream("I took it back by mistake: do it again"))
        found = await results(session)
        assert (found["c1"].is_error, found["c2"].is_error) == (True, False)
        assert (folder / "shop.py").read_text() == SHOP.replace(" + 1", "")

        script(
            runtime, "The sum was off by one and is fixed.", ToolCall("d1", "recall", {"query": "off mistake"}), "Ok."
        )
        session = await runtime.session(session_id)
        before = await session.head()
        summarized = await watch(session, session.compact())
        assert not [event for event in summarized if isinstance(event, NoticeRaised) and event.code == "error"]
        assert len(await session.path()) == 1
        await watch(session, session.stream("what did I take back?"))
        assert "mistake" in text_of((await results(session))["d1"]), "what was said is still found"
        await session.go(before)
        assert len(await session.path()) == len(roles) + 2 + 6
