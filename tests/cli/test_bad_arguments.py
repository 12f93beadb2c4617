"""Whatever is typed, and whatever the machine is short of: one clear sentence, a code of its own, never a traceback.

`Loom` itself fails a test whose command shows a traceback or speaks of a fault inside Loom.
"""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.loom_command import COMMAND, Loom, Ran
from loom.cli.root import COMMANDS
from loom.errors import Unreadable
from loom.runtime.attachments import attachment
from loom.testing import sample_png

SERVING = {"serve", "web", "mcp-serve", "chat", "attach", "token"}
"""These wait for somebody; what is wrong with their arguments is tried below."""
OPTIONS = [
    *("--json", "-n", "-r", "-c", "--from", "--fork", "-s", "-T", "--permission", "--dry-run", "--full", "-x", "-u"),
    *("-a", "--at", "-t", "--param", "--save", "-q", "--key", "--describe-with", "--no-resize", "--graph", "--index"),
    *("-f", "-o", "--fix", "--check", "--project", "--origin", "--pages", "--as", "--rotate", "--print", "--", "-"),
]
WORDS = [
    *("", " ", ".", "/", "..", "/dev/null", "/proc/self/mem", "nowhere.png", "folder", "bad.json", "picture.png#0-0"),
    *("picture.png", "picture.png#99-98", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "deadbeef", "0", "-1", "99999999999999999999"),
    *("search", "export", "delete", "rename", "set", "list", "show", "add", "remove", "path", "default", "zip", "html"),
    *("\x1b[2J", "\u202e", "a\nb", "x" * 5_000, "@", "$input", "%s", "'; --", "http://", "https://[", "file:///etc"),
    *("anthropic", "spark", "loom/", "/x", "a,b,", "hello", "\udcff"),
]


def world(folder: Path) -> Loom:
    loom = Loom(folder)
    (loom.folder / "folder").mkdir(exist_ok=True)
    loom.file("bad.json", "{not json")
    loom.file("picture.png", sample_png())
    return loom


def is_fair(ran: Ran) -> bool:
    """A code that is documented; where it failed, something was said about it, and no escape reached the terminal."""
    said = bool(ran.err.strip() or ran.out.strip())
    return ran.code in (0, 1, 2, 3, 4, 5, 6, 130) and (ran.code == 0 or said) and "\x1b" not in ran.err + ran.out


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Loom:
    loom = world(tmp_path_factory.mktemp("fuzz"))
    loom("-R", "picture.png", "hello")
    return loom


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    command=st.sampled_from([name for name in COMMANDS if name not in SERVING]),
    words=st.lists(st.sampled_from(OPTIONS) | st.sampled_from(WORDS), max_size=5),
    stdin=st.sampled_from([b"", b"text\n", sample_png(), b"\xff\xfe\x00", b"%PDF-1.4 broken"]),
)
def test_no_command_line_breaks_it(used: Loom, command: str, words: list[str], stdin: bytes):
    if command == "service" and words[:1] in (["install"], ["uninstall"]):
        return
    ran = used(command, *words, stdin=stdin)

    assert is_fair(ran), (command, words, ran)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_unknown_options_and_ids_are_named(used: Loom, command: str):
    ran = used(command, "--no-such-option-anywhere")

    assert ran.code == 2 and "no-such-option" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["log", "01ARZ3NDEKTSV4RRFFQ69G5FAV"],
        ["tree", "zzzz"],
        ["context", "zzzz"],
        ["wire", "zzzz", "-m", "gpt-5.5"],
        ["wire", "bad.json", "-m", "gpt-5.5"],
        ["wire", "folder", "-m", "gpt-5.5"],
        ["context", "nowhere.json"],
        ["import", "bad.json"],
        ["import", "folder"],
        ["import", "nowhere.json"],
        ["doctor", "bad.json"],
        ["doctor", "folder"],
        ["read", "nowhere.txt"],
        ["read", "folder"],
        ["sessions", "rename", "zzzz", "x"],
        ["sessions", "delete", "zzzz", "-y"],
        ["sessions", "export", "zzzz"],
        ["sessions", "export", "-o", "folder"],
        ["sessions", "search"],
        ["-c", "--from", "deadbeef00", "x"],
        ["-t", "folder/", "x"],
        ["-a", "https://[", "x"],
        ["-m", "compatible/x", "hello"],
        ["--describe-with", "nobody", "x", "picture.png"],
        ["attach", "http://127.0.0.1:1"],
        ["serve", "--password-file", "nowhere", "--port", "0"],
    ],
)
def test_what_is_not_there_is_one_sentence(used: Loom, words: list[str]):
    ran = used(*words)

    assert ran.code != 0 and is_fair(ran), ran
    assert len([line for line in ran.err.splitlines() if line.strip()]) <= 5, ran.err


@pytest.mark.parametrize("words", [["hello"], ["log"], ["sessions"], ["--help"], ["models"], ["doctor"], ["tree"]])
def test_a_reader_that_went_away_is_no_failure(used: Loom, words: list[str]):
    """Its stdout is a pipe whose other end is closed before it begins."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [*COMMAND, *words], stdout=writing, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=used.folder,
        env=used.environ, timeout=120, check=False,
    )  # fmt: skip
    os.close(writing)

    assert process.returncode == 0
    assert b"Traceback" not in process.stderr and b"Exception ignored" not in process.stderr, process.stderr


def test_closed_streams_are_survived(used: Loom):
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        line = f"{' '.join(COMMAND)} sessions {closed}"
        ran = subprocess.run(
            line, shell=True, cwd=used.folder, env=used.environ, capture_output=True, timeout=60, check=False
        )
        assert ran.returncode == 0, (closed, ran)
        assert b"Traceback" not in ran.stderr, (closed, ran.stderr)


def test_without_a_home_it_says_what_to_set(tmp_path: Path):
    loom = Loom(tmp_path)
    environ = {name: value for name, value in loom.environ.items() if name not in ("HOME", "LOOM_HOME")}

    for words in (["hello"], ["sessions"], ["keys", "path"], ["config", "path"], ["doctor"], ["service", "status"]):
        ran = subprocess.run(
            ["unshare", "--user", "--map-user=54321", "--map-group=54321", *COMMAND, *words],
            cwd="/", env=environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ran.returncode in (1, 2), (words, ran)
        assert "LOOM_HOME" in ran.stderr + ran.stdout or "HOME" in ran.stderr, (words, ran)
        assert "Traceback" not in ran.stderr


def test_a_data_folder_that_cannot_be_written_is_said(tmp_path: Path):
    loom = world(tmp_path)
    loom("-R", "hello")
    for path in [loom.home, *loom.home.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    unprivileged = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]

    for words in (
        ["hello"],
        ["keys", "set", "openai", "--no-check"],
        ["sessions", "rename", "1", "x"],
        ["x", "--save", "y"],
    ):
        ran = subprocess.run(
            [*unprivileged, *COMMAND, *words], cwd=loom.folder, env=loom.environ, input="sk-1234567\n",
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ran.returncode in (1, 2), (words, ran)
        assert "Traceback" not in ran.stderr and "inside Loom" not in ran.stderr, (words, ran.stderr)
        assert ran.stderr.startswith("loom: "), (words, ran.stderr)


def test_a_full_disk_is_said_and_what_was_there_stays(tmp_path: Path):
    loom = world(tmp_path)
    loom("-R", "hello")
    size = max(path.stat().st_size for path in loom.home.rglob("*") if path.is_file())
    loom.file("noise.png", sample_png(64, 48) + os.urandom(1_000_000))

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8_192, size + 8_192))

    ran = subprocess.run(
        [*COMMAND, "-R", "hello", "noise.png"], cwd=loom.folder, env=loom.environ, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False, preexec_fn=no_room,
    )  # fmt: skip

    assert ran.returncode in (1, 5), ran
    assert "Traceback" not in ran.stderr and "inside Loom" not in ran.stderr, ran.stderr
    assert loom("log").code == 0 and loom("doctor").code == 0


@pytest.mark.parametrize(
    "locale",
    [
        {"PYTHONUTF8": "0", "PYTHONIOENCODING": "iso8859-5"},  # lacks every sign of ours, so that all of it is ASCII
        {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"},
    ],
    ids=["eight bits", "seven bits"],
)
def test_a_locale_that_lacks_characters_ends_no_answer(used: Loom, locale: dict[str, str]):
    said = used.process("-R", "--no-daemon", "hello", **locale)
    told = used.process("--json", "--no-daemon", "!echo \u6f22\u5b57", **{**locale, "PYTHONUTF8": "1"})

    assert said.code == 0 and said.out.endswith("choose another model.\n") and "?read a.png?" in said.out
    assert "\u6f22\u5b57" in told.rows[0]["text"]
    for words in (["models", "spark"], ["context"], ["log"], ["tree"], ["doctor"], ["-a", "\u2714.png", "x"]):
        assert is_fair(used.process(*words, **locale)), words


@pytest.mark.parametrize(
    ("option", "meant"), [("--nope", ""), ("--modle", "--model"), ("--contineu", "--continue"), ("--jsn", "--json")]
)
def test_only_an_option_that_is_near_is_proposed(used: Loom, option: str, meant: str):
    ran = used("ask", option, "x")

    assert ran.code == 2 and option in ran.err
    assert ("Did you mean" in ran.err) == bool(meant) and meant in ran.err


def test_wrong_values_of_options_are_errors_in_the_words_of_the_option(tmp_path: Path) -> None:
    loom = world(tmp_path)
    for words, says in [
        (("serve", "--port", "abc"), "Invalid value for '--port': 'abc' is not a whole number. See"),
        (("hi", "-m", "x", "--base-url", "foo"), "Not a URL: foo. Write --base-url http://HOST:PORT/v1"),
        (("stop",), "No daemon is running for this data folder."),
    ]:
        ran = loom(*words)
        assert ran.code in (1, 2) and says in " ".join(ran.err.split()), (words, ran.err)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sessions", "lst"), "Unknown command 'lst'. Did you mean `loom sessions list`?"),
        (("keys", "lsit"), "Unknown command 'lsit'. Did you mean `loom keys list`?"),
        (("users", "delete"), "Unknown command 'delete'. Commands: add, budget, key, list, "),
        (("mcp", "serve"), "Unknown command 'serve'. Commands: add, import, list, "),
    ],
)
def test_a_mistyped_command_of_a_group_is_named_with_a_similar_one(used: Loom, words: tuple[str, str], says: str):
    ran = used(*words)

    assert ran.code == 2 and says in ran.err


@pytest.mark.parametrize("group", ["sessions", "trust"])
def test_list_is_a_command_of_each_group_that_lists(used: Loom, group: str):
    assert used(group, "list") == used(group)


def test_the_list_of_sessions_takes_its_options_by_either_name(used: Loom):
    assert used("sessions", "list", "--json", "-n", "1").rows == used("sessions", "--json", "-n", "1").rows


PATHS = [
    *("./Makefle", "../notes", "~/notes", "./nowhere/x", "./x#3", "/dev/fd/99", "/etc/hots"),
    *("nowhere.png", "folder/nowhere.png"),
]


@pytest.mark.parametrize("word", PATHS)
def test_a_word_that_is_written_as_a_path_is_never_sent_without_its_file(used: Loom, word: str):
    before = used("sessions", "--json", "-n", "100").rows

    ran = used("explain", word)

    assert ran.code == 5 and f"File not found: {word}." in ran.err
    assert used("sessions", "--json", "-n", "100").rows == before


@pytest.mark.parametrize("word", ["/review", "and/or", "/v1/models", "./", "folder", "./folder", "...", "~", "w/o"])
def test_other_words_with_a_slash_are_words(used: Loom, word: str):
    ran = used("-R", "!echo hello", word)

    assert ran.code == 0 and word in ran.out


def test_a_pipe_is_no_file_and_the_error_says_how_to_send_its_text(used: Loom):
    """As a shell passes it for `loom explain <(git diff)`."""
    reading, writing = os.pipe()
    os.close(writing)
    try:
        for words in (("explain", f"/dev/fd/{reading}"), ("explain", "-a", f"/dev/fd/{reading}")):
            ran = used(*words)
            assert ran.code == 5, words
            assert 'is a pipe or a device, not a file. Pipe it in: COMMAND | loom "…"' in ran.err, words
    finally:
        os.close(reading)


def test_errors_say_what_is_missing_and_name_things_once(tmp_path: Path) -> None:
    loom = world(tmp_path)
    for words, code, says in [
        (("keys", "set", "openai"), 2, "No key given. Type it at the prompt, or pipe it in."),
        (("models", "add", "foo"), 2, "Not a URL: foo. Example: loom models add http://127.0.0.1:8000/v1"),
        (("read", "folder"), 5, "folder is a folder. Name the files in it."),
        (("-m", "sonnet", "hi"), 2, "Did you mean anthropic/claude-sonnet-5?"),
    ]:
        ran = loom(*words)
        assert ran.code == code and says in ran.err + ran.out, (words, ran)


def test_a_mistyped_slash_command_is_named_with_a_similar_one(used: Loom):
    ran = used("chat", "--plain", stdin=b"/modle\n/nonsense\n")

    assert "Unknown command /modle. Did you mean /model? /help lists the commands." in ran.err
    assert "Unknown command /nonsense. /help lists the commands." in ran.err


def test_an_import_of_this_folder_names_it(tmp_path: Path) -> None:
    loom = world(tmp_path)
    folder = loom.folder / "talks"
    folder.mkdir()
    assert loom("-R", "hello").code == 0
    assert loom("sessions", "export", "-f", "json", "-o", "talks/talk.json").code == 0
    assert loom("sessions", "delete", "1", "-y").code == 0

    imported = loom("import", ".", cwd=folder)

    assert imported.code == 0 and "✔ talks (Loom): imported as" in imported.out
    again = loom("import", ".", cwd=loom.folder / "folder")
    assert again.code == 5 and again.err.startswith("loom: folder contains no conversations."), again.err


def test_the_doctor_blames_the_store_for_no_fault_of_the_configuration(tmp_path: Path) -> None:
    loom = world(tmp_path)
    loom.file("loom.toml", "model = \n")

    checked = loom("doctor", "--json")

    problems = {row["name"]: row["text"] for row in checked.rows if row["state"] != "ok"}
    assert checked.code == 1 and "line 1" in problems["config"]
    assert problems["store"] == "not checked: the configuration is invalid"


def test_a_name_that_is_too_long_for_a_file_is_no_file(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    attached = loom("-a", "n" * 300, "!echo hello")
    chatted = loom("chat", "--plain", stdin=f"!echo see @{'n' * 300}\n".encode())
    assert (attached.code, chatted.code) == (5, 0)
    assert "File not found" in attached.err and "see @nnn" in chatted.out


def test_a_pipe_of_another_folder_is_named_as_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreadable, match="pipe is a pipe or a device"):
        attachment("pipe", tmp_path)
