"""Starting and stopping: what runs is finished or left so that it goes on, within ten seconds."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import httpx2

from daemon.asking import api_of, new_session, settled
from daemon.running import daemon as running
from patience import PATIENCE_SECONDS


def test_f14_a_stop_lets_turns_end_refuses_new_ones_and_loses_nothing(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house:
        with api_of(house) as api:
            sessions = [new_session(api) for _ in range(20)]
            for session in sessions:
                body = {"message": "!slow 40tps\n!tokens 60"}
                assert api.post(f"/v1/sessions/{session}/messages", json=body).status_code == 202
            settled(api, sessions[-1], "running")
            began = time.monotonic()
            statuses: list[int] = []

            def keep_asking() -> None:
                with api_of(house, house.token) as late:
                    while True:
                        try:
                            answer = late.post(f"/v1/sessions/{sessions[0]}/messages", json={"message": "late"})
                        except httpx2.HTTPError:
                            return
                        statuses.append(answer.status_code)
                        if answer.status_code == 503:
                            return

            asking = threading.Thread(target=keep_asking)
            asking.start()
            assert house.stop() == 0
            asking.join()
        assert time.monotonic() - began < PATIENCE_SECONDS
        accepted = statuses.count(202)
        assert set(statuses) <= {202, 503}
        house.start()
        with api_of(house) as api:
            for session in sessions:
                history = settled(api, session)
                said = [message for message in history["messages"] if message["role"] == "user"]
                assert len(said) == 1 + (accepted if session == sessions[0] else 0)
                assert history["messages"][-1]["role"] == "assistant"
        assert "Traceback" not in house.log()


def test_a_stop_ends_open_streams_and_takes_the_address_back(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api:
        session = new_session(api)
        with api.stream("GET", f"/v1/sessions/{session}/events") as stream:
            began = time.monotonic()
            threading.Timer(0.2, house.stop).start()
            assert all(not line.startswith("data") for line in stream.iter_lines())
        assert time.monotonic() - began < PATIENCE_SECONDS
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (house.home / "state" / "daemon.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_6_a_hangup_makes_a_new_token(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api:
        old = house.token

        os.kill(house.pid, signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while house.token == old:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while api.get("/v1/version").status_code != 401:
            assert time.monotonic() < deadline
        with api_of(house) as new:
            assert new.get("/v1/version").status_code == 200
        assert house.token not in house.log() and old not in house.log()


def test_a_crash_in_native_code_leaves_its_stack_in_the_log_and_nothing_is_lost(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house:
        with api_of(house) as api:
            session = new_session(api)
            body = {"message": "!slow 40tps\n!tokens 60"}
            assert api.post(f"/v1/sessions/{session}/messages", json=body).status_code == 202
            settled(api, session, "running")
        assert house.crash() == -signal.SIGSEGV
        assert "Segmentation fault" in house.log() and "most recent call first" in house.log()
        house.start()
        with api_of(house) as api:
            assert settled(api, session)["messages"][-1]["role"] == "assistant"
