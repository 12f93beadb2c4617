"""Who may come in. The numbers are those of the hardening checklist."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import pytest

from daemon.asking import api_of, new_session, request
from daemon.running import DaemonProcess
from daemon.running import daemon as running
from loom.config import load_config
from loom.daemon.routes import ROUTES
from loom.daemon.serve import LOCK, check_bind, find_daemon, lock_data_folder
from loom.errors import ConfigError

IDS = {
    "session": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "digest": "sha256:" + "0" * 64,
    "node": "node:sha256:" + "0" * 64,
    "message": "m",
    "approval": "a",
    "provider": "anthropic",
    "login": "0" * 16,
    "process": "p1",
    "response": "resp_1",
    "answer": "a",
    "model": "loom/spark",
    "name": "x.js",
    "key": "model",
    "server": "mine",
    "user": "ada",
    "share": "s",
    "prompt": "p",
    "file": "file_1",
    "secret": "0" * 43,
}
OPEN = {"/healthz", "/readyz", "/v1/health", "/v1/ready", "/v1/login", "/", "/assets/{name}"}
OPEN |= {"/icon.svg", "/manifest.webmanifest", "/share/{secret}"}

GATEWAY = {"/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions", "/v1/responses"}
GATEWAY |= {"/v1/responses/{response}", "/v1/receipts/{answer}", "/v1/models/{model:path}"}
GATEWAY |= {"/v1/files", "/v1/files/{file}", "/v1/files/{file}/content"}
"""Routes of other APIs check the key themselves, to refuse in that API's own way."""


def filled(path: str) -> str:
    return re.sub(r"{(\w+)(?::path)?}", lambda found: IDS[found[1]], path)


def test_1_by_default_only_this_machine_is_served(house: DaemonProcess) -> None:
    listening = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True, check=True).stdout
    places = [line.split()[3] for line in listening.splitlines() if f"pid={house.pid}," in line]
    assert places and all(place.startswith(("127.0.0.1:", "[::1]:")) for place in places)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_1_other_addresses_are_refused_without_a_password(host: str) -> None:
    with pytest.raises(ConfigError, match="requires a password"):
        check_bind(host, "")
    check_bind(host, "a password")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_1_this_machine_needs_no_password(host: str) -> None:
    check_bind(host, "")


def test_1_the_command_says_in_one_sentence_why_it_does_not_start(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "LOOM_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "loom.daemon", "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("loom: Listening on 0.0.0.0 requires a password.")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("token", [None, "", "wrong", "truncated"])
def test_2_every_route_of_the_table_needs_the_token(house: DaemonProcess, token: str | None) -> None:
    given = {"truncated": house.token[:-1]}.get(token or "", token)
    headers = {} if given is None else {"Authorization": f"Bearer {given}".strip()}
    with httpx2.Client(base_url=house.url, headers=headers) as client:
        for row in ROUTES:
            status = client.request(row.method, filled(row.path)).status_code
            assert (status == 401) == (row.path not in OPEN), (row.method, row.path, status)
    assert {row.path for row in ROUTES if row.is_open and row.path not in GATEWAY} == OPEN


def test_2_the_right_token_is_taken_in_any_spelling_of_the_scheme(house: DaemonProcess) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = httpx2.get(f"{house.url}/v1/version", headers={"Authorization": f"{scheme} {house.token}"})
        assert answer.json() == {"version": answer.json()["version"], "api": 1}
    for odd in (f"Basic {house.token}", house.token, f"Bearer {house.token} x", "Bearer \xe9"):
        assert request(house, "GET /v1/version", {"Host": house.url[7:], "Authorization": odd}) == 401


def test_a_link_opens_the_page_once(house: DaemonProcess, api: httpx2.Client) -> None:
    link = api.post("/v1/links").json()["url"]
    with httpx2.Client(base_url=house.url) as browser:
        first = browser.get(link)
        assert first.status_code == 303
        assert first.headers["location"] == "/"
        assert first.headers["referrer-policy"] == "no-referrer"
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
        assert house.token not in cookie
        assert browser.get("/v1/version").status_code == 200
        assert browser.get("/").status_code == 200
        assert browser.get(link).status_code == 401
    assert httpx2.get(house.url + link).status_code == 401
    assert httpx2.get(f"{house.url}/?t=made-up").status_code == 401


def test_odd_cookies_of_other_servers_do_not_lock_anybody_out(house: DaemonProcess, api: httpx2.Client) -> None:
    port = house.url.rpartition(":")[2]
    cookie = httpx2.get(house.url + api.post("/v1/links").json()["url"]).headers["set-cookie"].partition(";")[0]
    for beside in ('odd={"a": [1, 2]}', "[x]=\xe9", "loom=old", "=;;= ;a", "x" * 3_000):
        headers = {"Host": house.url[7:], "Cookie": f"{beside}; {cookie}"}
        assert request(house, "GET /v1/version", headers, auth=False) == 200, beside
    assert (
        request(house, "GET /v1/version", {"Host": house.url[7:], "Cookie": f"loom-{port}=" + "0" * 43}, auth=False)
        == 401
    )


def test_5_a_cookie_alone_changes_nothing(house: DaemonProcess, api: httpx2.Client) -> None:
    with httpx2.Client(base_url=house.url) as browser:
        browser.get(api.post("/v1/links").json()["url"])
        before = len(api.get("/v1/sessions").json()["sessions"])
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
            refused = browser.post("/v1/sessions", content=b"{}", headers={"Content-Type": kind})
            assert refused.status_code == 403, kind
        assert browser.post("/v1/token/rotate").status_code == 403
        assert len(api.get("/v1/sessions").json()["sessions"]) == before
        assert browser.post("/v1/sessions", json={}, headers={"X-Loom": "1"}).status_code == 201


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_5_a_page_on_another_port_cannot_use_the_cookie(house: DaemonProcess, api: httpx2.Client, site: str) -> None:
    with httpx2.Client(base_url=house.url) as browser:
        browser.get(api.post("/v1/links").json()["url"])
        for method, path in (("GET", "/v1/sessions"), ("POST", "/v1/sessions")):
            answer = browser.request(method, path, headers={"Sec-Fetch-Site": site, "X-Loom": "1"})
            assert answer.status_code == 401
        assert browser.get("/v1/sessions", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_6_the_token_file_is_its_owners_alone(house: DaemonProcess) -> None:
    state = house.home / "state"
    assert stat.S_IMODE((state / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE((state / "daemon.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE(house.home.stat().st_mode) in (0o700, 0o755)  # the test made it
    line = Path(f"/proc/{house.pid}/cmdline").read_bytes() + Path(f"/proc/{house.pid}/environ").read_bytes()
    assert house.token.encode() not in line
    page = httpx2.get(house.url).text
    assert house.token not in page
    assert house.token not in house.log()


def test_6_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "token").write_text("x" * 43)
    (tmp_path / "state" / "token").chmod(0o644)
    environ = {"PATH": os.environ["PATH"], "LOOM_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "loom.daemon", "--port", "0"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "chmod 600" in done.stderr
    assert "x" * 43 not in done.stderr


def test_6_a_new_token_ends_the_old_one_at_once(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, httpx2.Client(base_url=house.url) as browser:
        old = house.token
        with api_of(house) as api:
            session = new_session(api)
            link = api.post("/v1/links").json()["url"]
            browser.get(api.post("/v1/links").json()["url"])
            assert browser.get("/v1/version").status_code == 200
            with api.stream("GET", f"/v1/sessions/{session}/events") as stream:
                new = api.post("/v1/token/rotate").json()["token"]
                assert [line for line in stream.iter_lines() if line.startswith("data")] == []  # and it ends
            assert api.get("/v1/version").status_code == 401
        assert browser.get("/v1/version").status_code == 401
        assert httpx2.get(house.url + link).status_code == 401
        assert new != old
        assert house.token == new
        with api_of(house) as api:
            assert api.get("/v1/version").status_code == 200


def test_7_another_user_of_this_machine_reads_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with running(tmp_path / "home") as house, api_of(house) as api:
        (house.home).chmod(0o755)  # what the daemon makes itself must be closed, whatever is above it
        api.get("/v1/samples")
        files = [file for file in house.home.rglob("*") if file.is_file() and file.name != "log"]
        assert len(files) > 6
        assert all(stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 for file in files)
        if os.getuid() == 0:
            script = 'for file in "$@"; do head -c 1 "$file" >/dev/null 2>&1 && echo "$file"; done; true'
            command = ["/bin/sh", "-c", script, "sh", *map(str, files)]
            done = subprocess.run(
                command, user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=True, cwd="/"
            )
            assert done.stdout == ""


def test_8_what_a_client_says_about_itself_is_refused(api: httpx2.Client) -> None:
    before = api.get("/v1/sessions").json()["sessions"]
    for claim in ({"is_admin": True}, {"scopes": ["*"]}, {"id": "A" * 26}, {"owner": "ada"}):
        assert api.post("/v1/sessions", json={"title": "mine", **claim}).status_code == 422
    assert api.get("/v1/sessions").json()["sessions"] == before


def test_a_password_opens_the_door_and_wrong_ones_are_counted(tmp_path: Path) -> None:
    with running(tmp_path / "home", {"LOOM_SERVER__PASSWORD": "open sesame, please"}) as house:
        with httpx2.Client(base_url=house.url) as browser:
            assert browser.get("/v1/login").json() == {"password": True}
            assert browser.post("/v1/login", json={"password": "open sesame, please"}).status_code == 200
            assert browser.get("/v1/version").status_code == 200
            assert browser.post("/v1/logout", headers={"X-Loom": "1"}).status_code == 204
            assert browser.get("/v1/version").status_code == 401
        answers = [httpx2.post(f"{house.url}/v1/login", json={"password": str(at)}) for at in range(15)]
        assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 5
        assert int(answers[-1].headers["retry-after"]) > 0
        bearer = {"Authorization": "Bearer open sesame, please"}
        assert httpx2.get(f"{house.url}/v1/version", headers=bearer).status_code == 429
        with api_of(house) as api:
            assert api.get("/v1/version").status_code == 200
        assert "sesame" not in house.log()


def test_a_daemon_for_other_machines_prints_addresses_that_it_answers_to(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environ = {
        "PATH": os.environ["PATH"],
        "LOOM_HOME": str(home),
        "LOOM_OFFLINE": "1",
        "LOOM_SERVER__PASSWORD": "x" * 20,
    }
    command = [sys.executable, "-m", "loom.daemon", "--host", "0.0.0.0", "--port", "0"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        here = process.stdout.readline().split()[-1]
        link = process.stdout.readline().split()[-1]
        assert here.startswith("http://127.0.0.1:")
        assert httpx2.get(f"{here}/healthz").status_code == 200
        assert httpx2.get(link).status_code == 303
        known = find_daemon(load_config(environ=environ))
        assert known is not None and known.url == here
        process.terminate()
        assert process.wait(20) == 0
    assert find_daemon(load_config(environ=environ)) is None


def test_without_a_password_there_is_nothing_to_guess(house: DaemonProcess) -> None:
    assert httpx2.get(f"{house.url}/v1/login").json() == {"password": False}
    assert httpx2.post(f"{house.url}/v1/login", json={"password": ""}).status_code == 403


def test_f16_a_second_daemon_is_told_who_has_the_folder(house: DaemonProcess) -> None:
    environ = {"PATH": os.environ["PATH"], "LOOM_HOME": str(house.home)}
    command = [sys.executable, "-m", "loom.daemon", "--port", "0"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert f"A daemon with the pid {house.pid} is already using this data folder." in done.stderr
    here = find_daemon(load_config(environ=environ))
    assert here is not None and (here.pid, here.url) == (house.pid, house.url)


def test_a_daemon_starts_while_a_child_of_a_killed_one_still_has_its_lock(tmp_path: Path) -> None:
    config = load_config(environ={"LOOM_HOME": str(tmp_path)})
    with lock_data_folder(config):
        pass
    killed = subprocess.Popen(["true"])
    killed.wait()
    inherited = os.open(config.data_folder() / LOCK, os.O_RDWR)
    os.pwrite(inherited, f"{killed.pid}\n".encode(), 0)
    fcntl.flock(inherited, fcntl.LOCK_EX)
    child = threading.Timer(0.3, os.close, [inherited])
    child.start()
    with lock_data_folder(config):
        assert (config.data_folder() / LOCK).read_text() == f"{os.getpid()}\n"
    child.join()


def test_a_port_that_is_taken_is_one_sentence(house: DaemonProcess, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "LOOM_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "loom.daemon", "--port", house.url.rpartition(":")[2]]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_process_of_the_same_user_reads_neither_memory_nor_environment_of_a_daemon(tmp_path: Path) -> None:
    plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []  # root could read all
    environ = {**os.environ, "LOOM_HOME": str(tmp_path), "LOOM_OFFLINE": "1", "CANARY": "sentinel"}
    command = [*plain, sys.executable, "-m", "loom.daemon", "--port", "0"]
    with (
        subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as served,
        subprocess.Popen([*plain, "cat"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        assert served.stdout and other.stdin and other.stdout
        try:
            assert "http://" in served.stdout.readline()
            other.stdin.write(b"x")
            other.stdin.flush()
            assert other.stdout.read(1) == b"x", "it runs as what it is by now"

            def spy(pid: int) -> str:
                look = f"cat /proc/{pid}/environ; head -c 1 /proc/{pid}/maps"
                return subprocess.run([*plain, "sh", "-c", look], capture_output=True, text=True, check=False).stdout

            assert "sentinel" in spy(other.pid), "any other process is open to such a look"
            assert spy(served.pid) == ""
        finally:
            served.kill()
            other.kill()
