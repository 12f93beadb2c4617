"""A model that does what an attacker wants: what it cannot reach even where the user lets its commands run."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.events import ApprovalRequested, NoticeRaised
from loom.runtime import Runtime
from loom.runtime.export import export_session
from loom.testing import ScriptedProvider
from loom.tools.base import ToolContext, tool

MODEL = "anthropic/claude-opus-5"
KEY = "sk-ant-canary-8f3b2c1d9e7a6b5c4d3e2f1a"
PASSWORD = "correct horse battery staple 42"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "loom" / "state").mkdir(parents=True)
    (tmp_path / "loom" / "state" / "token").write_text("daemon-token-canary-0123456789abcdef")
    workspace = tmp_path / "work"
    workspace.mkdir()
    return tmp_path


def open_runtime(
    home: Path, provider: ScriptedProvider | None = None, more: dict[str, Any] | None = None, **settings: str
):
    environ = {
        "LOOM_HOME": str(home / "loom"),
        "HOME": str(home),
        "ANTHROPIC_API_KEY": KEY,
        "LOOM_SERVER__PASSWORD": PASSWORD,
        "LOOM_APPROVAL__DEFAULT": "allow",
        "LOOM_MODELS__OPUS__PROVIDER": "anthropic",
        "LOOM_MODELS__OPUS__API_KEY": KEY,
        **settings,
    }
    return Runtime.open(
        load_config(cwd=home, environ=environ),
        providers={"anthropic": provider or ScriptedProvider([])},
        tools=["all", *(more or {}).values()],
    )


async def run_all(home: Path, calls: list[ToolCall], *, more: dict[str, object] | None = None) -> tuple[list[str], str]:
    """Return the results, and every byte that is stored, exported or shown as text."""
    provider = ScriptedProvider([*calls, "done"])
    async with open_runtime(home, provider, more) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(home / "work"))
        shown = [repr(event) async for event in session.stream("go")]
        results = [text_of(result) for message in await session.path() for result in message.results]
        stored = await runtime.stores.sessions.get(session.id)
        exports = [(await export_session(runtime, stored, form)).decode("latin-1") for form in ("md", "html", "json")]
    files = [file for file in (home / "loom").rglob("*") if file.is_file() and file.name != "token"]
    everything = [file.read_bytes().decode("latin-1") for file in files]
    return results, "\n".join([*shown, *exports, *everything, *map(repr, provider.prompts)])


async def test_an_allowed_command_finds_no_key_no_token_and_nothing_of_its_parent(home: Path, monkeypatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    commands = [
        "cat /proc/$PPID/environ /proc/1/environ /proc/self/environ | tr '\\0' '\\n'",
        f"cat {home}/loom/state/token; ls -A {home}/loom",
        f"cat /proc/{os.getpid()}/environ; head -c 100 /proc/{os.getpid()}/mem; ls -l /proc/{os.getpid()}/fd",
        "env",
    ]
    calls = [ToolCall(f"c{at}", "run_command", {"command": text}) for at, text in enumerate(commands)]
    results, everything = await run_all(home, calls)
    assert len(results) == len(commands)
    assert not any("canary" in result for result in results), results
    assert KEY not in everything and "daemon-token-canary" not in everything


@tool
async def leaky(context: ToolContext) -> str:
    """Show secrets in every way there is."""
    await context.emit(f"working with {KEY}")
    await context.inject(f"the password is {PASSWORD}")
    return "x" * 200_000 + f" {KEY} " + "y" * 200_000 + f"\n{PASSWORD}"


async def test_configured_secrets_are_in_no_result_event_export_or_stored_byte(home: Path) -> None:
    (home / "work" / "notes.txt").write_text(f"the key is {KEY}\n")
    calls = [
        ToolCall("c1", "run_command", {"command": f"echo {KEY[:20]}''{KEY[20:]}; cat notes.txt; base64 -w0 notes.txt"}),
        ToolCall("c2", "leaky", {}),
    ]
    results, everything = await run_all(home, calls, more={"leaky": leaky})
    assert "[secret …" in results[0] and "[secret …" in results[1]
    assert KEY not in everything
    assert PASSWORD not in everything
    assert KEY[5:30] not in everything, "not even where a long output was cut"


async def test_what_was_stored_before_a_key_was_configured_is_masked_in_exports(home: Path) -> None:
    (home / "work" / "notes.txt").write_text(f"later it is a key: {PASSWORD}\n")
    provider = ScriptedProvider([ToolCall("c1", "read_file", {"path": "notes.txt"}), "done"])
    async with open_runtime(home, provider, LOOM_SERVER__PASSWORD="another one that is long") as runtime:
        session = await runtime.session(model=MODEL, workspace=str(home / "work"))
        await session.send("read it")
    async with open_runtime(home) as runtime:
        stored = await runtime.stores.sessions.get(session.id)
        for form in ("md", "html", "json"):
            text = (await export_session(runtime, stored, form)).decode()
            assert "later it is a key" in text and PASSWORD not in text


@pytest.mark.parametrize("name", [".env", ".envrc", "prod.env", "service-account.json", "config/secrets.yaml"])
async def test_hard_links_to_secrets_are_asked_for_and_left_out_of_searches(home: Path, name: str) -> None:
    secret = home / "work" / name
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("SENTINEL=hidden\n")
    (home / "work" / "src").mkdir()
    os.link(secret, home / "work" / "src" / "harmless.txt")
    (home / "work" / "src" / "plain.txt").write_text("SENTINEL elsewhere\n")
    os.link(home / "work" / "src" / "plain.txt", home / "work" / "src" / "twin.txt")
    calls = [
        ToolCall("c1", "read_file", {"path": "src/harmless.txt"}),
        ToolCall("c2", "search_files", {"pattern": "SENTINEL", "path": "src"}),
        ToolCall("c3", "read_file", {"path": "src/twin.txt"}),
    ]
    provider = ScriptedProvider([*calls, "done"])
    async with open_runtime(home, provider, LOOM_APPROVAL__DEFAULT="ask") as runtime:
        session = await runtime.session(model=MODEL, workspace=str(home / "work"))
        asked: list[str] = []
        async for event in session.stream("go"):
            if isinstance(event, ApprovalRequested):
                asked.append(event.call.id)
                await session.answer(event.approval, "deny")
        results = [text_of(result) for message in await session.path() for result in message.results]
    assert asked == ["c1"]
    assert "hidden" not in "".join(results)
    assert "plain.txt" in results[1] and "twin.txt" in results[1], "other hard links are ordinary files"
    assert "elsewhere" in results[2]


async def test_a_rule_that_matches_no_tool_is_named_in_a_new_session(home: Path) -> None:
    rules = '[[approval.rules]]\ntool = "run_comand"\npattern = "rm *"\naction = "deny"\n'
    rules += '[[approval.rules]]\ntool = "run_command"\npattern = "rm *"\naction = "deny"\n'
    (home / "loom" / "loom.toml").write_text(rules)
    async with open_runtime(home, ScriptedProvider(["hello"])) as runtime:
        assert runtime.config.approval.rules, "the rules were read"
        session = await runtime.session(model=MODEL, workspace=str(home / "work"))
        notices = [event.text async for event in session.stream("hi") if isinstance(event, NoticeRaised)]
    assert [notice for notice in notices if "matches no tool" in notice] == [
        "the approval rule for 'run_comand' matches no tool and does nothing: check the name"
    ]


def test_the_store_of_these_tests_is_a_real_database(home: Path) -> None:
    """The searches above would find nothing in an empty file."""
    import asyncio

    asyncio.run(run_all(home, [ToolCall("c1", "run_command", {"command": "echo MARKER-$((6*7))"})]))
    with sqlite3.connect(next((home / "loom").rglob("loom.db"))) as connection:
        rows = connection.execute("SELECT message FROM node").fetchall()
    connection.close()
    assert any("MARKER-42" in str(row) for row in rows)
