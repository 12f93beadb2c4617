"""The gate: which addresses are asked, and that the one that was judged is the one that is connected."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import socket
import ssl
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from loom.errors import MediaError, TooLarge, Unreadable, Unsupported
from loom.tools.download import download
from loom.tools.egress import Egress, destination_of, is_public
from patience import PATIENCE_SECONDS
from tools.server import page, redirect, serving

PUBLIC = "93.184.216.34"


def answers(*turns: list[str]) -> Egress:
    """A resolver that gives another answer every time."""
    left = list(turns)

    async def resolve(host: str, port: int) -> list[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return Egress(resolve=resolve)


def local(*allow: str) -> Egress:
    """Every name is this machine."""

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    return Egress(allow=allow, resolve=resolve)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
        *(
            "255.255.255.255",
            "168.63.129.16",
            "192.0.2.1",
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
        ),
        *("ff02::1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001::1", "2001:db8::1", "100::1", "5f00::1", "3fff::1"),
    ],
)
def test_addresses_that_not_everybody_can_reach_are_closed(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", [PUBLIC, "8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450:4001::1"]
)
def test_public_addresses_are_open(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def hostile(port: int) -> list[str]:
    hosts = [
        *("127.0.0.1", "[::1]", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "2130706433", "0x7f.1"),
        *("0x7f000001", "0177.0.0.1", "127.1", "127.0.1", "017700000001", "localhost", "localhost.", "LOCALHOST"),
        *("127.0.0.1.", "①②⑦.⓪.⓪.①", "127。0。0。1", "１２７.0.0.1", "user@127.0.0.1", "user:secret@127.0.0.1"),
        *("example.com@127.0.0.1", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "foo.localhost"),
    ]
    return [f"http://{host}:{port}/x" for host in hosts] + [
        f"http://a\\@127.0.0.1:{port}/",
        f"http://127.0.0.1\t:{port}/",
        f"http://127.0.0.1:{port}/\r\nX: y",
        f" http://127.0.0.1:{port}/",
        f"http:\\\\127.0.0.1:{port}/",
        f"http:127.0.0.1:{port}/",
        f"//127.0.0.1:{port}/",
        f"http://127.0.0.1#@example.com:{port}/",
        f"http://\u200b127.0.0.1:{port}/",
        f"http://127.0.0.1%00.example.com:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:a9fe:a9fe]/latest/meta-data/",
        "http://metadata/",
        "file:///etc/passwd",
        "file://localhost/etc/passwd",
        f"gopher://127.0.0.1:{port}/_x",
        f"ftp://127.0.0.1:{port}/",
        f"ws://127.0.0.1:{port}/",
        "javascript:alert(1)",
        "data:text/html," + "x" * 50_000_000,
        "http://",
        "http://:80/",
        "http://exa mple.com/",
        "http://a..b/",
        "http://127.0.0.1:99999/",
        "http://[::1/",
        "",
    ]


async def test_16_every_way_to_write_this_machine_is_refused_and_nobody_is_asked() -> None:
    with serving({"*": page("canary")}) as canary:
        for url in hostile(canary.port):
            with pytest.raises(MediaError):
                await download(url, Egress())
        assert canary.connections == 0


async def test_17_every_hop_of_a_redirect_is_judged_again() -> None:
    with serving({"*": page("canary")}) as canary, serving({}) as server:
        allowed = local(f"public.example:{server.port}")
        for location in [
            f"http://127.0.0.1:{canary.port}/",
            f"http://localhost:{canary.port}/",
            f"http://other.example:{canary.port}/",
            f"//127.0.0.1:{canary.port}/",
            "file:///etc/passwd",
            "gopher://x/",
            f"http://user@public.example:{server.port}/",
        ]:
            server.answers["/"] = redirect(location)
            with pytest.raises(Unsupported):
                await download(f"http://public.example:{server.port}/", allowed)
        assert canary.connections == 0


async def test_17_twenty_redirects_are_too_many_and_five_are_not() -> None:
    with serving({}) as server:
        base = f"http://public.example:{server.port}"
        server.answers.update({f"/{n}": redirect(f"/{n + 1}" if n % 2 else f"{base}/{n + 1}") for n in range(20)})
        server.answers["/20"] = page("arrived")
        with pytest.raises(Unreadable, match="more than 5 times"):
            await download(f"{base}/0", local("public.example"))
        assert len(server.asked) == 6
        found = await download(f"{base}/15", local("public.example"))
        assert (found.data, found.url) == (b"arrived", f"{base}/20")


async def test_18_a_name_that_changes_its_answer_is_connected_where_it_was_judged() -> None:
    """The name is 127.0.0.2 (which is allowed here) when it is judged, and 127.0.0.1 ever after."""
    with serving({"*": page("canary")}) as canary, serving({"*": page("judged")}, at=("127.0.0.2", canary.port)):
        url = f"http://rebind.example:{canary.port}/"
        turns = msgspec.structs.replace(answers(["127.0.0.2"], ["127.0.0.1"]), allow=("127.0.0.2/32",))
        assert (await download(url, turns)).data == b"judged"
        with pytest.raises(Unsupported):
            await download(url, turns)
        assert canary.connections == 0


async def test_18_of_several_addresses_only_those_that_are_open_are_asked() -> None:
    both = answers(["127.0.0.1", PUBLIC, "10.0.0.1"])
    assert [str(address) for address in await both.addresses("both.example", 80)] == [PUBLIC]


async def test_18_one_request_asks_the_resolver_once() -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    with serving({"*": page("hello")}) as server:
        await download(f"http://once.example:{server.port}/", Egress(allow=("once.example",), resolve=resolve))
        assert asked == ["once.example"]
        assert "Host: once.example" in server.heads[0]


async def test_what_is_allowed_by_name_port_or_network_is_asked() -> None:
    with serving({"*": page("hello")}) as server:
        for rule in ("intranet", f"intranet:{server.port}", "127.0.0.0/8"):
            assert (await download(f"http://intranet:{server.port}/", local(rule))).data == b"hello"
        for rule in ("other", f"intranet:{server.port + 1}", "10.0.0.0/8", "intra"):
            with pytest.raises(Unsupported):
                await download(f"http://intranet:{server.port}/", local(rule))


async def test_a_gate_opened_to_this_machine_is_open_to_that_host_and_port_alone_and_where_it_was_then() -> None:
    gate = answers(["127.0.0.1"], ["10.0.0.1"])
    opened = await gate.allow_this_machine("dev.example", 8000)
    assert opened is not None
    assert [str(address) for address in await opened.addresses("dev.example", 8000)] == ["127.0.0.1"]
    for host, port in (("dev.example", 8001), ("other.example", 8000), ("127.0.0.1", 8000)):
        with pytest.raises(Unsupported):
            await opened.addresses(host, port)
    assert await gate.allow_this_machine("lan.example", 80) is None
    assert await Egress().allow_this_machine("::1", 80) is not None


async def test_tls_checks_the_name_and_not_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=good.example"]
    make += ["-addext", "subjectAltName=DNS:good.example", "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving({"*": page("over tls"), "/down": redirect("http://good.example/")}, context) as server:
        egress = local("good.example", "evil.example")
        assert (await download(f"https://good.example:{server.port}/", egress)).data == b"over tls"
        with pytest.raises(Unreadable):
            await download(f"https://evil.example:{server.port}/", egress)
        with pytest.raises(Unsupported, match="without encryption"):
            await download(f"https://good.example:{server.port}/down", egress)


def endless(link: socket.socket) -> None:
    link.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")
    while True:
        link.sendall(b"x" * 65536)


def drip(link: socket.socket) -> None:
    link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        link.sendall(b"x")
        time.sleep(0.05)


def silence(link: socket.socket) -> None:
    link.recv(1)


async def test_20_bombs_are_stopped_by_size_by_time_and_while_they_expand() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    with serving(
        {
            "/endless": endless,
            "/drip": drip,
            "/silence": silence,
            "/bomb": page(bomb, "image/png", "Content-Encoding: gzip"),
            "/huge": b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n",
            "/odd": page(b"x", "text/plain", "Content-Encoding: br"),
            "/double": page(gzip.compress(gzip.compress(b"x")), "text/plain", "Content-Encoding: gzip, gzip"),
            "/damaged": page(b"not gzip", "text/plain", "Content-Encoding: gzip"),
            "/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
            "/headers": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 500_000 + b"\r\n\r\n",
            "/nonsense": b"this is not http\r\n\r\n",
            "/fine": page(gzip.compress(b"hello" * 1000), "text/plain", "Content-Encoding: gzip"),
            "/raw": page(b"plain", "text/plain", "Content-Encoding: deflate"),
        }
    ) as server:
        expected = {
            **dict.fromkeys(("endless", "drip", "silence", "bomb", "huge"), TooLarge),
            **dict.fromkeys(("odd", "double"), Unsupported),
            **dict.fromkeys(("damaged", "cut", "headers", "nonsense", "raw"), Unreadable),
        }
        for path, error in expected.items():
            began = time.monotonic()
            with pytest.raises(error):
                await download(f"http://x:{server.port}/{path}", local("x"), max_bytes=2_000_000, seconds=2)
            assert time.monotonic() - began < PATIENCE_SECONDS, path
        assert (await download(f"http://x:{server.port}/fine", local("x"))).data == b"hello" * 1000
        with pytest.raises(Unreadable, match="HTTP 404"):
            await download(f"http://x:{server.port}/absent", local("x"))


async def test_a_host_that_does_not_exist_or_answer_gives_an_answer() -> None:
    async def nobody(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(Unreadable, match=r"Host not found: absent\.example"):
        await download("http://absent.example/", Egress(resolve=nobody))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(Unreadable):
            await download(f"http://x:{unused.getsockname()[1]}/", local("x"))


@pytest.mark.parametrize(
    ("url", "spelled"),
    [
        ("HTTP://Example.COM:80/a b".replace(" ", "%20"), "http://example.com/a%20b"),
        ("https://bücher.example/ü?q=ä|{}", "https://xn--bcher-kva.example/%C3%BC?q=%C3%A4%7C%7B%7D"),
        ("https://example.com./#frag", "https://example.com/"),
        ("http://[2606:4700:4700:0::1111]:8080", "http://[2606:4700:4700::1111]:8080/"),
    ],
)
def test_a_url_has_one_spelling(url: str, spelled: str) -> None:
    assert destination_of(url).url == spelled
