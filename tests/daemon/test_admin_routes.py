"""Settings, model servers, users, usage and budgets over HTTP: what is changed holds at once, or says when."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cli.test_key_check import service
from daemon.asking import api_of, new_session, say
from daemon.running import DaemonProcess
from daemon.running import daemon as running


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[DaemonProcess, httpx2.Client]]:
    """A daemon whose settings a test may change."""
    with running(tmp_path / "home") as house, api_of(house) as api:
        yield house, api


def written(house: DaemonProcess) -> dict[str, Any]:
    return tomllib.loads((house.home / "loom.toml").read_text())


def setting(api: httpx2.Client, key: str) -> dict[str, Any]:
    return next(one for one in api.get("/v1/settings").json()["settings"] if one["key"] == key)


def failure(api: httpx2.Client, session: str) -> tuple[str, str, str]:
    """Return the code, the text and the hint of the first failed turn of a session."""
    with api.stream("GET", f"/v1/sessions/{session}/events", params={"after": 0}) as events:
        for line in events.iter_lines():
            if line.startswith("data: ") and (event := json.loads(line[6:]))["type"] == "turn_failed":
                return event["data"]["code"], event["data"]["text"], event["data"]["hint"]
    raise AssertionError("no turn failed")


def test_a_setting_is_written_applies_at_once_and_can_be_removed(own: tuple[DaemonProcess, httpx2.Client]) -> None:
    house, api = own
    assert setting(api, "turn.max_steps")["value"] == 50
    answer = api.put("/v1/settings/turn.max_steps", json={"value": 7})
    assert answer.status_code == 200 and answer.json()["restart"] == []
    assert setting(api, "turn.max_steps")["value"] == 7 == written(house)["turn"]["max_steps"]
    api.put("/v1/settings/turn.max_usd", json={"value": 0.5})
    assert written(house)["turn"] == {"max_steps": 7, "max_usd": 0.5}
    api.put("/v1/settings/turn.max_steps", json={"value": None})
    assert setting(api, "turn.max_steps")["value"] == 50
    assert written(house)["turn"] == {"max_usd": 0.5}


def test_changes_at_the_same_time_all_hold(own: tuple[DaemonProcess, httpx2.Client]) -> None:
    house, api = own
    wanted = {"turn.max_steps": 9, "turn.max_usd": 0.5, "budget.session_usd": 3.5, "budget.day_usd": 4.5}
    server = {"provider": "compatible", "base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key": ""}
    calls = [(f"/v1/settings/{key}", {"value": value}) for key, value in wanted.items()]
    calls += [(f"/v1/servers/one{number}", server) for number in range(4)]
    with ThreadPoolExecutor(len(calls)) as pool:
        answers = list(pool.map(lambda call: api.put(call[0], json=call[1]), calls))
    assert [answer.status_code for answer in answers] == [200] * len(calls)
    assert {key: setting(api, key)["value"] for key in wanted} == wanted
    assert [one["name"] for one in api.get("/v1/servers").json()["servers"]] == ["one0", "one1", "one2", "one3"]
    kept = written(house)
    assert (kept["turn"], kept["budget"]) == (
        {"max_steps": 9, "max_usd": 0.5},
        {"session_usd": 3.5, "day_usd": 4.5},
    )
    assert sorted(kept["models"]) == ["one0", "one1", "one2", "one3"]


def test_a_setting_that_needs_a_restart_says_so(own: tuple[DaemonProcess, httpx2.Client]) -> None:
    house, api = own
    assert setting(api, "server.port")["applies"] == "restart"
    assert api.put("/v1/settings/server.port", json={"value": 7777}).json()["restart"] == ["server.port"]
    assert written(house)["server"]["port"] == 7777
    assert api.get("/v1/settings").json()["restart"] == ["server.port"]


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        ("turn.max_steps", 0, 400),
        ("turn.max_steps", "many", 400),
        ("turn.max_usd", -1, 400),
        ("model", "no-such-platform/none", 400),
        ("store.url", "postgresql://elsewhere", 404),
        ("keys", "x", 404),
    ],
)
def test_a_wrong_value_changes_nothing(
    own: tuple[DaemonProcess, httpx2.Client], key: str, value: object, status: int
) -> None:
    house, api = own
    before = api.get("/v1/settings").json()
    answer = api.put(f"/v1/settings/{key}", json={"value": value})
    assert answer.status_code == status, answer.text
    assert api.get("/v1/settings").json() == before
    assert not (house.home / "loom.toml").exists()


def test_a_server_is_tested_added_used_and_removed(own: tuple[DaemonProcess, httpx2.Client]) -> None:
    house, api = own
    with service(200, {"data": [{"id": "qwen3-vl"}, {"id": "llama3.2"}]}) as (url, far):
        body = {"provider": "compatible", "base_url": f"{url}/v1", "model": "qwen3-vl", "api_key": "sk-own-12345678"}
        found = api.post("/v1/servers/test", json=body).json()
        assert (found["state"], found["models"]) == ("works", ["qwen3-vl", "llama3.2"])
        assert far.seen[-1][1]["authorization"] == "Bearer sk-own-12345678"
        listed = api.put("/v1/servers/my-qwen", json=body).json()["servers"]
        assert listed == [
            {"name": "my-qwen", "provider": "compatible", "model": "qwen3-vl", "base_url": f"{url}/v1", "has_key": True}
        ]
        assert "sk-own" not in str(listed)
        assert "my-qwen" in [one["reference"] for one in api.get("/v1/models").json()["models"]]
        api.put("/v1/servers/my-qwen", json={**body, "api_key": "", "model": "llama3.2"})
        assert written(house)["models"]["my-qwen"]["api_key"] == "sk-own-12345678", "the key is kept"
        again = {"provider": "compatible", "base_url": f"{url}/v1"}
        assert api.post("/v1/servers/test", json=again).json()["state"] == "works"
        assert far.seen[-1][1]["authorization"] == "Bearer sk-own-12345678"
    assert api.post("/v1/servers/test", json=again).json()["state"] == "unknown"
    assert api.delete("/v1/servers/my-qwen").json()["servers"] == []
    assert "my-qwen" not in [one["reference"] for one in api.get("/v1/models").json()["models"]]
    assert api.delete("/v1/servers/my-qwen").status_code == 404


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fine", {"base_url": "ftp://host"}),
        ("fine", {"provider": "no-such"}),
        ("not%20fine", {}),
        ("fine", {"unknown": 1}),
    ],
)
def test_a_wrong_server_is_refused(own: tuple[DaemonProcess, httpx2.Client], name: str, change: dict[str, Any]) -> None:
    house, api = own
    answer = api.put(f"/v1/servers/{name}", json={"base_url": "http://127.0.0.1:9/v1", **change})
    assert answer.status_code in (400, 422), answer.text
    assert not (house.home / "loom.toml").exists()


def test_users_are_added_changed_and_removed(own: tuple[DaemonProcess, httpx2.Client]) -> None:
    house, api = own
    made = api.post("/v1/users", json={"name": "ada", "role": "viewer"})
    assert made.status_code == 201 and made.json()["key"].startswith("loom_")
    with api_of(house, made.json()["key"]) as ada:
        assert ada.get("/v1/me").json() == {"name": "ada", "role": "viewer"}
        assert ada.get("/v1/users").status_code == 403
        assert api.patch("/v1/users/ada", json={"role": "admin"}).json()["users"][0]["role"] == "admin"
        assert ada.get("/v1/users").status_code == 200
        fresh = api.post("/v1/users/ada/key").json()["key"]
        assert ada.get("/v1/me").status_code == 401
    with api_of(house, fresh) as ada:
        assert ada.get("/v1/me").status_code == 200
        assert api.delete("/v1/users/ada").status_code == 204
        assert ada.get("/v1/me").status_code == 401
    assert api.get("/v1/users").json() == {"users": []}
    assert api.delete("/v1/users/ada").status_code == 404


def test_usage_is_counted_by_day_model_and_session_and_forks_count_once(
    own: tuple[DaemonProcess, httpx2.Client],
) -> None:
    _, api = own
    first, second = new_session(api, title="first"), new_session(api, title="second")
    for session, words in ((first, "one"), (first, "two"), (second, "three")):
        say(api, session, f"!echo {words}")
    api.post(f"/v1/sessions/{first}/fork", json={"title": "a fork"})
    rows = api.get("/v1/usage", params={"days": 2}).json()["rows"]
    assert {(row["title"], row["model"], row["answers"]) for row in rows} == {
        ("first", "loom/spark", 2),
        ("second", "loom/spark", 1),
    }
    assert all(row["usage"]["output_tokens"] > 0 and row["usd"] == 0 and row["unpriced"] == 0 for row in rows)
    assert api.get("/v1/usage", params={"days": 0}).status_code == 422


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("budget.session_usd", "This session"),
        ("budget.day_usd", "Today's answers"),
        ("budget.total_usd", "All answers"),
    ],
)
def test_a_budget_that_is_spent_stops_the_next_turn_and_says_so(
    own: tuple[DaemonProcess, httpx2.Client], setting: str, what: str
) -> None:
    house, api = own
    house.home.joinpath("loom.toml").write_text("")
    api.put(f"/v1/settings/{setting}", json={"value": 0.0})
    session = new_session(api)
    found = say(api, session, "!echo hello")
    assert [message["role"] for message in found["messages"]] == ["user"]
    assert failure(api, session) == (
        "budget.spent",
        f"Budget exceeded: {what} cost $0.00 of $0.00.",
        f"Raise `{setting}`.",
    )
    api.put(f"/v1/settings/{setting}", json={"value": None})
    found = say(api, session, "!echo hello again")
    assert "hello again" in found["messages"][-1]["blocks"][0]["text"]
