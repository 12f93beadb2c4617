"""Folders, tags, pins, archive, links and files over the API; what is mistyped is refused, errors are problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from daemon.running import TOKEN, serving
from importers import product_samples as samples
from loom.client import RemoteLibrary
from loom.config.templates import fill_template, read_template
from loom.content.media import digest_of
from loom.content.messages import assistant, user
from loom.errors import KeyReused, NotFound
from loom.testing import memory_runtime

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def asking(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers=HEADERS)


async def test_sessions_are_kept_in_folders_tagged_pinned_and_archived():
    async with memory_runtime() as runtime, serving(runtime) as daemon, RemoteLibrary(daemon.url, TOKEN) as library:
        first, second = [await library.import_messages([user(text), assistant("ok")]) for text in ("one", "two")]
        session = await library.open(first.session.id)
        await session.change(folder=" Work / Invoices ", tags=["b", "a", "a"], pinned=True)

        assert [found.id for found in (await library.sessions(folder="Work/Invoices")).sessions] == [first.session.id]
        assert [found.id for found in (await library.sessions(tag="a")).sessions] == [first.session.id]
        assert [found.id for found in (await library.sessions(pinned=False)).sessions] == [second.session.id]
        assert (await library.sessions(tag="%")).sessions == ()
        folders = await library.folders()
        assert (folders.folders, folders.tags) == ({"Work/Invoices": 1}, {"a": 1, "b": 1})
        await session.change(archived=True)
        assert [found.id for found in (await library.sessions()).sessions] == [second.session.id]
        assert [found.tags for found in (await library.sessions(archived=True)).sessions] == [("a", "b")]


async def test_a_link_shows_the_conversation_as_it_was_until_it_is_deleted():
    async with memory_runtime() as runtime, serving(runtime) as daemon, RemoteLibrary(daemon.url, TOKEN) as library:
        made = (
            await library.import_messages([user("<b>hello</b>"), assistant("an answer")], system="Be brief.")
        ).session
        link = await library.share(made.id)
        await runtime.stores.sessions.append_to_head(made.id, [user("said later")])

        async with httpx.AsyncClient(base_url=daemon.url) as http:
            page = await http.get(link.path)
            assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
            assert "&lt;b&gt;hello" in page.text and "an answer" in page.text and "said later" not in page.text
            assert "Be brief." not in page.text, "the system prompt is not part of the conversation"
            assert "sandbox" in page.headers["content-security-policy"] and "<script" not in page.text
            assert (await http.get(link.path[:-1] + "x")).status_code == 404
            (listed,) = await library.shares(made.id)
            assert (listed.id, listed.path) == (link.id, "")
            await library.unshare(made.id, link.id)
            assert (await http.get(link.path)).status_code == 404
            again = await library.share(made.id, days=1)
            await library.delete(made.id)
            assert (await http.get(again.path)).status_code == 404
            browser = await http.get(again.path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
            assert browser.status_code == 404 and browser.headers["content-type"].startswith("text/html")
            assert "This link does not exist, or has expired." in browser.text and "Ask for a new one." in browser.text
            assert "sandbox" in browser.headers["content-security-policy"]
        with pytest.raises(NotFound):
            await library.shares(made.id)


async def test_a_file_is_imported_over_the_api_as_a_body_and_as_a_form():
    async with memory_runtime() as runtime, serving(runtime) as daemon, RemoteLibrary(daemon.url, TOKEN) as library:
        report = await library.import_file(samples.chatgpt(), "export.zip")
        assert [(found.kind, found.media) for found in report.sessions] == [("ChatGPT", 3)]
        async with asking(daemon.url) as http:
            files = {"file": ("chats.json", samples.open_webui(), "application/json")}
            answer = await http.post("/v1/import/file", files=files)
            assert answer.json()["sessions"][0]["kind"] == "Open WebUI"
            broken = await http.post("/v1/import/file?name=x.zip", content=b"PK\x03\x04nothing")
            assert broken.status_code == 422 and "The zip is damaged" in broken.json()["title"]


async def test_unknown_fields_are_refused_and_name_the_one_that_was_meant():
    async with memory_runtime() as runtime, serving(runtime) as daemon, asking(daemon.url) as http:
        for method, path, body in (
            ("POST", "/v1/sessions", {"titel": "x"}),
            ("GET", "/v1/sessions?limt=3", None),
            ("POST", "/v1/login", {"passwrd": "x"}),
        ):
            answer = await http.request(method, path, json=body)
            problem: Any = answer.json()
            assert answer.status_code == 422, (path, problem)
            assert answer.headers["content-type"] == "application/problem+json"
            assert problem["status"] == 422 and problem["code"] == "request.invalid"
            assert problem["type"] == "urn:loom:error:request.invalid"
            assert "Did you mean" in problem["detail"] and problem["error"]["message"] == problem["title"]


async def test_a_key_is_refused_for_another_message_whose_first_one_waits():
    async with memory_runtime({"model": "loom/spark"}) as runtime:
        session = await runtime.library.create()
        queue = runtime.stores.queue
        first = await queue.put(session.id, "k", user("one"))
        assert (await queue.put(session.id, "k", user("one"))).id == first.id
        with pytest.raises(KeyReused):
            await queue.put(session.id, "k", user("two"))


async def test_the_tree_and_the_plan_come_in_pages_and_media_of_a_session_have_one_address():
    async with memory_runtime() as runtime, serving(runtime) as daemon, RemoteLibrary(daemon.url, TOKEN) as library:
        said = [user("look", *await library.upload(samples.PHOTO)), assistant("ok"), user("and?"), assistant("well")]
        made = (await library.import_messages(said)).session
        whole = await (await library.open(made.id)).tree()
        async with asking(daemon.url) as http:
            base = f"/v1/sessions/{made.id}"
            nodes, after = [], ""
            while after is not None:
                page = (await http.get(f"{base}/tree", params={"limit": 2, "after": after})).json()
                assert len(page["nodes"]) <= 2
                nodes += [node["node"] for node in page["nodes"]]
                after = page["next"]
            assert nodes == [node.node for node in whole.nodes]
            rows, before = [], ""
            while before is not None:
                page = (await http.post(f"{base}/plan", json={"limit": 2, "before": before})).json()
                assert len(page["rows"]) <= 2 and page["models"]
                rows = [row["key"] for row in page["rows"]] + rows
                before = page["next"]
                assert (page["above"] > 0) == (before is not None)
            planned = (await http.post(f"{base}/plan", json={})).json()
            assert rows == [row["key"] for row in planned["rows"]]
            for name, model in page["models"].items():  # of the whole request, in every page
                tokens = sum(row["by_model"][name]["tokens"] for row in planned["rows"])
                assert sum(model["rendition_tokens"].values()) == tokens > 0
            digest = digest_of(samples.PHOTO)
            assert (await http.get(f"{base}/media/{digest}")).content == samples.PHOTO
            assert (await http.get(f"{base}/images/{digest}")).content == samples.PHOTO


async def test_what_a_running_turn_has_said_is_typed_in_the_document():
    async with memory_runtime() as runtime, serving(runtime) as daemon, asking(daemon.url) as http:
        schemas = (await http.get("/openapi.json")).json()["components"]["schemas"]
        kinds = [kind["$ref"].rpartition("/")[2] for kind in schemas["EventEnvelope"]["properties"]["data"]["anyOf"]]
        assert "MessageStored" in kinds and all("properties" in schemas[kind] for kind in kinds)


async def test_the_prompt_library_is_that_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    async with memory_runtime() as runtime, serving(runtime) as daemon, asking(daemon.url) as http:
        body = {"text": "Summarize $input in $length.", "params": {"length": "one line"}}
        made = await http.put("/v1/prompts/short", json=body)
        assert made.status_code == 200, made.text
        assert made.json()["fields"] == ["input", "length"]
        assert [found["name"] for found in (await http.get("/v1/prompts")).json()["prompts"]] == ["short"]
        assert fill_template(read_template("short"), "this", ()) == ("Summarize this in one line.", "")
        assert (await http.put("/v1/prompts/..%2Fevil", json=body)).status_code in (400, 404, 422)
        assert (await http.delete("/v1/prompts/short")).status_code == 204
        assert (await http.delete("/v1/prompts/short")).status_code == 404
