"""Conversations listed, searched, shown, renamed, exported, deleted."""

from __future__ import annotations

import json
from pathlib import Path

from cli.loom_command import Loom
from loom.testing import sample_pdf, sample_png


def test_conversations_are_listed_newest_first_with_what_resumes_them(tmp_path: Path):
    loom = Loom(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "Begin one" in loom("sessions").err
    loom("-R", "the first question")
    loom("-R", "the second question", cwd=elsewhere)

    rows = loom("sessions", "--json").rows
    listed = loom("sessions").out.splitlines()

    assert [row["title"] for row in rows] == ["the second question", "the first question"]
    assert rows[0]["workspace"] == str(elsewhere) and rows[0]["model"] == "loom/spark"
    assert listed[0].split()[:2] == ["1", rows[0]["id"]] and "the second question" in listed[0]
    assert [row["id"] for row in loom("sessions", "--here", "--json").rows] == [rows[1]["id"]]
    assert len(loom("sessions", "-n", "1", "--json").rows) == 1


def test_words_are_found_in_questions_answers_and_file_names(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("manual.pdf", sample_pdf("The gateway gives up after 30 seconds."))
    loom("-R", "manual.pdf", "when does the gateway give up?")
    loom("-R", "something else entirely")

    for words in (["gives", "30"], ["MANUAL.pdf"], ["'; DROP TABLE session; --"], ["100%"]):
        found = loom("sessions", "search", "--json", "--", *words).rows
        assert len(found) == (0 if "%" in words[0] or "DROP" in words[0] else 1), words
    assert "gateway" in loom("sessions", "search", "gives up").out
    assert loom("sessions", "search", "   ").code == 2


def test_a_conversation_is_renamed_and_deleted(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("dot.png", sample_png())
    loom("-R", "-T", "none", "hello", "-m", "spark")
    loom("--dry-run", "dot.png")

    assert loom("sessions", "rename", "1", "A better\x1b[2J name\nin one line").code == 0
    (row,) = loom("sessions", "--json").rows
    assert "\n" not in row["title"] and "\x1b" not in loom("sessions").out
    assert loom("sessions", "delete", "1").code == 130
    assert len(loom("sessions", "--json").rows) == 1
    assert loom("sessions", "delete", "1", stdin=b"y\n").code == 0
    assert loom("sessions", "--json").rows == []
    assert loom("sessions", "delete", "1", "--yes").code == 1


def test_a_conversation_is_shown_and_its_tree_drawn(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("manual.pdf", sample_pdf("The timeout is 30 seconds."))
    first = json.loads(loom("--json", "manual.pdf", "what is the timeout?").out)
    loom("-R", "-c", "and then?")
    loom("-R", "--from", first["node"], "or this?")

    log = loom("log", "-R").out
    tree = loom("tree").out.splitlines()

    assert "[document: manual.pdf, 1 page" in log and "or this?" in log and "and then?" not in log
    assert loom("log", "-n", "1", "--json").rows[0]["speaker"] == "spark"
    assert tree[0].startswith("what is the timeout?") and tree[0].endswith("6 messages, 2 leaves")
    marks = [line.split(" ", 1)[1][:4] for line in tree[1:]]
    assert marks == ["● yo", "● sp", "├─○ ", "│ ○ ", "└─● ", "  ◉ "]
    assert tree[1].endswith("▤") and tree[-1].endswith("← head")
    assert loom("log", "--graph").out.splitlines() == tree
    assert loom("--json", "--from", tree[3].split()[0], "go on").code == 0


def test_an_export_can_be_read_by_people_and_by_loom(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("manual.pdf", sample_pdf("The timeout is 30 seconds."))
    loom("-R", "-s", "Be brief.", "manual.pdf", "what is the <b>timeout</b>?")

    page = loom("sessions", "export", "-f", "html").out
    text = loom("sessions", "export", "1").out
    saved = loom("sessions", "export", "-f", "json", "-o", "talk.json")

    assert "&lt;b&gt;timeout&lt;/b&gt;" in page and "<b>" not in page and "<script" not in page
    assert "default-src 'none'" in page
    assert text.startswith("# what is the <b>timeout</b>?") and "> Be brief." in text and "## you" in text
    assert saved.code == 0 and "talk.json" in saved.err
    assert "already here" in loom("import", "talk.json").out
    assert "[manual.pdf, 1 page" in loom("context", "talk.json", "-m", "spark").out
    assert loom("sessions", "export", "-o", "no/such/folder/x.md").code == 2


def test_the_context_of_the_last_session_is_shown_for_several_models(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("manual.pdf", sample_pdf("The timeout is 30 seconds."))
    loom("-R", "-s", "Be brief.", "manual.pdf", "what is the timeout?")

    ran = loom("context", "-m", "spark,claude-opus-5,deepseek/deepseek-v4-pro")
    rows = loom("context", "-m", "spark,claude-opus-5", "--json").rows

    lines = ran.out.splitlines()
    assert lines[0].split()[-3:] == ["spark", "claude-opus-5", "deepseek-v4-pro"]
    document = next(line for line in lines if "[manual.pdf" in line)
    assert document.count("● full") == 2 and "○ text" in document
    thinking = next(line for line in lines if "(thinking)" in line)
    assert thinking.count("✕ omitted") == 2
    assert "claude-opus-5 needs a key: loom keys set anthropic" in ran.out
    assert "other-model" in loom("context", "-m", "claude-opus-5", "--reasons").out
    assert [row["model"] for row in rows] == ["loom/spark", "anthropic/claude-opus-5"]
    assert json.loads(loom("wire", "-m", "claude-opus-5").out)["request"]["system"]
