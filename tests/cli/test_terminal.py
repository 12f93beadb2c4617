"""What a terminal is shown: Markdown while it streams, pictures, the footer, approvals; nothing that could harm it."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops

from cli.loom_command import Loom, Terminal
from cli.model_server import model_server
from cli.test_daemon_commands import serving
from loom.cli.daemon import draw_qr
from loom.cli.shared import terminal_images
from loom.cli.shared.renderers import TurnOutcome, footer
from loom.cli.shared.rich_stream import RichStream, draw_markdown
from loom.cli.shared.terminal import clip, has_color, money_label, one_line, safe_text, tokens_label
from loom.errors import ConfigError
from loom.models import Usage
from loom.prompt import Receipt, ReceiptRow, Totals
from loom.testing import sample_png
from made import run

_CODES = re.compile(r"\x1b\[[0-9;]*m")


def streamed(text: str, size: int, width: int = 60) -> str:
    stream = RichStream(draw_markdown, width, is_live=False)
    return "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size)) + stream.finish()


def shown_words(drawn: str) -> list[list[str]]:
    """The words of each line, without codes and margins."""
    return [line.split() for line in _CODES.sub("", drawn).splitlines() if line.strip()]


def test_markdown_is_drawn_with_tables_and_code():
    text = (
        "# Title\n\nsome **bold**, *soft* and `code`\n\n- one\n- two\n\n> said\n\n```py\nx = **y**\n\ny\n```\n\n"
        "| a | b |\n|---|---|\n| 1 | two |\n"
    )

    drawn = streamed(text, 1)

    words = shown_words(drawn)
    assert words[:3] == [["Title"], ["some", "bold,", "soft", "and", "code"], ["•", "one"]]
    assert words[3:6] == [["•", "two"], ["▌", "said"], ["x", "=", "**y**"]]
    assert words[6:8] == [["y"], ["a", "b"]] and words[-1] == ["1", "two"]
    assert "|" not in _CODES.sub("", drawn)
    assert "\x1b[1mbold\x1b[0m" in drawn


def test_words_are_shown_before_their_block_ends_and_replaced_by_it():
    stream = RichStream(draw_markdown, 60)

    assert "A plain sentence th" in stream.feed("A plain sentence th")
    again = stream.feed("at holds a **bold** word")
    assert again.startswith("\r\x1b[2K") and "that holds a" in again  # over the line that it was shown on
    assert stream.finish() == "\r\x1b[2KA plain sentence that holds a \x1b[1mbold\x1b[0m word\n"


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab 日*`\n#->1.~_|\x1b", max_size=60), st.integers(1, 9), st.sampled_from([12, 30]))
def test_the_outcome_does_not_depend_on_where_the_stream_was_cut(text: str, size: int, width: int):
    assert streamed(text, size, width) == streamed(text, 1, width)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=200))
def test_no_control_character_gets_through(text: str):
    shown = _CODES.sub("", streamed(text, 3))

    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", safe_text(text))
    assert "\n" not in one_line(text) and len(clip(text, 20)) <= 20


def test_lines_break_between_words_and_items_keep_their_margin():
    assert shown_words(streamed("- one two three four five\n\nsix seven eight nine", 4, 14)) == [
        ["•", "one", "two"],
        ["three", "four"],
        ["five"],
        ["six", "seven"],
        ["eight", "nine"],
    ]


def test_numbers_are_short():
    assert [tokens_label(count) for count in (0, 950, 5_400, 31_200, 999_700)] == ["0", "950", "5.4k", "31k", "1.0M"]
    assert [money_label(usd) for usd in (None, 0.0, 0.0001, 0.094, 2.5)] == ["$?", "$0", "<$0.001", "$0.094", "$2.50"]


def test_the_footer_names_what_was_shown_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch):
    rows = (
        ReceiptRow(message=0, block=0, kind="image", label="a.png, 9×9", rendition="low", digest="sha256:a", tokens=9),
        ReceiptRow(message=2, block=0, kind="image", label="b.png, 9×9", rendition="full", digest="sha256:b", tokens=9),
        ReceiptRow(
            message=2,
            block=1,
            kind="document",
            label="r.pdf, 3 pages",
            rendition="text",
            digest="sha256:c",
            tokens=5_400,
        ),
    )
    receipt = Receipt(model="loom/spark", rows=rows, totals=Totals(), budgets=Totals())
    outcome = TurnOutcome(
        session="s", model="loom/spark", usage=Usage(input_tokens=31_200, output_tokens=38), usd=0.094, seconds=4.1,
        receipt=receipt,
    )  # fmt: skip

    monkeypatch.setenv("COLUMNS", "120")
    assert footer(outcome) == (
        "── spark · [Image #2] ● full · [r.pdf] ○ text 5.4k · media before 1◐ · 31k in · 38 out · $0.094 · 4.1 s ──"
    )
    monkeypatch.setenv("COLUMNS", "90")
    assert footer(outcome) == "── spark · [Image #2] ● full · [r.pdf] ○ text 5.4k · 31k in · 38 out · $0.094 · 4.1 s ──"
    monkeypatch.setenv("COLUMNS", "40")
    assert footer(outcome) == "── spark · $0.094 · 4.1 s ──"
    monkeypatch.setenv("LOOM_PLAIN", "1")
    assert footer(outcome, hint="go on").startswith("(spark, ") and footer(outcome, hint="go on").endswith("; go on)")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm-kitty", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x", "KITTY_WINDOW_ID": "1"}, "halfcell"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "halfcell"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "foot", "TMUX": "/tmp/x"}, "off"),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "230805"}, "sixel"),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "210402"}, "halfcell"),
        ({"TERM": "xterm"}, "off"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "off"),
        ({"TERM": "xterm-256color", "LOOM_PLAIN": "1"}, "off"),
        ({"TERM": "dumb", "LOOM_IMAGES": "iterm2"}, "iterm2"),
        ({}, "off"),
    ],
)
def test_the_terminal_is_recognized(environ: dict[str, str], expected: str):
    assert terminal_images.choose_protocol(environ) == expected


def test_an_unknown_protocol_is_said():
    with pytest.raises(ConfigError, match="off, halfcell, sixel, kitty or iterm2"):
        terminal_images.choose_protocol({"LOOM_IMAGES": "ascii"})


def test_each_protocol_writes_its_own_escapes():
    png = sample_png(64, 48)

    assert terminal_images.draw_image(png, 64, 48, "kitty").startswith("\x1b_Ga=T,f=100,q=2,c=6,r=2,m=0;")
    assert terminal_images.draw_image(png, 64, 48, "iterm2").startswith("\x1b]1337;File=inline=1;")
    assert "\x1bP" in terminal_images.draw_image(png, 64, 48, "sixel")
    assert terminal_images.draw_image(png, 40, 30, "halfcell").count("\n") == 15
    assert terminal_images.draw_image(png, 64, 48, "off") == ""


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [(10, 20), (60, 40), (200, 100)])
def test_sixels_are_drawn_by_another_program_as_the_picture_that_they_were(
    tmp_path: Path, mode: str, size: tuple[int, int]
):
    image = Image.linear_gradient("L").resize(size).convert("RGB")
    image.putpixel((0, 0), (200, 30, 40))
    image = image.convert(mode)
    file = io.BytesIO()
    image.save(file, "PNG")

    drawn = terminal_images.draw_image(file.getvalue(), *size, "sixel")
    (tmp_path / "x.six").write_text(drawn[drawn.index("\x1bP") : drawn.index("\x1b\\") + 2])
    run("/usr/bin/convert", f"sixel:{tmp_path / 'x.six'}", tmp_path / "x.png")

    shown = Image.open(tmp_path / "x.png").convert("RGB")
    expected = image.convert("RGBA").convert("RGB")
    assert shown.size == expected.size
    errors = ImageChops.difference(shown, expected).getextrema()
    assert max(high for _, high in errors) <= 12  # a palette of 128 colors, in hundredths


@pytest.mark.parametrize("length", [1, 17, 53, 106, 168])
def test_a_phone_reads_the_code(length: int):
    import cv2
    import numpy as np

    link = ("http://192.168.1.20:5666/?t=" + "aB3-xY9_" * 20)[:length]
    lines = [_CODES.sub("", line) for line in draw_qr(link).splitlines()]
    modules = [[character in half for character in line] for line in lines for half in ("▀█", "▄█")]
    picture = 255 - 255 * np.kron(np.array(modules, dtype=np.uint8), np.ones((10, 10), dtype=np.uint8))

    assert cv2.QRCodeDetector().detectAndDecode(picture)[0] == link


def test_a_code_is_drawn_dark_on_light_with_room_around_it():
    drawn = draw_qr("http://127.0.0.1:5666/?t=x")
    lines = [_CODES.sub("", line) for line in drawn.splitlines()]

    assert len({len(line) for line in lines}) == 1 and all("\x1b[30;107m" in line for line in drawn.splitlines())
    assert lines[0].strip() == lines[-1].strip() == "" and all(line.startswith("    ") for line in lines)


def test_what_takes_long_is_said_on_one_line_that_goes_again(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("at last", delay_seconds=1.5) as server:
        (loom.home / "loom.toml").write_text(server.config)
        with Terminal(loom, "-m", "local", "hello") as terminal:
            assert terminal.end() == 0
        with Terminal(loom, "--plain", "-m", "local", "hello") as plain:
            assert plain.end() == 0
        piped = loom("-m", "local", "hello")

    assert "asking scripted… 1 s" in terminal.screen
    assert terminal.screen.rfind("\r\x1b[K") < terminal.screen.find("at last")
    assert "asking scripted" not in terminal.screen[terminal.screen.rfind("\r\x1b[K") :]
    assert "\x1b" not in plain.screen and "…" not in plain.screen and "─" not in plain.screen
    assert piped.err == ""


def test_colors_are_for_terminals_that_want_them():
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert has_color(Tty(), {"TERM": "xterm"})
    assert not has_color(Tty(), {"TERM": "xterm", "NO_COLOR": "1"})
    assert not has_color(Tty(), {"TERM": "xterm", "LOOM_PLAIN": "1"})
    assert not has_color(io.StringIO(), {"TERM": "xterm"})


def test_a_terminal_gets_a_footer_and_drawn_markdown(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server("It is **bold**, ends with \x1b[2J and stops.") as server:
        (loom.home / "loom.toml").write_text(server.config)
        with Terminal(loom, "-m", "local", "hello") as terminal:
            assert terminal.end() == 0

    assert "It is \x1b[1mbold\x1b[0m, ends with ␛[2J and stops." in terminal.screen
    assert re.search(
        r"── openai-compatible/scripted · 12 in · 5 out · \$0 · [0-9.]+ s ─+ continue with loom -c", terminal.text
    )


def test_plain_means_plain(tmp_path: Path):
    loom = Loom(tmp_path)

    with Terminal(loom, "--plain", "-R", "hello", LOOM_PLAIN="1") as terminal:
        assert terminal.end() == 0

    assert "I am loom/spark" in terminal.text
    assert "\x1b" not in terminal.screen


def test_a_picture_that_a_model_makes_is_shown(tmp_path: Path):
    loom = Loom(tmp_path)

    with Terminal(loom, "-R", "!image bars", LOOM_IMAGES="halfcell") as terminal:
        assert terminal.end() == 0

    assert terminal.screen.count("▀") > 200
    assert "[image:" in terminal.text


def test_through_a_daemon_markdown_is_drawn_and_pictures_are_shown_too(tmp_path: Path):
    loom = Loom(tmp_path)

    with serving(loom):
        with Terminal(loom, "-R", "!image bars", LOOM_IMAGES="halfcell") as terminal:
            terminal.wait_for("[image:")
            assert terminal.end() == 0
        assert terminal.screen.count("▀") > 200
        with Terminal(loom, "-R", "!echo - **bold**") as terminal:
            terminal.wait_for("• bold")
            assert terminal.end() == 0
        with Terminal(loom, "attach", "--plain", "-R") as terminal:
            terminal.wait_for("› ")
            terminal.type("!echo - **bold**\n")
            terminal.wait_for("3 out")
            terminal.type("/quit\n")
            assert terminal.end() == 0


def test_an_approval_is_asked_and_answered_on_the_terminal(tmp_path: Path):
    loom = Loom(tmp_path)
    outside = tmp_path / "outside.txt"
    outside.write_text("the secret plan")
    call = {"name": "read_file", "arguments": {"path": str(outside)}}

    for typed, expected in (("what\ny\n", "the secret plan"), ("n not now\n", "the user denied it: not now")):
        with model_server(call, "done") as server:
            (loom.home / "loom.toml").write_text(server.config)
            with Terminal(loom, "-m", "local", "read it") as terminal:
                shown = terminal.wait_for("[n] no ›")
                for line in typed.splitlines(keepends=True):
                    terminal.type(line)
                assert terminal.end() == 0
        assert "approve read_file" in shown and str(outside) in shown
        assert expected in str(server.requests[-1]["messages"][-1]["content"])
