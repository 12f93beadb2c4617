"""What waits for your word when the command was killed: shown, answered and finished by the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.loom_command import Loom, Terminal
from cli.test_daemon_commands import serving

CALL = '!tool run_command {"command": "echo x >> mark"}'
PROMPT = "[y] once  [a] always in this session  [n] no › "


def killed_while_it_asked(loom: Loom) -> str:
    """Gives the name of the approval that is left."""
    with Terminal(loom, "-R", "-T", "run_command", CALL) as terminal:
        terminal.wait_for(PROMPT)
        terminal.kill()
    return loom("approvals", "--json").rows[0]["approval"]


def marks(loom: Loom) -> str:
    file = loom.folder / "mark"
    return file.read_text() if file.exists() else ""


def test_what_waits_is_shown_as_it_would_be_done_and_where(tmp_path: Path):
    loom = Loom(tmp_path)
    assert loom("approvals").err == "No pending approvals\n"
    approval = killed_while_it_asked(loom)

    shown = loom("approvals").out
    (row,) = loom("approvals", "latest", "--json").rows

    assert shown.splitlines()[0].startswith(f"{approval[:8]}  run_command  in ") and "\n  echo x >> mark\n" in shown
    assert (row["tool"], row["action"].splitlines()[0]) == ("run_command", "echo x >> mark")
    assert row["session"] == loom("sessions", "--json").rows[0]["id"]


def test_without_a_terminal_nothing_is_said_over_it_and_the_way_to_answer_is_named(tmp_path: Path):
    loom = Loom(tmp_path)
    short = killed_while_it_asked(loom)[:8]

    ran = loom("-c", "hello")

    assert ran.code == 1 and ran.out == ""
    assert f"Approval pending: {short} run_command: echo x >> mark." in ran.err
    assert f"Approve with `loom approve {short}`" in ran.err
    assert loom("approvals").out and not marks(loom)


def test_an_answer_lets_the_call_run_once_and_the_turn_end(tmp_path: Path):
    loom = Loom(tmp_path)
    approval = killed_while_it_asked(loom)

    ran = loom("approve", approval[:8], "--json")

    assert ran.code == 0 and ran.rows[0]["stop"] == "end" and ran.rows[0]["tool_calls"] == 1
    assert marks(loom) == "x\n"
    assert loom("approve", approval).code == 1 and marks(loom) == "x\n"


def test_a_denial_is_read_by_the_model(tmp_path: Path):
    loom = Loom(tmp_path)
    approval = killed_while_it_asked(loom)

    ran = loom("approve", approval, "--deny", "not on a Monday")

    assert ran.out == "run_command failed: the user denied it: not on a Monday\n" and not marks(loom)


@pytest.mark.parametrize("words", [["chat", "-c"], ["-c", "and now?"]], ids=["chat", "ask"])
def test_on_a_terminal_it_is_asked_first_and_the_conversation_goes_on(tmp_path: Path, words: list[str]):
    loom = Loom(tmp_path, LOOM_PLAIN="1")
    killed_while_it_asked(loom)

    with Terminal(loom, *words) as terminal:
        terminal.wait_for("has a pending approval")
        terminal.wait_for("approve run_command\n  echo x >> mark\n")
        terminal.wait_for(PROMPT)
        terminal.type("y\n")
        terminal.wait_for("(no output, exit code 0)")
        if words[0] == "chat":
            terminal.wait_for("› ")
            terminal.type("/quit\n")
        assert terminal.end() == 0

    assert marks(loom) == "x\n"
    assert [row["speaker"] for row in loom("tree", "--json").rows][:4] == ["you", "spark", "tool", "spark"]


def test_a_running_daemon_takes_it_up_and_the_command_answers_through_it(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")
    (loom.home / "loom.toml").write_text('model = "loom/spark"\n')
    approval = killed_while_it_asked(loom)

    with serving(loom):
        ran = loom("approve", approval)

    assert ran.code == 0 and "(no output, exit code 0)" in ran.out
    assert marks(loom) == "x\n"


def test_whoever_attaches_to_the_daemon_is_asked_first(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="", LOOM_PLAIN="1")
    (loom.home / "loom.toml").write_text('model = "loom/spark"\n')
    short = killed_while_it_asked(loom)[:8]

    with serving(loom):
        piped = loom("attach", "-c", stdin=b"/quit\n")
        with Terminal(loom, "attach", "-c") as terminal:
            terminal.wait_for("approve run_command\n  echo x >> mark\n")
            terminal.wait_for(PROMPT)
            terminal.type("n too risky\n")
            terminal.wait_for("the user denied it: too risky")
            terminal.wait_for("› ")
            terminal.type("/quit\n")
            assert terminal.end() == 0

    assert f"Approval pending: {short} run_command: echo x >> mark" in piped.err and not marks(loom)


def test_an_answer_from_elsewhere_ends_the_question_here_and_the_turn_goes_on(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_PLAIN="1")

    with Terminal(loom, "-R", "-T", "run_command", CALL) as terminal:
        terminal.wait_for(PROMPT)
        ran = loom.process("approve", loom("approvals", "--json").rows[0]["approval"])
        terminal.wait_for("run_command was answered elsewhere")
        terminal.wait_for("(no output, exit code 0)")
        assert terminal.end() == 0

    assert ran.code == 0 and "The program that runs the turn continues it" in ran.err
    assert marks(loom) == "x\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["approve", "0000"], 1, "No pending approval matches '0000'. List pending approvals: `loom approvals`."),
        (["approve", "a", "--always", "--deny", "no"], 2, "--always, --deny and --values exclude each other"),
        (["approve", "a", "--values", "x=1", "--deny", "no"], 2, "--always, --deny and --values exclude each other"),
        (["approve"], 2, "Missing argument 'ID...'. See `loom approve --help`."),
        (["approvals", "nowhere"], 1, "Session 'nowhere' not found"),
    ],
)
def test_what_cannot_be_answered_is_said_in_one_sentence(tmp_path: Path, words: list[str], code: int, said: str):
    ran = Loom(tmp_path)(*words)

    assert ran.code == code and said in ran.err
