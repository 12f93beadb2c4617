"""The values of the routes about an agent's work: file changes and undo."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class UndoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `step`: the last step that is not undone yet."""

    step: Annotated[int, Meta(ge=1)] | None = None
