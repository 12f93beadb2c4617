"""How the client reaches the browser: compressed, installable, usable over plain http, without layout shifts."""

from __future__ import annotations

import gzip
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from browser.client import Client, Daemon, OpenClient
from loom.daemon.compression import accepted_encodings

FIRST_LOAD_BYTES = 60_000


def _get(daemon: Daemon, path: str, encoding: str = "") -> tuple[bytes, Any]:
    request = urllib.request.Request(f"{daemon.url}{path}", headers={"Accept-Encoding": encoding} if encoding else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read(), answer.headers


def test_assets_are_sent_compressed_and_are_the_same_bytes(daemon: Daemon, built: Path) -> None:
    for file in sorted((built / "assets").iterdir()):
        if file.suffix in (".br", ".gz") or file.stat().st_size < 1_000 or file.stat().st_size > 1_000_000:
            continue
        plain, headers = _get(daemon, f"/assets/{file.name}", "identity")
        assert headers["Content-Encoding"] is None
        assert headers["Vary"] == "Accept-Encoding"
        zipped, headers = _get(daemon, f"/assets/{file.name}", "gzip, deflate")
        assert headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(zipped) == plain == file.read_bytes()
        small, headers = _get(daemon, f"/assets/{file.name}", "gzip, deflate, br, zstd")
        assert headers["Content-Encoding"] == "br"
        assert len(small) < len(zipped) < len(plain)
        unpack = "process.stdout.write(require('zlib').brotliDecompressSync(require('fs').readFileSync(0)))"
        assert subprocess.run(["node", "-e", unpack], input=small, capture_output=True, check=True).stdout == plain


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", set()),
        ("gzip", {"gzip"}),
        ("gzip, deflate, br", {"br", "gzip"}),
        ("br;q=0, gzip;q=0.5", {"gzip"}),
        ("br;q=0.0, gzip; q=0", set()),
        ("*", {"br", "gzip"}),
        ("*;q=0, gzip", {"gzip"}),
        ("identity", set()),
        ("BR", {"br"}),
    ],
)
def test_accept_encoding_is_obeyed(header: str, accepted: set[str]) -> None:
    assert accepted_encodings(header) == accepted


def test_the_first_load_over_the_network_is_within_the_budget(open_client: OpenClient, chromium: Browser) -> None:
    client = open_client()
    session = client.page.context.new_cdp_session(client.page)
    session.send("Network.enable")
    received: list[int] = []
    session.on("Network.loadingFinished", lambda event: received.append(int(event["encodedDataLength"])))
    with client.page.expect_response(re.compile(r"/v1/samples")):
        client.page.reload()
    expect(client.page.locator("button.sample")).to_have_count(4)
    scripts = client.page.evaluate(
        """performance.getEntriesByType('resource').filter((one) => one.name.endsWith('.js'))
        .reduce((sum, one) => sum + one.encodedBodySize, 0)"""
    )
    assert 20_000 < scripts <= FIRST_LOAD_BYTES


def test_the_frame_of_diagrams_may_be_held_by_this_page_only(daemon: Daemon, built: Path) -> None:
    (frame,) = built.glob("assets/diagram-*.html")
    _, headers = _get(daemon, f"/assets/{frame.name}")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert "allow-same-origin" not in policy
    assert "frame-ancestors 'self'" in policy
    _, headers = _get(daemon, "/")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


@pytest.fixture
def lan_client(chromium: Browser, daemon: Daemon) -> Any:
    """A page that the browser does not trust, as over http in a LAN: no clipboard, no hashing, no service worker."""
    context = chromium.new_context(storage_state=daemon.cookies(chromium))
    context.add_init_script(
        """Object.defineProperty(window, 'isSecureContext', { value: false });
        Object.defineProperty(navigator, 'clipboard', { value: undefined });
        Object.defineProperty(crypto, 'subtle', { value: undefined });
        delete Navigator.prototype.serviceWorker;"""
    )
    client = Client(context.new_page(), daemon)
    yield client.enter()
    context.close()
    assert client.errors == []


def test_copy_works_over_plain_http(lan_client: Client) -> None:
    lan_client.page.evaluate(
        """document.addEventListener('copy', () => {
          window.copied = String(getSelection()) || document.activeElement.value; })"""
    )
    answer = lan_client.send_and_wait("!echo these words are copied")
    answer.get_by_role("button", name="Copy answer").click()
    expect(answer.get_by_role("button", name="Copied")).to_be_visible()
    assert lan_client.page.evaluate("window.copied") == "these words are copied"


def test_a_copy_that_the_browser_refuses_says_so(lan_client: Client) -> None:
    lan_client.page.evaluate("document.execCommand = () => false")
    answer = lan_client.send_and_wait("!echo not copied")
    answer.get_by_role("button", name="Copy answer").click()
    expect(answer.get_by_role("button", name="Copy failed")).to_be_visible()
    expect(lan_client.page.get_by_role("status")).to_contain_text("Copy failed")


SHIFTS = """new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    window.shift = (window.shift ?? 0) + entry.value;
    const rows = entry.sources.map((one) => [one.node?.className, one.previousRect.y, one.currentRect.y]);
    (window.moved ??= []).push(...rows);
  }
}).observe({ type: 'layout-shift', buffered: true })"""


@pytest.mark.parametrize("phone", [False, True])
def test_the_layout_does_not_shift_while_a_page_loads(open_client: OpenClient, phone: bool) -> None:
    client = open_client(phone=phone)
    client.page.context.add_init_script(SHIFTS)
    client.page.reload()
    expect(client.page.locator("button.sample")).to_have_count(4)
    _drawn(client)
    assert client.page.evaluate("window.shift ?? 0") < 0.05, client.page.evaluate("window.moved")
    client.page.get_by_role("button", name="A screenshot").click()
    expect(client.answers.last).to_contain_text("900×500")
    client.wait_idle()
    client.page.reload()
    expect(client.answers.last).to_contain_text("900×500")
    expect(client.page.locator(".badge").first).to_be_visible()
    _drawn(client)
    assert client.page.evaluate("window.shift ?? 0") < 0.05, client.page.evaluate("window.moved")


def _drawn(client: Client) -> None:
    client.page.evaluate("Promise.all([...document.images].map((one) => one.loading === 'lazy' || one.decode()))")
    client.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


CONTROLLED = """new Promise((done) => navigator.serviceWorker.controller ? done()
  : navigator.serviceWorker.addEventListener('controllerchange', () => done(), { once: true }))"""


def test_the_client_is_installable_and_opens_without_the_server(
    open_client: OpenClient, built: Path, tmp_path: Path
) -> None:
    daemon = Daemon(tmp_path / "home")
    daemon.start()
    try:
        client = open_client(on=daemon, service_workers="allow")
        manifest = client.page.evaluate("fetch('/manifest.webmanifest').then((one) => one.json())")
        assert (manifest["display"], manifest["start_url"], manifest["scope"]) == ("standalone", "/", "/")
        client.page.evaluate("navigator.serviceWorker.ready.then((one) => one.scope)")
        client.page.evaluate(CONTROLLED)
        client.message_box.fill("a draft written before")
        daemon.kill()
        client.page.reload()
        expect(client.page.get_by_text("Reconnecting…")).to_be_visible()
        expect(client.message_box).to_have_value("a draft written before")
        daemon.start()
        expect(client.page.get_by_text("Reconnecting…")).to_have_count(0)
        expect(client.page.locator("button.sample")).to_have_count(4)
    finally:
        daemon.stop()
