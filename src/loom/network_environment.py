"""Proxies and certificates that the environment names for HTTP clients (`HTTPS_PROXY`, `SSL_CERT_FILE` …)."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from loom.errors import ConfigError

_PROXIES: Final = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_SOCKS: Final = ("socks5", "socks5h")


@contextmanager
def check_network_environment() -> Generator[None]:
    """Open an HTTP client inside. Raise `ConfigError`, with the name of the variable, if it cannot be opened with a
    proxy or the certificates of the environment."""
    import httpx2

    try:
        yield
    except ImportError as error:
        for name, url in _set_variables(_PROXIES):
            if url.partition("://")[0].lower() in _SOCKS:
                why = f"The proxy {_without_login(url)} needs the package socksio"
                raise ConfigError(why, key=name, hint="Run: pip install socksio") from error
        raise
    except (ValueError, httpx2.InvalidURL) as error:
        for name, url in _set_variables(_PROXIES):
            if not _is_proxy(url):
                why = f"Not a proxy: {_without_login(url)}"
                raise ConfigError(why, key=name, hint="Example: http://localhost:3128") from error
        raise
    except OSError as error:  # `ssl.SSLError` is one, too
        for name, path in _set_variables(_CERTIFICATES):
            raise ConfigError(f"No certificates in {path}", key=name, hint="Correct or unset it.") from error
        raise


def _set_variables(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, os.environ[name]) for name in names if os.environ.get(name)]


def _without_login(url: str) -> str:
    return re.sub(r"^(\w+://)?.*@", r"\1", url)


def _is_proxy(url: str) -> bool:
    import httpx2

    try:
        httpx2.Proxy(url if "://" in url else f"http://{url}")
    except (ValueError, httpx2.InvalidURL):
        return False
    return True
