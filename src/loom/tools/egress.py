"""The egress gate: which addresses may be contacted, and the connection to exactly the address that was checked.

A model, a web page or a file can contain any URL. So every URL is parsed strictly, its host is resolved once, the
addresses are checked, and the connection uses a checked address: a name that resolves differently the second time, a
redirect or an unusual spelling of 127.0.0.1 has no effect. Each hop of a redirect passes the same gate.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from loom.errors import Unreadable, Unsupported

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) → numeric addresses."""

CONNECT_SECONDS: Final = 10.0
_PORTS: Final = {"http": 80, "https": 443}
_SCHEME_CHARS: Final = 12
_ILLEGAL: Final = re.compile(r"[\x00-\x20\x7f\\\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_NUMERIC: Final = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*", re.IGNORECASE)
_HOST: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")

# Not public: special-purpose registries of IANA, and the metadata services of clouds.
_CLOSED_4_WORDS: Final = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 "
    "198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 168.63.129.16/32"
)
_CLOSED_6_WORDS: Final = "2001::/23 2001:db8::/32 3fff::/20 2620:4f:8000::/48"
_CLOSED_4: Final = tuple(map(ipaddress.IPv4Network, _CLOSED_4_WORDS.split()))
_CLOSED_6: Final = tuple(map(ipaddress.IPv6Network, _CLOSED_6_WORDS.split()))
_OPEN_6: Final = ipaddress.IPv6Network("2000::/3")
_EMBEDDING: Final = tuple(
    (ipaddress.IPv6Network(network), shift)
    for network, shift in (("::ffff:0:0/96", 0), ("::/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))
)
"""IPv6 networks that contain an IPv4 address, and the number of bits after it."""


class Destination(msgspec.Struct, frozen=True):
    """The target of a URL, in one spelling."""

    url: str
    scheme: str
    host: str
    """A name in ASCII, or a numeric address without brackets."""
    port: int

    @property
    def origin(self) -> str:
        """`example.com`, or `localhost:8000` if the port is not the default one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def redirect_to(self, location: str) -> Destination:
        """Return the target of a redirect. Raise for a redirect from https to http."""
        place = destination_of(urljoin(self.url, location))
        if self.scheme == "https" and place.scheme == "http":
            raise Unsupported(f"{self.origin} redirects to an address without encryption: {place.origin}")
        return place


class Egress(msgspec.Struct, frozen=True, kw_only=True):
    """The gate. `allow` are hosts (`localhost:8000`, `intranet`) and networks (`10.1.0.0/16`) that may be contacted
    besides the public internet; a host with a port allows only that port."""

    allow: tuple[str, ...] = ()
    resolve: Resolve = msgspec.field(default_factory=lambda: resolve_host)

    async def addresses(self, host: str, port: int) -> tuple[Address, ...]:
        """Return the addresses of a host that may be contacted. Raise Unsupported if there is none."""
        found = await self._resolve(host, port)
        allowed = tuple(address for address in found if self._is_allowed(host, port, address))
        if not allowed:
            raise _not_public(host, found[0])
        return allowed

    def check_known(self, host: str, port: int) -> None:
        """Raise Unsupported for a forbidden host that can be checked without a resolver: nothing leaves this
        machine."""
        known = known_addresses(host)
        if known and not any(self._is_allowed(host, port, address) for address in known):
            raise _not_public(host, known[0])

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to one of the allowed addresses: the checked address is the one that is connected."""
        addresses = await self.addresses(host, port)
        for address in addresses[:4]:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await asyncio.open_connection(str(address), port)
            except OSError:  # TimeoutError is an OSError: the next address may respond
                continue
        raise Unreadable(f"{host} does not answer on port {port}", hint="Check the address, or try again later.")

    async def allow_this_machine(self, host: str, port: int) -> Egress | None:
        """Return a gate that also allows this host and port if the host is this machine, else None."""
        found = await self._resolve(host, port)
        if not all(_embedded_ipv4(address).is_loopback for address in found):
            return None
        known = [str(address) for address in found]

        async def resolve(asked: str, at: int) -> Sequence[str]:
            return known if asked == host else await self.resolve(asked, at)

        bracketed = f"[{host}]" if ":" in host else host
        return Egress(allow=(*self.allow, f"{bracketed}:{port}"), resolve=resolve)

    async def _resolve(self, host: str, port: int) -> tuple[Address, ...]:
        literal = _literal(host)
        if literal is not None:
            return (literal,)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await self.resolve(host, port)
        except OSError:
            found = ()
        if not found:
            raise Unreadable(f"Host not found: {host}", hint="Check the address.")
        return tuple(ipaddress.ip_address(address) for address in found)

    def _is_allowed(self, host: str, port: int, address: Address) -> bool:
        return is_public(address) or any(_rule_matches(rule, host, port, address) for rule in self.allow)


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses from the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_address(url: str) -> bool:
    """Return whether `url` is a URL and not the path of a file."""
    return "://" in url[:_SCHEME_CHARS]


def destination_of(url: str) -> Destination:
    """Parse a URL strictly: http or https, a host, nothing that two programs could read differently."""
    shown = url[:200]
    if _ILLEGAL.search(url):
        raise Unsupported(f"{shown!r} contains characters that a URL cannot contain", hint="Percent-encode them.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Unsupported(f"{shown!r} is not a URL") from None
    if parts.scheme not in _PORTS:
        raise Unsupported(f"{shown!r} is not fetched: only http and https URLs are")
    if "@" in parts.netloc:
        raise Unsupported("a URL with a user name or password in it is not fetched", hint="Leave them out.")
    host = _host(parts.hostname or "", shown)
    port = _PORTS[parts.scheme] if port is None else port
    where = f"[{host}]" if ":" in host else host
    where += "" if port == _PORTS[parts.scheme] else f":{port}"
    path = quote(parts.path or "/", safe="/%:=&?~#+!$,;'@()*[]")
    query = f"?{quote(parts.query, safe='/%:=&?~+!$,;@()*[]')}" if parts.query else ""
    return Destination(f"{parts.scheme}://{where}{path}{query}", parts.scheme, host, port)


def _host(host: str, shown: str) -> str:
    """Return the host in ASCII, without a trailing dot; raise for unusual spellings of numeric addresses."""
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        literal = None
    if literal is not None:
        if isinstance(literal, ipaddress.IPv6Address) and literal.scope_id:
            raise Unsupported(f"{shown!r} names a network interface, and is not fetched")
        return str(literal)
    try:
        name = host.encode("idna").decode().lower().rstrip(".")
    except UnicodeError:
        name = ""
    if _NUMERIC.fullmatch(name):
        raise Unsupported(f"{shown!r} writes a numeric address in an unusual form, and is not fetched")
    if len(name) > 253 or _HOST.fullmatch(name) is None:
        raise Unsupported(f"{shown!r} has no host that can be looked up")
    return name


def is_public(address: Address) -> bool:
    """Return whether an address is public, so that contacting it reveals nothing about the local network."""
    plain = _embedded_ipv4(address)
    if isinstance(plain, ipaddress.IPv4Address):
        return not any(plain in network for network in _CLOSED_4)
    return plain in _OPEN_6 and not any(plain in network for network in _CLOSED_6)


def _embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address, if there is one."""
    if isinstance(address, ipaddress.IPv6Address) and not (address.is_loopback or address.is_unspecified):
        for network, shift in _EMBEDDING:
            if address in network:
                return ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return address


def known_addresses(host: str) -> tuple[Address, ...]:
    """Return the addresses that need no resolver: a numeric one, and those of `localhost`. Empty for other names."""
    literal = _literal(host)
    if literal is not None:
        return (literal,)
    is_local = host == "localhost" or host.endswith(".localhost")
    return (ipaddress.IPv4Address("127.0.0.1"),) if is_local else ()


def is_this_machine(host: str) -> bool:
    """Return whether a host is this machine, judged by its name."""
    known = known_addresses(host)
    return bool(known) and all(_embedded_ipv4(address).is_loopback for address in known)


def _not_public(host: str, address: Address) -> Unsupported:
    return Unsupported(
        f"{host} is not on the public internet (it has the address {address}); requests to it are blocked",
        hint="Only public addresses are fetched.",
    )


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _rule_matches(rule: str, host: str, port: int, address: Address) -> bool:
    if "/" in rule:
        network = ipaddress.ip_network(rule, strict=False)
        return _embedded_ipv4(address) in network
    named, _, only = rule.rpartition(":") if re.fullmatch(r".*[^:]:\d+|\[.*\]:\d+", rule) else (rule, "", "")
    return named.strip("[]").lower() == host and only in ("", str(port))
