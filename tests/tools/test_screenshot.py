"""screenshot: a real browser, shut up behind the gate, and nothing of it left."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from PIL import Image

from loom.content.blocks import ContentBlock
from loom.content.messages import text_of
from loom.errors import ExtraMissing, LoomError, ToolError, Unsupported
from loom.tools import screenshot as module
from loom.tools.egress import Egress
from loom.tools.screenshot import screenshot_tool
from tools.server import page, redirect, serving
from tools.world import Context, pictures

SHOOT = screenshot_tool(Egress())
RED, GREEN = (200, 30, 40), (30, 160, 60)


def environments() -> dict[str, bytes]:
    """The variables of every living process that a tool has started, by its command line."""
    found: dict[str, bytes] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (folder / "environ").read_bytes()
            if b"LOOM_STARTED=" in variables:
                found[f"{folder.name} {(folder / 'cmdline').read_bytes().decode(errors='replace')}"] = variables
    return found


def folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("loom-browser-*"))


def seen(context: Context, blocks: list[ContentBlock]) -> Image.Image:
    (picture,) = pictures(blocks)
    return Image.open(io.BytesIO(context.bytes[picture.media.digest])).convert("RGB")


@pytest.fixture
def short_folder() -> Generator[str]:
    """A place for temporary files that no other test uses."""
    with tempfile.TemporaryDirectory(prefix="loom-", dir="/tmp") as folder:
        yield folder


async def test_a_page_of_this_machine_is_drawn_after_the_user_agreed(
    tmp_path: Path, short_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sentinel-key")
    monkeypatch.setattr(tempfile, "tempdir", short_folder)
    running: dict[str, bytes] = {}

    def probe(link: socket.socket) -> None:
        running.update(environments())
        link.sendall(page(b"", "image/png"))

    body = f"<title>Hello</title><body style='margin:0;height:1500px;background:rgb{RED}'><img src=/probe>"
    with serving({"/": page(body), "/probe": probe}) as server:
        refused = Context(tmp_path)
        with pytest.raises(ToolError, match="denied it"):
            await SHOOT.run(refused, {"url": f"http://localhost:{server.port}/"})
        assert refused.asked == [f"open localhost:{server.port}: it is on this machine"]
        assert server.connections == 0
        context = Context(tmp_path, allow=True)
        arguments = {"url": f"http://localhost:{server.port}/", "width": 800, "height": 600}
        label, *rest = await SHOOT.run(context, arguments)
        assert text_of(label).splitlines() == [
            f'[screenshot of http://localhost:{server.port}/, 800×600, title "Hello"]',
            "(the page is 1500 px high: full_page=true shows all of it)",
        ]
        image = seen(context, rest)
        assert image.size == (800, 600)
        assert image.getpixel((400, 300)) == RED
        _, *rest = await SHOOT.run(context, {**arguments, "full_page": True})
        assert seen(context, rest).size == (800, 1500)
    assert any("chromium" in line for line in running), "the browser was looked at while it ran"
    assert all(b"sentinel-key" not in variables for variables in running.values())
    assert folders() == []


LEAKY = """<!doctype html><title>waiting</title><link rel=stylesheet href=style.css>
<iframe src="file:///etc/passwd"></iframe><iframe src="http://127.0.0.1:{port}/frame"></iframe>
<img src="http://127.0.0.1:{port}/img"><link rel=prefetch href="http://127.0.0.1:{port}/prefetch">
<link rel=dns-prefetch href="//127.0.0.1:{port}"><script>
const leaks = [];
const tried = (name, url) => fetch(url).then(r => {{ if (r.ok) leaks.push(name) }}, () => 0);
const late = new Promise(done => setTimeout(done, 300));
const socket = new Promise(done => {{
  const link = new WebSocket("ws://127.0.0.1:{port}/ws");
  link.onopen = () => {{ leaks.push("ws"); done() }}; link.onerror = done }});
const peer = new RTCPeerConnection({{iceServers: [{{urls: "stun:127.0.0.1:{udp}"}}]}});
peer.createDataChannel("x"); peer.createOffer().then(o => peer.setLocalDescription(o));
navigator.sendBeacon("http://127.0.0.1:{port}/beacon", "x");
Promise.all([tried("env", ".env"), tried("link", "link-out"), tried("git", ".git/config"),
  tried("up", "/../outside.txt"), tried("encoded", "/..%2f..%2foutside.txt"), tried("disk", "file:///etc/passwd"),
  tried("canary", "http://127.0.0.1:{port}/x"), tried("v6", "http://[::1]:{port}/x"),
  tried("name", "http://localhost:{port}/x"), socket, late])
  .then(() => tried("neighbour", "data.json")).then(() => document.title = "leaks: " + leaks.join(" "));
</script>"""


async def test_a_page_of_the_workspace_sees_its_neighbours_and_neither_the_disk_nor_the_network(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    (workspace / "site" / ".git").mkdir(parents=True)
    site = workspace / "site"
    (tmp_path / "outside.txt").write_text("secret")
    (site / ".env").write_text("secret")
    (site / ".git" / "config").write_text("secret")
    (site / "link-out").symlink_to(tmp_path / "outside.txt")
    (site / "style.css").write_text(f"body {{ background: rgb{GREEN} }}")
    (site / "data.json").write_text("{}")
    with serving({"*": page("canary")}) as canary, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", 0))
        datagrams.settimeout(0)
        (site / "index.html").write_text(LEAKY.format(port=canary.port, udp=datagrams.getsockname()[1]))
        context = Context(workspace)
        label, *rest = await SHOOT.run(context, {"url": "site/index.html"})
        assert 'title "leaks: neighbour"' in text_of(label)
        assert "a page from a file has no network access" in text_of(label)
        assert seen(context, rest).getpixel((1200, 700)) == GREEN
        assert canary.connections == 0
        with pytest.raises(BlockingIOError):
            datagrams.recv(100)
    assert context.asked == []


async def test_a_page_of_the_internet_reaches_nothing_of_this_machine(tmp_path: Path) -> None:
    """The name stands for a public host; everything else that it asks for is this machine."""

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.2" if host == "public.example" else "127.0.0.1"]

    with serving({"*": page("canary")}) as canary, serving({}, at=("127.0.0.2", 0)) as server:
        gate = Egress(allow=("127.0.0.2/32",), resolve=resolve)
        (tmp_path / "data.json").write_text("{}")
        leaky = LEAKY.format(port=canary.port, udp=canary.port)
        server.answers["/"] = page(leaky)
        server.answers["/moved"] = redirect(f"http://rebound.example:{canary.port}/")
        shoot, context = screenshot_tool(gate), Context(tmp_path, allow=True)
        label, *_ = await shoot.run(context, {"url": f"http://public.example:{server.port}/"})
        assert 'title "leaks:"' in text_of(label)
        assert f"blocked addresses: 127.0.0.1:{canary.port}" in text_of(label)
        with pytest.raises(Unsupported, match=r"redirects to rebound\.example"):
            await shoot.run(context, {"url": f"http://public.example:{server.port}/moved"})
        assert canary.connections == 0
        assert context.asked[0].startswith(f"open public.example:{server.port}: ")


@pytest.mark.parametrize(
    "url",
    [
        *("http://169.254.169.254/latest/", "http://[::ffff:a9fe:a9fe]/", "http://2130706433/", "file:///etc/passwd"),
        *(
            "http://user@example.com/",
            "chrome://version",
            "view-source:http://localhost/",
            "data:text/html,x",
            "ftp://x/",
        ),
        *("absent.html", "../outside.html", "link.html", "picture.png", "/etc/passwd", "http://10.0.0.1/"),
    ],
)
async def test_what_may_not_be_opened_is_refused_before_a_browser_starts(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (tmp_path / "outside.html").write_text("<p>secret")
    (workspace / "link.html").symlink_to(tmp_path / "outside.html")
    (workspace / "picture.png").write_text("not html at all")

    async def never(*_: object) -> None:
        raise AssertionError("a browser was started")

    monkeypatch.setattr(module, "_run_browser", never)
    context = Context(workspace, allow=True)
    with pytest.raises(LoomError):
        await SHOOT.run(context, {"url": url})
    assert context.asked == []


async def test_a_page_that_never_ends_is_drawn_as_far_as_it_came_or_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOAD_SECONDS", 1.0)

    def hang(link: socket.socket) -> None:
        link.recv(1)

    slow = f"<body style='background:rgb{RED}'><img src=/hang>"
    with serving({"/slow": page(slow), "/hang": hang, "/busy": page("<script>while(true){}</script>")}) as server:
        context = Context(tmp_path, allow=True)
        label, *rest = await SHOOT.run(context, {"url": f"http://127.0.0.1:{server.port}/slow"})
        assert "(it was still loading)" in text_of(label)
        assert seen(context, rest).getpixel((640, 400)) == RED
        monkeypatch.setattr(module, "DEADLINE_SECONDS", 5.0)
        with pytest.raises(ToolError, match="could not be rendered within 5 s"):
            await SHOOT.run(context, {"url": f"http://127.0.0.1:{server.port}/busy"})


async def test_a_browser_that_is_killed_gives_an_answer_and_the_next_one_works(
    tmp_path: Path, short_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", short_folder)

    def kill(link: socket.socket) -> None:
        for line in environments():
            if "--type=" not in line and "chromium" in line and short_folder in line:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(line.split()[0]), 9)
        link.recv(1)

    with serving({"/kill": kill, "/": page("<title>fine</title>")}) as server:
        context = Context(tmp_path, allow=True)
        with pytest.raises(ToolError):
            await SHOOT.run(context, {"url": f"http://127.0.0.1:{server.port}/kill"})
        label, *_ = await SHOOT.run(context, {"url": f"http://127.0.0.1:{server.port}/"})
        assert 'title "fine"' in text_of(label)


async def test_without_the_extra_or_a_browser_the_answer_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.html").write_text("<!doctype html><p>x")
    monkeypatch.setattr(module, "BROWSERS", ("no-such-browser",))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "none"))
    with pytest.raises(ExtraMissing, match="apt install chromium"):
        await SHOOT.run(Context(tmp_path), {"url": "a.html"})
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExtraMissing, match=r"pip install 'loom-runtime\[browser\]'"):
        await SHOOT.run(Context(tmp_path), {"url": "a.html"})


async def test_cancelling_leaves_no_process_and_no_folder(
    tmp_path: Path, short_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", short_folder)
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(link: socket.socket) -> None:
        loop.call_soon_threadsafe(arrived.set)
        link.recv(1)

    with serving({"/": hang}) as server:
        task = asyncio.create_task(
            SHOOT.run(Context(tmp_path, allow=True), {"url": f"http://127.0.0.1:{server.port}/"})
        )
        async with asyncio.timeout(60):
            await arrived.wait()
        (folder,) = folders()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert folders() == []
    assert not [line for line in environments() if str(folder) in line]


@pytest.mark.parametrize(("width", "height"), [(10, 800), (1280, 10), (99_999, 800), (1280, 99_999)])
async def test_odd_sizes_get_an_explanation(tmp_path: Path, width: int, height: int) -> None:
    with pytest.raises(ToolError, match="pixels"):
        await SHOOT.run(Context(tmp_path), {"url": "a.html", "width": width, "height": height})


async def test_no_name_is_resolved_before_the_user_agrees(tmp_path: Path) -> None:
    resolved: list[str] = []

    async def spy(host: str, port: int) -> list[str]:
        resolved.append(host)
        return ["127.0.0.1"]

    context = Context(tmp_path)
    with pytest.raises(ToolError, match="denied it"):
        await screenshot_tool(Egress(resolve=spy)).run(context, {"url": "http://secret.evil.example/"})
    assert context.asked == ["open secret.evil.example: the address is sent to that host"]
    assert resolved == []


async def test_where_nothing_listens_it_says_so(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(ToolError, match=rf"nothing listens on localhost:{port}"):
        await SHOOT.run(Context(tmp_path, allow=True), {"url": f"http://localhost:{port}/"})


@pytest.mark.parametrize("url", ["localhost:8000", "localhost", "127.0.0.1:8000/a.html"])
async def test_an_address_without_a_scheme_is_not_taken_for_a_file(tmp_path: Path, url: str) -> None:
    with pytest.raises(ToolError) as failed:
        await SHOOT.run(Context(tmp_path), {"url": url})
    assert str(failed.value).startswith(f"{url} is not a URL. Write http://{url}")
