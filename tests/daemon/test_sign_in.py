"""Signing in: each browser has a login of its own, guesses wait, the owner never does."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from daemon.asking import api_of
from daemon.running import DaemonProcess, served
from daemon.running import daemon as running
from loom.client import local_client
from loom.config import load_config
from loom.daemon import rate_limits
from loom.daemon.auth import Auth
from loom.daemon.problems import TooMany
from loom.daemon.sign_in import OWNER, SignIn, Visitor
from loom.errors import ConfigError
from loom.runtime import Runtime
from loom.testing import memory_runtime

PASSWORD = "open sesame, please"
X_LOOM = {"X-Loom": "1"}


@contextmanager
def sign_in(house: DaemonProcess, api: httpx2.Client, agent: str = "Firefox/1") -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=house.url, headers={**X_LOOM, "User-Agent": agent}) as browser:
        assert browser.get(api.post("/v1/links").json()["url"]).status_code == 303
        assert browser.get("/v1/version").status_code == 200
        yield browser


def test_each_browser_has_a_login_of_its_own_that_is_listed_and_revoked_alone(
    house: DaemonProcess, api: httpx2.Client
) -> None:
    with sign_in(house, api, "Firefox/1") as one, sign_in(house, api, "Safari/2") as two:
        assert set(one.cookies.values()).isdisjoint(two.cookies.values())
        logins = one.get("/v1/logins").json()["logins"]
        current = [login for login in logins if login["current"]]
        assert [login["agent"] for login in current] == ["Firefox/1"]
        assert all(login["user"] == "owner" and login["address"] == "127.0.0.1" for login in logins)
        other = next(login["id"] for login in two.get("/v1/logins").json()["logins"] if login["current"])
        assert one.delete(f"/v1/logins/{other}").status_code == 204
        assert two.get("/v1/version").status_code == 401
        assert one.get("/v1/version").status_code == 200
        assert one.delete(f"/v1/logins/{other}").status_code == 404


def test_after_signing_out_a_copied_cookie_opens_nothing(house: DaemonProcess, api: httpx2.Client) -> None:
    with sign_in(house, api) as browser:
        copied = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        answer = browser.post("/v1/logout")
        assert answer.status_code == 204 and "Max-Age=0" in answer.headers["set-cookie"]
        assert httpx2.get(f"{house.url}/v1/version", headers={"Cookie": copied}).status_code == 401


def test_the_cookie_is_named_by_port_and_the_store_holds_no_secret(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api, sign_in(house, api) as browser:
        port = house.url.rpartition(":")[2]
        ((name, value),) = browser.cookies.items()
        assert name == f"loom-{port}"
        with sqlite3.connect(next(house.home.rglob("loom.db"))) as connection:
            rows = connection.execute("SELECT * FROM login").fetchall()
        connection.close()
        assert len(rows) == 1 and value not in str(rows)


def test_a_login_outlives_the_daemon_and_ends_with_the_token_or_the_password(tmp_path: Path) -> None:
    house = DaemonProcess(tmp_path / "home", {"LOOM_SERVER__PASSWORD": PASSWORD})
    house.start()
    try:
        linked = httpx2.Client(base_url=house.url)
        with api_of(house) as api:
            assert linked.get(api.post("/v1/links").json()["url"]).status_code == 303
        typed = httpx2.Client(base_url=house.url, headers=X_LOOM)
        assert typed.post("/v1/login", json={"password": PASSWORD}).status_code == 200
        house.kill()
        house.start()
        assert [browser.get("/v1/version").status_code for browser in (linked, typed)] == [200, 200]
        house.kill()
        house._settings = {"LOOM_SERVER__PASSWORD": "another password"}
        house.start()
        assert [browser.get("/v1/version").status_code for browser in (linked, typed)] == [200, 401]
        with api_of(house) as api:
            assert api.post("/v1/token/rotate").status_code == 200
        assert linked.get("/v1/version").status_code == 401
        linked.close()
        typed.close()
    finally:
        house.kill()


def test_a_login_that_the_command_signs_out_is_refused_by_the_running_daemon(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api, sign_in(house, api) as browser:
        environ = {**os.environ, "LOOM_HOME": str(house.home), "LOOM_OFFLINE": "1"}

        def loom(*words: str) -> str:
            command = [sys.executable, "-m", "loom.cli.main", "users", *words]
            return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout

        shown = loom("logins")
        assert "Firefox/1" in shown
        assert "signed out: 1" in loom("sign-out", shown.split()[0])
        assert browser.get("/v1/version").status_code == 401
        assert "No browser" in loom("logins")


async def test_wrong_credentials_of_every_kind_wait_and_right_ones_never_do(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(rate_limits.time, "monotonic", lambda: now)
    async with memory_runtime() as runtime:
        auth = Auth("the right token", password=PASSWORD)
        gate = SignIn(auth, runtime.accounts, runtime.logins)

        def visitor(client: str, token: str = "", cookie: str = "", **more: str) -> Visitor:
            headers = {"host": "loom.example:5666", **({"cookie": f"loom-5666={cookie}"} if cookie else {}), **more}
            return Visitor(headers=headers, client=client, token=token)

        for kind in ("token", "cookie"):
            client = f"203.0.113.{len(kind)}"
            for at in range(10):
                assert await gate.identify(visitor(client, **{kind: f"wrong {at}"})) is None
            with pytest.raises(TooMany) as refused:
                await gate.identify(visitor(client, **{kind: "wrong again"}))
            assert refused.value.retry_after == 5
            assert await gate.identify(visitor(client, token="the right token")) == OWNER, "it cannot be guessed"
        cookie = (await gate.redeem(auth.new_link(), visitor("203.0.113.6"))).partition("=")[2].partition(";")[0]
        found = await gate.identify(visitor("203.0.113.6", cookie=cookie))
        assert found is not None and found.name == "owner" and found.login
        waits: list[float] = []
        for at in range(2000):
            try:
                await gate.identify(visitor("203.0.113.9", token=f"password {at}"))
            except TooMany as refused:
                waits.append(refused.retry_after)
                if len(waits) > 12:
                    break
                now += refused.retry_after
        assert waits[:4] == [5, 10, 20, 40] and max(waits) == 900
        with pytest.raises(TooMany):
            await gate.sign_in(PASSWORD, visitor("203.0.113.9"))
        for at in range(60):
            with suppress(TooMany):
                await gate.identify(visitor("127.0.0.1", token=f"password {at}"))
            now += 1
        now += 5  # on this machine nobody waits longer
        assert await gate.sign_in(PASSWORD, visitor("127.0.0.1"))


async def test_the_same_wrong_token_again_is_no_new_guess() -> None:
    async with memory_runtime() as runtime:
        gate = SignIn(Auth("right"), runtime.accounts, runtime.logins)
        old = Visitor(headers={}, client="203.0.113.4", token="an old token")
        assert [await gate.identify(old) for _ in range(100)] == [None] * 100


async def test_behind_a_trusted_proxy_the_client_and_the_scheme_are_those_that_it_names() -> None:
    async with served({"server": {"trusted_proxies": ["127.0.0.1"], "allowed_hosts": ["loom.example"]}}) as daemon:
        link = daemon.app.daemon.auth.new_link()
        headers = {"X-Forwarded-For": "6.6.6.6, 198.51.100.7", "X-Forwarded-Proto": "https", "Host": "loom.example"}
        async with httpx2.AsyncClient(base_url=daemon.url) as browser:
            cookie = (await browser.get(f"/?t={link}", headers=headers)).headers["set-cookie"]
            assert cookie.startswith("loom-443=") and "Secure" in cookie
        (login,) = await daemon.runtime.logins.list()
        assert login.address == "198.51.100.7", "what stands before the last hop anybody could have written"
    async with served() as daemon:
        link = daemon.app.daemon.auth.new_link()
        async with httpx2.AsyncClient(base_url=daemon.url) as browser:
            found = await browser.get(
                f"/?t={link}", headers={"X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "https"}
            )
            assert "Secure" not in found.headers["set-cookie"]
        (login,) = await daemon.runtime.logins.list()
        assert login.address == "127.0.0.1", "from anybody else such headers mean nothing"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=loom.example"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def test_with_a_certificate_it_serves_https_and_own_clients_find_it(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    settings = {"LOOM_SERVER__TLS_CERT": str(cert), "LOOM_SERVER__TLS_KEY": str(key)}
    house = DaemonProcess(tmp_path / "home", settings)
    house.start("https")
    try:
        trust = ssl.create_default_context(cafile=str(cert))
        trust.check_hostname = False
        bearer = {"Authorization": f"Bearer {house.token}"}
        link = httpx2.post(f"{house.url}/v1/links", headers=bearer, verify=trust).json()["url"]
        assert "Secure" in httpx2.get(house.url + link, verify=trust).headers["set-cookie"]
        with pytest.raises(httpx2.TransportError):
            httpx2.get(house.url.replace("https", "http") + "/healthz")

        async def ask() -> str:
            client = await local_client(load_config(environ={"LOOM_HOME": str(house.home)}))
            assert client is not None
            async with client:
                return await client.version()

        assert asyncio.run(ask())
    finally:
        house.kill()


def test_a_certificate_without_its_key_is_one_sentence(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    from loom.daemon.serve import tls_files

    cert, key = certificate

    def files(**settings: str):
        environ = {"LOOM_HOME": str(tmp_path), **{f"LOOM_SERVER__{name}": value for name, value in settings.items()}}
        return tls_files(load_config(cwd=tmp_path, environ=environ))

    assert files() is None
    assert files(TLS_CERT=str(cert), TLS_KEY=str(key)) == (cert, key)
    with pytest.raises(ConfigError, match="needs both"):
        files(TLS_CERT=str(cert))
    with pytest.raises(ConfigError, match="cannot be used"):
        files(TLS_CERT=str(key), TLS_KEY=str(cert))
    with pytest.raises(ConfigError, match="cannot be used"):
        files(TLS_CERT=str(cert), TLS_KEY=str(tmp_path / "nowhere"))


async def test_logging_in_writes_nothing_that_a_reader_of_the_store_could_use(tmp_path: Path) -> None:
    async with Runtime.open(load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})) as runtime:
        _, secret = await runtime.logins.open("", address="127.0.0.1", agent="x", password=PASSWORD)
        assert await runtime.logins.find(secret, password=PASSWORD)
        assert await runtime.logins.find(secret, password="another") is None
        (row,) = await runtime.stores.database.select("SELECT secret_hash, proof FROM login")
        assert secret not in str(row) and PASSWORD not in str(row)
