"""What else can be asked of `loom "…"`: templates, code alone, several answers, keys by name, wishes about files."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from cli.loom_command import Loom
from cli.model_server import ModelServer, model_server
from loom.cli.shared.renderers import code_of
from loom.testing import sample_pdf, sample_png
from made import make_sample

ANSWER = "Here:\n\n```python\nprint(1)\n```\n\nand\n\n```sh\nls\n```\nDone."


def scripted(loom: Loom, server: ModelServer) -> None:
    (loom.home / "loom.toml").write_text(server.config)


def locked_pdf(path: Path) -> None:
    plain = path.with_suffix(".plain")
    plain.write_bytes(sample_pdf("The secret word is quokka."))
    subprocess.run(["qpdf", "--encrypt", "open sesame", "owner", "256", "--", str(plain), str(path)], check=True)


def test_a_template_is_kept_and_asked_again_with_other_words(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("style.txt", "Write like a pirate.")

    with model_server("fine") as server:
        scripted(loom, server)
        saved = loom(
            *("Summarize $input in $length.", "style.txt", "-s", "You are $who.", "-m", "local"),
            *("--param", "length", "one line", "--save", "short"),
        )
        asked = loom("-t", "short", "--param", "who", "brief", "the news", stdin=b"piped text")
        longer = loom("-t", "short", "--param", "who", "brief", "--param", "length", "two pages", "the news")
        elsewhere = loom("-t", str(loom.home / "templates" / "short.toml"), "--param", "who", "x", "the news")
        sent = [request["messages"] for request in server.requests]

    assert saved.code == 0 and "loom -t short" in saved.err and len(sent) == 3
    assert asked.code == longer.code == elsewhere.code == 0
    assert sent[0][0] == {"role": "system", "content": "You are brief."}
    said = json.dumps(sent[0][1])
    assert "Summarize piped text" in said and "the news in one line." in said and "like a pirate" in said
    assert "in two pages." in json.dumps(sent[1][1])


def test_a_template_goes_on_with_a_session_that_has_a_beginning_of_its_own(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("t.toml", 'prompt = "Explain $input."\nsystem = "Be brief."\n')
    loom("-R", "hello")

    assert loom("-R", "-c", "-t", "t.toml", "tides").code == 0
    assert loom("-R", "-c", "-t", "t.toml", "-s", "Be long.", "tides").code == 2
    assert "Explain tides." in loom("log").out


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("prompt = 'Translate $input to $language.'", ["hello"], "The template needs $language. Add --param language"),
        ("prompt = 'Translate $input.'", [], "needs input"),
        ("prompt = 'Costs 5$ now $input'", ["x"], "Write $$ for a dollar sign"),
        ("promt = 'x'", ["x"], "promt"),
        ("prompt = ", ["x"], "is not TOML"),
        ("[keys]\nanthropic = 'x'", ["x"], "keys"),
    ],
)
def test_a_template_that_cannot_be_used_says_what_it_lacks(
    tmp_path: Path, text: str, arguments: list[str], expected: str
):
    loom = Loom(tmp_path)
    loom.file("t.toml", text)

    ran = loom("-t", "t.toml", *arguments)

    assert ran.code == 2 and expected in ran.err, ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["-t", "short"], "The template takes $length."), ([], "--param sets $NAME in a template (-t)")],
)
def test_a_value_that_nothing_takes_is_refused(tmp_path: Path, words: list[str], said: str):
    loom = Loom(tmp_path)
    loom("Say $input in $length.", "--save", "short")

    ran = loom(*words, "--param", "nope", "x", "--param", "length", "one line", "hello")

    assert ran.code == 2 and "Unknown --param" in ran.err and said in ran.err
    assert loom("sessions", "--json").rows == []


def test_templates_have_plain_names_and_those_that_exist_are_listed(tmp_path: Path):
    loom = Loom(tmp_path)

    assert "Save one" in loom("-t", "nothing", "x").err
    assert loom("x", "--save", "../../evil").code == 2
    assert loom("--save", "empty").code == 2
    assert loom("x", "--save", "fine").code == 0
    assert "Saved: fine." in loom("-t", "nothing", "x").err


def test_a_template_sets_how_media_are_treated_in_that_run_alone(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("long.pdf", sample_pdf(*(f"Page {at}." for at in range(1, 8))))
    loom.file("t.toml", "documents.pages_per_read = 2")

    assert "sending 1-2, more with long.pdf#3-4" in loom("-t", "t.toml", "long.pdf", "what?").err
    assert "sending" not in loom("long.pdf", "what?").err
    loom.file("wrong.toml", "documents.pages_per_read = 0")
    assert "pages_per_read" in loom("-t", "wrong.toml", "x").err


def test_code_comes_without_the_words_around_it(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server(ANSWER, ANSWER, "no code at all") as server:
        scripted(loom, server)
        first, last, none = (loom("-m", "local", *flags, "x") for flags in (["-x"], ["--xl"], ["-x"]))

    assert (first.out, last.out) == ("print(1)\n", "ls\n")
    assert none.out == "no code at all\n" and "no code block" in none.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("~~~\na\n~~~", "a\n"),
        ("````md\n```py\nx\n```\n````", "```py\nx\n```\n"),
        ("- item\n  ```\n  x\n  ```\n", "  x\n"),
        ("```js\nnever closed", "never closed"),
        ("a `tick` and ``two``", None),
        ("", None),
    ],
)
def test_fences_of_all_kinds_are_understood(text: str, expected: str | None):
    assert code_of(text, last=False) == expected


def test_usage_is_told_beside_the_answer(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("fine") as server:
        scripted(loom, server)
        ran = loom("-m", "local", "-u", "hello")

    assert ran.out == "fine\n"
    assert re.match(r"usage: openai-compatible/scripted, 12 in \(estimated [\d.]+k\), 5 out, \$0, ", ran.err)


def test_several_answers_stand_beside_each_other_in_the_tree(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("one", "two", "three") as server:
        scripted(loom, server)
        rows = loom("-m", "local", "-n", "2", "--json", "hello").rows
        text = loom("-m", "local", "-n", "1", "-c", "more")

    assert [row["text"] for row in rows] == ["one", "two"]
    assert len({row["session"] for row in rows}) == 1
    tree = {row["node"]: row for row in loom("tree", "--json").rows}
    assert tree[rows[0]["node"]]["parent"] == tree[rows[1]["node"]]["parent"]
    assert text.out == "three\n"
    assert len(server.requests[1]["messages"]) == len(server.requests[0]["messages"])
    assert loom("-n", "0", "x").code == 2


def test_several_answers_are_told_apart_in_a_pipe(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("one", "two") as server:
        scripted(loom, server)
        assert loom("-m", "local", "-n", "2", "hello").out == "one\n\n---\n\ntwo\n"


def test_a_model_is_found_by_pieces_of_its_name(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("fine") as server:
        scripted(loom, server)
        assert json.loads(loom("-q", "LOC", "--json", "x").out)["model"] == "openai-compatible/scripted"
        assert json.loads(loom("-q", "loom", "-q", "spa", "--json", "x").out)["model"] == "loom/spark"
    assert "`loom models`" in loom("-q", "nobody has this", "x").err


def test_a_key_is_chosen_by_its_name_for_this_run_alone(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("fine") as server:
        scripted(loom, server)
        loom("keys", "set", "openai", "--as", "work", stdin=b"sk-work-1234567890\n")
        with_key = loom("-m", "local", "--key", "work", "hello")
        without = loom("-m", "local", "hello")
        unknown = loom("-m", "local", "--key", "sk-typed-by-mistake", "hello")

    assert with_key.code == without.code == 0
    assert [headers.get("authorization") for headers in server.headers] == ["Bearer sk-work-1234567890", None]
    assert unknown.code == 2 and "loom keys set SERVICE --as NAME" in unknown.err
    assert "sk-typed" not in unknown.err
    assert len(loom("sessions", "--json").rows) == 2, "a wrong name leaves no session behind"
    talked = loom("chat", "--plain", "-m", "local", "--key", "nobody", stdin=b"hello\n")
    assert talked.code == 2 and "No stored key" in talked.err
    assert "✔ work" in loom("keys", "list").out
    assert loom("keys", "set", "openai", "--as", "anthropic", stdin=b"x\n").code == 2
    assert loom("keys", "remove", "work").code == 0


def test_what_a_file_was_said_to_be_is_held_against_its_bytes(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("data", sample_png())
    loom.file("notes", "some words")

    wrong = loom("-R", "--at", "data", "application/pdf", "what is it?")
    right = loom("-R", "--at", "data", "image/png", "what is it?")
    text = loom("-R", "--at", "notes", "text/markdown", "what is it?")

    assert "data was declared as application/pdf but is PNG" in wrong.err, wrong.err
    assert right.err == text.err == ""
    assert loom("--at", "nowhere", "image/png", "x").code == 5


def test_a_picture_that_would_have_to_shrink_can_be_refused(tmp_path: Path):
    loom = Loom(tmp_path)
    (loom.home / "loom.toml").write_text("[images]\nmax_size_bytes = 1000\n")
    loom.file("big.png", sample_png(400, 400))

    assert len(sample_png(400, 400)) > 1000
    resized, refused = loom("-R", "big.png", "what?"), loom("-R", "--no-resize", "big.png", "what?")

    assert resized.code == 0 and "a copy of" in resized.err
    assert refused.code == 5 and "over the limit of 1 KB" in refused.err and "--no-resize" in refused.err
    assert loom("-R", "--no-resize", "what?", stdin=sample_png(400, 400)).code == 5
    assert loom("-R", "--dry-run", "--no-resize", "big.png", "what?").code == 5


def test_a_locked_pdf_opens_with_the_password_in_a_file(tmp_path: Path):
    loom = Loom(tmp_path)
    locked = make_sample("locked-quokka.pdf", locked_pdf)
    loom.file("contract.pdf", locked.read_bytes())
    loom.file("right", "open sesame\n")
    loom.file("wrong", "close sesame\n")
    loom.file("nothing", "")

    shut = loom("-R", "contract.pdf", "the secret word?")
    opened = loom("-R", "contract.pdf", "--pdf-password-file", "right", "the secret word?")
    again = loom("-R", "-c", "the secret word of contract.pdf?")

    assert shut.code == 5 and "contract.pdf needs a password: -a contract.pdf --password-file FILE" in shut.err
    assert opened.code == again.code == 0 and "quokka" in opened.out and "quokka" in again.out
    wrong = loom("-R", "contract.pdf", "--pdf-password-file", "wrong", "x")
    assert wrong.code == 5 and "needs a different password" in wrong.err
    assert loom("contract.pdf", "--pdf-password-file", "nothing", "x").code == 2
    assert loom("contract.pdf", "--pdf-password-file", "not-there", "x").code == 2
    kept = b"".join(path.read_bytes() for path in loom.home.rglob("*") if path.is_file())
    assert b"open sesame" not in kept


def test_an_unlocked_pdf_stays_as_it_is_where_a_password_is_given(tmp_path: Path):
    loom = Loom(tmp_path)
    data = sample_pdf("Nothing secret.")
    loom.file("open.pdf", data)
    loom.file("password", "x")

    loom("-R", "open.pdf", "--pdf-password-file", "password", "what?")

    assert data in [path.read_bytes() for path in (loom.home / "media").rglob("*") if path.is_file()]


@pytest.mark.parametrize(("command", "typed"), [(("ask", "hi"), b""), (("chat", "--plain"), b"hi\n")])
def test_a_model_of_an_agent_that_is_replaced_is_named_once(tmp_path: Path, command: tuple[str, ...], typed: bytes):
    loom = Loom(tmp_path)
    (loom.folder / ".claude" / "agents").mkdir(parents=True)
    loom.file(".claude/agents/brief.md", "---\nname: brief\ndescription: Short\nmodel: opus\n---\nBe brief.\n")
    assert loom("trust", "add", "--yes").code == 0

    answered = loom(*command, "--agent", "brief", stdin=typed)

    assert answered.code == 0 and answered.err.count("'opus' is not available; the default model is used") == 1
