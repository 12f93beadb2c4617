"""Several users: each with a key and a role; approvals say who answered."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from daemon.running import TOKEN, served
from loom.content.blocks import ToolCall
from loom.daemon.routes import ROUTES
from loom.errors import ConfigError, Conflict, NotFound
from loom.events import ApprovalAnswered, ApprovalRequested, decode_event
from loom.store.accounts import AccountRole
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.commands import run_command

ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def as_user(url: str, key: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"})


async def test_a_key_is_shown_once_replaced_and_removed() -> None:
    async with memory_runtime() as runtime:
        accounts = runtime.accounts
        made, key = await accounts.add("ada", "user")
        assert key.startswith("loom_") and (await accounts.by_key(key)) == made
        assert key not in str(await runtime.database.select("SELECT * FROM account"))
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
        async with as_user(daemon.url, key) as api, as_user(daemon.url, TOKEN) as owner:
            assert (await owner.post(f"/v1/sessions/{session.id}/messages", json={"text": "go"})).status_code == 202

            async def stored(kind: type) -> object:
                async with asyncio.timeout(60):
                    while True:
                        for event in await runtime.events.after(session.id, 0):
                            if isinstance(found := decode_event(event.data), kind):
                                return found
                        await asyncio.sleep(0.02)

            asked = await stored(ApprovalRequested)
            assert isinstance(asked, ApprovalRequested)
            answer = await api.post(f"/v1/sessions/{session.id}/approvals/{asked.approval}", json={"answer": "once"})
            assert answer.status_code == 204
            answered = await stored(ApprovalAnswered)
            assert isinstance(answered, ApprovalAnswered) and (answered.answer, answered.by) == ("once", "ada")
