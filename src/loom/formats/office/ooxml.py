"""Office Open XML packages: their parts, the relations between them, and the images among them."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from typing import Final
from urllib.parse import unquote

import msgspec

from loom.errors import Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.office.archive import SAVE_AGAIN, Archive
from loom.formats.office.xml_names import Attributes, keys
from loom.formats.office.xml_reader import Trim, XmlNode, XmlReader, read_tree

MAX_PICTURES: Final = 500
_MAIN: Final = "officeDocument"
_ROOT: Final = ""


class Relation(msgspec.Struct, frozen=True):
    """The target of a relation as written in the part: relative to the part, or a URL if `is_external`."""

    kind: str
    target: str
    is_external: bool


class Package:
    """A container and the relations between its parts. A missing relation gives an empty result, not an error."""

    def __init__(self, data: bytes, *, name: str, limits: IntakeLimits) -> None:
        self.name = name
        self.archive = Archive(data, name=name, limits=limits)
        self._relations: dict[str, dict[str, Relation]] = {}
        self._found: dict[str, Relation] = {}
        self._relation_reader = XmlReader({"rel:Relationship": self._relationship}, {})

    def main_part(self, usual: str) -> str:
        """Return the main part: the one that the package declares, or else `usual`."""
        for part in (*self.related_parts(_ROOT, _MAIN), usual):
            if part in self.archive:
                return part
        raise self.type_mismatch()

    def type_mismatch(self) -> Unreadable:
        """Return the error for a container without the main part that its type requires."""
        return Unreadable(
            f"{self.name or 'The document'} does not match its file type.",
            name=self.name,
            hint=SAVE_AGAIN,
        )

    def relations(self, part: str) -> dict[str, Relation]:
        """Return the relations of `part` by id."""
        if part not in self._relations:
            self._relations[part] = self._read_relations(part)
        return self._relations[part]

    def target(self, part: str, relation_id: str) -> str:
        """Return the part with this relation id; empty if it is missing or outside the package."""
        relation = self.relations(part).get(relation_id)
        return self._resolve(part, relation) if relation else ""

    def related_parts(self, part: str, kind: str) -> list[str]:
        """Return the parts of one kind (`comments`, `notesSlide`) that `part` refers to."""
        found = [relation for relation in self.relations(part).values() if relation.kind == kind]
        return [target for relation in found if (target := self._resolve(part, relation))]

    def read(self, part: str, reader: XmlReader) -> None:
        reader.read(self.archive, part, name=self.name)

    def tree(
        self, part: str, *, tags: Collection[str], words: Collection[str] = (), trim: Trim | None = None
    ) -> XmlNode:
        return read_tree(self.archive, part, tags=tags, words=words, trim=trim, name=self.name)

    @property
    def has_macros(self) -> bool:
        return any(name.lower().endswith("vbaproject.bin") for name in self.archive.names)

    def _read_relations(self, part: str) -> dict[str, Relation]:
        folder, base = posixpath.split(part)
        member = posixpath.join(folder, "_rels", f"{base}.rels")
        found = self._found = {}
        if member in self.archive:
            self.read(member, self._relation_reader)
        return found

    def _relationship(self, attributes: Attributes) -> None:
        self._found[attributes.get("Id", "")] = Relation(
            kind=attributes.get("Type", "").rpartition("/")[2],
            target=attributes.get("Target", ""),
            is_external=attributes.get("TargetMode", "").lower() == "external",
        )

    def _resolve(self, part: str, relation: Relation) -> str:
        if relation.is_external:
            return ""
        path = relation.target.partition("#")[0].replace("\\", "/")
        path = path.lstrip("/") if path.startswith("/") else posixpath.join(posixpath.dirname(part), path)
        path = posixpath.normpath(path)
        if path in self.archive:
            return path
        return unquoted if (unquoted := unquote(path)) in self.archive else ""


class FoundPicture(msgspec.Struct, frozen=True):
    part: str
    page: int


class Pictures:
    """The images of a document in the order of their first appearance; a repeated one keeps its number."""

    def __init__(self) -> None:
        self.found: list[FoundPicture] = []
        self.left_out = 0
        self._numbers: dict[str, int] = {}

    def number(self, part: str, *, page: int = 0) -> int | None:
        """Return the number of the image in `part`, or None beyond the limit or if there is no such part."""
        if not part or part in self._numbers:
            return self._numbers.get(part)
        if len(self.found) >= MAX_PICTURES:
            self.left_out += 1
            return None
        self.found.append(FoundPicture(part, page))
        self._numbers[part] = len(self.found)
        return len(self.found)


R_ID: Final = keys("r:id")
R_EMBED: Final = keys("r:embed")
