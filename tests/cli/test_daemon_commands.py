"""The daemon from the command line: `serve`, `web`, `attach`, `token`, `service`; and `loom "…"` through it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.loom_command import COMMAND, Loom, Terminal
from cli.model_server import model_server
from loom.daemon.serve import LOCK
from loom.testing import sample_pdf


@contextmanager
def serving(loom: Loom, *arguments: str) -> Generator[str]:
    """A daemon in a process of its own; gives what it printed."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", *arguments],
        cwd=loom.folder,
        env={**loom.environ, "LOOM_MODEL": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield "".join(process.stdout.readline() for _ in range(3 if "--lan" in arguments else 2))
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        process.wait(timeout=30)


def url_in(text: str) -> str:
    return re.findall(r"http://[^\s]+", text)[0]


def test_an_answer_through_the_daemon_is_the_answer_without_it(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")
    (loom.home / "loom.toml").write_text('model = "loom/spark"\n')
    loom.file("manual.pdf", sample_pdf("The timeout is 30 seconds.", "Nothing here."))

    with serving(loom):
        through = [
            loom("-R", "manual.pdf", "the timeout?"),
            loom("-R", "-c", "and again?"),
            loom("-R", "-c", "--output-format", "stream-json", "once more"),
            loom("-R", "-c", "-x", "!md"),
            loom("-c", "-R", "!fail 529"),
        ]
        tree_through = [(row["speaker"], row["text"]) for row in loom("tree", "--json").rows]
        loom("sessions", "delete", "1", "--yes")
        here = [
            loom("-R", "--no-daemon", "manual.pdf", "the timeout?"),
            loom("-R", "--no-daemon", "-c", "and again?"),
            loom("-R", "--no-daemon", "-c", "--output-format", "stream-json", "once more"),
            loom("-R", "--no-daemon", "-c", "-x", "!md"),
            loom("-c", "-R", "--no-daemon", "!fail 529"),
        ]
        tree_here = [(row["speaker"], row["text"]) for row in loom("tree", "--json").rows]

    for one, other in zip(through, here, strict=True):
        assert one.code == other.code
        assert _same(one.out) == _same(other.out)
        assert one.err == other.err
    assert tree_through == tree_here


def _same(text: str) -> str:
    """Without what differs between any two runs, and where deltas are cut."""
    whole = re.sub(r'","delta":true}\n{"type":"message","role":"assistant","content":"', "", text)
    return re.sub(r'("(session_id|node)":"[^"]+"|"duration_ms":\d+)', "", whole)


SAFE = [
    *("ask_agent", "fetch_url", "list_files", "look", "read_file", "read_output", "recall"),
    *("render_slides", "screenshot", "search_files", "stop_process", "update_todos"),
]
ASKING = ["edit_file", "multi_edit", "run_command", "start_process", "write_file"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([], SAFE),
        (["-T", "read_file", "-T", "run_command"], ["read_file", "run_command"]),
        (["-T", "none"], []),
        (["-T", "all"], sorted([*SAFE, *ASKING])),
    ],
    ids=["safe", "named", "none", "all"],
)
def test_a_model_is_offered_the_same_tools_with_a_daemon_and_without(
    tmp_path: Path, words: list[str], offered: list[str]
):
    loom = Loom(tmp_path, LOOM_MODEL="")

    with model_server({"name": "run_command", "arguments": {"command": "true"}}, "fine") as server:
        (loom.home / "loom.toml").write_text(server.config)
        with serving(loom):
            through = loom("-m", "local", "-R", *words, "hello")
            asked = len(server.requests)
            here = loom("-m", "local", "-R", "--no-daemon", *words, "hello")

    names = [sorted(tool["function"]["name"] for tool in request.get("tools", ())) for request in server.requests]
    assert names[0] == names[asked] == offered
    assert (through.code, through.out) == (here.code, here.out) == (0, "fine\n")


def test_several_answers_and_tools_work_through_the_daemon(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")
    loom.file("notes.txt", "remember the milk")
    call = {"name": "read_file", "arguments": {"path": "notes.txt"}}

    with model_server(call, "The milk.", "Milk!") as server:
        (loom.home / "loom.toml").write_text(server.config)
        with serving(loom):
            rows = loom("-m", "local", "-n", "2", "--json", "what is in notes?").rows

    assert [row["text"] for row in rows] == ["The milk.", "Milk!"]
    assert rows[0]["tool_calls"] == 1 and "remember the milk" in str(server.requests[1])


def test_the_token_opens_the_daemon_and_a_new_one_shuts_the_old_out(tmp_path: Path):
    loom = Loom(tmp_path)
    first = loom("token").out.strip()

    with serving(loom) as said:
        url = url_in(said)
        assert loom("token").out.strip() == first
        assert _status(f"{url}/v1/version", first) == 200
        second = loom("token", "--rotate").out.strip()
        assert second != first and loom("token").out.strip() == second
        assert (_status(f"{url}/v1/version", first), _status(f"{url}/v1/version", second)) == (401, 200)
    assert loom("token", "--rotate").code == 1


def _status(url: str, token: str = "") -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_a_daemon_that_does_not_respond_is_named_and_its_store_left_alone(tmp_path: Path):
    loom = Loom(tmp_path)
    assert loom("kept words").code == 0
    assert loom("backup", "copy").code == 0
    with serving(loom):
        (lock,) = loom.home.rglob(LOCK)
        pid = int(lock.read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            status = loom("status")
            refused = [loom("restore", "copy", "--replace"), loom("token", "--rotate"), loom("ps")]
        finally:
            os.kill(pid, signal.SIGCONT)

        assert status.code == 1 and f"(pid {pid}) does not respond" in status.out
        assert all(ran.code != 0 and str(pid) in ran.err for ran in refused)
        assert [row["title"] for row in loom("sessions", "--json").rows] == ["kept words"]
        assert not list(lock.parent.glob("*.replaced-*"))


def test_the_token_of_a_daemon_that_is_being_started_is_waited_for(tmp_path: Path):
    loom = Loom(tmp_path)
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0"], cwd=loom.folder, env=loom.environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        told = loom("token")
    finally:
        process.terminate()
        process.wait(timeout=30)

    assert told.code == 0 and told.out.strip() == (loom.home / "state" / "token").read_text().strip()


def test_a_token_that_cannot_be_one_is_refused_before_the_daemon_is_asked(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("lines", "one\ntwo\n")
    loom.file("nothing", "\n")
    nobody = "http://127.0.0.1:1"

    for ran in (
        loom("attach", nobody, "--token-file", "lines"),
        loom("attach", nobody, "--token-file", "nothing"),
        loom("attach", nobody, LOOM_TOKEN="tök"),
    ):
        assert ran.code == 2 and "contains no token" in ran.err, ran.err
    without = loom("attach", nobody)
    assert without.code == 2 and "--token-file" in without.err and "LOOM_TOKEN" in without.err


def test_the_link_of_web_works_once(tmp_path: Path):
    loom = Loom(tmp_path)

    with serving(loom):
        shown = loom("web", "--no-browser")
        link = url_in(shown.out)
        opener = urllib.request.build_opener(_NoRedirect)
        codes = [_opened(opener, link) for _ in range(2)]

    assert shown.code == 0 and "one-time link" in shown.out
    assert codes == [303, 401]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _opened(opener: urllib.request.OpenerDirector, link: str) -> int:
    try:
        with opener.open(link, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_web_starts_a_daemon_where_none_runs_and_ends_with_it(tmp_path: Path):
    loom = Loom(tmp_path)

    with Terminal(loom, "web", "--port", "0", "--no-browser") as terminal:
        terminal.wait_for("one-time link")
        terminal.interrupt()
        terminal.end()

    assert "Traceback" not in terminal.text


def test_for_the_network_there_is_a_password_and_a_code_for_the_phone(tmp_path: Path):
    loom = Loom(tmp_path)

    with Terminal(loom, "web", "--lan", "--port", "0") as terminal:
        terminal.wait_for("password for this run: ")
        terminal.interrupt()
        terminal.end()
    refused = loom.process("serve", "--host", "0.0.0.0", "--port", "0")

    assert terminal.screen.count("▀") > 50 and "http://" in terminal.text
    assert refused.code == 2 and "requires a password" in refused.err
    loom.file("password", "correct horse\n")
    with serving(loom, "--host", "127.0.0.1", "--password-file", "password") as said:
        assert "correct horse" not in said


def test_a_second_daemon_is_told_who_has_the_folder(tmp_path: Path):
    loom = Loom(tmp_path)

    with serving(loom):
        second = loom.process("serve", "--port", "0")
        lan = loom.process("web", "--lan", "--port", "0")
        (row,) = [row for row in loom("doctor", "--json").rows if row["name"] == "daemon"]

    assert second.code == 2 and "is already using this data folder" in second.err
    # On a busy machine the daemon may not respond in time; its lock says the same.
    assert lan.code == 2 and ("already running" in lan.err or "is already using this data folder" in lan.err)
    assert row["state"] == "ok" and "running at http://127.0.0.1:" in row["text"]


def test_a_conversation_goes_on_through_the_daemon_from_elsewhere(tmp_path: Path):
    loom = Loom(tmp_path)
    stranger = Loom(tmp_path / "other" if (tmp_path / "other").mkdir() is None else tmp_path)
    loom.file("manual.pdf", sample_pdf("The timeout is 30 seconds."))

    with serving(loom) as said:
        first = loom("attach", "-R", stdin=b"hello\n@manual.pdf the timeout?\n/model\n/nonsense\n/quit\n")
        token = loom("token").out.strip()
        stranger.file("token", token)
        second = stranger("attach", url_in(said), "-c", "--token-file", "token", "-R", stdin=b"and again?\n")
        third = stranger("attach", url_in(said), "-R", stdin=b"hi\n", LOOM_TOKEN="wrong")

    assert first.code == second.code == 0
    assert "I am loom/spark" in first.out and "30 seconds" in first.out and "loom/spark\n" in first.out
    assert "Unknown command /nonsense" in first.err
    assert "30 seconds" in second.out
    assert third.code == 1 and "--token-file FILE or in LOOM_TOKEN" in third.err and "Bearer" not in third.err
    assert len(loom("log", "--json").rows) == 6
    assert loom("attach").code == 1 and "loom serve" in loom("attach").err
    assert loom("attach", "nonsense").code == 2


def test_a_daemon_that_would_mean_something_else_is_not_asked(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")

    with model_server("from the project's model") as server, serving(loom):
        loom.file("loom.toml", server.config.replace("base_url", "# base_url"))
        (loom.home / "loom.toml").write_text(server.config)
        ran = loom("-m", "local", "-T", "none", "hello")

    assert ran.out == "from the project's model\n"


def test_the_unit_of_the_service_is_one_that_systemd_accepts(tmp_path: Path):
    home = tmp_path / "a 100% folder"
    home.mkdir()
    loom = Loom(home)

    text = loom("service", "install", "--print", "--port", "5777").out

    unit = tmp_path / "loom.service"
    unit.write_text(text)
    ran = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in ran.stderr.splitlines() if "loom.service" in line]
    assert complaints == [], ran.stderr
    assert '"serve" "--port" "5777"' in text and "100%% folder" in text
    missing = loom("service", "status", HOME=str(tmp_path))
    assert missing.code == 1 and "not installed" in missing.out


def test_the_lines_of_the_gateway_configure_the_sdks_and_are_checked(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")
    (loom.home / "loom.toml").write_text('model = "loom/spark"\n')
    programs = {
        "anthropic-sdk": "import anthropic; c = anthropic.Anthropic(); m = [{'role': 'user', 'content': 'hi'}];"
        " print(c.messages.create(model='loom/spark', max_tokens=99, messages=m).content[-1].text)",
        "openai-sdk": "import openai; c = openai.OpenAI();"
        " print(c.responses.create(model='loom/spark', input='hi').output_text)",
    }
    with serving(loom):
        for client, program in programs.items():
            lines = loom("gateway", client).out.replace("$(loom token)", loom("token").out.strip())
            script = f"{lines}\nexec '{sys.executable}' -c \"{program}\""
            ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
            assert "loom/spark" in ran.stdout, ran.stderr
        for client in ("claude-code", "codex", "opencode", "aider", "cline"):
            assert "loom/spark" in loom("gateway", client).out, "the model is named where the client must be told"
        checked = loom("gateway", "openai-sdk", "--check")
        assert (checked.code, checked.out.splitlines()[-1]) == (0, "✔ openai-sdk: /v1/responses, /v1/chat/completions")
        assert "✔ claude-code: /, /v1/messages" in loom("gateway", "claude-code", "--check").out
        failed = loom("gateway", "open-webui", "--check", "-m", "nobody/none")
        assert failed.code == 1
        assert "✖ open-webui: /v1/chat/completions: 'nobody' is not a known platform" in failed.out
