"""F6: the record of a session is damaged, or its head is gone. It is listed with the reason; all others go on, also one
with damage beside the way to its head."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from daemon.asking import api_of, new_session, say
from daemon.running import daemon as running

DAMAGE = {
    "settings that are no JSON": "UPDATE session SET settings = '{' WHERE id = ?",
    "a model that is a number of bytes": "UPDATE session SET model = x'fffe' WHERE id = ?",
    "a head that is gone": "UPDATE session SET head_key = 987654 WHERE id = ?",
}


def test_f6_damaged_records_are_listed_with_the_reason_and_the_others_go_on(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house:
        with api_of(house) as api:
            sound, *hurt = [new_session(api) for _ in range(1 + len(DAMAGE))]
            question = say(api, sound, "!echo before")["messages"][0]["node"]
            api.post(f"/v1/sessions/{sound}/head", json={"node": question})
            head = say(api, sound, "!echo instead")["head"]
            say(api, sound, "!echo aside @missing.txt")
            api.post(f"/v1/sessions/{sound}/head", json={"node": head})
        house.stop()
        with closing(sqlite3.connect(tmp_path / "home" / "loom.db")) as database:
            for damage, session in zip(DAMAGE.values(), hurt, strict=True):
                assert database.execute(damage, (session,)).rowcount == 1
            branch = (
                "UPDATE node SET message = replace(message, 'before', 'never') WHERE depth = 2 AND role = 'assistant'"
            )
            assert database.execute(branch).rowcount == 1
            last_turn = (
                "UPDATE node SET message = replace(message, 'aside', 'never') WHERE message LIKE '%!echo aside%'"
            )
            assert database.execute(last_turn).rowcount == 1
            database.commit()
        house.start()
        with api_of(house) as api:
            listed = {row["id"]: row for row in api.get("/v1/sessions").json()["sessions"]}
            assert set(listed) == {sound, *hurt}
            for session in hurt:
                assert "damaged" in listed[session]["snippet"]
                answer = api.get(f"/v1/sessions/{session}/messages")
                assert (answer.status_code, answer.json()["error"]["code"]) == (410, "store.corrupt"), answer.text
                refused = api.post(f"/v1/sessions/{session}/messages", json={"content": "hello"})
                assert refused.status_code == 410, refused.text
            assert "damaged" not in listed[sound]["snippet"]
            assert len(api.get(f"/v1/sessions/{sound}/tree").json()["nodes"]) == 4
            shown = api.get(f"/v1/sessions/{sound}/messages")
            assert shown.status_code == 200, shown.text
            assert ["missing.txt" in notice["text"] for notice in shown.json()["notices"]] == [True]
            assert say(api, sound, "!echo go on")["messages"][-1]["role"] == "assistant"
        assert "Traceback" not in house.log()
