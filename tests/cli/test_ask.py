"""`loom "…"` as a person and a script meet it."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from pathlib import Path

from cli.loom_command import COMMAND, Loom, Terminal
from cli.model_server import model_server
from loom.testing import sample_pdf, sample_png, sample_wav

LEAFLET = sample_pdf("The timeout is 30 seconds.", "Nothing to see on this page.", "Raise the timeout to 60 seconds.")


def test_an_answer_goes_to_stdout_and_everything_about_it_to_stderr(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("manual.pdf", LEAFLET)

    ran = loom.process("manual.pdf", "which pages mention the timeout?")

    assert ran.code == 0
    assert "Pages 1 and 3" in ran.out
    assert "──" not in ran.out and "\x1b" not in ran.out
    assert "manual.pdf" in ran.err
    assert loom("-R", "hello").err == ""


def test_the_built_in_model_introduces_itself_once_a_day(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="", LOOM_OFFLINE="1")

    first, second = loom("-R", "hello"), loom("-R", "hello")

    assert "No API key and no local model found: using loom/spark" in first.err
    assert "loom/spark answers" not in second.err
    assert first.out == second.out != ""


def test_a_session_goes_on_in_its_folder_and_anywhere_by_name(tmp_path: Path):
    loom = Loom(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    first = json.loads(loom("--json", "alpha").out)

    assert loom("-c", "x", cwd=elsewhere).code == 1
    assert "No sessions in this folder yet" in loom("-c", "x", cwd=elsewhere).err
    for words in (["-c"], ["-r"], ["-r", "1"], ["-r", "alpha"], ["-r", first["session"].lower()]):
        assert json.loads(loom("--json", *words, "--", "and again").out)["session"] == first["session"]
    assert loom("-r", "nothing-like-it", "--", "x").code == 1


def test_going_on_from_an_earlier_message_overwrites_nothing(tmp_path: Path):
    loom = Loom(tmp_path)
    first = json.loads(loom("--json", "alpha").out)
    second = json.loads(loom("--json", "-c", "beta").out)
    node = first["node"].removeprefix("node:sha256:")[:10]

    branched = json.loads(loom("--json", "--from", node, "gamma").out)
    forked = json.loads(loom("--json", "-c", "--fork", "delta").out)

    assert branched["session"] == first["session"] != forked["session"]
    said = {row["text"]: row["parent"] for row in loom("tree", first["session"], "--json").rows}
    assert {"alpha", "beta", "gamma"} <= set(said) and "delta" not in said
    assert said["beta"] == said["gamma"] == first["node"]
    assert second["node"] in {row["node"] for row in loom("tree", first["session"], "--json").rows}
    assert loom("--from", "00000000", "x").code == 1


def test_what_is_piped_in_is_understood(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("notes.txt", "remember the milk")

    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config)
        loom("-m", "local", "explain", stdin=b"a line of text\n")
        loom("-m", "local", "see", stdin=sample_png())
        loom("-m", "local", "read", "-a", "-", stdin=b"attached text")
        loom("-m", "local", "notes.txt", "what is in it?", "-i", str(loom.file("dot.png", sample_png())))
        loom("-m", "local", stdin=b"only a pipe")
        sent = [request["messages"][-1]["content"] for request in server.requests]

    assert _words(sent[0]) == ["a line of text\n\nexplain"]
    assert _kinds(sent[1]) == ["image_url", "text"]
    assert _words(sent[2]) == ["[file: stdin]\nattached text\n\nread"]
    assert _kinds(sent[3]) == ["text", "image_url", "text"]
    assert "remember the milk" in _words(sent[3])[0]
    assert _words(sent[4]) == ["only a pipe"]


def _words(content: object) -> list[str]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    assert isinstance(parts, list)
    return [part["text"] for part in parts if part["type"] == "text"]


def _kinds(content: object) -> list[str]:
    assert isinstance(content, list)
    return [part["type"] for part in content]


def test_a_long_document_begins_with_its_first_pages_and_a_range_is_what_was_asked_for(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("long.pdf", sample_pdf(*(f"This is page number {at}." for at in range(1, 48))))

    whole = loom("--dry-run", "-m", "anthropic/claude-opus-5", "long.pdf", "summarize")
    some = loom("--json", "long.pdf#30-31", "page number")

    assert "Attached long.pdf, 47 pages" in whole.err
    assert "sending 1-20, more with long.pdf#21-40" in whole.err
    assert "30" in some.out and "number 12" not in some.out
    assert some.err == ""


def test_a_dry_run_shows_the_request_and_keeps_nothing(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("dot.png", sample_png())

    ran = loom("--dry-run", "-m", "gpt-5.5", "-s", "Be brief.", "-T", "none", "what is it?", "-a", "dot.png")
    full = loom("--dry-run", "--full", "-m", "gpt-5.5", "-T", "none", "dot.png")
    table = loom("--dry-run", "dot.png", "what is it?")

    request = json.loads(ran.out)["request"]
    assert request["instructions"] == "Be brief."
    image = request["input"][0]["content"][0]["image_url"]
    assert image.startswith("data:image/png;base64,<sha256:") and len(image) < 150
    assert len(json.loads(full.out)["request"]["input"][0]["content"][0]["image_url"]) > 100
    assert "[Image #1] dot.png" in table.out and "● full" in table.out
    assert loom("sessions", "--json").rows == []
    assert not list((loom.home / "media").rglob("*")) or loom("doctor", "--json").out.count('"0 files') == 1


def test_json_tells_what_happened_also_when_it_failed(tmp_path: Path):
    loom = Loom(tmp_path)

    good = json.loads(loom("--json", "hello").out)
    ran = loom("--json", "!fail 529")
    lost = loom("--json", "-m", "anthropic/claude-opus-5", "hello")
    wrong = loom("--json", "-a", "nowhere.png")

    assert set(good) == {
        *("session", "node", "model", "text", "reasoning", "stop", "usage", "usd", "seconds", "tool_calls"),
        *("media", "notices", "error"),
    }
    assert (good["model"], good["stop"], good["usd"], good["error"]) == ("loom/spark", "end", 0.0, None)
    assert ran.code == 4 and json.loads(ran.out)["error"]["code"] == "provider.overloaded"
    assert lost.code == 3 and json.loads(lost.out)["error"]["code"] == "provider.not_authorised"
    assert wrong.code == 5 and json.loads(wrong.out)["error"]["code"] == "media.unreadable"


def test_stream_json_has_the_names_that_scripts_know(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("notes.txt", "remember the milk")

    with model_server({"name": "read_file", "arguments": {"path": "notes.txt"}}, "The milk.") as server:
        (loom.home / "loom.toml").write_text(server.config)
        rows = loom("-m", "local", "--output-format", "stream-json", "what is in notes?").rows

    types = [row["type"] for row in rows]
    assert types == ["init", "message", "tool_use", "tool_result", "message", "result"]
    assert rows[1] == {"type": "message", "role": "user", "content": "what is in notes?"}
    assert rows[2]["tool_name"] == "read_file" and rows[2]["parameters"] == {"path": "notes.txt"}
    assert rows[3]["status"] == "success" and "remember the milk" in rows[3]["output"]
    assert rows[4] == {"type": "message", "role": "assistant", "content": "The milk.", "delta": True}
    assert rows[5]["status"] == "success" and rows[5]["stats"]["tool_calls"] == 1


def test_stream_json_says_in_its_own_lines_that_nothing_could_be_asked(tmp_path: Path):
    ran = Loom(tmp_path)("-m", "nope", "hi", "--output-format", "stream-json")

    problem, result = ran.rows
    assert ran.code == 2
    assert (problem["type"], problem["severity"], problem["code"]) == ("error", "error", "config.invalid")
    assert "nope" in problem["message"] and problem["hint"]
    assert (result["type"], result["status"], result["session_id"]) == ("result", "error", "")


def test_escapes_in_an_answer_reach_no_terminal(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("red \x1b[31malert\x1b]0;title\x07 \x9b2J over\rwritten") as server:
        (loom.home / "loom.toml").write_text(server.config)
        ran = loom("-m", "local", "hello")

    assert ran.out == "red ␛[31malert␛]0;title␇ �2J overwritten\n"
    assert "\x1b" not in loom("log").out


def test_a_tool_that_needs_a_word_is_refused_without_a_terminal_unless_told_otherwise(tmp_path: Path):
    loom = Loom(tmp_path)
    outside = tmp_path / "outside.txt"
    outside.write_text("the secret plan")
    call = {"name": "read_file", "arguments": {"path": str(outside)}}

    results: list[str] = []
    for permission in ("ask", "deny", "auto"):
        with model_server(call, "done") as server:
            (loom.home / "loom.toml").write_text(server.config)
            assert loom("-m", "local", "--permission", permission, "read it").code == 0
            results.append(str(server.requests[-1]["messages"][-1]["content"]))

    assert "No terminal to ask for approval" in results[0]
    assert "--permission deny" in results[1]
    assert "the secret plan" in results[2]


def test_pages_of_what_is_piped_in_are_chosen_like_those_of_a_file(tmp_path: Path):
    loom = Loom(tmp_path)
    document = sample_pdf(*(f"This is page {number}." for number in range(1, 31)))

    first = loom("-R", "what?", stdin=document)
    chosen = loom("-R", "-a", "-#21-22", "what?", stdin=document)

    assert "sending 1-20, more with -a -#21-30.]" in first.err
    assert "(page 21)" in chosen.out and "(page 1)" not in chosen.out and chosen.err == ""
    assert "[pages 21-22 of " in loom("context").out


def test_a_session_in_plan_mode_says_so_and_another_permission_ends_it(tmp_path: Path):
    loom = Loom(tmp_path)
    write = '!tool write_file {"path": "new.txt", "content": "x"}'

    first = loom("-R", "--plan", "how?")
    planning = loom("-R", "-c", "-T", "all", write)
    allowed = loom("-R", "-c", "-T", "all", "--permission", "auto", write)
    after = loom("-R", "-c", "hello")

    assert "Plan mode" not in first.err + allowed.err + after.err
    assert "[Plan mode: only tools that read are offered." in planning.err
    assert "Tool 'write_file' not found" in planning.out and "new.txt is new" in allowed.out
    assert (loom.folder / "new.txt").read_text() == "x"


def test_a_run_that_only_plans_changes_nothing_and_the_model_is_told(tmp_path: Path):
    loom = Loom(tmp_path)
    write = {"name": "write_file", "arguments": {"path": "new.txt", "content": "x"}}

    with model_server(write, "I would write it.") as server:
        (loom.home / "loom.toml").write_text(server.config)
        ran = loom("-m", "local", "-R", "--permission", "plan", "-T", "all", "write new.txt")

    offered = {tool["function"]["name"]: tool["function"] for tool in server.requests[0]["tools"]}
    assert "You are in plan mode: nothing may be changed yet." in offered["present_plan"]["description"]
    assert "read_file" in offered and not offered.keys() & {"write_file", "edit_file", "multi_edit", "run_command"}
    assert "Tool 'write_file' not found" in server.requests[1]["messages"][-1]["content"]
    assert (ran.code, ran.out) == (0, "I would write it.\n")
    assert not (loom.folder / "new.txt").exists()


def test_tools_are_chosen_by_name(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("ok") as server:
        (loom.home / "loom.toml").write_text(server.config)
        loom("-m", "local", "-T", "none", "hello")
        loom("-m", "local", "-T", "read_file", "hello")
        offered = [[tool["function"]["name"] for tool in request.get("tools", [])] for request in server.requests]

    assert offered == [[], ["read_file"]]
    assert loom("-T", "no_such_tool", "hello").code == 2


def test_every_failure_is_one_sentence_with_a_next_step_and_its_own_exit_code(tmp_path: Path):
    loom = Loom(tmp_path)
    broken = loom.file("broken.pdf", sample_pdf("a page")[:60])

    for words, code, said in [
        (["--no-such-option"], 2, "no-such-option"),
        (["ask"], 2, "No question given"),
        (["sesions"], 2, "Did you mean `loom sessions`"),
        (["-m", "nonsense", "hi"], 2, "Model 'nonsense' not found. Configured:"),
        (["-m", "anthropic/claude-opus-5", "hi"], 3, "loom keys set anthropic"),
        (["!fail 529"], 4, "Try again"),
        (["-a", "nowhere.png", "hi"], 5, "File not found: nowhere.png. Check the name"),
        (["-a", ".", "hi"], 5, "is a folder"),
        ([str(broken), "hi"], 5, "broken.pdf is not a PDF that can be read"),
        (["-r", "nowhere-to-be-found", "--", "hi"], 1, "List them: `loom sessions`"),
    ]:
        ran = loom(*words)
        assert ran.code == code, (words, ran)
        assert said in ran.err, (words, ran)
        assert ran.out == ""
        assert len(ran.err.strip().splitlines()) <= 4, ran.err


def test_a_traceback_is_shown_only_when_asked_for(tmp_path: Path):
    loom = Loom(tmp_path)

    assert "Traceback" not in loom("-a", "nowhere.png").err
    assert "Traceback" in loom("--debug", "-a", "nowhere.png").err
    assert "Traceback" in loom("-a", "nowhere.png", "--debug").err


def test_a_turn_that_never_ends_is_ended_with_a_code_of_its_own(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server({"name": "read_file", "arguments": {"path": "nothing"}}) as server:
        (loom.home / "loom.toml").write_text(server.config)
        ran = loom("-m", "local", "go")

    assert ran.code == 6
    assert 'Send "continue" to go on' in ran.err


def test_ctrl_c_ends_the_answer_and_keeps_what_was_said(tmp_path: Path):
    loom = Loom(tmp_path)
    process = subprocess.Popen(
        [*COMMAND, "-R", "!slow 25tps\n\nhello"],
        cwd=loom.folder,
        env=loom.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(1)

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert err.decode().endswith("loom: interrupted\n")
    assert loom("log", "--json").rows[0]["speaker"] == "you"
    assert loom("-c", "and now?").code == 0


def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path):
    loom = Loom(tmp_path)
    line = f"{' '.join(COMMAND)} hello | head -c 1"

    ran = subprocess.run(
        line, shell=True, cwd=loom.folder, env=loom.environ, capture_output=True, timeout=60, check=False
    )

    assert ran.stdout == b"I"
    assert b"Traceback" not in ran.stderr and b"BrokenPipe" not in ran.stderr


def test_a_file_whose_name_lies_is_what_its_bytes_say(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("fake.png", "<!doctype html><html><body>not a picture</body></html>")

    ran = loom("--dry-run", "fake.png")

    assert ran.code == 0
    assert "fake.png is HTML (by its bytes), attached as text" in ran.err


def test_a_switch_to_another_model_says_what_it_will_be_shown(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("manual.pdf", LEAFLET)
    loom("-R", "manual.pdf", "which pages mention the timeout?")

    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config)
        switched = loom("-c", "-m", "local", "go on")
        aged = loom("-c", "-m", "local", "go on")
        stayed = loom("-c", "-m", "local", "go on")

    assert "[openai-compatible/scripted · media 1" in switched.err
    assert "1 thinking blocks of another model left out" in switched.err
    assert "≈ $0]" in switched.err
    assert (
        aged.err == "loom: To save tokens, media of older turns are sent as text; the model can request them again.\n"
    )
    assert stayed.err == "", "each is said once"


def test_a_model_without_ears_is_no_secret(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("tone.wav", sample_wav())

    ran = loom("--dry-run", "-m", "anthropic/claude-opus-5", "tone.wav", "what is it?")

    assert "tone.wav as text" in ran.err
    assert "[audio: tone.wav, 0.5 s" in ran.out


def test_a_reminder_that_cannot_be_kept_stops_no_question(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="", LOOM_OFFLINE="1")
    state = loom.home / "state"
    state.write_text("no folder")

    in_the_way = loom("-R", "hello")
    state.unlink()
    first = loom("-R", "hello")

    assert in_the_way.code == first.code == 0
    assert "using loom/spark" in in_the_way.err and "using loom/spark" in first.err
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_pages_that_are_written_wrongly_are_no_words_to_send(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("report.pdf", LEAFLET)

    for pages in ("0", "x", "", "1-2-3"):
        for words in ([f"report.pdf#{pages}"], ["-a", f"report.pdf#{pages}"]):
            ran = loom(*words, "what?")
            assert ran.code == 2 and "Not a range of pages" in ran.err, (words, ran.err)
    talked = loom("chat", "--plain", "-R", stdin=b"see @report.pdf#0 and @report.pdf#1, please\n")
    assert "Not a range of pages: '0'; sent as text" in talked.err and "file not found" not in talked.err
    loom.file("notes#x", "a file whose name has a #")
    assert loom("-R", "notes#x", "what?").code == loom("-R", "nobody.pdf#x", "what?").code == 0


def test_a_mistyped_file_name_is_not_sent_as_a_question(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("login.png", sample_png())

    piped = loom("-R", "what is wrong here?", "logn.png")
    inside = loom("-R", "!echo what is logn.png?")
    with Terminal(loom, "-R", "!echo hello", "logn.png") as terminal:
        terminal.wait_for("Send the name as text?")
        terminal.type("n\n")
        code = terminal.end()

    assert piped.code == 5 and "File not found: logn.png" in piped.err and not piped.out
    assert inside.code == 0 and "what is logn.png?" in inside.out
    assert code == 5
