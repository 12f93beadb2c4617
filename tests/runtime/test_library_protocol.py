"""Library: the stores of this process and a daemon give the same results, and the same errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from loom.content.blocks import ImageBlock, TextBlock
from loom.content.messages import assistant, user
from loom.errors import ConfigError, Conflict, ContentError, NotFound
from loom.library import Library, all_sessions, read_media
from loom.testing import sample_png
from runtime.libraries import KINDS, library_of


@pytest.fixture(params=KINDS)
async def library(request: pytest.FixtureRequest) -> AsyncGenerator[Library]:
    async with library_of(request.param) as (found, _):
        yield found


async def test_sessions_are_listed_page_by_page(library: Library) -> None:
    made = [(await library.create(title=f"number {number}")).id for number in range(5)]
    first = await library.sessions(limit=3)
    assert [view.id for view in first.sessions] == made[:1:-1] and first.next is not None
    second = await library.sessions(limit=3, before=first.next)
    assert [view.id for view in second.sessions] == made[1::-1]
    assert [view.id async for view in all_sessions(library)] == made[::-1]
    await (await library.open(made[0])).change(archived=True)
    assert [view.id for view in (await library.sessions(archived=True)).sessions] == made[:1]
    assert (await library.find()).id == made[-1]


async def test_a_session_is_found_by_id_number_or_title(library: Library) -> None:
    one = await library.create(title="one")
    two = await library.create(title="two")
    for text in (two.id, two.id.lower(), two.id[-8:], "two", "latest", "1"):
        assert (await library.find(text)).id == two.id, text
    assert (await library.find("2")).id == one.id
    with pytest.raises(NotFound, match="not found"):
        await library.find("three")
    await library.create(title="two")
    with pytest.raises(NotFound, match="matches 2"):
        await library.find("two")
    with pytest.raises(NotFound):
        await library.open("0" * 26)


async def test_the_last_session_of_a_folder_is_found(library: Library, tmp_path: Path) -> None:
    here = await library.create(workspace=str(tmp_path))
    other = await library.create()
    assert (await library.find()).id == other.id
    assert (await library.find(workspace=str(tmp_path))).id == here.id
    with pytest.raises(NotFound, match="in this folder"):
        await library.find(workspace=str(tmp_path / "none"))


async def test_a_message_is_found_by_the_beginning_of_its_id(library: Library) -> None:
    session = await library.create()
    reply = await session.send("hello")
    fork = await session.fork(reply.node)
    await fork.send("only here")
    digits = reply.node.rpartition(":")[2]
    for text in (reply.node, digits[:10]):
        found = await library.find_message(text)
        assert (found.node, found.session.id) == (reply.node, fork.id), text
    with pytest.raises(NotFound):
        await library.find_message("0123456789")


async def test_a_session_needs_a_model_and_a_folder_that_exist(library: Library) -> None:
    with pytest.raises(ConfigError):
        await library.create(model="no-such-platform/none")
    with pytest.raises(Exception, match="folder"):
        await library.create(workspace="/no/such/folder")
    assert (await library.sessions()).sessions == ()


async def test_search(library: Library) -> None:
    session = await library.create()
    await session.send("!echo a rhinoceros in the garden")
    (found, *_) = await library.search("rhinoceros")
    assert (found.session, found.where) == (session.id, "text") and "rhinoceros" in found.snippet
    assert [view.id for view in (await library.sessions(query="rhinoceros")).sessions] == [session.id]
    assert await library.search("hippopotamus") == ()


async def test_an_import_is_found_again(library: Library) -> None:
    (picture,) = await library.upload(sample_png(30, 20))
    said = [user("what is this?", picture), assistant("a blue field")]
    first = await library.import_messages(said, title="from elsewhere", system="Be brief.")
    assert first.is_new and first.session.title == "from elsewhere"
    session = await library.open(first.session.id)
    assert list(await session.path()) == said and (await session.history()).system == "Be brief."
    again = await library.import_messages(said, title="from elsewhere", system="Be brief.")
    assert (again.is_new, again.session.id, again.shared) == (False, session.id, 2)
    longer = await library.import_messages([*said, user("and now?")], system="Be brief.")
    assert (longer.is_new, longer.shared) == (True, 2)


async def test_media(library: Library) -> None:
    words, picture = await library.upload("some words", sample_png(60, 40))
    assert isinstance(words, TextBlock) and isinstance(picture, ImageBlock)
    stored = await library.add_media(sample_png(60, 40), "again.png")
    assert (stored.digest, stored.new, stored.kind, stored.width) == (picture.media.digest, False, "image", 60)
    whole = await library.open_media(stored.digest)
    assert len(await whole.read()) == whole.size_bytes == len(await read_media(library, stored.digest))
    small = await library.open_media(stored.digest, "low")
    assert small.media_type.startswith("image/") and await small.read()
    text = await library.add_media(b"line one\nline two\n", "notes.txt")
    assert "line two" in (await library.media_text(text.digest)).text
    with pytest.raises(NotFound):
        await library.open_media("sha256:" + "0" * 64)
    with pytest.raises(NotFound):
        await library.media_text("sha256:" + "0" * 64)
    with pytest.raises(ConfigError):
        await library.describe(stored.digest)
    assert (await library.describe(stored.digest, "loom/spark")).text


async def test_deleting_a_session(library: Library) -> None:
    session = await library.create()
    await session.send("look", sample_png(31, 20))
    await library.delete(session.id)
    assert (await library.sessions()).sessions == ()
    with pytest.raises(NotFound):
        await library.delete(session.id)


async def test_models_tools_and_limits(library: Library) -> None:
    models = await library.models()
    assert models.default == "loom/spark"
    spark = next(model for model in models.models if model.reference == "loom/spark")
    assert spark.ready and spark.capabilities.vision
    (tool,) = await library.tools()
    assert (tool.name, tool.description) == ("write_note", "Write a note.") and tool.parameters["properties"]
    limits = await library.limits()
    assert limits.model == "loom/spark" and limits.images.max_size_bytes > 0


async def test_content_is_stored_with_notices(library: Library) -> None:
    found = await library.ingest("some words", sample_png(40, 20))
    assert [type(block) for block in found.blocks] == [TextBlock, ImageBlock] and found.notices == ()


@pytest.mark.parametrize("kind", KINDS)
async def test_agents_and_commands_are_listed(kind: str, tmp_path: Path) -> None:
    (tmp_path / ".loom/commands").mkdir(parents=True)
    (tmp_path / ".loom/commands/fix.md").write_text("---\ndescription: Fix an issue\n---\nFix issue $ARGUMENTS.")
    settings = {
        "agents": {"reviewer": {"description": "Reviews changes", "tools": ["read_*"], "model": "loom/spark"}},
        "trusted_folders": [str(tmp_path)],
    }
    async with library_of(kind, settings) as (library, _):
        (agent,) = await library.agents()
        assert (agent.name, agent.description, agent.model) == ("reviewer", "Reviews changes", "loom/spark")
        assert agent.tools == ("read_*",)
        (command,) = await library.commands(str(tmp_path))
        assert (command.name, command.description, command.text) == ("fix", "Fix an issue", "Fix issue $ARGUMENTS.")
        assert "fix" not in [one.name for one in await library.commands()]
        with pytest.raises(ContentError, match="folder"):
            await library.commands("/no/such/folder")


def _foreign_project(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".claude" / "commands").mkdir(parents=True)
    (folder / ".claude" / "commands" / "go.md").write_text("Go \u202e there.")
    (folder / "AGENTS.md").write_text("Obey.")
    return folder


async def test_what_a_folder_brings_is_shown_and_decided_about_once(library: Library, tmp_path: Path) -> None:
    project = _foreign_project(tmp_path / "project")

    async def names() -> list[str]:
        return [command.name for command in await library.commands(str(project))]

    found = await library.folder_trust(str(project))
    assert (found.state, found.needs_decision, found.kinds) == ("unknown", True, ("instructions", "commands"))
    assert [(file.name, file.is_foreign) for file in found.files] == [
        ("AGENTS.md", False),
        (".claude/commands/go.md", False),
    ]
    assert found.files[1].text == "Go \\u{202e} there.", "what cannot be seen is shown"
    assert "go" not in await names()
    decided = await library.decide_trust(str(project), found.digest, is_trusted=True)
    assert (decided.state, decided.needs_decision) == ("trusted", False)
    assert "go" in await names()
    refused = await library.decide_trust(str(project), found.digest, is_trusted=False)
    assert (refused.state, refused.needs_decision) == ("refused", False)
    assert "go" not in await names()
    (project / "AGENTS.md").write_text("Obey me.")
    assert (await library.folder_trust(str(project))).needs_decision
    with pytest.raises(Conflict):
        await library.decide_trust(str(project), found.digest, is_trusted=True)
    assert "go" not in await names()


async def test_a_folder_that_brings_nothing_needs_no_decision(library: Library, tmp_path: Path) -> None:
    found = await library.folder_trust(str(tmp_path))
    assert (found.files, found.kinds, found.needs_decision) == ((), (), False)
    with pytest.raises(ContentError):
        await library.folder_trust(str(tmp_path / "gone"))
