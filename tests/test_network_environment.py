"""Proxies and certificates that the environment names and that cannot be used: the error names the variable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from loom.client.connection import DaemonConnection
from loom.errors import ConfigError
from loom.providers.connections import Connections
from loom.tools.mcp import McpServers
from loom.tools.mcp.specs import ServerSpec

UNUSABLE = [
    ("HTTPS_PROXY", "socks5://me:secret@localhost:1080", "socks5://localhost:1080 needs the package socksio"),
    ("ALL_PROXY", "gopher://proxy", "gopher://proxy"),
    ("http_proxy", "http://me:secret@proxy:port", "http://proxy:port"),
    ("https_proxy", "me:secret@proxy:port", "proxy:port"),
    ("HTTP_PROXY", "me:sec//ret@proxy:port", "proxy:port"),
    ("SSL_CERT_FILE", "/nowhere/ca.pem", "/nowhere/ca.pem"),
    ("SSL_CERT_FILE", "{text}", "{text}"),
]
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(params=UNUSABLE, ids=["socks", "scheme", "port", "no-scheme", "slashes", "missing", "text"])
def unusable(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    (tmp_path / "text").write_text("not a certificate")
    name, value, said = (part.format(text=tmp_path / "text") for part in request.param)
    for other in NAMES:
        monkeypatch.delenv(other, raising=False)
        monkeypatch.delenv(other.lower(), raising=False)
    monkeypatch.setenv(name, value)
    return name, value, said


@pytest.mark.parametrize(
    "open_client",
    [lambda: Connections().client(), lambda: DaemonConnection("http://127.0.0.1:1", "token")._client()],
    ids=["providers", "daemon"],
)
def test_an_unusable_proxy_or_certificate_is_named(
    unusable: tuple[str, str, str], open_client: Callable[[], object]
) -> None:
    name, _, said = unusable
    with pytest.raises(ConfigError) as caught:
        open_client()
    assert name in str(caught.value) and said in str(caught.value)
    assert "sec" not in str(caught.value)


async def test_an_mcp_server_that_cannot_be_reached_for_it_says_so(unusable: tuple[str, str, str]) -> None:
    name, _, said = unusable
    async with McpServers([ServerSpec(name="far", url="https://mcp.example.org/")]) as servers:
        await servers.wait_ready()
        (status,) = servers.status()
        assert name in status.error and said in status.error
