"""ForeignConversation: what every product's reader returns."""

from __future__ import annotations

from typing import Any

import msgspec


class ForeignConversation(msgspec.Struct, kw_only=True):
    """A conversation with its branches. `head` is the id of the last node of the active branch."""

    kind: str
    title: str = ""
    model: str = ""
    system: str = ""
    head: str = ""
    created_at: Any = None
    updated_at: Any = None
    archived: bool = False
    pinned: bool = False
    folder: str = ""
    tags: list[str] = msgspec.field(default_factory=list[str])
    nodes: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    notices: list[str] = msgspec.field(default_factory=list[str])

    def add(self, node_id: str, parent_id: str, message: dict[str, Any], *, at: Any = None, model: str = "") -> None:
        """Add a message below another one; an empty `parent_id` makes it a root."""
        node = {"id": node_id, "parent_id": parent_id or None, "created_at": at, "model": model, "message": message}
        self.nodes.append(node)


def text_part(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text.strip() else []


def file_part(kind: str, pointer: str, name: str = "") -> dict[str, Any]:
    """Return a part for a file of the export; `pointer` is its name or id."""
    return {"type": kind, "source_path": pointer, **({"name": name} if name else {})}


def kind_of_file(name: str, declared: str = "") -> str:
    """Return `image`, `audio` or `document`, by the `declared` content type or else by the suffix of the name."""
    family = declared.partition("/")[0]
    if family in ("image", "audio"):
        return family
    ending = name.rpartition(".")[2].lower()
    if ending in ("png", "jpg", "jpeg", "gif", "webp", "heic", "bmp", "tiff", "svg"):
        return "image"
    return "audio" if ending in ("wav", "mp3", "m4a", "ogg", "flac") else "document"
