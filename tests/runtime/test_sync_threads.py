"""`loom.Loom` where nothing would run a call: it raises an error instead of waiting forever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

import loom
from loom.agent.gate import Allow, Verdict
from loom.config import load_config
from loom.errors import LoomError
from loom.testing import ScriptedProvider
from patience import PATIENCE_SECONDS

MODEL = "anthropic/claude-opus-5"


def test_an_async_function_that_waits_for_its_own_loom_gets_an_error(tmp_path: Path) -> None:
    raised: list[str] = []

    async def ask_again(words: str) -> str:
        """Ask another question."""
        try:
            return opened.ask(words).text
        except LoomError as error:
            raised.append(str(error))
            raise

    provider = ScriptedProvider([[loom.ToolCall("c1", "ask_again", {"words": "again"})], "Done."])
    with _open(tmp_path, provider, tools=[ask_again]) as opened:
        assert opened.ask("go").text == "Done."
    assert "plain `def`" in raised[0]


def test_a_fork_cannot_use_the_loom_of_its_parent_and_can_close_it(tmp_path: Path) -> None:
    with _open(tmp_path, ScriptedProvider(["Hello."])) as opened:
        session = opened.session()
        session.send("hello")
        if (child := os.fork()) == 0:
            _exit_as_expected(session, opened)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(session.path()) == 2


def test_threads_that_use_a_loom_while_it_is_closed_get_an_error(tmp_path: Path) -> None:
    for _ in range(20):
        opened = _open(tmp_path, ScriptedProvider([]))
        started = threading.Barrier(5)

        def use(opened: loom.Loom = opened, started: threading.Barrier = started) -> None:
            started.wait(PATIENCE_SECONDS)
            with pytest.raises(LoomError):
                _run_forever(opened)

        threads = [threading.Thread(target=use, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait(PATIENCE_SECONDS)
        opened.close()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def _run_forever(opened: loom.Loom) -> None:
    while True:
        opened.run(_nothing())


async def _nothing() -> None:
    """Return in the thread of the event loop."""


def _open(folder: Path, provider: ScriptedProvider, tools: Sequence[Callable[..., Any]] = ()) -> loom.Loom:
    config = load_config(cwd=folder, environ={"LOOM_HOME": str(folder)})
    return loom.Loom(config=config, model=MODEL, providers={"anthropic": provider}, tools=tools, approve=_allow)


def _allow(_: loom.ApprovalRequest) -> Verdict:
    return Allow()


def _exit_as_expected(session: Any, opened: loom.Loom) -> NoReturn:
    """End this process, with 0 if the session cannot be used and `opened` can be closed. A hang ends it too."""
    signal.alarm(int(PATIENCE_SECONDS))
    code = 1
    try:
        with pytest.raises(LoomError, match="before a fork"):
            session.path()
        opened.close()
        code = 0
    finally:
        os._exit(code)


def test_a_program_that_ends_in_the_middle_of_a_stream_prints_no_error(tmp_path: Path) -> None:
    program = (
        "import loom\n"
        "opened = loom.Loom(model='loom/spark')\n"
        "events = iter(opened.session().stream('!slow 20tps\\n!tokens 300'))\n"
        "next(events)\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")}
    environ |= {"LOOM_HOME": str(tmp_path), "LOOM_OFFLINE": "1"}
    ended = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
