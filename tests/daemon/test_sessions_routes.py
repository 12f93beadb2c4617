"""Sessions, messages, plans and settings over HTTP, on a running daemon with the built-in model."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import httpx2
import pytest
from PIL import Image

from daemon.asking import api_of, new_session, sample, say, settled, upload
from daemon.running import DaemonProcess
from daemon.running import daemon as running
from loom.testing import sample_png

PNG = sample_png(20, 19)  # too small for anybody to look for words in it


def test_a_session_is_begun_listed_changed_and_deleted(api: httpx2.Client) -> None:
    made = api.post("/v1/sessions", json={"title": "triage", "model": "loom/spark"})
    assert made.status_code == 201
    session = made.json()
    place = f"/v1/sessions/{session['id']}"
    assert made.headers["location"] == place
    assert (session["title"], session["model"], session["state"], session["rev"]) == ("triage", "loom/spark", "idle", 1)
    assert api.get("/v1/sessions").json()["sessions"][0]["id"] == session["id"]
    shown = api.get(place)
    assert shown.headers["etag"] == '"1"'
    renamed = api.patch(place, json={"title": "two\nlines"}, headers={"If-Match": '"1"'})
    assert (renamed.json()["title"], renamed.headers["etag"]) == ("two lines", '"2"')
    stale = api.patch(place, json={"title": "late"}, headers={"If-Match": '"1"'})
    assert (stale.status_code, stale.json()["error"]["code"]) == (412, "store.stale")
    assert api.patch(place, json={"archived": True}).json()["archived"]
    assert session["id"] not in [found["id"] for found in api.get("/v1/sessions").json()["sessions"]]
    archived = api.get("/v1/sessions", params={"archived": True}).json()["sessions"]
    assert session["id"] in [found["id"] for found in archived]
    assert api.delete(place).status_code == 204
    assert api.get(place).status_code == 404
    assert api.delete(place).status_code == 404


def test_lists_go_on_where_the_page_before_ended(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api:
        made = [new_session(api, title=str(at)) for at in range(7)]
        seen: list[str] = []
        cursor = ""
        while True:
            page = api.get("/v1/sessions", params={"limit": 3, "before": cursor}).json()
            seen += [found["id"] for found in page["sessions"]]
            cursor = page["next"]
            if not cursor:
                break
        assert seen == made[::-1]


def test_a_conversation_has_a_title_a_snippet_and_a_picture_of_its_own(api: httpx2.Client) -> None:
    session = new_session(api)
    say(
        api,
        session,
        "!echo what is wrong on this page?",
        images=[{"data": base64.b64encode(PNG).decode(), "name": "login.png"}],
    )
    found = api.get(f"/v1/sessions/{session}").json()
    assert found["title"].startswith("!echo what is wrong on this page?")
    assert found["thumb"] == upload(api, PNG)["digest"]
    assert found["snippet"].startswith("what is wrong on this page?")
    nameless = new_session(api)
    say(api, nameless, "", blocks=[{"type": "media", "digest": upload(api, PNG, "login.png")["digest"]}])
    assert api.get(f"/v1/sessions/{nameless}").json()["title"] == "login.png"
    assert found["last_seq"] > 3


def test_a_message_may_be_json_or_a_form_and_media_are_looked_up_not_believed(api: httpx2.Client) -> None:
    session = new_session(api)
    digest = upload(api, PNG, "login.png")["digest"]
    claim = {
        "digest": digest,
        "media_type": "image/jpeg",
        "size_bytes": 1,
        "width": 9,
        "height": 9,
        "source": "/etc/shadow",
    }
    history = say(api, session, "!echo json", blocks=[{"type": "image", "media": claim, "alt": "a page"}])
    block = history["messages"][0]["blocks"][1]
    assert block["alt"] == "a page"
    assert (block["media"]["media_type"], block["media"]["size_bytes"]) == ("image/png", len(PNG))
    assert (block["media"]["width"], block["media"]["name"]) == (20, "login.png")
    assert "source" not in block["media"]
    files = [("images[]", ("login.png", PNG)), ("files[]", ("leaflet.pdf", sample("leaflet.pdf")))]
    posted = api.post(f"/v1/sessions/{session}/messages", data={"text": "!echo form"}, files=files)
    assert posted.status_code == 202, posted.text
    history = settled(api, session)
    kinds = [[block["type"] for block in message["blocks"]] for message in history["messages"]]
    assert kinds[2] == ["text", "image", "document"]
    assert history["messages"][3]["role"] == "assistant"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"message": "   "}, 400),
        ({"message": "x", "blocks": [{"type": "image_ref", "image_id": "sha256:" + "0" * 64}]}, 404),
        ({"message": "x", "blocks": [{"type": "thinking", "text": "I may"}]}, 422),
        ({"message": "x", "blocks": [{"type": "tool_result", "call_id": "1", "blocks": []}]}, 422),
        ({"message": "x", "model": "nobody/knows"}, 400),
        ({"message": "x", "parent": "node:sha256:" + "0" * 64}, 404),
        ({"message": "x", "images": [{"data": "not base64!"}]}, 400),
        ({"message": "x", "images": [{"data": base64.b64encode(b"MZ" + bytes(99)).decode()}]}, 415),
        ({"message": "x", "n": 99}, 422),
        ({"message": "x", "workspace": "relative"}, 400),
        ({"message": ["x"]}, 422),
    ],
)
def test_a_message_that_cannot_be_said_is_refused_whole(api: httpx2.Client, body: dict[str, Any], status: int) -> None:
    session = new_session(api)
    answer = api.post(f"/v1/sessions/{session}/messages", json=body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == {"code", "message", "hint"}
    assert api.get(f"/v1/sessions/{session}/messages").json()["messages"] == []


def test_the_same_key_is_the_same_message(api: httpx2.Client) -> None:
    session = new_session(api)
    headers = {"Idempotency-Key": "k-1"}
    answers = [api.post(f"/v1/sessions/{session}/messages", json={"text": "once"}, headers=headers) for _ in range(3)]
    assert len({answer.json()["message"] for answer in answers}) == 1
    assert len(settled(api, session)["messages"]) == 2
    long = api.post(f"/v1/sessions/{session}/messages", json={"text": "x"}, headers={"Idempotency-Key": "k" * 500})
    assert long.status_code == 400


def test_a_snapshot_in_the_middle_of_a_turn_and_the_events_after_it_are_the_whole_turn(api: httpx2.Client) -> None:
    session = new_session(api)
    api.post(f"/v1/sessions/{session}/messages", json={"message": "!slow 40tps\n!tokens 60"})
    snapshots: list[dict[str, Any]] = []
    while not snapshots or api.get(f"/v1/sessions/{session}").json()["state"] != "idle":
        snapshots.append(api.get(f"/v1/sessions/{session}/messages").json())
    last = settled(api, session)
    answer = "".join(block["text"] for block in last["messages"][1]["blocks"] if block["type"] == "text")
    during = [found for found in snapshots if found["running"]]
    assert len(during) >= 2
    for found in during:
        so_far = "".join(piece["data"]["text"] for piece in found["running"]["partial"] if piece["type"] == "text")
        if len(found["messages"]) == 2:  # it is stored, and the event that tells so is about to be written
            assert so_far == ""
            so_far = answer
        rest = _text_after(api, session, found["seq"])
        assert so_far + rest == answer, "nothing twice, nothing missing"
        assert all(piece["seq"] <= found["seq"] for piece in found["running"]["partial"])
    assert last["running"] is None


def _text_after(api: httpx2.Client, session: str, seq: int) -> str:
    """What the stream says from there to the end of the turn."""
    text = ""
    with api.stream("GET", f"/v1/sessions/{session}/events", params={"after": seq}) as stream:
        for line in stream.iter_lines():
            if not line.startswith("data: "):
                continue
            envelope = json.loads(line[6:])
            if envelope["type"] == "text":
                text += envelope["data"]["text"]
            if envelope["type"] in ("turn_finished", "turn_failed"):
                break
    return text


def test_a_turn_is_cancelled_and_what_waits_can_be_taken_back(api: httpx2.Client) -> None:
    session = new_session(api)
    place = f"/v1/sessions/{session}"
    first = api.post(f"{place}/messages", json={"message": "!slow 5tps\n!tokens 500"}).json()
    settled(api, session, "running")
    found = api.get(f"{place}/messages").json()
    assert not first["queued"] and first["node"] == found["messages"][0]["node"]
    assert first["turn"] == found["running"]["turn"]
    waiting = api.post(f"{place}/messages", json={"message": "later"}).json()
    assert waiting["queued"]
    (queued,) = api.get(f"{place}/queue").json()["queue"]
    assert (queued["message"], queued["text"]) == (waiting["message"], "later")
    assert api.get(f"{place}/messages").json()["queue"] == [queued]
    assert api.delete(f"{place}/queue/{waiting['message']}").status_code == 204
    assert api.delete(f"{place}/queue/{waiting['message']}").status_code == 404
    assert api.post(f"{place}/abort").status_code == 202
    history = settled(api, session)
    assert history["messages"][0]["role"] == "user"
    assert "later" not in json.dumps(history)


def test_an_approval_is_shown_answered_once_and_then_gone(api: httpx2.Client, tmp_path: Path) -> None:
    session = new_session(api, workspace=str(tmp_path))
    place = f"/v1/sessions/{session}"
    api.post(f"{place}/messages", json={"message": '!tool write_file {"path": "made.txt", "content": "hello"}'})
    history = settled(api, session, "waiting")
    (asked,) = history["approvals"]
    assert asked["call"]["name"] == "write_file"
    assert api.get(f"{place}/approvals").json()["approvals"] == [asked]
    assert api.post(f"{place}/approvals/nobody", json={"answer": "once"}).status_code == 409
    assert api.post(f"{place}/approvals/{asked['approval']}", json={"answer": "maybe"}).status_code == 422
    assert api.post(f"{place}/approvals/{asked['approval']}", json={"answer": "once"}).status_code == 204
    settled(api, session)
    assert (tmp_path / "made.txt").read_text() == "hello"
    again = api.post(f"{place}/approvals/{asked['approval']}", json={"answer": "once"})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "approval.gone")


def test_branches_are_made_walked_named_and_left(api: httpx2.Client) -> None:
    session = new_session(api)
    place = f"/v1/sessions/{session}"
    first = say(api, session, "one")["messages"]
    second = say(api, session, "two")["messages"]
    edited = say(api, session, "two, but better", parent=first[1]["node"])["messages"]
    assert [message["node"] for message in edited[:2]] == [message["node"] for message in first]
    assert edited[2]["siblings"] == [second[2]["node"], edited[2]["node"]]
    assert api.post(f"{place}/regenerate", json={"node": edited[3]["node"], "n": 2}).status_code == 202
    again = settled(api, session)["messages"]
    assert again[2]["node"] == edited[2]["node"]
    children = api.get(f"{place}/nodes/{edited[2]['node']}/children").json()["children"]
    assert again[3]["node"] in [child["node"] for child in children]
    tree = api.get(f"{place}/tree").json()
    assert tree["head"] == again[-1]["node"]
    assert len({node["node"] for node in tree["nodes"]}) == len(tree["nodes"]) >= 7
    assert (
        api.patch(f"{place}/nodes/{first[0]['node']}", json={"bookmark": "start", "tags": ["b", "a"]}).status_code
        == 204
    )
    rev = api.get(place).headers["etag"]
    moved = api.post(f"{place}/head", json={"node": second[3]["node"]}, headers={"If-Match": rev})
    assert moved.json()["head"] == second[3]["node"]
    assert api.post(f"{place}/head", json={"node": first[0]["node"]}, headers={"If-Match": rev}).status_code == 412
    history = api.get(f"{place}/messages").json()["messages"]
    assert [message["node"] for message in history] == [message["node"] for message in second]
    assert (history[0]["bookmark"], history[0]["tags"]) == ("start", ["a", "b"])
    branch = api.get(f"{place}/messages", params={"head": edited[2]["node"]}).json()["messages"]
    assert branch[-1]["node"] == edited[2]["node"]
    page = api.get(f"{place}/messages", params={"before": history[3]["node"], "limit": 2}).json()
    assert [message["node"] for message in page["messages"]] == [message["node"] for message in history[1:3]]
    assert page["more"]
    fork = api.post(f"{place}/fork", json={"node": first[1]["node"], "title": "apart"})
    assert fork.status_code == 201 and fork.json()["head"] == first[1]["node"]
    other = new_session(api)
    assert api.post(f"/v1/sessions/{other}/head", json={"node": first[0]["node"]}).status_code == 404
    assert api.get(f"/v1/sessions/{other}/nodes/{first[0]['node']}/children").status_code == 404


def test_a_plan_compares_models_and_keeps_to_overrides_without_sending_anything(api: httpx2.Client) -> None:
    session = new_session(api)
    place = f"/v1/sessions/{session}"
    empty = api.post(f"{place}/plan", json={"models": ["loom/spark"]}).json()
    assert empty["rows"] == [] and empty["models"]["loom/spark"]["tokens"]["in"] == 0
    digest = upload(api, PNG, "login.png")["digest"]
    say(api, session, "!echo ok", blocks=[{"type": "image_ref", "image_id": digest}])
    rev = api.get(place).json()["rev"]
    models = ["anthropic/claude-opus-5", "deepseek/deepseek-chat", "nobody/knows"]
    asked = {"models": models, "text": "and this?", "blocks": [{"type": "media", "digest": digest}]}
    plan = api.post(f"{place}/plan", json=asked).json()
    opus, blind, unknown = (plan["models"][model] for model in models)
    assert opus["images"] == 2 and opus["usd"] > 0 and opus["tokens"]["in"] > 100 and opus["bytes"] > 2 * len(PNG)
    assert blind["images"] == 0
    assert unknown["error"]["code"] == "config.invalid"
    pictures = [row for row in plan["rows"] if row["digest"] == digest]
    assert [row["node"] for row in pictures][-1] == "draft"
    assert pictures[0]["by_model"][models[0]]["rendition"] == "full"
    assert pictures[0]["by_model"][models[1]]["rendition"] == "text"
    what_if = api.post(f"{place}/plan", json={"models": models[:1], "overrides": {pictures[0]["key"]: "text"}}).json()
    (row,) = [row for row in what_if["rows"] if row["digest"] == digest]
    assert (row["by_model"][models[0]]["rendition"], row["by_model"][models[0]]["reason"]) == ("text", "override")
    assert api.get(place).json()["rev"] == rev == plan["rev"]
    assert api.put(f"{place}/overrides", json={pictures[0]["key"]: "omitted"}).status_code == 200
    pinned = api.post(f"{place}/plan", json={"models": models[:1]}).json()
    assert [row["by_model"][models[0]]["rendition"] for row in pinned["rows"] if row["digest"] == digest] == ["omitted"]
    api.put(f"{place}/overrides", json={pictures[0]["key"]: "auto"})
    restored = api.post(f"{place}/plan", json={"models": models[:1]}).json()
    assert [row["by_model"][models[0]]["rendition"] for row in restored["rows"] if row["digest"] == digest] == ["full"]
    assert api.put(f"{place}/overrides", json={"x": "huge"}).status_code == 422


def test_your_words_for_a_picture_reach_who_cannot_see_and_can_be_taken_back(api: httpx2.Client) -> None:
    session = new_session(api)
    place, blind = f"/v1/sessions/{session}", "deepseek/deepseek-chat"
    digest = upload(api, PNG, "login.png")["digest"]
    say(api, session, "!echo ok", blocks=[{"type": "image_ref", "image_id": digest}])

    def row() -> dict[str, Any]:
        plan = api.post(f"{place}/plan", json={"models": [blind]}).json()
        return next(row for row in plan["rows"] if row["digest"] == digest)

    def body() -> str:
        return api.get(f"{place}/wire", params={"model": blind}).text

    before = row()
    assert before["alt"] == ""
    assert api.put(f"{place}/alts", json={digest: "  the login form, broken  "}).status_code == 200
    assert row()["alt"] == "the login form, broken"
    assert "described by the user" in row()["by_model"][blind]["detail"]
    assert "the login form, broken" in body()
    fork = api.post(f"{place}/fork", json={}).json()["id"]
    assert "the login form, broken" in api.get(f"/v1/sessions/{fork}/wire", params={"model": blind}).text
    api.put(f"{place}/alts", json={digest: "auto"})
    assert row()["alt"] == "auto", "a word like any other"
    api.put(f"{place}/alts", json={digest: " "})
    assert row() == before
    assert api.put(f"{place}/alts", json={"sha256:" + "0" * 64: "nothing"}).status_code == 404
    assert api.put(f"{place}/alts", json={"nonsense": "x"}).status_code == 404
    assert api.put(f"{place}/alts", json={digest: "x" * 20_001}).status_code == 400
    assert api.put(f"{place}/overrides", json={f"alt/{digest}": "full"}).status_code == 400


def test_a_picture_is_described_at_a_wish_by_the_model_that_is_named(api: httpx2.Client) -> None:
    digest = upload(api, PNG, "login.png")["digest"]
    place = f"/v1/media/{digest}/description"
    found = api.post(place, json={"model": "loom/spark"}).json()
    assert found["by"] == "loom/spark" and len(found["text"]) > 20
    assert api.post(place, json={"model": "loom/spark"}).json() == found
    unnamed = api.post(place, json={})
    assert (unnamed.status_code, unnamed.json()["error"]["code"]) == (400, "config.invalid")
    assert api.post("/v1/media/sha256:nothing/description", json={"model": "loom/spark"}).status_code == 404
    words = upload(api, b"just words", "notes.txt")["digest"]
    assert api.post(f"/v1/media/{words}/description", json={"model": "loom/spark"}).status_code == 415


def test_a_plan_tells_what_a_model_was_sent_last(api: httpx2.Client) -> None:
    session = new_session(api)
    place, spark, opus = f"/v1/sessions/{session}", "loom/spark", "anthropic/claude-opus-5"
    digest = upload(api, PNG, "login.png")["digest"]
    say(api, session, "!echo one", blocks=[{"type": "image_ref", "image_id": digest}])
    asked = {"models": [spark, opus], "last": True}
    plan = api.post(f"{place}/plan", json=asked).json()
    last = plan["models"][spark]["last"]
    assert [row["key"] for row in last] == [row["key"] for row in plan["rows"]][: len(last)]
    assert {row["role"] for row in plan["rows"][len(last) :]} == {"assistant"}, "the answer is new"
    assert plan["models"][opus]["last"] is None, "it was never asked"
    picture = next(row for row in last if row["digest"] == digest)
    api.put(f"{place}/overrides", json={picture["key"]: "text"})
    changed = api.post(f"{place}/plan", json=asked).json()
    assert changed["models"][spark]["last"] == last, "what was sent is sent"
    now = next(row for row in changed["rows"] if row["digest"] == digest)["by_model"][spark]
    assert (picture["rendition"], now["rendition"]) == ("full", "text")
    assert "last" in api.post(f"{place}/plan", json={"models": [spark]}).json()["models"][spark]


def test_a_plan_neither_draws_pages_nor_reads_pictures(api: httpx2.Client) -> None:
    """That is the work of sending; a look at what a blind model would get of a scan answers at once, and says so."""
    pages = io.BytesIO()
    first, *others = [Image.effect_noise((900, 1200), at) for at in range(10, 22)]
    first.save(pages, "PDF", save_all=True, append_images=others)
    scan = upload(api, pages.getvalue(), "scan.pdf")
    assert scan["pages"] == 12
    session = new_session(api)
    asked = {"models": ["deepseek/deepseek-chat"], "blocks": [{"type": "media", "digest": scan["digest"]}]}
    plan = api.post(f"/v1/sessions/{session}/plan", json=asked).json()
    assert any(
        "only when the request is sent" in notice for notice in plan["models"]["deepseek/deepseek-chat"]["notices"]
    )
    words = upload(api, sample("leaflet.pdf"), "leaflet.pdf")["digest"]
    asked["blocks"] = [{"type": "media", "digest": words}]
    exact = api.post(f"/v1/sessions/{session}/plan", json=asked).json()["models"]["deepseek/deepseek-chat"]
    assert exact["tokens"]["in"] > 100 and not any("when they are sent" in notice for notice in exact["notices"])


def test_the_wire_is_shown_with_media_as_references(api: httpx2.Client) -> None:
    session = new_session(api)
    digest = upload(api, PNG)["digest"]
    assert api.get(f"/v1/sessions/{session}/wire", params={"model": "anthropic/claude-opus-5"}).status_code == 400
    say(api, session, "!echo ok", blocks=[{"type": "image_ref", "image_id": digest}])
    wire = api.get(f"/v1/sessions/{session}/wire", params={"model": "anthropic/claude-opus-5"}).json()
    assert (wire["provider"], wire["model"]) == ("anthropic", "claude-opus-5")
    assert digest in json.dumps(wire["request"]) and "iVBORw0" not in json.dumps(wire["request"])
    assert api.get(f"/v1/sessions/{session}/wire", params={"model": "loom/spark"}).status_code == 400


@pytest.mark.parametrize("form", ["md", "html", "json", "zip"])
def test_a_conversation_is_exported_as_a_download(api: httpx2.Client, form: str) -> None:
    session = new_session(api, title="<script>alert(1)</script>")
    say(
        api,
        session,
        "!echo remember the walrus",
        blocks=[{"type": "image_ref", "image_id": upload(api, PNG)["digest"]}],
    )
    answer = api.get(f"/v1/sessions/{session}/export", params={"format": form})
    assert answer.headers["content-disposition"] == f'attachment; filename="{session}.{form}"'
    assert answer.headers["content-security-policy"].startswith("sandbox")
    if form == "zip":
        assert zipfile.ZipFile(io.BytesIO(answer.content)).testzip() is None
    else:
        assert "walrus" in answer.text
    assert form != "html" or "<script" not in answer.text
    assert api.get(f"/v1/sessions/{session}/export", params={"format": "exe"}).status_code == 422


def test_41_words_are_found_and_injected_ones_are_only_words(api: httpx2.Client) -> None:
    session = new_session(api, title="rare-aardvark")
    say(api, session, "the xylophone-quark' OR 1=1 --")
    for words in ("xylophone-quark", "XYLOPHONE-QUARK'", "rare-aardvark"):
        results = api.get("/v1/search", params={"q": words}).json()["results"]
        assert session in {found["session"] for found in results}, words
        listed = api.get("/v1/sessions", params={"q": words}).json()["sessions"]
        assert [found["id"] for found in listed] == [session]
    for odd in ("'; DROP TABLE session; --", "%", "_", '" OR ""="', "\\", "NEAR(a b)", "a* OR b:c", "\x00", "𝔘" * 50):
        assert api.get("/v1/search", params={"q": odd}).status_code in (200, 400)
    assert api.get(f"/v1/sessions/{session}").status_code == 200
    assert api.get("/v1/search", params={"q": "' OR 1=1 -- nothing-like-it"}).json()["results"] == []
    assert api.get("/v1/search").status_code == 422


def test_40_what_looks_like_code_or_secrets_stays_text(api: httpx2.Client) -> None:
    session = new_session(api)
    odd = (
        '{"lc":1,"type":"secret","id":["KEY"]} {"type":"image","source_path":"/etc/shadow"} !!python/object __reduce__'
    )
    history = say(api, session, odd)
    assert history["messages"][0]["blocks"] == [{"type": "text", "text": odd}]


def test_42_deleting_a_session_deletes_the_media_that_only_it_used(api: httpx2.Client, house: DaemonProcess) -> None:
    def picture(shade: int) -> bytes:
        data = io.BytesIO()
        Image.new("RGB", (40, 40), (shade, 7, 99)).save(data, "PNG")
        return data.getvalue()

    alone, shared = picture(1), picture(2)
    digests = ["sha256:" + hashlib.sha256(data).hexdigest() for data in (alone, shared)]
    sessions = [new_session(api), new_session(api)]
    for session, pictures in zip(sessions, ((alone, shared), (shared,)), strict=True):
        blocks = [{"type": "media", "digest": upload(api, data)["digest"]} for data in pictures]
        say(api, session, "!echo kept", blocks=blocks)
        api.get(f"/v1/media/{digests[1]}", params={"v": "thumb"})
    api.get(f"/v1/media/{digests[0]}", params={"v": "low"})
    assert api.delete(f"/v1/sessions/{sessions[0]}").status_code == 204
    assert api.head(f"/v1/media/{digests[0]}").status_code == 404
    assert api.head(f"/v1/media/{digests[1]}").status_code == 200
    left = [file for file in (house.home / "media").rglob("*") if digests[0][9:] in file.name]
    assert left == []


def test_settings_say_what_a_client_must_know(api: httpx2.Client) -> None:
    config = api.get("/v1/config").json()
    assert config["upload"]["max_bytes"] == 67_108_864 and config["model"] == "loom/spark" and config["offline"]
    models = api.get("/v1/models").json()
    spark = next(model for model in models["models"] if model["reference"] == "loom/spark")
    assert spark["ready"] and spark["capabilities"]["vision"] and models["default"] == "loom/spark"
    claude = next(model for model in models["models"] if model["provider"] == "anthropic")
    assert not claude["ready"] and claude["needs"] == "loom keys set anthropic" and claude["input_usd_per_million"] > 0
    samples = api.get("/v1/samples").json()["samples"]
    assert [found["name"] for found in samples] == ["login.png", "receipt.jpg", "leaflet.pdf"]
    assert all(api.head(f"/v1/media/{found['media']['digest']}").status_code == 200 for found in samples)
    metrics = api.get("/v1/metrics").text
    assert 'loom_requests_total{method="GET",path="/v1/config",status="200"}' in metrics
    assert "loom_turns_running" in metrics


def test_39_keys_are_kept_and_never_told(tmp_path: Path) -> None:
    secret = "sk-ant-api03-canary-0123456789"
    with running(tmp_path / "home") as house, api_of(house) as api:
        stored = api.put("/v1/keys/anthropic", json={"key": secret})
        row = next(found for found in stored.json()["keys"] if found["provider"] == "anthropic")
        assert row == {"provider": "anthropic", "set": True, "env": "ANTHROPIC_API_KEY", "last4": "6789"}
        file = house.home / "keys.toml"
        assert secret in file.read_text() and file.stat().st_mode & 0o077 == 0
        claude = next(model for model in api.get("/v1/models").json()["models"] if model["provider"] == "anthropic")
        assert claude["ready"]
        for path in ("/v1/keys", "/v1/config", "/v1/models", "/v1/metrics", "/openapi.json"):
            assert secret not in api.get(path).text
        refused = api.post("/v1/sessions", json={"model": f"anthropic {secret}"})
        assert refused.status_code == 400 and secret not in refused.text
        for bad in ("two words", "", "naïve", "a\nb"):
            assert api.put("/v1/keys/anthropic", json={"key": bad}).status_code in (400, 422)
        assert api.put("/v1/keys/nobody", json={"key": secret}).status_code == 404
        assert api.delete("/v1/keys/anthropic").status_code == 200
        assert api.delete("/v1/keys/anthropic").status_code == 404
        house.stop()
        written = [file.read_bytes() for file in house.home.rglob("*") if file.is_file()]
        assert not any(secret.encode() in data for data in written)
