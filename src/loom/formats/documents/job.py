"""The program of the document worker (`python -m loom.formats.documents.job`). It runs any reader on any bytes."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib import import_module
from typing import Final

import msgspec

from loom.content.media import size_label
from loom.errors import MediaError, TooLarge, Unreadable, Unsupported
from loom.formats.documents.messages import (
    DocumentFacts,
    DocumentJob,
    InspectDocument,
    PictureFacts,
    ReadContext,
    ReadDocument,
    ReadMember,
    ReadPicture,
    ReadSections,
)
from loom.formats.worker.held_documents import HeldDocuments
from loom.formats.worker.loop import Task, serve
from loom.struct_types import msgpack_decoder

MAX_CHARACTERS: Final = 8_000_000
MAX_PICTURES: Final = 1_000
_MAX_MEMBER_BYTES: Final = 60_000_000
_JOB: Final = msgpack_decoder(tuple[str, str, DocumentJob])
_SEPARATOR: Final = "\n\n"
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def run(task: Task, data: bytes | None) -> tuple[bytes, bytes] | None:
    _, _, job = _JOB.decode(task.job)
    document = _held.get(task, data)
    return None if document is None else _answer(document, job)


def _open(task: Task, data: bytes) -> ReadDocument:
    reader, name, _ = _JOB.decode(task.job)
    return _read(reader, data, ReadContext(name, task.limits))


def _read(reader: str, data: bytes, context: ReadContext) -> ReadDocument:
    module, _, function = reader.partition(":")
    try:
        return getattr(import_module(module), function)(data, context)
    except MediaError as error:  # messages of shared readers begin with a name; the caller adds the real one
        raise type(error)(error.message.removeprefix("The document ").rstrip("."), hint=error.hint) from None


def _answer(document: ReadDocument, job: DocumentJob) -> tuple[bytes, bytes]:
    match job:
        case InspectDocument():
            pictures = tuple(
                PictureFacts(picture.name, picture.media_type, picture.page)
                for picture in document.pictures[:MAX_PICTURES]
            )
            pages = len(document.sections) if document.is_paged else 0
            return msgspec.msgpack.encode(DocumentFacts(pages, pictures, document.notices)), b""
        case ReadSections():
            pages = len(document.sections) if document.is_paged else 0
            text = _CONTROLS.sub("\ufffd", _text(document, job.first, job.last))
            return msgspec.msgpack.encode(pages), text.encode("utf-8", "replace")
        case ReadPicture():
            if job.number > min(len(document.pictures), MAX_PICTURES):
                raise Unsupported(f"has {len(document.pictures)} images; image {job.number} does not exist")
            picture = document.pictures[job.number - 1]
            return msgspec.msgpack.encode(picture.media_type), picture.data
        case ReadMember():
            return _member(document, job.path)


def _text(document: ReadDocument, first: int, last: int) -> str:
    """Return the pages, up to the maximum length; a note marks the cut."""
    count = len(document.sections)
    last = min(last or count, count)
    parts: list[str] = []
    room = MAX_CHARACTERS
    for number in range(first, last + 1):
        section = document.sections[number - 1]
        if len(section) > room:
            parts.append(f"{section[:room]}\n[cut here: the text is longer than {MAX_CHARACTERS:,} characters]")
            break
        room -= len(section)
        parts.append(section)
    return _SEPARATOR.join(part for part in parts if part)


def _member(document: ReadDocument, path: str) -> tuple[bytes, bytes]:
    if not document.members:
        raise Unsupported("has no files inside")
    load = document.members.get(path)
    if load is None:
        near = get_close_matches(path, list(document.members)[:10_000], 1)
        hint = f'The nearest name is "{near[0]}".' if near else "Read it to list the files inside."
        raise Unreadable(f"contains no file {path[:200]!r}", hint=hint)
    data = load()
    if len(data) > _MAX_MEMBER_BYTES:
        raise TooLarge(f"contains {path[:200]}, which is {size_label(len(data))}: too large to extract")
    return msgspec.msgpack.encode(path.rpartition("/")[2]), data


_held: Final = HeldDocuments(_open, max_documents=2)


if __name__ == "__main__":
    serve(run)
