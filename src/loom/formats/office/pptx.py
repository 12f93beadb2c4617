"""PowerPoint presentations (.pptx, .pptm, .ppsx) as text: the slides in the order of the show."""

from __future__ import annotations

from typing import Final

from loom.formats.office import text_marks
from loom.formats.office.ooxml import R_ID, Package, Pictures
from loom.formats.office.slide import SlideReader
from loom.formats.office.xml_names import value

_AUTHOR_TAGS: Final = ("p:cmAuthor", "p188:author")
_COMMENT_TAGS: Final = ("p:cm", "p188:cm", "p188:reply", "p188:txBody", "a:p")
_COMMENT_WORDS: Final = ("p:text", "a:t")


class Presentation:
    """`slides` are the parts in the order of the show."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._main = package.main_part("ppt/presentation.xml")
        root = package.tree(self._main, tags=("p:presentation", "p:sldId")).first("p:presentation")
        if root is None:
            raise package.type_mismatch()
        targets = [package.target(self._main, value(node.attributes, R_ID)) for node in root.children]
        self.slides = [part for part in targets if part]
        self._authors: dict[str, str] | None = None

    def slide_texts(self, pictures: Pictures) -> list[str]:
        """Return the text of each slide under its marker; `pictures` receives every image in the order of the
        slides."""
        texts: list[str] = []
        slide = SlideReader(self._package, pictures)
        notes = SlideReader(self._package, Pictures(), only="body")
        for number, part in enumerate(self.slides, 1):
            slide.read(part, number)
            head = f"[slide {number}, hidden]" if slide.is_hidden else f"[slide {number}]"
            title = [f"# {text_marks.one_line(slide.title)}"] if slide.title else []
            lines = [head, *title, *slide.lines, *self._notes(notes, part, number), *self._comments(part)]
            texts.append(text_marks.join_blocks(lines))
        return texts

    def _notes(self, notes: SlideReader, part: str, number: int) -> list[str]:
        for notes_part in self._package.related_parts(part, "notesSlide")[:1]:
            notes.read(notes_part, number)
            if notes.lines:
                return [f"[notes] {text_marks.join_blocks(notes.lines)}"]
        return []

    def _comments(self, part: str) -> list[str]:
        lines: list[str] = []
        for comments in self._package.related_parts(part, "comments"):
            root = self._package.tree(comments, tags=_COMMENT_TAGS, words=_COMMENT_WORDS)
            waiting = list(reversed(root.children))
            while waiting:
                node = waiting.pop()
                words = [child.text for child in node.children if child.tag in ("p:text", "p188:txBody")]
                author = self.authors.get(node.get("authorId"), "")
                if text := text_marks.one_line(" ".join(words)):
                    lines.append(f"[comment] {author}: {text}" if author else f"[comment] {text}")
                waiting.extend(reversed(node.all("p188:reply")))
        return lines

    @property
    def authors(self) -> dict[str, str]:
        if self._authors is None:
            parts = [
                part for kind in ("commentAuthors", "authors") for part in self._package.related_parts(self._main, kind)
            ]
            nodes = [node for part in parts for node in self._package.tree(part, tags=_AUTHOR_TAGS).children]
            self._authors = {node.get("id"): node.get("name") for node in nodes}
        return self._authors
