"""`loom context --pin | --hide | --restore`: what a person chooses for single blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.loom_command import Loom
from cli.model_server import model_server
from loom.testing import sample_png

SEEING = "[models.local.capabilities]\nvision = true\n"
EVERY_TURN = '[context]\naging = "every-turn"\n'


def rendition(loom: Loom, place: str) -> str:
    rows: list[dict[str, Any]] = loom("context", "--json").rows[0]["rows"]
    return next(row["rendition"] for row in rows if row["place"] == place)


def test_an_old_picture_is_pinned_hidden_and_left_to_the_policy_again(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("login.png", sample_png(64, 48))

    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config + SEEING + EVERY_TURN)
        loom("-m", "local", "-T", "none", "login.png", "what is it?")
        for words in ("and?", "and then?", "and now?"):
            loom("-T", "none", "-c", words)
        aged = rendition(loom, "1")
        pinned = loom("context", "--pin", "login.png", "--hide", "3")
        loom("-T", "none", "-c", "look again")
        sent = str(server.requests[-1]["messages"])
        restored = loom("context", "--restore", "1", "--restore", "3")

    assert aged == "text" and "image_url" in sent and "and?" not in sent
    assert "[Image #1] login.png, 64×48" in pinned.out and "● full" in pinned.out and "✕ omitted" in pinned.out
    assert restored.code == 0 and (rendition(loom, "1"), rendition(loom, "3")) == ("text", "full")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pin", "9"], "No block matches '9'. Use the number or the file name: loom context."),
        (["--hide", "login.png"], "'login.png' matches 1, 1.2. Use the number."),
        (["--pin", "2"], "2 is thinking: its rendition cannot be changed."),
        (["talk.json", "--pin", "1"], "Import it first: loom import FILE."),
    ],
)
def test_what_cannot_be_chosen_is_said_with_the_next_step(tmp_path: Path, words: list[str], said: str):
    loom = Loom(tmp_path)
    loom.file("login.png", sample_png(64, 48))
    loom.file("talk.json", '{"messages": [{"role": "user", "content": "hello"}]}')
    loom("-R", "-a", "login.png", "-a", "login.png", "what?")

    ran = loom("context", *words)

    assert ran.code == 2 and said in ran.err and ran.out == ""
