"""Upload once: what is large and said again goes by id, and never to the wrong place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loom.content.blocks import TextBlock
from loom.content.recipes import Fit
from loom.errors import NotAuthorised, ProviderError, Refused
from loom.models import Model, ThinkingRule
from loom.prompt import MediaRef, Prompt, ShownMedia, ShownMessage, ShownResult
from loom.providers.connections import Connections, Timeouts
from loom.providers.files import ProviderUploads, lost_files
from loom.providers.http import HttpProvider
from loom.store import uploads as store
from loom.store.database import Database, open_database
from providers.far_side import FarSide, Reply, Request, far_side, refusal
from providers.worlds import Folder, at
from wire.prompts import CLAUDE, GEMINI, GPT, GPT_CHAT, OLLAMA
from wire.streams import ANTHROPIC, OPENAI_RESPONSES
from wire.streams import GEMINI as GEMINI_STREAMS

PATIENCE = Timeouts(connect_seconds=2, silence_seconds=5, deadline_seconds=10, attempts=2)
KEYS = {"anthropic": "sk-ant-0123456789", "openai-responses": "sk-oai-0123456789", "gemini": "AIza-0123456789"}


class World:
    def __init__(self, folder: Path, shelf: store.UploadRecords, database: Database) -> None:
        self.database = database
        self.media = Folder(folder)
        self.shelf = shelf
        self.keys: dict[str, str] = dict(KEYS)
        self.now = 1_000_000.0
        self.connections = Connections(PATIENCE)
        self.uploads = ProviderUploads(
            shelf, self.media, self.key, connections=self.connections, clock=lambda: self.now
        )
        self.provider = HttpProvider(self.media, self.key, connections=self.connections)

    def key(self, model: Model) -> str | None:
        return self.keys.get(model.provider)

    async def ask(self, prompt: Prompt) -> None:
        """As a step does: a request whose files are gone is compiled once more without them."""
        applied = await self.uploads.apply(prompt, upload=True)
        has_begun = False
        try:
            async for _ in self.provider.stream(applied):
                has_begun = True
        except ProviderError as error:
            lost = () if has_begun else lost_files(error, applied)
            if not lost:
                raise
            await self.uploads.forget(prompt.model, lost)
            async for _ in self.provider.stream(await self.uploads.apply(prompt, upload=True)):
                pass


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = await open_database(":memory:")
    holder: list[World] = []
    shelf = store.UploadRecords(database, clock=lambda: holder[0].now)
    holder.append(World(tmp_path, shelf, database))
    yield holder[0]
    await holder[0].connections.close()
    await database.close()


def first(model: Model, *refs: MediaRef) -> Prompt:
    media = tuple(ShownMedia(kind="image", ref=ref, name="a.png") for ref in refs)
    return Prompt(model=model, messages=(ShownMessage("user", (*media, TextBlock("What is this?"))),))


def again(model: Model, *refs: MediaRef) -> Prompt:
    """The same with an answer and another question."""
    more = (ShownMessage("assistant", (TextBlock("A map."),)), ShownMessage("user", (TextBlock("Of what?"),)))
    return msgspec.structs.replace(first(model, *refs), messages=(*first(model, *refs).messages, *more))


def parts(request: Request) -> dict[str, Any]:
    raw = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode() + request.body
    return {
        str(part.get_param("name", header="content-disposition")): part
        for part in BytesParser().parsebytes(raw).get_payload()
    }


def json_reply(body: Any, **headers: str) -> Reply:
    return Reply(
        body=json.dumps(body).encode(),
        content_type="application/json",
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


class Files:
    """The three Files APIs and the chat beside them."""

    def __init__(self) -> None:
        self.side: FarSide | None = None
        self.uploads: list[Request] = []
        self.deleted: list[str] = []
        self.is_away = self.gone = False
        self.looks = 0
        self.chats: list[Request] = []
        self.refuse: Callable[[Request], Reply | None] = lambda request: None

    def __call__(self, request: Request) -> Reply:
        target = request.target
        if request.method == "DELETE" and (self.is_away or self.gone):
            return refusal(503 if self.is_away else 404, "no")
        if request.method == "DELETE":
            self.deleted.append(target)
            return json_reply({})
        if target in ("/v1/files", "/files"):
            self.uploads.append(request)
            return json_reply({"id": f"file_{len(self.uploads)}", "type": "file"})
        if target == "/upload/v1beta/files":
            assert self.side is not None
            return json_reply({}, x_goog_upload_url=f"{self.side.url}/bytes?upload_id=7")
        if target.startswith("/bytes"):
            self.uploads.append(request)
            return json_reply({"file": self._file("PROCESSING")})
        if request.method == "GET" and target.startswith("/v1beta/files/"):
            self.looks += 1
            return json_reply(self._file("PROCESSING" if self.looks < 2 else "ACTIVE"))
        self.chats.append(request)
        streams = {"messages": ANTHROPIC, "responses": OPENAI_RESPONSES}
        found = next((stream for name, stream in streams.items() if target.endswith(name)), GEMINI_STREAMS)
        return self.refuse(request) or Reply(body=found["text"])

    def _file(self, state: str) -> dict[str, Any]:
        assert self.side is not None
        name = f"files/f{len(self.uploads)}"
        return {"name": name, "uri": f"{self.side.url}/v1beta/{name}", "state": state}


@pytest.fixture
async def files() -> AsyncIterator[Files]:
    files = Files()
    async with far_side(files) as side:
        files.side = side
        yield files


def url(files: Files) -> str:
    assert files.side is not None
    return files.side.url


# Each service -------------------------------------------------------------------------------------------------------


async def test_anthropic_gets_a_large_picture_inline_first_and_by_id_from_then_on(world: World, files: Files) -> None:
    model = at(CLAUDE, url(files))
    data = bytes(range(256)) * 6000
    ref = world.media.add(data)
    await world.ask(first(model, ref))
    assert not files.uploads
    assert files.chats[0].json["messages"][0]["content"][0]["source"]["type"] == "base64"
    for _ in range(2):
        await world.ask(again(model, ref))
    (upload,) = files.uploads
    form = parts(upload)
    assert upload.body.count(data) == 1
    assert form["expires_in_seconds"].get_payload() == "604800"
    assert form["file"].get_content_type() == "image/png"
    assert form["file"].get_filename() == ref.digest[7:19] + ".png"  # not what the user calls it
    assert upload.headers["authorization"] == f"Bearer {KEYS['anthropic']}"
    assert upload.headers["anthropic-version"] == "2026-10-21"
    for chat in files.chats[1:]:
        assert chat.json["messages"][0]["content"][0]["source"] == {"type": "file", "file_id": "file_1"}


async def test_openai_gets_the_purpose_and_the_expiry_and_the_id_goes_into_the_item(world: World, files: Files) -> None:
    model = at(GPT, url(files))
    picture, report = world.media.add(bytes(1_200_000)), world.media.add(b"%PDF" + bytes(1_200_000), "application/pdf")
    prompt = again(model, picture)
    document = ShownMedia(kind="document", ref=report, name="report.pdf")
    question = ShownMessage("user", (*prompt.messages[0].blocks, document))
    await world.ask(msgspec.structs.replace(prompt, messages=(question, *prompt.messages[1:])))
    forms = {str(parts(upload)["purpose"].get_payload()): parts(upload) for upload in files.uploads}
    assert set(forms) == {"vision", "user_data"}
    assert str(forms["user_data"]["file"].get_filename()).endswith(".pdf")
    assert forms["vision"]["expires_after[seconds]"].get_payload() == "604800"
    content = files.chats[0].json["input"][0]["content"]
    assert {content[0]["file_id"], content[2]["file_id"]} == {"file_1", "file_2"}


async def test_gemini_is_waited_for_until_the_file_is_active(world: World, files: Files) -> None:
    model = at(GEMINI, url(files) + "/v1beta")
    data = bytes(range(250)) * 5000
    ref = world.media.add(data)
    await world.ask(again(model, ref))
    (upload,) = files.uploads
    assert upload.body == data
    assert upload.headers["x-goog-upload-command"] == "upload, finalize"
    assert "x-goog-api-key" not in upload.headers
    assert files.looks == 2
    part = files.chats[0].json["contents"][0]["parts"][0]
    assert part["fileData"] == {"mimeType": "image/png", "fileUri": f"{url(files)}/v1beta/files/f1"}


# When ---------------------------------------------------------------------------------------------------------------


async def test_small_media_and_new_media_go_inline(world: World, files: Files) -> None:
    model = at(CLAUDE, url(files))
    small, new = world.media.add(bytes(999_999)), world.media.add(bytes(2_000_000))
    prompt = again(model, small)
    latest = ShownMessage("user", (ShownMedia(kind="image", ref=new), TextBlock("And this?")))
    applied = await world.uploads.apply(msgspec.structs.replace(prompt, messages=(*prompt.messages, latest)))
    assert [ref.file_id for ref in applied.media()] == ["", ""]
    assert not files.uploads


async def test_media_inside_tool_results_are_found_too(world: World, files: Files) -> None:
    ref = world.media.add(bytes(2_000_000))
    result = ShownResult(call_id="c1", name="look", blocks=(ShownMedia(kind="image", ref=ref),))
    turn = (ShownMessage("tool", (result,)), ShownMessage("assistant", (TextBlock("A map."),)))
    applied = await world.uploads.apply(Prompt(model=at(CLAUDE, url(files)), messages=turn))
    assert [ref.file_id for ref in applied.media()] == ["file_1"]


@pytest.mark.parametrize("model", [GPT_CHAT, OLLAMA])
async def test_services_without_ids_for_pictures_are_left_alone(model: Model, world: World, files: Files) -> None:
    prompt = again(at(model, url(files)), world.media.add(bytes(2_000_000)))
    assert await world.uploads.apply(prompt) is prompt


async def test_the_same_medium_said_twice_and_by_two_sessions_at_once_is_uploaded_once(
    world: World, files: Files
) -> None:
    model = at(CLAUDE, url(files))
    ref = world.media.add(bytes(2_000_000))
    prompts = await asyncio.gather(*(world.uploads.apply(again(model, ref, ref)) for _ in range(5)))
    assert {ref.file_id for prompt in prompts for ref in prompt.media()} == {"file_1"}
    assert len(files.uploads) == 1


# Never the wrong id -------------------------------------------------------------------------------------------------


async def test_another_key_address_or_provider_never_gets_the_id(world: World, files: Files) -> None:
    ref = world.media.add(bytes(2_000_000))
    model = at(CLAUDE, url(files))
    await world.uploads.apply(again(model, ref))
    elsewhere = await world.uploads.apply(first(at(CLAUDE, url(files) + "/other"), ref))
    openai = await world.uploads.apply(first(at(GPT, url(files)), ref))
    world.keys["anthropic"] = "sk-ant-another-key"
    other = await world.uploads.apply(first(model, ref))
    assert {ref.file_id for prompt in (elsewhere, openai, other) for ref in prompt.media()} == {""}
    world.keys["anthropic"] = KEYS["anthropic"]
    assert (await world.uploads.apply(first(model, ref))).media()[0].file_id == "file_1"


async def test_the_database_holds_no_key(world: World, files: Files) -> None:
    ref = world.media.add(bytes(2_000_000))
    await world.uploads.apply(again(at(CLAUDE, url(files)), ref))
    (file_id,) = {found.file_id for found in (await world.uploads.apply(again(at(CLAUDE, url(files)), ref))).media()}
    assert file_id
    rows = await world.database.read(lambda tx: tx.execute("SELECT * FROM upload"))
    assert KEYS["anthropic"] not in repr(rows)
    assert ref.digest.removeprefix("sha256:") in rows[0]


async def test_an_id_that_expires_soon_is_not_used_and_the_bytes_are_uploaded_anew(world: World, files: Files) -> None:
    ref = world.media.add(bytes(2_000_000))
    model = at(GEMINI, url(files) + "/v1beta")
    await world.uploads.apply(again(model, ref))
    world.now += 46 * 3600
    assert (await world.uploads.apply(again(model, ref))).media()[0].file_id.endswith("files/f1")
    world.now += 2 * 3600
    assert (await world.uploads.apply(again(model, ref))).media()[0].file_id.endswith("files/f2")


async def test_thinking_that_is_bound_to_its_prefix_gets_an_id_only_for_identical_bytes(
    world: World, files: Files
) -> None:
    bound = msgspec.structs.replace(at(CLAUDE, url(files)), thinking=ThinkingRule(replay="bound"))
    ref = msgspec.structs.replace(world.media.add(bytes(2_000_000)), recipe=Fit())
    assert (await world.uploads.apply(again(bound, ref))).media()[0].file_id == "file_1"
    world.media.path(ref).write_bytes(b"\1" * 2_000_000)  # as another version of the encoder might make it
    assert (await world.uploads.apply(first(bound, ref))).media()[0].file_id == ""


# When it fails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (404, "file_1 not found"),
        (404, "not_found_error"),
        (400, "file_expired: the file has expired"),
        (403, "You do not have permission to access the File file_1 or it may not exist."),
    ],
)
async def test_an_id_that_the_provider_no_longer_knows_is_forgotten_and_the_bytes_are_uploaded_again(
    status: int, text: str, world: World, files: Files
) -> None:
    model = at(CLAUDE, url(files))
    ref = world.media.add(bytes(2_000_000))
    body = {"type": "error", "error": {"type": "not_found_error", "message": text}}
    files.refuse = lambda request: refusal(status, body) if b'"file_id":"file_1"' in request.body else None
    await world.ask(again(model, ref))
    sent = [chat.json["messages"][0]["content"][0]["source"]["file_id"] for chat in files.chats]
    assert sent == ["file_1", "file_2"]


async def test_a_refusal_that_is_not_about_the_file_is_not_tried_again(world: World, files: Files) -> None:
    model = at(CLAUDE, url(files))
    ref = world.media.add(bytes(2_000_000))
    for status, problem in ((400, Refused), (401, NotAuthorised)):
        files.refuse = lambda request, status=status: refusal(status, {"error": {"message": "no"}})
        before = len(files.chats)
        with pytest.raises(problem):
            await world.ask(again(model, ref))
        assert len(files.chats) == before + 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=404, body=b"no files here"),
        Reply(status=500),
        Reply(before="reset"),
        Reply(body=b"<html>", content_type="text/html"),
        json_reply({"no": "id"}),
    ],
)
async def test_an_upload_that_fails_never_fails_the_turn_and_is_not_tried_again_at_once(
    reply: Reply, world: World
) -> None:
    def serve(request: Request) -> Reply:
        return reply if request.target == "/v1/files" else Reply(body=ANTHROPIC["text"])

    async with far_side(serve) as server:
        model = at(CLAUDE, server.url)
        refs = [world.media.add(bytes([number]) * 2_000_000) for number in range(3)]
        for ref in refs:
            await world.ask(again(model, ref))
        targets = [request.target for request in server.requests]
        assert targets == ["/v1/files", "/v1/messages", "/v1/messages", "/v1/messages"]
        world.now += 601
        await world.ask(again(model, refs[0]))
        assert [request.target for request in server.requests][4:] == ["/v1/files", "/v1/messages"]


async def test_gemini_cannot_send_the_bytes_to_another_host(world: World) -> None:
    async with (
        far_side(json_reply({"file": {"uri": "x", "state": "ACTIVE"}})) as thief,
        far_side(json_reply({}, x_goog_upload_url=f"{thief.url}/take")) as server,
    ):
        prompt = again(at(GEMINI, server.url + "/v1beta"), world.media.add(bytes(2_000_000)))
        assert await world.uploads.apply(prompt) is prompt
    assert not thief.requests


async def test_a_medium_that_is_damaged_is_left_to_the_request_to_complain_about(world: World, files: Files) -> None:
    damaged, whole = world.media.add(bytes(2_000_000)), world.media.add(b"\1" * 2_000_000)
    world.media.path(damaged).write_bytes(b"short")
    applied = await world.uploads.apply(again(at(CLAUDE, url(files)), damaged, whole))
    assert [ref.file_id for ref in applied.media()] == ["", "file_1"]


async def test_what_breaks_after_the_answer_began_is_not_asked_twice(world: World) -> None:
    def serve(request: Request) -> Reply:
        if request.target == "/v1/files":
            return json_reply({"id": "file_1"})
        gone = (
            b'event: error\ndata: {"type":"error","error":{"type":"not_found_error","message":"file_1 not found"}}\n\n'
        )
        return Reply(body=ANTHROPIC["cut"] + gone)

    async with far_side(serve) as server:
        with pytest.raises(ProviderError):
            await world.ask(again(at(CLAUDE, server.url), world.media.add(bytes(2_000_000))))
    assert len(server.requests) == 2


# Deleting (hardening 42) --------------------------------------------------------------------------------------------


async def test_what_is_deleted_here_is_deleted_there_where_we_have_the_key(world: World, files: Files) -> None:
    claude, gpt, gemini = at(CLAUDE, url(files)), at(GPT, url(files)), at(GEMINI, url(files) + "/v1beta")
    ref = world.media.add(bytes(2_000_000))
    for model in (claude, gpt, gemini):
        await world.uploads.apply(again(model, ref))
    models = {model.reference: model for model in (claude, gpt, gemini)}
    assert await world.uploads.delete_unwanted(models.__getitem__) == (0, 0)
    assert await world.shelf.condemn([ref.digest]) == 3
    del world.keys["openai-responses"]
    assert await world.uploads.delete_unwanted(models.__getitem__) == (2, 1)
    assert sorted(files.deleted) == ["/v1/files/file_1", "/v1beta/files/f3"]
    (left,) = await world.shelf.list_unwanted()
    assert (left.provider, left.tries) == ("openai-responses", 1)
    assert left.problem == "the key with which it was uploaded is not configured"
    assert (await world.uploads.apply(first(claude, ref))).media()[0].file_id == ""


async def test_a_file_whose_provider_is_away_is_deleted_when_it_is_back(world: World, files: Files) -> None:
    claude = at(CLAUDE, url(files))
    ref = world.media.add(bytes(2_000_000))
    await world.uploads.apply(again(claude, ref))
    await world.shelf.condemn([ref.digest])
    files.is_away = True
    assert await world.uploads.delete_unwanted(lambda _: claude) == (0, 1)
    assert [(left.tries, left.problem) for left in await world.shelf.list_unwanted()] == [(1, "status 503")]
    files.is_away = False
    assert await world.uploads.delete_unwanted(lambda _: claude) == (1, 0)
    assert files.deleted == ["/v1/files/file_1"] and not await world.shelf.list_unwanted()


async def test_a_file_that_is_gone_there_already_is_done_and_one_that_expired_is_forgotten(
    world: World, files: Files
) -> None:
    claude = at(CLAUDE, url(files))
    refs = [world.media.add(bytes([number]) * 2_000_000) for number in range(2)]
    for ref in refs:
        await world.uploads.apply(again(claude, ref))
    files.gone = True
    await world.shelf.condemn([refs[0].digest])
    assert await world.uploads.delete_unwanted(lambda _: claude) == (1, 0)
    await world.shelf.condemn([refs[1].digest])
    world.now += 30 * 86_400
    assert await world.uploads.delete_unwanted(lambda _: claude) == (0, 0)
