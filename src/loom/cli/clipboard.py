"""The picture or the files on the clipboard, where there is one."""

from __future__ import annotations

import importlib
import io
import os
from pathlib import Path
from typing import Any, Final, cast

from loom.content.inputs import Attachment
from loom.errors import LoomError, NotFound

_NONE_HERE: Final = "scp the file and @mention it, or open loom web --lan"


def read_clipboard() -> list[Attachment]:
    """Raises where there is no clipboard (over SSH there is none) or nothing on it that is a picture or a file."""
    if os.environ.get("SSH_CONNECTION"):
        raise LoomError("No clipboard available.", hint=_NONE_HERE)
    grab: Any = importlib.import_module("PIL.ImageGrab")
    try:
        found: Any = grab.grabclipboard()
    except importlib.import_module("PIL").UnidentifiedImageError:  # some programs give whatever they have
        found = None
    except (NotImplementedError, OSError):  # no program that could ask, or it failed: ChildProcessError is an OSError
        raise LoomError("No clipboard available.", hint=f"Install wl-clipboard or xclip; or {_NONE_HERE}") from None
    if isinstance(found, list):
        return [Attachment(source=Path(str(name))) for name in cast("list[Any]", found)]
    if found is None:
        raise NotFound("No image on the clipboard.", hint="Copy one first.")
    file = io.BytesIO()
    found.save(file, "PNG")
    return [Attachment(source=file.getvalue(), name="pasted.png")]
