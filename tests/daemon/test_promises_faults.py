"""46, F5, F6, F11: a daemon calls nobody, on a disk that fails, with a store that was damaged, and with many guests."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from daemon.asking import api_of, new_session, rss_mb, say, settled
from daemon.running import DaemonProcess, until
from daemon.running import daemon as running
from flow.far_models import is_question, speak
from flow.traced import calls_out, failing, watching
from loom.client import Client, RemoteSession
from loom.content.blocks import ImageBlock
from loom.content.media import digest_of
from loom.testing import sample_png, sample_wav
from providers.far_side import Reply, Request, far_side, refusal


@contextmanager
def under(command: list[str], home: Path, **environ: str) -> Iterator[httpx2.Client]:
    """A daemon that is started by another command, and stopped in the usual way."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")}
    home.mkdir(exist_ok=True)
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, sys.executable, "-m", "loom.daemon", "--port", "0"],
            env={**kept, "LOOM_HOME": str(home), **environ},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout
    with process, process.stdout:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, (home / "log").read_text()
        token = (home / "state" / "token").read_text().strip()
        pid = int((home / "daemon.lock").read_text())
        with httpx2.Client(base_url=found[0], headers={"Authorization": f"Bearer {token}"}, timeout=60) as api:
            try:
                yield api
            finally:
                os.kill(pid, signal.SIGTERM)
                process.wait(30)


def test_46_a_daemon_that_starts_and_answers_calls_nobody(tmp_path: Path) -> None:
    """Without a key and in a new home; servers of this machine may be looked for."""
    with under(watching(tmp_path / "trace"), tmp_path / "home") as api:
        assert api.get("/v1/models").status_code == 200
        assert api.get("/").status_code == 200
        session = new_session(api)
        sound = {"data": b64encode(sample_wav()).decode(), "name": "note.wav"}
        history = say(api, session, "what is this? http://192.0.2.1/", images=[sound])
        assert history["messages"][-1]["role"] == "assistant"
        assert api.post(f"/v1/sessions/{session}/plan", json={"models": ["openai/gpt-5.5"]}).status_code == 200
    assert (tmp_path / "trace").stat().st_size > 0
    assert calls_out(tmp_path / "trace") == []


# F5 ------------------------------------------------------------------------------------------------------------------


def test_f5_a_disk_that_fails_for_a_while_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    """The thirtieth commit of the database cannot be synced, nor the thirty after it; then the disk is well again."""
    home, trace = tmp_path / "home", tmp_path / "trace"
    with running(home) as house, api_of(house) as api:
        session = new_session(api)
    accepted: list[int] = []
    statuses: list[int] = []
    codes: set[str] = set()
    command = failing("fdatasync", "EIO", "30..60", trace)
    with under(command, home, LOOM_OFFLINE="1", LOOM_MODEL="loom/spark") as api:
        for number in range(120):
            sound = {"files[]": ("note.wav", sample_wav(0.1 + number / 1_000))}
            path, key = f"/v1/sessions/{session}/messages", {"Idempotency-Key": str(number)}
            answer = api.post(path, data={"text": f"!echo message {number}"}, files=sound, headers=key)
            statuses.append(answer.status_code)
            if answer.status_code == 202:
                accepted.append(number)
            else:
                codes.add(answer.json()["error"]["code"])
                assert str(tmp_path) not in answer.text
            assert api.get("/v1/health").status_code == 200
            if statuses[-3:] == [202, 202, 202] and set(statuses) != {202}:
                break
    assert "EIO" in trace.read_text()
    assert codes == {"store.unreachable"}
    assert 202 in statuses[:10] and min(statuses) == 202 < max(statuses), statuses

    with running(home) as house, api_of(house) as api:
        said = [message for message in settled(api, session)["messages"] if message["role"] == "user"]
        numbers = [int(text.rpartition(" ")[2]) for message in said for text in _texts(message)]
        assert numbers == sorted(set(numbers)), "each once, and in order"
        assert set(accepted) <= set(numbers)
        assert say(api, session, "!echo well again")["messages"][-1]["role"] == "assistant"
    _sound(home)


def _texts(message: dict[str, Any]) -> list[str]:
    return [block["text"] for block in message["blocks"] if block["type"] == "text"]


def _sound(home: Path) -> None:
    with closing(sqlite3.connect(home / "loom.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []


# F6 ------------------------------------------------------------------------------------------------------------------

DAMAGE = {
    "the broken one": "UPDATE node SET message = 'no longer JSON' WHERE message LIKE '%the broken one%'",
    "the other word": "UPDATE node SET message = replace(message, 'the other word', 'the swapped word')",
    "the lost parent": "UPDATE node SET parent_key = key WHERE message LIKE '%the lost parent%'",
}


def test_f6_a_damaged_conversation_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house:
        with api_of(house) as api:
            sound, *hurt = [new_session(api) for _ in range(1 + len(DAMAGE))]
            for session, words in zip((sound, *hurt), ("the sound one", *DAMAGE), strict=True):
                say(api, session, f"!echo {words}")
        house.stop()
        with closing(sqlite3.connect(tmp_path / "home" / "loom.db")) as database:
            for damage in DAMAGE.values():
                assert database.execute(damage).rowcount >= 1
            database.commit()
        house.start()
        with api_of(house) as api:
            listed = api.get("/v1/sessions")
            assert listed.status_code == 200, listed.text
            assert {row["id"] for row in listed.json()["sessions"]} == {sound, *hurt}
            assert say(api, sound, "!echo go on")["messages"][-1]["role"] == "assistant"
            for session in hurt:
                _told_as_damaged(api, session, tmp_path)
            assert api.get("/v1/health").status_code == 200
        assert "Traceback" not in house.log()


def _told_as_damaged(api: httpx2.Client, session: str, folder: Path) -> None:
    answer = api.get(f"/v1/sessions/{session}/messages")
    told = answer.json()["error"]
    assert (answer.status_code, told["code"]) == (410, "store.corrupt"), answer.text
    assert "loom doctor" in told["message"] + told["hint"]
    assert str(folder) not in answer.text
    for path in ("tree", "export?format=md", "events?after=now"):
        with api.stream("GET", f"/v1/sessions/{session}/{path}") as stream:
            assert stream.status_code < 500, path


def test_f6_a_store_that_cannot_be_opened_is_one_sentence_and_stays_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home) as house:
        with api_of(house) as api:
            new_session(api)
        house.stop()
    file = home / "loom.db"
    whole = file.read_bytes()
    for data in (whole[:10_000], b"Dear diary, " * 1_000, _from_the_future(tmp_path, whole)):
        file.write_bytes(data)

        done = _started(home)

        assert done.returncode not in (0, -6, -11)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("loom: "), done.stderr
        assert f"The store is {file}." in done.stderr, "whoever starts it may have another folder in mind"
        assert file.read_bytes() == data


def _from_the_future(folder: Path, data: bytes) -> bytes:
    """A store to which a newer version has added something."""
    (folder / "new.db").write_bytes(data)
    with closing(sqlite3.connect(folder / "new.db")) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(migration)")]
        last = dict(zip(columns, database.execute("SELECT * FROM migration").fetchall()[-1], strict=True))
        row = {**last, "version": 9_999, "name": "from_the_future"}
        marks = ", ".join("?" * len(row))
        database.execute(f"INSERT INTO migration VALUES ({marks})", list(row.values()))
        database.commit()
    return (folder / "new.db").read_bytes()


def _started(home: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "LOOM_HOME": str(home), "LOOM_OFFLINE": "1"}
    command = [sys.executable, "-m", "loom.daemon", "--port", "0"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


# F11 -----------------------------------------------------------------------------------------------------------------


async def test_f11_a_hundred_conversations_at_once_do_not_mix(tmp_path: Path) -> None:
    """Each with its own picture and its own words; afterwards the daemon holds no more than before."""
    home = tmp_path / "home"
    home.mkdir()
    async with far_side(_number_back) as far:
        model = f'[models.far]\nprovider = "openai-chat"\nmodel = "gpt-5.5"\nbase_url = "{far.url}"\n'
        (home / "loom.toml").write_text(f'{model}[keys]\nopenai = "sk-far-away-0123"\n')
        with running(home, {"LOOM_OFFLINE": ""}) as house:
            await _round(house, 10)
            before = _weight(house)
            await _round(house, 100)
            await until(lambda: _weight(house)[0] - before[0] < 40, 30)
            assert _weight(house)[1] - before[1] < 100, "megabytes"
    with closing(sqlite3.connect(home / "loom.db")) as database:
        rows = database.execute("SELECT count(*), min(seq), max(seq) FROM event GROUP BY session_key").fetchall()
    assert len(rows) == 110
    assert all((first, last) == (1, count) for count, first, last in rows), "gap-free, each in its own session"


def _number_back(request: Request) -> Reply:
    """The number that was said, word by word."""
    if not is_question(request):
        return refusal(404, {"error": "not found"})
    (number,) = re.findall(rb"I am number (\d+)", request.body)
    spoken = speak("openai_chat", [f"You are number {number.decode()}.", " And so on." * 5])
    return Reply(body=spoken.body, content_type=spoken.content_type, chunk=200, pause=0.05)


async def _round(house: DaemonProcess, count: int) -> None:
    async with house.client() as client:
        await asyncio.gather(*(_conversation(client, number) for number in range(count)))


async def _conversation(client: Client, number: int) -> None:
    session = await client.session(model="far")
    picture = sample_png(20, 10 + number)
    reply = await session.send(f"I am number {number}", picture)
    assert reply.text.startswith(f"You are number {number}. And")
    assert all(block.media.digest == digest_of(picture) for block in await _pictures(session))


async def _pictures(session: RemoteSession) -> list[ImageBlock]:
    found = [block for message in await session.path() for block in message.blocks if isinstance(block, ImageBlock)]
    assert len(found) == 1
    return found


def _weight(house: DaemonProcess) -> tuple[int, float]:
    return len(list(Path(f"/proc/{house.pid}/fd").iterdir())), rss_mb(house.pid)
