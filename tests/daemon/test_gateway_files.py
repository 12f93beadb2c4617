"""Uploaded files: both SDKs upload, list, read and delete them, and requests name them by their id."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from daemon.gateways import gateway
from daemon.running import serving
from flow.far_models import settings, speak
from loom.testing import memory_runtime, sample_pdf, sample_png
from providers.far_side import far_side

PNG = sample_png(90, 60)
DIGEST = f"sha256:{hashlib.sha256(PNG).hexdigest()}"


async def test_the_anthropic_sdk_uploads_a_file_and_a_message_names_it() -> None:
    async with gateway("openai_chat", "blue") as door:
        made = await door.anthropic.beta.files.upload(file=("shot.png", PNG, "image/png"))
        assert (made.type, made.filename, made.mime_type, made.size_bytes) == (
            "file",
            "shot.png",
            "image/png",
            len(PNG),
        )
        source: Any = {"type": "file", "file_id": made.id}
        ask: Any = [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "see"}]}]
        await door.anthropic.messages.create(model="far", max_tokens=9, messages=ask)
        assert list(door.far.pictures(0)) == [DIGEST]
        assert [file.id async for file in door.anthropic.beta.files.list()] == [made.id]
        assert (await door.anthropic.beta.files.retrieve_metadata(made.id)).id == made.id
        assert await (await door.anthropic.beta.files.download(made.id)).read() == PNG
        assert (await door.anthropic.beta.files.delete(made.id)).type == "file_deleted"
        with pytest.raises(anthropic.NotFoundError):
            await door.anthropic.beta.files.retrieve_metadata(made.id)


async def test_the_openai_sdk_uploads_a_file_and_both_its_protocols_name_it() -> None:
    async with gateway("anthropic", "read") as door:
        made = await door.openai.files.create(file=("a.pdf", sample_pdf("The answer is 42.")), purpose="user_data")
        assert (made.object, made.filename, made.purpose) == ("file", "a.pdf", "user_data")
        part: Any = {"type": "file", "file": {"file_id": made.id}}
        await door.openai.chat.completions.create(model="far", messages=[{"role": "user", "content": [part]}])
        item: Any = {"role": "user", "content": [{"type": "input_file", "file_id": made.id}]}
        await door.openai.responses.create(model="far", input=[item])
        for request in door.far.requests:
            (document,) = [block for block in request["messages"][0]["content"] if block["type"] == "document"]
            assert base64.b64decode(document["source"]["data"]) == sample_pdf("The answer is 42.")
        assert [file.id async for file in door.openai.files.list()] == [made.id]
        assert (await door.openai.files.content(made.id)).content == sample_pdf("The answer is 42.")
        assert (await door.openai.files.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await door.openai.files.retrieve(made.id)


async def test_a_file_that_was_uploaded_survives_a_sweep_and_lists_have_pages() -> None:
    async with gateway("anthropic", "x") as door:
        made = [
            await door.openai.files.create(file=(f"{n}.png", sample_png(30 + n, 20)), purpose="vision")
            for n in range(5)
        ]
        pages = [file.id async for file in door.openai.files.list(limit=2)]
        assert pages == [file.id for file in reversed(made)]
        digests = await door.runtime.stores.sessions.referenced_digests()
        assert len(digests) == 5
        await door.openai.files.delete(made[0].id)
        assert len(await door.runtime.stores.sessions.referenced_digests()) == 4


async def test_files_belong_to_the_key_that_uploaded_them() -> None:
    keys = {name: {"token": f"key-of-{name}-0123456789"} for name in ("ann", "bob")}
    async with (
        far_side(lambda _: speak("anthropic", "ok")) as server,
        memory_runtime(settings("anthropic", server.url) | {"gateway": {"keys": keys}}) as runtime,
        serving(runtime) as served,
        openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="key-of-ann-0123456789", max_retries=0) as ann,
        openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="key-of-bob-0123456789", max_retries=0) as bob,
    ):
        made = await ann.files.create(file=("a.png", PNG), purpose="vision")
        with pytest.raises(openai.NotFoundError):
            await bob.files.content(made.id)
        part: Any = {"type": "file", "file": {"file_id": made.id}}
        await bob.chat.completions.create(model="far", messages=[{"role": "user", "content": [part]}])
        assert "base64" not in server.requests[-1].body.decode(), "another key's file is not sent"
        async with httpx2.AsyncClient(base_url=served.url) as stranger:
            assert (await stranger.get("/v1/files")).status_code == 401


async def test_what_is_no_form_or_no_file_is_an_error_in_the_callers_shape() -> None:
    async with gateway("anthropic", "x") as door:
        plain = await door.http.post("/v1/files", content=b"{}", headers={"anthropic-version": "2023-06-01"})
        assert (plain.status_code, plain.json()["type"]) == (400, "error")
        empty = await door.http.post("/v1/files", files={"other": ("a.txt", b"x")})
        assert (empty.status_code, "error" in empty.json()) == (400, True)
        with pytest.raises(openai.BadRequestError):
            await door.openai.files.create(file=("a.bin", b"\x00\x01\x02" * 50), purpose="vision")
