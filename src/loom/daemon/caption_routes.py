"""Text for media: the user's own, stored with the session, and descriptions that a model writes on request."""

from __future__ import annotations

from starlette.responses import Response

from loom.api_types import DescriptionView, NewDescription
from loom.daemon.dispatch import Call
from loom.daemon.sessions_routes import expected_rev, session_response


async def set_captions(call: Call[None, dict[str, str]]) -> Response:
    """Merge captions, by digest, into those of the session; an empty text removes one."""
    session = await call.daemon.library.open(call.path("session"))
    view = await session.set_captions(call.body, rev=expected_rev(call.request))
    await call.daemon.turns.announce_change(session.id)
    return session_response(view)


async def describe_media(call: Call[None, NewDescription]) -> DescriptionView:
    """Let the named model describe the image, unless it has done so before."""
    await call.daemon.access.check_media(call.identity, call.path("digest"))
    return await call.daemon.library.describe(call.path("digest"), call.body.model)
