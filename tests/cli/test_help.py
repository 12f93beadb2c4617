"""Help, version, completion, and the page of the documentation that is generated from them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from cli.loom_command import COMMAND, Loom, Terminal
from loom.cli.reference import update_page
from loom.cli.root import COMMANDS
from loom.cli.shared.exit_codes import MEANINGS, exit_code_of

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_documentation_is_what_the_program_says():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

    assert update_page(page) == page, "run: python -m loom.cli.reference docs/cli.md"
    assert all(f"### loom {name}\n" in page for name in COMMANDS)


def test_version_and_help_answer_without_loading_the_rest(tmp_path: Path):
    loom = Loom(tmp_path)

    assert loom.process("--version").out == f"loom {version('loom-runtime')}\n"
    assert loom("ask", "--version").code == 2
    for arguments in (["--version"], ["--help"]):
        script = (
            "import sys; before = set(sys.modules); from loom.cli.main import main\n"
            f"try: main({arguments!r})\nexcept SystemExit: pass\n"
            "heavy = {'asyncio', 'msgspec', 'sqlite3', 'loom.runtime', 'PIL', 'httpx2'} & (set(sys.modules) - before)\n"
            "sys.exit(str(heavy) if heavy else 0)"
        )
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr


def test_help_shows_every_command_and_each_has_a_page(tmp_path: Path):
    loom = Loom(tmp_path)
    listed = loom("--help").out

    for name in COMMANDS:
        assert f"\n  {name} " in listed
        page = loom(name, "--help")
        assert page.code == 0 and page.out.startswith(f"Usage: loom {name}")


def test_no_sentence_in_the_help_is_cut(tmp_path: Path):
    loom = Loom(tmp_path)

    listed = {name: loom(name, "--help").out.partition("\nCommands:\n")[2] for name in COMMANDS}
    assert any(listed.values())
    assert [name for name, commands in listed.items() if re.search(r"\.\.\.$", commands, re.MULTILINE)] == []


def test_every_exit_code_is_documented():
    assert list(MEANINGS) == [0, 1, 2, 3, 4, 5, 6, 130]
    codes = {
        "provider.not_authorised": 3,
        "provider.rate_limited": 4,
        "media.encrypted": 5,
        "turn.limit": 6,
        "store.full": 1,
        "config.invalid": 2,
    }
    assert {code: exit_code_of(code) for code in codes} == codes


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("loom ses", ["sessions"]),
        ("loom ask -t sh", ["short"]),
        ("loom ask --per", ["--permission"]),
        ("loom ask --permission ", ["ask", "auto", "plan", "deny"]),
        ("loom -m oll", ["ollama/"]),
        ("loom keys set anth", ["anthropic"]),
    ],
)
def test_bash_completes(tmp_path: Path, words: str, expected: list[str]):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "short.toml").write_text("prompt = 'x'")
    script = Loom(tmp_path)("completion", "bash").out
    typed = f'{words}""' if words.endswith(" ") else words
    line = (
        f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1))\n"
        "_loom_completion loom; printf '%s\\n' \"${COMPREPLY[@]}\""
    )

    ran = _in_shell(["bash", "--norc", "-c", line], tmp_path)

    assert [word for word in ran.splitlines() if word] == expected


def test_zsh_completes(tmp_path: Path):
    script = Loom(tmp_path)("completion", "zsh").out
    line = (
        "autoload -U compinit; compinit -D\n"
        f"{script}\n"
        '_describe() { print -l -- "${(@P)3}" }; compadd() { print -l -- "${@[-1]}" }\n'
        "words=(loom se); CURRENT=2; _loom_completion"
    )

    assert "sessions" in _in_shell(["zsh", "-f", "-c", line], tmp_path)


@pytest.mark.parametrize(
    ("shell", "begin"),
    [
        (["bash", "--norc", "--noprofile", "-i"], 'eval "$(loom completion bash)"; PS1="> "'),
        (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -D; eval "$(loom completion zsh)"; PS1="> "'),
    ],
    ids=["bash", "zsh"],
)
def test_a_person_presses_tab(tmp_path: Path, shell: list[str], begin: str):
    loom = Loom(tmp_path, PATH=f"{_program(tmp_path)}:{os.environ['PATH']}")

    with Terminal(loom, command=shell) as terminal:
        terminal.type(f"{begin}; echo re''ady\n")
        terminal.wait_for("ready")
        terminal.type("loom sess\t")
        terminal.wait_for("loom sessions")
        terminal.type("--her\t")
        terminal.wait_for("--here")
        terminal.type("\n")
        terminal.wait_for("No sessions yet")
        terminal.type("exit\n")
        terminal.end()


def test_fish_gets_a_script_too(tmp_path: Path):
    assert "complete --command loom" in Loom(tmp_path)("completion", "fish").out


def _in_shell(command: list[str], folder: Path) -> str:
    environ = {**os.environ, "PATH": f"{_program(folder)}:{os.environ['PATH']}", "LOOM_HOME": str(folder)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout


def _program(folder: Path) -> Path:
    """`loom` as a small program, as an installation would put it on the path."""
    program = folder / "bin" / "loom"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    return program.parent


@pytest.mark.parametrize(
    ("words", "page"), [(["help"], "Usage: loom [OPTIONS]"), (["help", "keys"], "Usage: loom keys")]
)
def test_help_is_a_command_and_no_question(tmp_path: Path, words: list[str], page: str):
    ran = Loom(tmp_path)(*words)

    assert ran.code == 0 and ran.out.startswith(page)


def test_bash_completes_names_of_files_where_loom_offers_nothing(tmp_path: Path):
    script = Loom(tmp_path)("completion", "bash").out
    line = (
        f"{script}\nCOMP_WORDS=(loom ask -a report-o); COMP_CWORD=3\n"
        "_loom_completion loom; printf '%s\\n' \"offered: ${#COMPREPLY[@]}\"; complete -p loom"
    )

    ran = _in_shell(["bash", "--norc", "-c", line], tmp_path)

    assert "offered: 0" in ran and "-o bashdefault -o default" in ran
