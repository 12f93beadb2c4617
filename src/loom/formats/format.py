"""The extension point for file formats: the protocol by which files are recognized, accepted and shown to models.

A format is one module. Built-in ones are listed in `registry`; a package adds its own through the entry-point group
`loom.formats`, whose value refers to an object of this protocol:

    [project.entry-points."loom.formats"]
    dicom = "my_package.dicom:FORMAT"

`documents.DocumentFormat` is simpler for everything that is read as text: its reader runs in a worker process under
limits of time and memory. A format that implements the protocol directly must limit hostile files itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from loom.content.media import Media
from loom.content.recipes import Recipe
from loom.formats.facts import Inspection, IntakeLimits, Rendered
from loom.formats.sniff.kinds import FileKind


@runtime_checkable
class Format(Protocol):
    """Reads files of some media types. One object is used by all threads."""

    @property
    def kinds(self) -> Mapping[str, FileKind]:
        """The media types that the format reads, each with its category, a display name and the usual extensions."""
        ...

    @property
    def recipes(self) -> tuple[type[Recipe], ...]:
        """The recipes that `render` supports for at least some files of these types."""
        ...

    def detect(self, data: bytes, name: str) -> str | None:
        """Return one of the format's media types if the bytes are of that type, else None.

        Called for entry-point formats only, on files that the built-in detection cannot identify or identifies as a
        plain container or text. Must be fast and must not raise; `name` alone is not enough evidence.
        """
        ...

    def inspect(self, data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
        """Return the facts of a complete file. Raise `Unreadable`, `Unsupported`, `TooLarge` or `Encrypted`."""
        ...

    def render(self, data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits) -> Rendered:
        """Return derived bytes. Raise `Unsupported` for a recipe that does not apply to `media`."""
        ...
