"""The way in: one-time links, the password, a new token."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from loom.api_types import AuthMethods, Login, LoginLink, Token
from loom.daemon.dispatch import Call, json_response
from loom.daemon.problems import Forbidden, Unauthorised


async def auth_info(call: Call[None, None]) -> AuthMethods:
    """Whether a password opens it; asked by the page before anybody has come in."""
    return AuthMethods(call.daemon.auth.has_password)


async def login(call: Call[None, Login]) -> Response:
    auth = call.daemon.auth
    if not auth.has_password:
        raise Forbidden("No password is configured.", hint="Open the link that `loom web` prints.")
    if not auth.is_password(call.body.password, call.client):
        raise Unauthorised("That is not the password.")
    headers = {"Set-Cookie": auth.cookie(secure=_is_secure(call), by_password=True)}
    return json_response(AuthMethods(password=True), 200, headers)


async def logout(_: Call[None, None]) -> Response:
    """This browser forgets the cookie."""
    headers = {"Set-Cookie": "loom=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0", "Cache-Control": "no-store"}
    return Response(status_code=204, headers=headers)


async def link(call: Call[None, None]) -> LoginLink:
    return LoginLink(f"/?t={call.daemon.auth.new_link()}")


async def rotate_token(call: Call[None, None]) -> Token:
    """The old token, its cookies, links and connections are refused from now on."""
    return Token(await call.daemon.auth.rotate())


def redeem_link(call: Call[None, None], word: str) -> Response:
    """The link leads here: a cookie for this browser, and an address without the word in it."""
    if not call.daemon.auth.redeem(word):
        if "text/html" in call.request.headers.get("accept", ""):  # the page says how to come in, where need be
            return RedirectResponse("/", 303, {"Cache-Control": "no-store"})
        raise Unauthorised("This link has been used, or is too old.", hint="Make a new one: loom web")
    headers = {"Set-Cookie": call.daemon.auth.cookie(secure=_is_secure(call)), "Cache-Control": "no-store"}
    return RedirectResponse("/", 303, headers)


def _is_secure(call: Call[None, Login] | Call[None, None]) -> bool:
    return call.request.url.scheme == "https"
