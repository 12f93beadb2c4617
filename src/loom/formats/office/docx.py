"""Word documents (.docx, .docm, .dotx) as text: the body in reading order, then notes, comments, headers and
footers."""

from __future__ import annotations

from loom.formats.office import text_marks
from loom.formats.office.ooxml import Package, Pictures
from loom.formats.office.word_story import StoryReader, WordContext
from loom.formats.office.word_tables import table_lines


def docx_text(package: Package, pictures: Pictures) -> str:
    """Return the whole document; `pictures` receives every image in the order of its marker in the text."""
    main = package.main_part("word/document.xml")
    context = WordContext(package, main, pictures)
    reader = StoryReader(context)
    reader.read(main)
    if not reader.is_document:
        raise package.type_mismatch()
    body = text_marks.join_blocks(table_lines(reader.blocks))
    sections = [body, *_notes(context, reader, main), *_margins(context, reader)]
    return "\n\n".join(section for section in sections if section)


def _notes(context: WordContext, reader: StoryReader, main: str) -> list[str]:
    """Return the footnotes, endnotes and comments that the text refers to, each kind in the order of its first
    reference."""
    sections: list[str] = []
    for kind, cited in context.cited.items():
        for part in context.package.related_parts(main, kind)[:1] if cited else ():
            reader.read(part)
            found = [(mark, reader.notes.get(note, "")) for note, mark in cited.items()]
            sections.append("\n".join(f"{mark} {text}" for mark, text in found if text))
    return sections


def _margins(context: WordContext, reader: StoryReader) -> list[str]:
    """Return every distinct header and footer once."""
    lines: dict[str, None] = {}
    for part, kind in list(context.margins.items()):
        reader.read(part)
        if text := text_marks.join_blocks(table_lines(reader.blocks)):
            lines[f"[{kind}] {text}"] = None
    return ["\n".join(lines)]
