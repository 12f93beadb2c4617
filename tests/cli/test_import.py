"""Conversations of other programs, whole and damaged, become sessions that can go on; what was repaired is told."""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cli.loom_command import Loom
from loom.testing import sample_pdf, sample_png

MODELS = ("anthropic/claude-opus-5", "openai/gpt-5.5", "openai-chat/gpt-4o", "gemini/gemini-4-argon", "ollama/llava")


def claude_code(*messages: dict[str, Any], cut: str = "") -> str:
    """A session as Claude Code writes it: one record a line, each pointing at the one before."""
    records: list[dict[str, Any]] = [{"type": "summary", "summary": "Login page triage", "leafUuid": "u9"}]
    parent = None
    for number, message in enumerate(messages):
        records.append(
            {
                "parentUuid": parent,
                "isSidechain": False,
                "type": message["role"],
                "message": message,
                "uuid": f"u{number}",
                "cwd": "/nowhere/at/all",
                "sessionId": "s1",
                "version": "2.1.12",
            }
        )
        parent = f"u{number}"
    return "".join(json.dumps(record) + "\n" for record in records) + cut


def said(role: str, *blocks: dict[str, Any] | str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {"role": role, "content": content, **more}


def picture(data: bytes, media_type: str = "image/png") -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encoded}}


def noise(folder: Path, side: int) -> bytes:
    file = folder / "noise.bmp"
    Image.effect_noise((side, side), 100).convert("RGB").save(file)
    return file.read_bytes()


def damaged(first: bytes, read: bytes) -> str:
    """A session of Claude Code with the usual faults, a picture that was sent and one that was read by a tool."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "from-another-model"}
    return claude_code(
        said("user", "what is wrong here?", picture(first)),
        said("assistant", thinking, tool_use("toolu_1", "Read"), model="claude-x", id="msg_1"),
        said("user", tool_result("toolu_1", [picture(read, "image/jpeg")])),
        said("assistant", "", "It says 502.", model="claude-x", id="msg_2"),
        said("user", tool_result("toolu_nobody", "an orphan")),
        said("assistant", tool_use("toolu_2", "Bash"), model="claude-x", id="msg_3"),
        said("user", "go on"),
        said("user", picture(b"<html>not a picture</html>")),
        cut='{"parentUuid":"u7","type":"assistant","message":{"role":"assist',
    )


def tool_use(call_id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"path": "a.png"}}


def tool_result(call_id: str, content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def test_a_damaged_session_of_claude_code_is_repaired_and_goes_on(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("session.jsonl", damaged(noise(tmp_path, 2_000), sample_png()))

    looked = loom("doctor", "session.jsonl")
    fixed = loom("doctor", "--fix", "--json", "session.jsonl")

    assert looked.code == 1 and loom("sessions", "--json").rows[1:] == []
    for words in (
        "last line was cut off",
        "over the limit",
        "a result has no call",
        "a call has no result",
        "declared as image/jpeg but is image/png",
        "1 empty text left out",
        "1 thought kept for reading",
        "loom doctor --fix",
    ):
        assert words in looked.out, (words, looked.out)
    (report,) = fixed.rows
    assert fixed.code == 0 and report["title"] == "Login page triage" and report["is_new"]
    assert len(report["repairs"]) >= 5
    for model in MODELS:
        request = loom("wire", report["session"], "-m", model)
        assert request.code == 0, request.err
        assert "from-another-model" not in request.out
        assert '"text":""' not in request.out
    assert loom("-r", report["session"], "-R", "hello").code == 0
    assert loom("doctor").code == 0


def test_importing_twice_changes_nothing_and_shared_beginnings_are_shared(tmp_path: Path):
    loom = Loom(tmp_path)
    start = [said("user", "hello"), said("assistant", "hi", model="m", id="1")]
    loom.file("a.jsonl", claude_code(*start, said("user", "more")))
    loom.file("b.jsonl", claude_code(*start, said("user", "something else")))

    (first,), (again,), (other,) = (loom("import", name, "--json").rows for name in ("a.jsonl", "a.jsonl", "b.jsonl"))

    assert first["is_new"] and not again["is_new"] and first["session"] == again["session"]
    assert other["is_new"] and other["shared"] == 2


def test_the_abandoned_branches_of_claude_code_are_left_out_and_that_is_said(tmp_path: Path):
    loom = Loom(tmp_path)
    lines = claude_code(said("user", "first"), said("assistant", "old answer", model="m", id="1")).splitlines()
    retry = json.loads(lines[-1]) | {"uuid": "u9", "message": said("assistant", "new answer", model="m", id="2")}
    loom.file("session.jsonl", "\n".join([*lines, json.dumps(retry)]))

    ran = loom("import", "session.jsonl")

    assert "1 message of abandoned branches skipped" in ran.out
    assert "new answer" in loom("log").out and "old answer" not in loom("log").out


def test_a_session_of_codex_is_taken_in(tmp_path: Path):
    loom = Loom(tmp_path)
    encoded = base64.b64encode(sample_png()).decode()

    def line(kind: str, **payload: Any) -> str:
        return json.dumps({"timestamp": "2026-11-15T10:00:00Z", "type": kind, "payload": payload})

    lines = [
        line("session_meta", id="x", cwd=str(tmp_path), base_instructions={"text": "You are Codex."}),
        line("turn_context", model="gpt-5-codex", cwd=str(tmp_path)),
        line("event_msg", type="user_message", message="look"),
        line("response_item", type="message", role="user", content=[
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{encoded}"},
        ]),
        line("response_item", type="reasoning", summary=[], encrypted_content="gAAAA", id="rs_1"),
        line("response_item", type="function_call", name="shell", arguments='{"command":["ls"]}', call_id="c1"),
        line("response_item", type="function_call_output", call_id="c1", output="a.png"),
        line("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "A dot."}]),
    ]  # fmt: skip
    loom.file("rollout.jsonl", "\n".join(lines))

    (found,) = loom("import", "rollout.jsonl", "--json").rows

    assert (found["kind"], found["media"]) == ("Codex", 1)
    spoken = loom("log", found["session"]).out
    for words in ("look", "[image:", "shell", "a.png", "A dot."):
        assert words in spoken
    request = json.loads(loom("wire", found["session"], "-m", "claude-opus-5").out)["request"]
    assert "You are Codex." in str(request["system"])


def test_every_conversation_of_llm_is_taken_in(tmp_path: Path):
    loom = Loom(tmp_path)
    path = tmp_path / "work" / "logs.db"
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
            CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT,
                conversation_id TEXT, datetime_utc TEXT);
            CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
            CREATE TABLE prompt_attachments (response_id TEXT, attachment_id TEXT, "order" INTEGER);
            CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, arguments TEXT,
                tool_call_id TEXT);
            CREATE TABLE tool_results (id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, output TEXT,
                tool_call_id TEXT);
            INSERT INTO conversations VALUES ('c1', 'About a dot', 'gpt-4o');
            INSERT INTO responses VALUES ('r1', 'gpt-4o', 'what is it?', 'Be brief.', 'A dot.', 'c1', '2026-01-01');
            INSERT INTO responses VALUES ('r2', 'gpt-4o', 'what time is it?', NULL, '', 'c1', '2026-01-02');
            INSERT INTO tool_calls VALUES (1, 'r2', 'clock', '{"zone": "UTC"}', 't1');
            INSERT INTO tool_results VALUES (1, 'r3', 'clock', '12:00', 't1');
            INSERT INTO responses VALUES ('r3', 'gpt-4o', '', NULL, 'Noon.', 'c1', '2026-01-03');
            INSERT INTO responses VALUES ('r4', 'gpt-4o', 'another one', NULL, 'Yes.', 'c2', '2026-01-04');
            INSERT INTO prompt_attachments VALUES ('r1', 'a1', 0);
        """)
        database.execute("INSERT INTO attachments VALUES ('a1', 'image/png', NULL, NULL, ?)", (sample_png(),))
    database.close()

    first, second = loom("import", "logs.db", "--json").rows

    assert (first["title"], first["media"], second["messages"]) == ("About a dot", 1, 2)
    log = loom("log", first["session"]).out
    for words in ("[image:", "what is it?", "A dot.", "clock", "12:00", "Noon."):
        assert words in log


def test_threads_of_a_newer_llm_are_taken_in(tmp_path: Path):
    loom = Loom(tmp_path)
    path = tmp_path / "work" / "logs.db"
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE threads (id TEXT, name TEXT, tip_message_hash TEXT, forked_from TEXT, datetime_utc TEXT);
            CREATE TABLE turns (id TEXT, thread_id TEXT, model TEXT);
            CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT);
            CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT,
                text TEXT, payload TEXT);
            CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
            CREATE TABLE part_attachments (part_id INTEGER, attachment_id TEXT, "order" INTEGER);
            INSERT INTO threads VALUES ('t', 'Noon', 'h4', NULL, '2026-01-01');
            INSERT INTO turns VALUES ('1', 't', 'gpt-5.5');
            INSERT INTO messages VALUES ('h1', NULL, 'user'), ('h2', 'h1', 'assistant'), ('h3', 'h2', 'tool'),
                ('h4', 'h3', 'assistant');
            INSERT INTO parts VALUES (1, 'h1', 0, 'text', NULL, 'what time is it?', NULL),
                (2, 'h2', 0, 'reasoning', NULL, 'hm', NULL),
                (3, 'h2', 1, 'tool_call', 'clock', NULL, '{"tool_call_id": "c", "arguments": {"zone": "UTC"}}'),
                (4, 'h3', 0, 'tool_result', 'clock', '12:00', '{"tool_call_id": "c"}'),
                (5, 'h4', 0, 'text', NULL, 'Noon.', NULL);
        """)
    database.close()

    (found,) = loom("import", "logs.db", "--json").rows

    assert (found["title"], found["messages"], found["repairs"]) == ("Noon", 4, [])


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OPENAI = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "ok"},
]
ANTHROPIC = {"system": "Be brief.", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}


@pytest.mark.parametrize("messages", [OPENAI, ANTHROPIC])
def test_plain_json_is_taken_in(tmp_path: Path, messages: Any):
    loom = Loom(tmp_path)
    loom.file("talk.json", json.dumps(messages))

    (found,) = loom("import", "talk.json", "--json").rows

    assert found["repairs"] == []
    assert "Be brief." in loom("wire", found["session"], "-m", "gpt-5.5").out


def test_what_is_no_conversation_is_said_and_does_not_stop_the_others(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("good.json", '[{"role": "user", "content": "hi"}]')
    for name, data in {
        "empty.json": b"",
        "text.txt": b"just words",
        "number.json": b"42",
        "report.pdf": sample_pdf(),
        "other.db": b"SQLite format 3\0" + bytes(100),
        "deep.json": b"[" * 100_000,
    }.items():
        loom.file(name, data)

    ran = loom(
        "import", "empty.json", "text.txt", "number.json", "report.pdf", "other.db", "deep.json", "gone", "good.json"
    )

    assert ran.code != 0
    assert len(ran.err.strip().splitlines()) == 7
    assert ran.out.startswith("✔ good.json")


@pytest.mark.parametrize("text", ["[]", '{"messages": []}', '[{"role": "user"}]'])
def test_a_conversation_without_a_message_is_said(tmp_path: Path, text: str):
    loom = Loom(tmp_path)
    loom.file("nothing.json", text)
    loom.file("good.json", '[{"role": "user", "content": "hi"}]')

    ran = loom("import", "nothing.json", "good.json")
    looked = loom("doctor", "nothing.json")

    assert ran.code == 5 and "nothing.json contains no messages" in ran.err and ran.out.startswith("✔ good.json")
    assert looked.code == 1 and "0 messages, nothing to import" in looked.out and "--fix" not in looked.out
    if "user" in text:
        assert "message 1: empty; left out" in ran.err
        assert "message 1: empty; left out" in looked.out


def test_the_numbers_in_a_report_are_those_of_the_file_and_a_broken_pair_is_told_once(tmp_path: Path):
    loom = Loom(tmp_path)
    call = {"id": "call_7", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    loom.file(
        "talk.json",
        json.dumps(
            [
                {"role": "user"},
                {"role": "user", "content": "what time is it?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "user", "content": "well?"},
                {"role": "tool", "tool_call_id": "nobody", "content": "12:00"},
            ]
        ),
    )

    repairs = loom("doctor", "--json", "talk.json").rows[0]["repairs"]
    told = loom("wire", "talk.json", "-m", "openai-chat/gpt-4o").err.splitlines()

    assert "message 1: empty; left out" in repairs
    assert [repair.partition(";")[0] for repair in repairs if "(" in repair] == [
        "a call has no result (call_7)",
        "a result has no call (nobody)",
    ]
    assert sum("result" in line and "call" in line for line in told) == 2, told


def test_several_files_and_models_are_compiled_in_one_process(tmp_path: Path):
    loom = Loom(tmp_path)
    body = {
        "model": "claude-opus-5",
        "max_tokens": 99,
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "strict": True}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
        ],
    }
    loom.file("a.json", json.dumps(body))
    loom.file("b.json", json.dumps({"model": "x", "input": "hello", "tools": [{"type": "web_search"}], "top_p": 0.5}))
    result = loom(
        "wire", "a.json", "b.json", "none.json", "-m", "anthropic/claude-opus-5,openai-chat/gpt-4o,spark", "--full"
    )
    assert result.code == 2
    rows = [json.loads(line) for line in result.out.splitlines()]
    made = [(row["file"], row["provider"], row["model"]) for row in rows if "request" in row]
    assert made == [
        (file, provider, model)
        for file in ("a.json", "b.json")
        for provider, model in (("anthropic", "claude-opus-5"), ("openai-chat", "gpt-4o"))
    ]
    assert [row["file"] for row in rows if "error" in row] == ["a.json", "b.json", "none.json"]
    assert rows[0]["request"] == {**body, "stream": True}
    assert rows[1]["request"]["tools"][0]["function"]["name"] == "f"
    assert rows[1]["request"]["max_completion_tokens"] == 99
    assert rows[4]["request"]["top_p"] == 0.5
    assert any("web_search" in notice for notice in rows[4]["receipt"]["notices"])


def test_the_options_of_a_request_body_stay_with_the_session(tmp_path: Path):
    loom = Loom(tmp_path)
    body = {
        "model": "gpt-4.1",
        "temperature": 0.2,
        "seed": 7,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "x_new": 1}]}],
    }
    loom.file("a.json", json.dumps(body))
    (report,) = loom("import", "a.json", "--json").rows
    assert any("not run by Loom" in repair for repair in report["repairs"])
    request = json.loads(loom("wire", report["session"], "-m", "openai-chat/gpt-4.1").out)["request"]
    assert (request["temperature"], request["seed"]) == (0.2, 7)
    assert request["messages"][-2]["content"] == [{"type": "text", "text": "hi", "x_new": 1}]
