"""Conversations are found by their words, wherever these stand: typed, answered, in a document, in a picture."""

from __future__ import annotations

import asyncio
import gc
import io
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from loom.content.blocks import DocumentBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from loom.content.media import Media
from loom.content.messages import Message, assistant, tool, user
from loom.content.recipes import Ocr
from loom.errors import ContentError
from loom.formats.facts import IntakeLimits
from loom.store.database import Database, Transaction, open_database
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore, open_media
from loom.store.media_text import MediaTexts, forget_texts
from loom.store.search import SearchHit, _find, search_messages
from loom.store.search_index import query_words, unindexed_messages, update_index, words_of
from loom.store.sessions import Sessions
from loom.store.text_index import index_media
from loom.testing import sample_pdf


async def said(sessions: Sessions, title: str, *messages: Message, system: str = "") -> str:
    session = await sessions.create(title=title, system=system)
    await sessions.append_to_head(session.id, messages)
    return session.id


def document(digest: str) -> DocumentBlock:
    return DocumentBlock(Media(digest=digest, media_type="application/pdf", size_bytes=1, name="report.pdf"))


def picture(digest: str) -> ImageBlock:
    return ImageBlock(Media(digest=digest, media_type="image/png", size_bytes=1, name="shot.png"))


def drawn(words: str) -> bytes:
    image = Image.new("RGB", (700, 120), "white")
    ImageDraw.Draw(image).text((30, 30), words, fill="black", font=ImageFont.load_default(48))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


async def test_every_word_must_be_there_and_the_newest_conversation_comes_first(database: Database):
    sessions = Sessions(database)
    old = await said(sessions, "one", user("the gateway times out"), assistant("Raise the Timeout."))
    new = await said(sessions, "two", user("is the gateway up?"))

    found = await search_messages(database, "GATEWAY")

    assert [hit.session for hit in found] == [new, old]
    assert (found[1].role, found[1].where, found[1].snippet) == ("user", "text", "the gateway times out")
    assert [hit.session for hit in await search_messages(database, "gateway times")] == [old]
    assert [hit.role for hit in await search_messages(database, "timeout")] == ["assistant"]
    assert await search_messages(database, "gateway nowhere") == ()


async def test_titles_tool_results_and_file_names_are_searched_and_system_prompts_are_not(database: Database):
    sessions = Sessions(database)
    call = ToolCall(id="c1", name="read_file", arguments={"path": "nginx.conf"})
    result = ToolResult(call_id="c1", name="read_file", blocks=(TextBlock("proxy_read_timeout 30s"),))
    session = await said(
        sessions, "Error triage", user("look"), assistant(call), tool(result), system="You are a zebra."
    )
    search = partial(search_messages, database)

    assert [hit.session for hit in await search("triage")] == [session]
    assert [hit.role for hit in await search("nginx.conf")] == ["assistant"]
    assert [hit.role for hit in await search("proxy_read_timeout")] == ["tool"]
    assert await search("zebra") == ()


@pytest.mark.parametrize(
    "word", ["100%", "a_b", 'say "hi"', "back\\slash", "!bang", "Straße", "oﬃce", "ПРИВЕТ", "'; DROP--", "ǰ"]
)
async def test_signs_that_mean_something_to_the_database_or_to_json_are_words_like_others(
    database: Database, word: str
):
    sessions = Sessions(database)
    right = await said(sessions, "right", user(f"x {word}y"))
    await said(sessions, "wrong", user("x 100 aXb say hi backslash bang Strase DROP"))

    assert [hit.session for hit in await search_messages(database, word.swapcase())] == [right]


async def test_the_names_of_json_fields_and_digests_are_no_words(database: Database):
    sessions = Sessions(database)
    await said(sessions, "x", user("hello", picture("sha256:" + "ab" * 32)))

    for word in ("media_type", "blocks", "abababab", "tool_call"):
        assert await search_messages(database, word) == (), word


async def test_words_inside_media_are_found_where_they_are_shown(database: Database):
    sessions = Sessions(database)
    texts = MediaTexts(database)
    pdf, shot = "sha256:" + "11" * 32, "sha256:" + "22" * 32
    session = await said(sessions, "x", user("compare", document(pdf), picture(shot)))
    await texts.put(pdf, "document", "Chapter one.\nThe   quokka\nis small.")
    await texts.put(shot, "picture", "Error 502 \0 upstream")

    (hit,) = await search_messages(database, "quokka")
    (seen,) = await search_messages(database, "upstream compare")

    assert (hit.session, hit.where, hit.media, hit.snippet) == (
        session, "document", pdf, "Chapter one. The quokka is small."
    )  # fmt: skip
    assert (seen.where, seen.media) == ("picture", shot)
    assert await search_messages(database, "quokka nowhere") == ()


async def test_branches_that_were_left_are_searched_and_a_fork_is_a_conversation_of_its_own(database: Database):
    sessions = Sessions(database)
    session = await said(sessions, "x", user("alpha"), assistant("beta"))
    before = await sessions.get(session)
    fork = await sessions.fork(session)
    await sessions.append_to_head(session, [user("gamma")])
    left = (await sessions.get(session)).head_id
    await sessions.move_head(session, left, before.head_id)

    assert [hit.session for hit in await search_messages(database, "gamma")] == [session]
    assert {hit.session for hit in await search_messages(database, "alpha")} == {session, fork.id}


async def test_no_conversation_takes_the_place_of_the_others(database: Database):
    sessions = Sessions(database)
    quiet = await said(sessions, "quiet", user("needle"))
    loud = await said(sessions, "loud", *(user(f"needle {at}") for at in range(30)))

    found = await search_messages(database, "needle", limit=10, per_session=3)

    assert [hit.session for hit in found] == [loud, loud, loud, quiet]
    assert len(await search_messages(database, "needle", limit=2)) == 2


async def test_a_frequent_word_is_found_behind_a_conversation_that_is_full_of_it(database: Database):
    sessions = Sessions(database)
    trunk = await said(sessions, "trunk", user("heron: hello"), *(assistant(f"heron {at}") for at in range(6)))
    old = [await said(sessions, f"old {at}", user(f"heron in {at}")) for at in range(3)]
    long = await sessions.create(title="long")
    rows = await sessions.append_to_head(long.id, [user(f"heron {at}") for at in range(4_500)])
    branch = await sessions.fork(trunk)
    await sessions.append_to_head(branch.id, [user("heron of the fork")])
    inside = await sessions.fork(long.id, rows[2].id)  # its end is in the middle of the other

    found = await search_messages(database, "heron", limit=50)

    counts = Counter(hit.session for hit in found)
    assert counts == {trunk: 3, branch.id: 3, long.id: 3, inside.id: 3, **dict.fromkeys(old, 1)}
    assert {hit.node for hit in found if hit.session == inside.id} == {row.id for row in rows[:3]}


async def test_nothing_and_far_too_much_are_refused(database: Database):
    for text in ("", "  \n", "x " * 30 + " ".join(map(str, range(30))), "x" * 1_000):
        with pytest.raises(ContentError):
            await search_messages(database, text)


async def test_a_word_that_stands_only_in_a_pdf_or_only_in_a_picture_is_found(database: Database, tmp_path: Path):
    sessions, texts = Sessions(database), MediaTexts(database)
    media: MediaStore = open_media(tmp_path / "media")
    derived = DerivedCache(media.place)
    pdf = await media.put(sample_pdf("Nothing here.", "The wombat sleeps."))
    shot = await media.put(drawn("Platypus 42"))
    lost = "sha256:" + "33" * 32
    await said(sessions, "x", user("look", document(pdf), picture(shot)), assistant("fine"))
    await said(sessions, "y", user("gone", picture(lost)))
    assert set(await texts.list_unread()) == {pdf, shot, lost}

    quick = await index_media(texts, media, derived, limits=IntakeLimits(), pictures=False)
    told: list[tuple[int, int]] = []
    whole = await index_media(texts, media, derived, limits=IntakeLimits(), on_progress=lambda *at: told.append(at))

    assert (quick.read, quick.left, whole.read, whole.left) == (1, 2, 1, 1)
    assert told == [(0, 2), (1, 2)]
    assert await texts.list_unread(pictures=False) == (lost,)
    assert [hit.where for hit in await search_messages(database, "wombat")] == ["document"]
    assert [hit.where for hit in await search_messages(database, "platypus")] == ["picture"]
    kept = await derived.get(shot, Ocr())
    assert kept is not None, "a prompt does not read it again"
    assert "Platypus" in (await derived.load(kept)).decode()


async def test_words_go_with_the_media_that_they_are_from(database: Database):
    sessions, texts = Sessions(database), MediaTexts(database)
    pdf = "sha256:" + "44" * 32
    session = await said(sessions, "x", user("look", document(pdf)))
    await texts.put(pdf, "document", "quokka")

    def work(tx: Transaction) -> object:
        forget_texts(tx, [pdf])
        return tx.execute("SELECT COUNT(*) FROM media_text")

    assert await database.write(work) == [(0,)]
    assert await search_messages(database, "quokka") == ()
    assert await texts.list_unread() == (pdf,)
    assert session


@pytest.mark.parametrize("word", ["İstanbul", "İSTANBUL", "i\u0307stanbul", "İ"])
async def test_a_letter_that_only_some_make_small_is_found(database: Database, word: str):
    sessions = Sessions(database)
    in_title = await said(sessions, "İstanbul Kitap", user("x"))
    in_text = await said(sessions, "y", user("İstanbul gezisi"))

    assert {hit.session for hit in await search_messages(database, word)} == {in_title, in_text}


@pytest.mark.parametrize(
    "damage",
    [
        "session SET title = x'776f726473ff'",
        "session SET title = CAST(x'776f726473ff' AS TEXT)",
        "node SET message = CAST(message AS BLOB) WHERE depth = 1",
        "media_text SET text = x'776f726473ff'",
    ],
)
async def test_a_damaged_row_holds_no_words_and_hides_no_other(tmp_path: Path, damage: str):
    database = await open_database(str(tmp_path / "loom.db"))
    sessions, shot = Sessions(database), "sha256:" + "22" * 32
    await said(sessions, "words", user("words", picture(shot)))
    await MediaTexts(database).put(shot, "picture", "words")
    await database.write(lambda tx: tx.execute(f"UPDATE {damage}"))
    sound = await said(sessions, "sound", user("words"))

    found = await search_messages(database, "words")

    assert found[0].session == sound
    assert msgspec.json.decode(msgspec.json.encode(found), type=tuple[SearchHit, ...]) == found
    await database.close()


async def test_a_negative_limit_of_hits_is_refused(database: Database):
    with pytest.raises(ContentError, match="limit"):
        await search_messages(database, "x", limit=-1)


# The index ------------------------------------------------------------------------------------------------------------


async def test_words_are_found_by_their_beginning_in_names_of_code_and_in_writing_without_spaces(database: Database):
    sessions = Sessions(database)
    code = await said(sessions, "code", user("set proxy_read_timeout, readTimeout and HTTPServer2 please"))
    chinese = await said(sessions, "chinese", user("请把报告翻译成英文，谢谢"))
    thai = await said(sessions, "thai", user("สวัสดีชาวโลก"))
    search = partial(search_messages, database)

    for word in ("timeout", "TIMEOUT", "read", "httpserver", "server", "proxy_read_timeout", "readtimeout"):
        assert [hit.session for hit in await search(word)] == [code], word
    for word in ("报告", "翻译成", "英", "谢谢", "报告 英文"):
        assert [hit.session for hit in await search(word)] == [chinese], word
    assert [hit.session for hit in await search("ชาว")] == [thai]
    assert await search("告报") == ()


async def test_what_is_deleted_is_no_longer_found_and_leaves_no_words_in_the_file(tmp_path: Path):
    file = tmp_path / "loom.db"
    database = await open_database(str(file))
    sessions, texts = Sessions(database), MediaTexts(database)
    pdf = "sha256:" + "55" * 32
    for number in range(20):
        await said(sessions, "kept", user(f"ordinary words {number}"))
    session = await said(sessions, "x", user("the zyzzogeton sleeps", document(pdf)))
    await texts.put(pdf, "document", "a xylotomous insect")
    assert [hit.session for hit in await search_messages(database, "zyzzogeton xylotomous")] == [session]

    await sessions.delete(session)

    for word in ("zyzzogeton", "xylotomous"):
        assert await search_messages(database, word) == ()
        assert not _files_with(tmp_path, word)
    again = await said(sessions, "y", user("the newcomer has the same key"))
    assert [hit.session for hit in await search_messages(database, "newcomer")] == [again]
    await database.close()


def _files_with(folder: Path, word: str) -> list[str]:
    return [file.name for file in folder.iterdir() if word.encode() in file.read_bytes()]


async def test_a_store_that_is_older_than_the_index_is_searched_at_once_and_indexed(database: Database):
    sessions = Sessions(database)
    made = [
        await said(sessions, f"number {at}", *(user(f"word{at} common {n}") for n in range(90))) for at in range(20)
    ]
    pdf = "sha256:" + "66" * 32
    await said(sessions, "media", user("look", document(pdf)))
    await MediaTexts(database).put(pdf, "document", "quokka")

    def forget(tx: Transaction) -> None:
        for table in ("search_node", "search_media", "search_medium", "search_state"):
            tx.execute(f"DELETE FROM {table}")

    await database.write(forget)
    before = await database.read(lambda tx: _find(tx, ["word7", "common"], 50, 3))
    assert not await update_index(database, seconds=0)
    assert await database.read(unindexed_messages) is not None
    half = await database.read(lambda tx: _find(tx, ["word7", "common"], 50, 3))
    assert await update_index(database)
    assert await database.read(unindexed_messages) is None
    after = await database.read(lambda tx: _find(tx, ["word7", "common"], 50, 3))

    assert {hit.session for hit in after} == {made[7]}
    assert before == half == after
    assert len(await search_messages(database, "quokka")) == 1


async def test_a_store_that_is_closed_while_messages_are_indexed_leaves_a_log_line_behind(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("loom.store.search._CATCH_UP_SECONDS", 0.0)
    monkeypatch.setattr("loom.store.search_index._BATCH", 1)  # so that it takes longer than the search
    sessions = Sessions(database)
    for at in range(20):
        await said(sessions, f"number {at}", *(user(f"word{at} common {n}") for n in range(90)))
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    with caplog.at_level("INFO", logger="loom.store.search"):
        search = asyncio.create_task(search_messages(database, "common"))
        indexing = list[asyncio.Task[object]]()
        while not indexing:
            await asyncio.sleep(0)
            indexing = [it for it in asyncio.all_tasks() if "update_index" in repr(it.get_coro())]
        await database.close()
        await asyncio.wait([search, *indexing])
        search.exception()  # the store was closed while it ran
        del indexing
        gc.collect()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["messages are not indexed"]
    assert reported == []


async def test_a_bug_in_the_index_is_an_error_in_the_log_with_its_place(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def fail(_: object, *, seconds: float | None = None) -> bool:
        if seconds is not None:
            return False
        raise TypeError("a bug")

    monkeypatch.setattr("loom.store.search.update_index", fail)
    await said(Sessions(database), "x", user("words"))
    await search_messages(database, "words")
    (record,) = caplog.records
    assert record.levelname == "ERROR" and record.exc_info is not None


async def test_a_search_holds_up_no_other_reading(database: Database):
    sessions = Sessions(database)
    await said(sessions, "x", user("words"))
    may_end, running = threading.Event(), threading.Event()

    def long_search(tx: Transaction) -> None:
        running.set()
        assert may_end.wait(60)

    searches = [asyncio.create_task(database.read_aside(long_search)) for _ in range(12)]
    await asyncio.to_thread(running.wait, 60)

    assert len(await asyncio.wait_for(sessions.list(), 30)) == 1

    may_end.set()
    await asyncio.gather(*searches)


@given(st.lists(st.text(alphabet="abAB_ ßİ漢字é1.-", min_size=1, max_size=12), min_size=1, max_size=4), st.data())
def test_the_beginning_of_any_indexed_word_leads_to_it(parts: list[str], data: st.DataObject):
    """What a query asks the index for is the beginning of a word that the index has."""
    text = " ".join(parts)
    words = words_of(text)
    if not words:
        return
    piece = data.draw(st.sampled_from([part for part in parts if query_words(part)]))
    for wanted in query_words(piece):
        assert any(word.startswith(wanted) for word in words), (piece, wanted, words)
