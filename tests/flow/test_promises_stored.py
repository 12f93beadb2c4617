"""What is stored stays small and stays data: no base64 in any record, and no path in one that is ever followed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.loom_command import Loom
from loom.agent.foreign_conversations import read_foreign_conversation
from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.content.media import digest_of
from loom.content.messages import media_of, text_of
from loom.errors import Corrupt
from loom.events import MediaArrived, Stopped, TextDelta
from loom.runtime import Runtime
from loom.testing import ScriptedAnswer, ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import tool

MODEL = "anthropic/claude-opus-5"
SECRET = "the words that must not leave"


# 15: a stored path that was edited ------------------------------------------------------------------------------------


def edited(*paths: str) -> bytes:
    """A conversation of an older version, whose pictures were files, after somebody wrote other names into it."""
    shown = [
        {"type": "image", "source_path": path, "text_fallback": f"a picture, {at}"} for at, path in enumerate(paths)
    ]
    old = {"success": True, "output": "", "content_blocks": shown}
    return json.dumps(
        [
            {"role": "user", "content": "take a picture"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "name": "shoot", "arguments": "{}"}]},
            {"role": "tool", "tool_call_id": "a", "content": json.dumps(old)},
        ]
    ).encode()


@pytest.fixture
def places(tmp_path: Path) -> list[str]:
    """Ways to name a file outside of `tmp_path/work`, and secrets inside it."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "work-secret").mkdir()
    for name in ("outside.txt", "work-secret/sibling.txt", "work/.env"):
        (tmp_path / name).write_text(SECRET)
    (work / "link.png").symlink_to(tmp_path / "outside.txt")
    (work / "folder").symlink_to(tmp_path)
    (work / "to.png").symlink_to(work / ".env")
    absolute = [str(tmp_path / "outside.txt"), "/etc/shadow", "/etc/passwd", "/proc/self/environ", "/dev/zero"]
    relative = ["../outside.txt", "../work-secret/sibling.txt", "link.png", "folder/outside.txt", ".env", "to.png"]
    return [*absolute, *relative, (tmp_path / "outside.txt").as_uri(), "~/../outside.txt", "\0", ""]


async def test_15_a_path_in_an_old_conversation_is_read_below_the_given_folder_only(
    tmp_path: Path, places: list[str]
) -> None:
    (tmp_path / "work" / "mine.png").write_bytes(sample_png(30, 20))
    provider = ScriptedProvider(["I see one picture."])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        told = await read_foreign_conversation(
            edited(*places, "mine.png"), runtime.stores.media, roots=[tmp_path / "work"]
        )
        result = told.messages[-1].results[0]
        assert [media.name for media in media_of(told.messages[-1])] == ["mine.png"]
        assert SECRET not in str(told) and "root:" not in str(told)
        for at in range(len(places) - 1):
            assert f"a picture, {at}" in text_of(result), "its text stands in for it"
        session = await runtime.session(model=MODEL)
        await runtime.stores.sessions.append_to_head(session.id, told.messages)
        await session.send("and now?")
        assert len(provider.prompts[0].media()) == 1
        assert SECRET not in str(provider.prompts)


def test_15_an_imported_session_that_names_files_goes_on_with_their_texts(tmp_path: Path, places: list[str]) -> None:
    loom = Loom(tmp_path)
    loom.file("old.json", edited(*(name for name in places if name)))

    imported = loom("import", "old.json", "--json").rows[0]
    ran = loom("-r", imported["session"], "--json", "what was shown?")
    log = loom("log", imported["session"])

    assert (imported["media"], ran.code) == (0, 0)
    assert "a picture, 1" in log.out
    kept = b"".join(file.read_bytes() for file in loom.home.rglob("*") if file.is_file())
    assert SECRET.encode() not in kept
    assert SECRET not in ran.out + ran.err + log.out


async def test_15_a_row_of_the_database_that_was_edited_is_named_and_nothing_is_read(tmp_path: Path) -> None:
    """A node's id is the hash of what it says, so it cannot be made to say something else."""
    (tmp_path / "outside.txt").write_text(SECRET)
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")})
    async with Runtime.open(config, providers={"anthropic": ScriptedProvider(["seen", "seen"])}) as runtime:
        hurt, sound = await runtime.session(model=MODEL), await runtime.session(model=MODEL)
        await hurt.send("look", sample_png(20, 20))
        await sound.send("hello")
    block = {"type": "image", "source_path": str(tmp_path / "outside.txt"), "media": {"source_path": "/etc/shadow"}}
    with closing(sqlite3.connect(config.data_folder() / "loom.db")) as database:
        message = json.dumps({"v": 1, "role": "user", "blocks": [block]})
        changed = database.execute("UPDATE node SET message = ? WHERE message LIKE '%image/png%'", [message])
        assert changed.rowcount == 1
        database.commit()

    provider = ScriptedProvider(["hello again"])
    async with Runtime.open(config, providers={"anthropic": provider}) as runtime:
        with pytest.raises(Corrupt, match="loom doctor"):
            await (await runtime.session(hurt.id)).send("and now?")
        assert provider.prompts == []
        assert (await (await runtime.session(sound.id)).send("and now?")).text == "hello again"


# Pains 15 to 19: base64 in records ------------------------------------------------------------------------------------


async def test_pains_15_to_19_pictures_are_files_once_and_records_only_name_them(tmp_path: Path) -> None:
    """Said twice, shown by a tool, made by a model, forked and branched: each is a file once, and records name it."""
    pictures = [sample_png(20, 20) + os.urandom(2_000_000) for _ in range(4)]
    noise = [picture[-3_000:] for picture in pictures]

    @tool
    def shoot() -> list[bytes]:
        """Show all of them."""
        return pictures

    drawn = [MediaArrived(index=0, media_type="image/png", data=pictures[0]), TextDelta(index=1, text="there")]
    answers: list[ScriptedAnswer] = [
        "seen",
        ToolCall("a", "shoot"),
        "seen",
        [*drawn, Stopped(reason="end")],
        "seen",
        "seen",
    ]
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")})
    async with Runtime.open(config, providers={"anthropic": ScriptedProvider(answers)}, tools=[shoot]) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("look", *pictures)
        await session.send("take them yourself")
        await session.send("draw", *pictures)
        await (await session.fork()).send("elsewhere")
        await session.send("again", *pictures)

    folder = config.data_folder()
    files = [file for file in (folder / "media").rglob("*") if file.is_file() and "derived" not in file.parts]
    assert len([file for file in files if file.stat().st_size > 1_000_000]) == len(pictures)
    with closing(sqlite3.connect(folder / "loom.db")) as database:
        longest = max(
            database.execute(f"SELECT max(length({column})) FROM {table}").fetchone()[0]
            for table, column in (("node", "message"), ("event", "data"))
        )
        database.execute("VACUUM")
    assert longest < 20_000
    assert (folder / "loom.db").stat().st_size < 500_000
    records = b"".join(file.read_bytes() for file in folder.glob("loom.db*"))
    for data in noise:
        assert data not in records
        assert base64.b64encode(data[:1_500]) not in records

    shutil.rmtree(folder / "media")
    async with Runtime.open(config) as runtime:
        assert len(await runtime.stores.sessions.list()) == 2, "a list opens no medium"
        path = await (await runtime.session(session.id)).path()
        assert len([media for message in path for media in media_of(message)]) == 17


# Pain 40 --------------------------------------------------------------------------------------------------------------


async def test_pain_40_every_branch_keeps_the_pictures_that_were_said_above_it() -> None:
    """A fork, an edited question below, another answer, and the way back: each request shows the same bytes."""
    picture = sample_png(30, 20)
    provider = ScriptedProvider(["one"] * 6)
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL)
        first = await session.send("look", picture)
        second = await session.send("and the color?")
        forked = await session.fork()
        await forked.send("in the fork")
        await session.send("and the shape?", parent=second.parent)
        _ = [event async for event in session.regenerate()]
        await session.go(first.node)
        await session.send("from the beginning")

        assert [[ref.digest for ref in prompt.media()] for prompt in provider.prompts] == [[digest_of(picture)]] * 6
        await runtime.stores.sessions.delete(session.id)
        assert await runtime.stores.media.load(digest_of(picture)) == picture, "the fork still needs it"
