"""Words for media: a person's own, kept with the session, and a model's, written at somebody's wish."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from loom.api_types import DescriptionView, NewDescription
from loom.compile.policy import alt_key
from loom.content.media import Media, is_digest
from loom.daemon.dispatch import Call
from loom.daemon.sessions_routes import merge_overrides
from loom.errors import ConfigError, ContentError, NotFound, Unsupported

MAX_CHARACTERS: Final = 20_000


async def set_captions(call: Call[None, dict[str, str]]) -> Response:
    """Merged into what is there, by digest; empty words take one away."""
    if len(call.body) > 100:
        raise ContentError("Words for at most a hundred media are taken at once.")
    changes: dict[str, str | None] = {}
    for digest, words in call.body.items():
        if len(words) > MAX_CHARACTERS:
            raise ContentError(f"The words for a medium have at most {MAX_CHARACTERS} characters.")
        if not is_digest(digest) or (words.strip() and not await call.daemon.runtime.media.exists(digest)):
            raise NotFound("There is no such medium.", hint="Words belong to a digest that the store has.")
        changes[alt_key(digest)] = words.strip() or None
    return await merge_overrides(call, changes)


async def describe_media(call: Call[None, NewDescription]) -> DescriptionView:
    """The picture goes to the model that is named, unless it has described it before."""
    runtime, digest = call.daemon.runtime, call.path("digest")
    by = call.body.model or runtime.describer
    if not by:
        raise ConfigError("No model describes pictures here.", hint="Name one, or set `context.describer`.")
    if not is_digest(digest) or not await runtime.media.exists(digest):
        raise NotFound("There is no such medium.")
    media_type = await call.daemon.intake.media_type(digest)
    if not media_type.startswith("image/"):
        raise Unsupported(f"Only pictures are described, not {media_type}.")
    found = await runtime.describe(Media(digest=digest, media_type=media_type, size_bytes=0), by)
    return DescriptionView(found.text, found.by)
