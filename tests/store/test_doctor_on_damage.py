"""What the doctor says of a damaged store is the next step, and what it can mend it mends."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.loom_command import Loom


def damage(loom: Loom, sql: str) -> None:
    with closing(sqlite3.connect(loom.home / "loom.db")) as vandal:
        assert vandal.execute(sql).rowcount == 1
        vandal.commit()


def store_of(loom: Loom, *options: str) -> list[dict[str, str]]:
    return [row for row in loom("doctor", "--json", *options).rows if row["name"] == "store"]


@pytest.fixture
def loom(tmp_path: Path) -> Loom:
    loom = Loom(tmp_path)
    assert loom("one").code == loom("-c", "two").code == loom("-c", "three").code == 0
    return loom


def test_a_conversation_with_a_damaged_message_goes_on_from_the_last_sound_one(loom: Loom):
    damage(loom, "UPDATE node SET message = replace(message, 'two', 'owt') WHERE depth = 3")
    assert loom("log").code != 0
    message, session = store_of(loom)
    assert (message["state"], "loom restore" in message["fix"]) == ("problem", True)
    assert "cannot be read beyond" in session["text"] and "loom doctor --fix" in session["fix"]
    _, mended = store_of(loom, "--fix")
    assert (mended["state"], "continues from" in mended["text"]) == ("warning", True)
    assert loom("-c", "four").code == 0
    said = [row["message"]["blocks"][0].get("text") for row in loom("log", "--json").rows if row["speaker"] == "you"]
    assert said == ["one", "four"]


def test_a_damaged_record_is_reset_and_nothing_that_was_said_is_lost(loom: Loom):
    damage(loom, "UPDATE session SET settings = '{'")
    (found,) = store_of(loom)
    assert "--fix" in found["fix"]
    assert store_of(loom, "--fix")[0]["state"] == "warning"
    assert store_of(loom)[0]["state"] == "ok"
    assert loom("-c", "four").code == 0
    assert len(loom("log", "--json").rows) == 8


def test_a_session_whose_head_is_gone_is_told_and_shown(loom: Loom):
    damage(loom, "DELETE FROM node WHERE depth = 6")
    assert "damaged" in loom("sessions").out
    for options in ((), ("--fix",)):
        (found,) = store_of(loom, *options)
        assert found["state"] == "problem"
    assert "loom restore" in found["fix"]


def test_a_file_that_is_no_database_is_named_and_a_backup_is_the_next_step(loom: Loom):
    (loom.home / "loom.db").write_bytes(b"this is no database" * 100)
    assert "loom doctor --fix" in loom("sessions").err
    (found,) = store_of(loom)
    assert "loom doctor --fix" in found["fix"]
    (found,) = store_of(loom, "--fix")
    assert "contains no data of a Loom store" in found["text"]
    assert "loom restore" in found["fix"]
    assert (loom.home / "loom.db").read_bytes() == b"this is no database" * 100


@pytest.mark.parametrize("column", ["held_until", "fence", "last_seq"])
def test_a_session_whose_lease_is_damaged_is_told_and_goes_on_once_it_is_mended(loom: Loom, column: str):
    damage(loom, f"UPDATE session SET {column} = 'zz'")
    (found,) = store_of(loom)
    assert "--fix" in found["fix"]
    assert store_of(loom, "--fix")[0]["state"] == "warning"
    assert store_of(loom)[0]["state"] == "ok"
    assert loom("-c", "four").code == 0
