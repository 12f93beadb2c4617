"""Sign-in routes: one-time links, password, keys; the list of signed-in browsers; a new token."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from loom.api_types import AuthMethods, Login, LoginLink, LoginList, LoginView, Token, UserView
from loom.daemon.dispatch import Call, json_response
from loom.daemon.problems import Forbidden, Unauthorised
from loom.errors import NotFound
from loom.store.accounts import OWNER_NAME


async def auth_info(call: Call[None, None]) -> AuthMethods:
    """Return whether a password or key can be used to sign in. Needs no authentication: the sign-in page calls it."""
    return AuthMethods(await call.daemon.sign_in.has_form())


async def login(call: Call[None, Login]) -> Response:
    sign_in = call.daemon.sign_in
    if not await sign_in.has_form():
        raise Forbidden("No password is configured.", hint="Open the link that `loom web` prints.")
    cookie = await sign_in.sign_in(call.body.password, call.visitor)
    if cookie is None:
        raise Unauthorised("Wrong password or key.")
    return json_response(AuthMethods(password=True), 200, {"Set-Cookie": cookie})


async def logout(call: Call[None, None]) -> Response:
    """Sign this browser out: its cookie, and every copy of it, is refused from now on."""
    if call.identity.login:
        await call.daemon.sign_in.close(call.identity.login)
    headers = {"Set-Cookie": call.visitor.set_cookie(""), "Cache-Control": "no-store"}
    return Response(status_code=204, headers=headers)


async def get_me(call: Call[None, None]) -> UserView:
    found = call.identity
    return UserView(found.name, found.role)


async def list_logins(call: Call[None, None]) -> LoginList:
    """Return the signed-in browsers: the caller's own, or all for an admin."""
    runtime, me = call.daemon.runtime, call.identity
    names = {account.id: account.name for account in await runtime.accounts.list()}
    return LoginList(
        tuple(
            LoginView(
                id=found.id,
                user=names.get(found.account, OWNER_NAME),
                address=found.address,
                agent=found.agent,
                created_at=found.created_at,
                seen_at=found.seen_at,
                current=found.id == me.login,
            )
            for found in await runtime.logins.list()
            if me.is_admin or found.account == me.account
        )
    )


async def close_login(call: Call[None, None]) -> None:
    wanted, me = call.path("login"), call.identity
    found = next((one for one in await call.daemon.runtime.logins.list() if one.id == wanted), None)
    if found is None or not (me.is_admin or found.account == me.account):
        raise NotFound("Login not found.", hint="It was signed out already.")
    await call.daemon.sign_in.close(wanted)


async def link(call: Call[None, None]) -> LoginLink:
    return LoginLink(f"/?t={call.daemon.auth.new_link(call.identity.account)}")


async def rotate_token(call: Call[None, None]) -> Token:
    """Create a new token. The old one and the owner's logins, links and connections are refused from now on."""
    return Token(await call.daemon.auth.rotate())


async def redeem_link(call: Call[None, None], word: str) -> Response:
    """Sign in the browser that opens a link, and redirect it to a URL without the code."""
    cookie = await call.daemon.sign_in.redeem(word, call.visitor)
    if cookie is None:
        if "text/html" in call.request.headers.get("accept", ""):  # if it is not valid, the page shows how to sign in
            return RedirectResponse("/", 303, {"Cache-Control": "no-store"})
        raise Unauthorised("This link has been used or has expired.", hint="Create a new one: `loom web`.")
    return RedirectResponse("/", 303, {"Set-Cookie": cookie, "Cache-Control": "no-store"})
