"""Several users: each with a key and a role; approvals say who answered."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx2
import pytest

from daemon.raw import raw_socket
from daemon.running import TOKEN, served
from loom.content.blocks import ToolCall
from loom.content.media_kinds import MEDIA_KINDS
from loom.daemon.routes import ROUTES
from loom.errors import BudgetSpent, ConfigError, Conflict, NotFound
from loom.events import ApprovalAnswered, ApprovalRequested, Stopped, TextDelta, UsageReported, decode_event
from loom.models import Usage
from loom.store.accounts import AccountRole
from loom.testing import ScriptedProvider, memory_runtime, sample_png
from loom.tools.commands import run_command
from patience import PATIENCE_SECONDS

ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def as_user(url: str, key: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_SECONDS)


async def test_a_key_is_shown_once_replaced_and_removed() -> None:
    async with memory_runtime() as runtime:
        accounts = runtime.accounts
        made, key = await accounts.add("ada", "user")
        assert key.startswith("loom_") and (await accounts.by_key(key)) == made
        assert key not in str(await runtime.stores.database.select("SELECT * FROM account"))
        with pytest.raises(Conflict):
            await accounts.add("ada", "viewer")
        for name in ("owner", "Ada", "", "a b", "x" * 65, "../x"):
            with pytest.raises(ConfigError):
                await accounts.add(name, "user")
        await runtime.logins.open(made.id, address="", agent="")
        again = await accounts.new_key("ada")
        assert await accounts.by_key(key) is None and await accounts.by_key(again) is not None
        assert await runtime.logins.list() == (), "browsers that the old key signed in are signed out"
        await accounts.remove("ada")
        assert await accounts.by_key(again) is None
        with pytest.raises(NotFound):
            await accounts.remove("ada")


@pytest.mark.parametrize("role", ["viewer", "user", "admin"])
async def test_each_role_reaches_its_routes_and_no_others(role: AccountRole) -> None:
    """Every route of the table, by its method or by what it says that it needs."""
    rank = ["viewer", "user", "admin"]
    async with served() as daemon:
        _, key = await daemon.runtime.accounts.add("ada", role)
        async with as_user(daemon.url, key) as api:
            assert (await api.get("/v1/me")).json() == {"name": "ada", "role": role}
            for row in ROUTES:
                if row.is_open or row.path.endswith(("/events", "/rotate")):
                    continue
                needed = row.needs or ("viewer" if row.method in ("GET", "HEAD") else "user")
                path = row.path.replace("{session}", ID)
                answer = await api.request(
                    row.method, path, json={} if row.method in ("POST", "PUT", "PATCH") else None
                )
                refused = answer.status_code == 403 and b"needs the role" in answer.content
                assert refused == (rank.index(role) < rank.index(needed)), (row.method, row.path, answer.status_code)
            rotated = await api.post("/v1/token/rotate")
            assert rotated.status_code == (200 if role == "admin" else 403)


async def test_a_browser_signs_in_with_a_key_and_a_removed_user_is_out_at_once() -> None:
    async with served() as daemon, httpx2.AsyncClient(base_url=daemon.url, headers={"X-Loom": "1"}) as browser:
        assert (await browser.post("/v1/login", json={"password": "x"})).status_code == 403
        _, key = await daemon.runtime.accounts.add("ada", "user")
        assert (await browser.get("/v1/login")).json() == {"password": True}
        assert (await browser.post("/v1/login", json={"password": "loom_wrong"})).status_code == 401
        assert (await browser.post("/v1/login", json={"password": key})).status_code == 200
        (login,) = (await browser.get("/v1/logins")).json()["logins"]
        assert login["user"] == "ada" and login["current"]
        await daemon.runtime.logins.open("", address="", agent="the owner's")
        assert len((await browser.get("/v1/logins")).json()["logins"]) == 1, "others' browsers are theirs"
        await daemon.runtime.accounts.remove("ada")
        assert (await browser.get("/v1/me")).status_code == 401


async def test_an_approval_says_who_answered() -> None:
    call = ToolCall("c1", "run_command", {"command": "true"})
    provider = ScriptedProvider([call, "done"])
    async with served(providers={"anthropic": provider}, tools=[run_command]) as daemon:
        runtime = daemon.runtime
        _, key = await runtime.accounts.add("ada", "user")
        session = await runtime.session(model="anthropic/claude-opus-5")
        await runtime.session_users.share(session.id, "ada", "edit")
        async with as_user(daemon.url, key) as api, as_user(daemon.url, TOKEN) as owner:
            assert (await owner.post(f"/v1/sessions/{session.id}/messages", json={"text": "go"})).status_code == 202

            async def stored(kind: type) -> object:
                async with asyncio.timeout(60):
                    while True:
                        for event in await runtime.stores.events.after(session.id, 0):
                            if isinstance(found := decode_event(event.data), kind):
                                return found
                        await asyncio.sleep(0.02)

            asked = await stored(ApprovalRequested)
            assert isinstance(asked, ApprovalRequested)
            answer = await api.post(f"/v1/sessions/{session.id}/approvals/{asked.approval}", json={"answer": "once"})
            assert answer.status_code == 204
            answered = await stored(ApprovalAnswered)
            assert isinstance(answered, ApprovalAnswered) and (answered.answer, answered.by) == ("once", "ada")


async def _begin(api: httpx2.AsyncClient, **fields: object) -> str:
    return (await api.post("/v1/sessions", json=fields)).json()["id"]


async def test_a_session_of_another_user_does_not_exist_on_any_route() -> None:
    async with served() as daemon:
        _, hers = await daemon.runtime.accounts.add("ada", "user")
        _, his = await daemon.runtime.accounts.add("bob", "user")
        async with as_user(daemon.url, hers) as ada, as_user(daemon.url, his) as bob:
            session = await _begin(ada, title="secret")
            image = (
                await ada.post("/v1/media?name=a.png", content=sample_png(), headers={"Content-Type": "image/png"})
            ).json()
            digest = image["digest"]
            sent = await ada.post(
                f"/v1/sessions/{session}/messages",
                json={"text": "!echo words", "blocks": [{"type": "media", "digest": digest}]},
            )
            assert sent.status_code == 202, sent.text
            for row in ROUTES:
                if row.is_open or "{session}" not in row.path:
                    continue
                path = row.path.replace("{session}", session).replace("{digest}", digest)
                body = {} if row.method in ("POST", "PUT", "PATCH") else None
                answer = await bob.request(row.method, path, json=body)
                assert answer.status_code == 404, (row.method, row.path, answer.status_code)
            assert (await bob.get("/v1/sessions")).json()["sessions"] == []
            assert (await bob.get("/v1/sessions?q=words")).json()["sessions"] == []
            assert (await bob.get("/v1/search?q=words")).json()["results"] == []
            for path in (f"/v1/media/{digest}", f"/v1/media/{digest}/text", f"/v1/media/{digest}?session={session}"):
                assert (await bob.get(path)).status_code == 404, path
            assert (await bob.post("/v1/media", json={"digest": digest})).status_code == 404
            own = await _begin(bob)
            named = [
                {"type": kind.name, "media": {"digest": digest, "media_type": kind.usual_types[0], "size_bytes": 1}}
                for kind in MEDIA_KINDS.values()
            ]
            for block in ({"type": "media", "digest": digest}, {"type": "image_ref", "image_id": digest}, *named):
                for path in ("messages", "plan"):
                    body = {"text": "x", "blocks": [block]}
                    stolen = await bob.post(f"/v1/sessions/{own}/{path}", json=body)
                    assert stolen.status_code == 404, (path, block, stolen.text)
            assert [one["id"] for one in (await ada.get("/v1/sessions")).json()["sessions"]] == [session]
            assert (await ada.get(f"/v1/media/{digest}")).status_code == 200
        async with as_user(daemon.url, TOKEN) as owner:
            found = {one["id"] for one in (await owner.get("/v1/sessions")).json()["sessions"]}
            assert found == {session, own}, "the owner of the data folder sees all"


async def test_a_session_is_shared_by_invitation_to_view_or_to_edit() -> None:
    async with served() as daemon:
        _, hers = await daemon.runtime.accounts.add("ada", "user")
        _, his = await daemon.runtime.accounts.add("bob", "user")
        async with as_user(daemon.url, hers) as ada, as_user(daemon.url, his) as bob:
            session = await _begin(ada)
            members = f"/v1/sessions/{session}/members"
            assert (await ada.put(f"{members}/nobody", json={})).status_code == 404
            shared = await ada.put(f"{members}/bob", json={"access": "view"})
            assert {one["user"]: one["access"] for one in shared.json()["members"]} == {"ada": "own", "bob": "view"}
            assert (await bob.get(f"/v1/sessions/{session}")).status_code == 200
            assert [one["id"] for one in (await bob.get("/v1/sessions")).json()["sessions"]] == [session]
            assert (await bob.post(f"/v1/sessions/{session}/messages", json={"text": "hi"})).status_code == 403
            assert (await bob.put(f"{members}/bob", json={"access": "own"})).status_code == 403
            await ada.put(f"{members}/bob", json={"access": "edit"})
            assert (await bob.post(f"/v1/sessions/{session}/messages", json={"text": "!echo hi"})).status_code == 202
            assert (await bob.delete(f"{members}/ada")).status_code == 403, "only its owner shares a session"
            assert (await bob.delete(f"/v1/sessions/{session}")).status_code == 403, "and deletes it"
            fork = (await bob.post(f"/v1/sessions/{session}/fork", json={})).json()["id"]
            assert (await ada.get(f"/v1/sessions/{fork}")).status_code == 404
            assert (await ada.delete(f"{members}/bob")).status_code == 204
            assert (await bob.get(f"/v1/sessions/{session}")).status_code == 404
            await ada.put(f"{members}/everyone", json={"access": "view"})
            assert (await bob.get(f"/v1/sessions/{session}")).status_code == 200


async def test_pages_of_the_list_hold_only_what_a_user_may_read() -> None:
    async with served() as daemon:
        _, hers = await daemon.runtime.accounts.add("ada", "user")
        async with as_user(daemon.url, hers) as ada, as_user(daemon.url, TOKEN) as owner:
            mine = [await _begin(ada) if number % 3 == 0 else await _begin(owner) for number in range(12)][::3]
            seen: list[str] = []
            before: str | None = ""
            while before is not None:
                page = (await ada.get(f"/v1/sessions?limit=2&before={before}")).json()
                assert len(page["sessions"]) <= 2
                seen += [one["id"] for one in page["sessions"]]
                before = page["next"]
            assert seen == mine[::-1]


async def test_events_of_another_user_reach_nobody_else() -> None:
    async with served() as daemon:
        _, hers = await daemon.runtime.accounts.add("ada", "user")
        _, his = await daemon.runtime.accounts.add("bob", "user")
        async with as_user(daemon.url, hers) as ada, as_user(daemon.url, his) as bob:
            session = await _begin(ada)
            async with raw_socket(daemon, token=his) as socket:
                await socket.send(f'42/events,1["join",{{"session":"{session}"}}]')
                assert '"ok":false' in str(await socket.recv())
                await socket.send('42/events,2["join",{"sessions":true}]')
                assert '"ok":true' in str(await socket.recv())
                await ada.patch(f"/v1/sessions/{session}", json={"title": "new"})
                own = await _begin(bob)
                heard = str(await asyncio.wait_for(socket.recv(), PATIENCE_SECONDS))
                assert own in heard and session not in heard


async def test_an_import_of_what_another_user_has_is_a_session_of_its_own() -> None:
    conversation = {"messages": [{"role": "user", "blocks": [{"type": "text", "text": "the same"}]}], "title": "mine"}
    async with served() as daemon:
        _, hers = await daemon.runtime.accounts.add("ada", "user")
        _, his = await daemon.runtime.accounts.add("bob", "user")
        async with as_user(daemon.url, hers) as ada, as_user(daemon.url, his) as bob:
            first = (await ada.post("/v1/import", json=conversation)).json()
            second = (await bob.post("/v1/import", json=conversation)).json()
            assert first["is_new"] and second["is_new"]
            assert first["session"]["id"] != second["session"]["id"]
            assert second["session"]["title"] != "mine"
            assert (await bob.get(f"/v1/sessions/{second['session']['id']}/messages")).status_code == 200
            assert (await bob.get(f"/v1/sessions/{first['session']['id']}")).status_code == 404
            assert (await ada.post("/v1/import", json=conversation)).json()["is_new"] is False


async def test_a_session_of_a_sub_agent_belongs_to_the_owner_of_the_session_that_asked() -> None:
    """Before, only administrators could open what the agent of a user had done."""
    ask = ToolCall("c1", "ask_agent", {"tasks": ["count"]})
    provider = ScriptedProvider([ask, "counted", "done"])
    async with served(providers={"anthropic": provider}, tools=["all"]) as daemon:
        _, hers = await daemon.runtime.accounts.add("ada", "user")
        _, his = await daemon.runtime.accounts.add("bob", "user")
        async with as_user(daemon.url, hers) as api, as_user(daemon.url, his) as bob:
            session = await _begin(api, model="anthropic/claude-opus-5")
            await api.put(f"/v1/sessions/{session}/members/bob", json={"access": "view"})
            await (await daemon.runtime.library.open(session)).send("go")
            listed = (await api.get("/v1/sessions")).json()["sessions"]
            (child,) = [one["id"] for one in listed if one["id"] != session]
            assert (await api.get(f"/v1/sessions/{child}/messages")).status_code == 200
            assert (await api.get(f"/v1/sessions/{child}/members")).json()["members"] == [
                {"user": "ada", "access": "own"}
            ]
            assert (await bob.get(f"/v1/sessions/{child}")).status_code == 404, "who may only view one session"


async def test_each_user_has_prompts_of_their_own_and_administrators_share_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    async with served() as daemon:
        account, hers = await daemon.runtime.accounts.add("ada", "user")
        _, his = await daemon.runtime.accounts.add("bob", "user")
        _, chief = await daemon.runtime.accounts.add("eve", "admin")

        async def library(api: httpx2.AsyncClient) -> dict[str, tuple[str, bool]]:
            found = (await api.get("/v1/prompts")).json()["prompts"]
            return {one["name"]: (one["text"], one["is_shared"]) for one in found}

        async with (
            as_user(daemon.url, hers) as ada,
            as_user(daemon.url, his) as bob,
            as_user(daemon.url, chief) as eve,
        ):
            assert (await ada.put("/v1/prompts/mine", json={"text": "of ada"})).status_code == 200
            assert (await eve.put("/v1/prompts/house", json={"text": "for all"})).status_code == 200
            assert (await ada.put("/v1/prompts/house", json={"text": "ada's house"})).status_code == 200
            assert await library(ada) == {"mine": ("of ada", False), "house": ("ada's house", False)}
            assert await library(bob) == {"house": ("for all", True)}
            assert await library(eve) == {"house": ("for all", True)}
            assert (await bob.delete("/v1/prompts/house")).status_code == 403
            assert (await bob.delete("/v1/prompts/mine")).status_code == 404
            assert (await ada.delete("/v1/prompts/house")).status_code == 204
            assert await library(ada) == {"mine": ("of ada", False), "house": ("for all", True)}
            assert (await eve.delete("/v1/prompts/house")).status_code == 204
            assert await library(bob) == {}
            assert (await eve.delete("/v1/users/ada")).status_code == 204
        assert account.id not in str(list(os.walk(tmp_path))), "what a user leaves behind"


async def test_a_user_whose_budget_is_spent_asks_no_model_until_tomorrow() -> None:
    used = UsageReported(usage=Usage(input_tokens=100_000, output_tokens=10_000))
    provider = ScriptedProvider([[TextDelta(text="first"), used, Stopped(reason="end")], "of the owner", "again"])
    async with served(providers={"anthropic": provider}) as daemon:
        runtime = daemon.runtime
        _, hers = await runtime.accounts.add("ada", "user")
        async with as_user(daemon.url, hers) as ada, as_user(daemon.url, TOKEN) as owner:
            assert (await ada.patch("/v1/users/ada", json={"day_usd": 100})).status_code == 403
            changed = await owner.patch("/v1/users/ada", json={"day_usd": 0.5})
            assert changed.json()["users"][0]["day_usd"] == 0.5 and changed.json()["users"][0]["role"] == "user"
            session = await _begin(ada, model="anthropic/claude-opus-5")
            opened = await runtime.library.open(session)
            assert (await opened.send("one")).text == "first"
            (entry,) = (await owner.get("/v1/users")).json()["users"]
            assert entry["spent_usd"] >= 0.5
            assert (await ada.delete(f"/v1/sessions/{session}")).status_code == 204, "which returns nothing"
            session = await _begin(ada, model="anthropic/claude-opus-5")
            with pytest.raises(BudgetSpent, match=r"The budget of ada is exceeded: \$\d+\.\d\d of \$0\.50 today"):
                await (await runtime.library.open(session)).send("two")
            body = {"model": "anthropic/claude-opus-5", "messages": [{"role": "user", "content": "hi"}]}
            refused = await ada.post("/v1/chat/completions", json=body)
            assert refused.status_code == 429 and "budget of ada is exceeded" in refused.text
            assert len(provider.prompts) == 1, "nothing was sent"
            mine = await _begin(owner, model="anthropic/claude-opus-5")
            assert (await (await runtime.library.open(mine)).send("three")).text, "others go on"
            await owner.patch("/v1/users/ada", json={"day_usd": None})
            assert (await (await runtime.library.open(session)).send("four")).text
