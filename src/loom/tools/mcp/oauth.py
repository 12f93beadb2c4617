"""Logins at servers that use OAuth: authorization code with PKCE and dynamic registration, by the SDK. The tokens are
stored in a separate file that only the user can read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from loom.atomic_file import write_file_whole
from loom.errors import ConfigError, ToolError
from loom.tools.mcp.specs import ServerSpec

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken
    from pydantic import BaseModel

LOGIN_SECONDS: Final = 300.0
MAX_REQUEST_BYTES: Final = 65_536
_PAGE: Final = b"<!doctype html><meta charset=utf-8><title>Loom</title><p>%b You can close this window."


class StoredLogin(msgspec.Struct, omit_defaults=True):
    """The stored data of a login, for one server at one URL."""

    url: str
    tokens: dict[str, Any] = {}
    expires_at: float = 0.0
    client: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    """The metadata of the authorization server, with the URL to refresh tokens."""


class TokenFile:
    """All logins, by the names of the servers, in a file with mode 0600. An unreadable file counts as empty."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, StoredLogin]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, StoredLogin])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}

    def write(self, name: str, login: StoredLogin | None) -> None:
        """Store the login of a server; None removes it. Raise ConfigError if the file cannot be written."""
        known = self.read()
        known.pop(name, None)
        if login is not None:
            known[name] = login
        try:
            write_file_whole(self._file, msgspec.json.format(msgspec.json.encode(known)), mode=0o600, private=True)
        except OSError as error:
            raise ConfigError(f"the login cannot be stored: {error.strerror}", hint=f"Check {self._file}.") from None


class _OAuthStorage:
    """The SDK's TokenStorage for one server. The SDK stores neither the expiry of a token nor the URL to refresh it:
    both are copied from and to `context`, its state of the login."""

    context: OAuthContext

    def __init__(self, spec: ServerSpec, file: TokenFile) -> None:
        self._name = spec.name
        self._file = file
        known = file.read().get(spec.name)
        self.login = known if known is not None and known.url == spec.url else StoredLogin(url=spec.url)

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthMetadata, OAuthToken

        self.context.token_expiry_time = self.login.expires_at or None
        if self.login.metadata:
            self.context.oauth_metadata = OAuthMetadata.model_validate(self.login.metadata)
        return OAuthToken.model_validate(self.login.tokens) if self.login.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.login.tokens = _as_json(tokens)
        self.login.expires_at = self.context.token_expiry_time or 0.0
        self.login.metadata = _as_json(self.context.oauth_metadata)
        self._file.write(self._name, self.login)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        return OAuthClientInformationFull.model_validate(self.login.client) if self.login.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.login.client = _as_json(client_info)


def _as_json(model: BaseModel | None) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_none=True) if model is not None else {}


def _provider(
    spec: ServerSpec,
    storage: _OAuthStorage,
    redirect_uri: str,
    redirect: Callable[[str], Awaitable[None]],
    callback: Callable[[], Awaitable[AuthorizationCodeResult]],
) -> httpx2.Auth:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    metadata = OAuthClientMetadata(
        client_name="Loom",
        redirect_uris=[AnyUrl(redirect_uri)],
        grant_types=["authorization_code", "refresh_token"],
        token_endpoint_auth_method="none",  # noqa: S106  a public client: PKCE replaces the secret
    )
    provider = OAuthClientProvider(spec.url, metadata, storage, redirect_handler=redirect, callback_handler=callback)
    storage.context = provider.context
    return provider


def stored_login(spec: ServerSpec, file: TokenFile | None) -> httpx2.Auth | None:
    """Return the authorization of requests by a stored login, or None if there is none."""
    if file is None or not (storage := _OAuthStorage(spec, file)).login.tokens:
        return None

    async def refuse(*_: object) -> Any:
        raise ToolError(f"its login has expired: run `loom mcp login {spec.name}`")

    return _provider(spec, storage, "http://127.0.0.1/callback", refuse, refuse)


@asynccontextmanager
async def login_auth(
    spec: ServerSpec, file: TokenFile, open_page: Callable[[str], Awaitable[None]]
) -> AsyncGenerator[httpx2.Auth]:
    """Yield an authorization that logs in again with the first request: `open_page` gets the URL where the user agrees,
    and the authorization server redirects the browser to a local URL."""
    storage = _OAuthStorage(spec, file)
    storage.login = StoredLogin(url=spec.url)  # a new registration: the local URL has another port each time
    arrived: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(partial(_answer_browser, arrived), "127.0.0.1", 0, limit=MAX_REQUEST_BYTES)
    uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
    try:
        yield _provider(spec, storage, uri, open_page, partial(_wait_for_code, arrived))
    finally:
        server.close()


async def _wait_for_code(arrived: asyncio.Future[dict[str, str]]) -> AuthorizationCodeResult:
    from mcp.shared.auth import AuthorizationCodeResult

    found = await arrived
    if "code" not in found:
        raise ToolError(f"the login was refused: {found.get('error_description') or found['error']}")
    return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))


async def _answer_browser(
    arrived: asyncio.Future[dict[str, str]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii", "replace")
        found = dict(parse_qsl(urlsplit(head.split(" ")[1]).query))
        if {"code", "error"} & found.keys() and not arrived.done():  # browsers also request an icon
            arrived.set_result(found)
        page = _PAGE % (b"The login is complete." if "code" in found else b"The login was refused.")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n" + page)
        await writer.drain()
    writer.close()
