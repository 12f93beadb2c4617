"""Conversations listed, searched, shown, renamed, exported, deleted."""

from __future__ import annotations

import io
import json
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from cli.loom_command import Loom, Terminal
from cli.model_server import model_server
from loom.testing import sample_pdf, sample_png


def test_conversations_are_listed_newest_first_with_what_resumes_them(tmp_path: Path):
    loom = Loom(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "Start one" in loom("sessions").err
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
        assert len({row["session"] for row in found}) == (0 if "%" in words[0] or "DROP" in words[0] else 1), words
    assert "gateway" in loom("sessions", "search", "gives up").out
    assert loom("sessions", "search", "   ").code == 2


def test_a_word_is_found_that_stands_only_inside_a_document_or_a_picture(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("manual.pdf", sample_pdf("Cover.", "The wombat sleeps at noon."))
    loom.file("shot.png", drawn("Platypus 42"))
    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config)
        loom("-m", "local", "-T", "none", "read this", "manual.pdf")
        loom("-m", "local", "-T", "none", "see this", "shot.png")

        found = loom("sessions", "search", "wombat")
        before = loom("sessions", "search", "platypus")
        indexed = loom("sessions", "search", "--index")
        after = loom("sessions", "search", "platypus", "--json")

    assert "read this" in found.out and "▤" in found.out and "wombat sleeps" in found.out
    assert before.out == "" and "1 medium is not indexed yet: `loom search --index`" in before.err
    assert indexed.err == "1 medium read\n"
    (row,) = after.rows
    assert (row["where"], row["role"], row["title"]) == ("picture", "user", "see this") and "Platypus" in row["snippet"]
    loom("sessions", "delete", row["session"], "--yes")
    assert loom("sessions", "search", "platypus").out == ""


def drawn(words: str) -> bytes:
    image = Image.new("RGB", (700, 120), "white")
    ImageDraw.Draw(image).text((30, 30), words, fill="black", font=ImageFont.load_default(48))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def test_a_zip_holds_the_conversation_and_every_medium_under_a_name_of_our_own(tmp_path: Path):
    loom = Loom(tmp_path)
    picture, document = sample_png(), sample_pdf("The timeout is 30 seconds.")
    loom.file("..%2f..%2fevil.png", picture)
    loom.file("manual.pdf", document)
    loom("-R", "manual.pdf", "..%2f..%2fevil.png", "what is it?")

    assert loom("sessions", "export", "-f", "zip", "-o", "talk.zip").code == 0

    with zipfile.ZipFile(loom.folder / "talk.zip") as archive:
        names = archive.namelist()
        data = {archive.read(name) for name in names}
        conversation = archive.read("conversation.json")
    assert {picture, document} <= data and len(names) == 5
    assert all(re.fullmatch(r"conversation\.(md|html|json)|media/[0-9a-f]{64}\.(png|pdf)", name) for name in names)
    loom.file("back.json", conversation)
    assert "already here" in loom("import", "back.json").out
    with Terminal(loom, "sessions", "export", "-f", "zip") as terminal:
        assert terminal.end() == 2


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'><svg/onload=alert(3)> [a](javascript:alert(4))"


def test_markup_in_words_and_names_does_nothing_on_the_page(tmp_path: Path):
    loom = Loom(tmp_path)
    name = 'a"><script>alert(5)<' + "b.png"
    loom.file(name, sample_png())
    with model_server(f"{HOSTILE}\x1b[2J") as server:
        (loom.home / "loom.toml").write_text(server.config)
        loom("-m", "local", "-s", HOSTILE, HOSTILE, name)
        loom("sessions", "rename", "1", HOSTILE)

    page = loom("sessions", "export", "-f", "html").out

    found = Tags()
    found.feed(page)
    assert set(found.tags) <= {
        *(
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "h1",
            "h2",
            "header",
            "main",
            "article",
            "time",
            "figure",
            "figcaption",
            "pre",
            "p",
            "img",
            "details",
            "summary",
        )
    }
    assert all(not name.startswith("on") for name in found.attributes)
    assert [source for source in found.sources if not source.startswith("data:image/")] == []
    assert "\x1b" not in page and page.count("default-src 'none'") == 1


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]


def test_a_conversation_is_renamed_and_deleted(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("dot.png", sample_png())
    loom("-R", "-T", "none", "hello", "-m", "spark")
    loom("--dry-run", "dot.png")

    assert loom("sessions", "rename", "1", "A better\x1b[2J name\nin one line").code == 0
    (row,) = loom("sessions", "--json").rows
    assert "\n" not in row["title"] and "\x1b" not in loom("sessions").out
    assert loom("sessions", "delete", "1").code == 2 and loom("sessions", "delete", "1", stdin=b"n\n").code == 1
    assert len(loom("sessions", "--json").rows) == 1
    assert loom("sessions", "delete", "1", stdin=b"y\n").code == 0
    assert loom("sessions", "--json").rows == []
    assert loom("sessions", "delete", "1", "--yes").code == 1


def test_ctrl_c_at_the_question_keeps_the_conversation(tmp_path: Path):
    loom = Loom(tmp_path)
    loom("-R", "alpha")

    with Terminal(loom, "sessions", "delete", "1") as terminal:
        terminal.wait_for("This cannot be undone")
        terminal.interrupt()
        assert terminal.end() == 130

    assert "loom: interrupted" in terminal.text
    assert [row["title"] for row in loom("sessions", "--json").rows] == ["alpha"]


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
    assert tree[0].startswith("what is the timeout?") and tree[0].endswith("6 messages, 2 branches")
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


def test_the_parts_of_a_context_are_no_more_than_their_total(tmp_path: Path):
    """The server counts far fewer tokens than are estimated for the tools."""
    loom = Loom(tmp_path)
    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config)
        loom("-m", "local", "-s", "Be brief. " * 40, "hello")

    lines = re.findall(r"^  (system|tools|total)(?: ×\d+| ≈)? +(\d+)", loom("context").out, flags=re.MULTILINE)
    shown = {name: int(tokens) for name, tokens in lines}

    assert 0 < shown["system"] < shown["tools"]
    assert shown["system"] + shown["tools"] <= shown["total"]
