"""What providers hold for us and what was learned of models, on both databases."""

from __future__ import annotations

import msgspec
import pytest

from loom.content.media import digest_of
from loom.errors import ContentError
from loom.store.database import Database, open_database
from loom.store.model_facts import ModelFacts
from loom.store.upkeep import UpkeepTimes
from loom.store.uploads import Upload, UploadRecords

DIGEST = digest_of(b"a picture")


def upload(**changes: object) -> Upload:
    facts: dict[str, object] = {
        "provider": "anthropic",
        "account": "a1",
        "digest": DIGEST,
        "recipe": "",
        "file_id": "file_1",
        "content": DIGEST.removeprefix("sha256:"),
        "expires_at": 100.0,
    }
    return Upload(**{**facts, **changes})


async def keep(uploads: UploadRecords, one: Upload) -> None:
    await uploads.keep(**msgspec.structs.asdict(one))


async def test_an_id_is_found_by_provider_account_digest_and_recipe_and_by_nothing_less(database: Database) -> None:
    uploads = UploadRecords(database, clock=lambda: 0.0)
    await keep(uploads, upload())
    assert await uploads.find("anthropic", "a1", DIGEST, "") == upload()
    assert await uploads.find("gemini", "a1", DIGEST, "") is None
    assert await uploads.find("anthropic", "a2", DIGEST, "") is None
    assert await uploads.find("anthropic", "a1", digest_of(b"another"), "") is None
    assert await uploads.find("anthropic", "a1", DIGEST, "fit1-2048") is None


async def test_an_id_is_not_found_once_it_has_expired_and_is_cleaned_up_by_the_next_write(database: Database) -> None:
    now = [0.0]
    uploads = UploadRecords(database, clock=lambda: now[0])
    await keep(uploads, upload())
    now[0] = 100.0
    assert await uploads.find("anthropic", "a1", DIGEST, "") is None
    await keep(uploads, upload(account="a2", expires_at=200.0))
    rows = await database.read(lambda tx: tx.execute("SELECT account FROM upload"))
    assert rows == [("a2",)]


async def test_the_newest_id_wins(database: Database) -> None:
    uploads = UploadRecords(database, clock=lambda: 0.0)
    await keep(uploads, upload())
    await keep(uploads, upload(file_id="file_2", expires_at=300.0))
    assert await uploads.find("anthropic", "a1", DIGEST, "") == upload(file_id="file_2", expires_at=300.0)


async def test_a_forgotten_id_is_gone_for_its_account_only(database: Database) -> None:
    uploads = UploadRecords(database, clock=lambda: 0.0)
    await keep(uploads, upload())
    await keep(uploads, upload(account="a2"))
    await uploads.forget("anthropic", "a1", ["file_1", "file_9"])
    assert await uploads.find("anthropic", "a1", DIGEST, "") is None
    assert await uploads.find("anthropic", "a2", DIGEST, "") is not None


async def test_what_is_taken_with_a_medium_is_every_copy_of_it(database: Database) -> None:
    uploads = UploadRecords(database, clock=lambda: 0.0)
    other = upload(digest=digest_of(b"another"))
    kept = [upload(), upload(recipe="low1-512", file_id="file_2"), upload(provider="gemini", file_id="https://g/1")]
    for one in (*kept, other):
        await keep(uploads, one)
    assert await uploads.condemn([DIGEST]) == 3
    assert await uploads.condemn([DIGEST]) == 0
    assert sorted(one.file_id for one in await uploads.list_unwanted()) == ["file_1", "file_2", "https://g/1"]
    assert await uploads.find("anthropic", "a1", other.digest, "") == other


async def test_a_file_id_cannot_smuggle_a_nul_into_the_database(database: Database) -> None:
    with pytest.raises(ContentError):
        await keep(UploadRecords(database), upload(file_id="file\0"))


async def test_lessons_are_kept_by_model_and_address_with_their_origin_and_date(database: Database) -> None:
    now = [1.0]
    learned = ModelFacts(database, clock=lambda: now[0])
    await learned.keep("ollama/llava", "http://a", "asked", {"vision": True, "context_tokens": 4096})
    now[0] = 2.0
    await learned.keep("ollama/llava", "http://a", "learned", {"vision": False})
    lessons = {lesson.origin: lesson for lesson in await learned.list_facts("ollama/llava", "http://a")}
    assert lessons["asked"].facts == {"vision": True, "context_tokens": 4096}
    assert lessons["asked"].at == 1.0
    assert lessons["learned"].at == 2.0
    assert await learned.list_facts("ollama/llava", "http://b") == ()
    await learned.keep("ollama/llava", "http://a", "asked", {"vision": False})
    assert (await learned.list_facts("ollama/llava", "http://a"))[0].facts == {"vision": False}


async def test_a_store_of_the_first_schema_gets_the_new_tables_when_it_is_opened(url: str) -> None:
    database = await open_database(url)
    for table in ("upload", "learned"):
        await database.write(lambda tx, table=table: tx.execute(f"DROP TABLE {table}"))
    for table in ("unwanted_upload", "upkeep"):
        await database.write(lambda tx, table=table: tx.execute(f"DROP TABLE {table}"))
    await database.write(lambda tx: tx.execute("DELETE FROM migration WHERE version IN (2, 103)"))
    await database.close()
    database = await open_database(url)
    await ModelFacts(database).keep("ollama/llava", "", "asked", {})
    assert await UploadRecords(database).condemn([DIGEST]) == 0
    await database.close()


async def test_upkeep_is_claimed_by_one_process_for_a_while(database: Database) -> None:
    now = [100_000.0]
    times = [UpkeepTimes(database, clock=lambda: now[0]) for _ in range(2)]
    assert [await one.claim("sweep", every_seconds=3600) for one in times] == [True, False]
    assert await times[0].claim("other", every_seconds=3600)
    now[0] += 3601
    assert [await one.claim("sweep", every_seconds=3600) for one in times] == [True, False]
    now[0] -= 1_000_000  # a clock that was wrong must not stop it for ever
    assert await times[0].claim("sweep", every_seconds=3600)
