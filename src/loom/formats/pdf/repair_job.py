"""The program of the worker that rebuilds damaged PDFs (`python -m loom.formats.pdf.repair_job`): pypdf, which finds
pages in files that pdfium refuses. It is slow and loops on some files, so it only ever runs here."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

import msgspec
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    EncodedStreamObject,
    IndirectObject,
    NameObject,
    NumberObject,
    PdfObject,
    RectangleObject,
    is_null_or_none,
)

from loom.errors import Unreadable
from loom.formats.worker.loop import Task, serve

_END: Final = b"\nendstream\nendobj\ntrailer\n<<>>\nstartxref\n0\n%%EOF\n"
"""The end that a truncated file lacks, wherever it was cut. The zero makes pypdf search for the objects."""
_TRAILER_BYTES: Final = 2048
"""The trailer is searched for only at the end of the file: pypdf would search all of it, line by line."""
_LOCK: Final = re.compile(rb"/Filter\s*/Standard\b")
_UNUSED: Final = 9_000_000
"""A number that no object has: a reference to a lost object must not lead to one of ours."""
_LETTER: Final = (0, 0, 612, 792)
"""The size that readers assume for a page without one."""


def run(_task: Task, data: bytes | None) -> tuple[bytes, bytes] | None:
    if data is None:
        return None
    try:
        return msgspec.msgpack.encode(None), _rebuild(data)
    except MemoryError:
        raise  # this process may not be usable any more
    except Exception as error:  # the exceptions that pypdf raises on a broken file are unknown
        raise Unreadable("cannot be rebuilt") from error


def _rebuild(data: bytes) -> bytes:
    """Rebuild from the trailer; otherwise from the last catalog; otherwise from all pages in the file."""
    if b"startxref" in data[-_TRAILER_BYTES:]:
        with suppress(Exception):  # as above; the next method needs less
            return _copy_pages(PdfReader(io.BytesIO(data)))
    reader = _append_end(data)
    found = _dictionaries(reader)
    catalogs = [each for each in found if each.get("/Type") == "/Catalog"]
    catalog = catalogs[-1] if catalogs else _add_dictionary(reader, "/Catalog", _UNUSED)
    reader.trailer[NameObject("/Root")] = catalog.indirect_reference
    reader.trailer[NameObject("/Size")] = NumberObject(len(found))
    if "/Pages" in catalog:
        with suppress(Exception):  # as above
            return _copy_pages(reader)
    tree = _add_dictionary(reader, "/Pages", _UNUSED + 1)
    _bind([each for each in found if each.get("/Type") == "/Page"], tree)
    catalog[NameObject("/Pages")] = tree.indirect_reference
    return _copy_pages(reader)


def _copy_pages(reader: PdfReader) -> bytes:
    try:
        writer = PdfWriter(clone_from=reader)
        pages = cast("DictionaryObject", writer.root_object["/Pages"])
        pages[NameObject("/Count")] = NumberObject(len(writer.pages))  # the stored count may be too large
        return _write(writer)
    except Exception:  # noqa: BLE001 - as above; some pages may still be readable
        return _write(_page_by_page(reader.pages))


def _page_by_page(pages: Sequence[PageObject]) -> PdfWriter:
    """Copy the readable pages. Outlines and forms are lost, and so are broken pages."""
    writer = PdfWriter()
    for number in range(len(pages)):
        try:
            writer.add_page(pages[number])
        except Exception:  # noqa: BLE001, S112 - as above; a notice mentions that pages may be missing
            continue
    return writer


class _SearchedReader(PdfReader):
    """A reader of a file that was searched completely: pypdf would search it again for each lost object."""

    def get_object(self, indirect_reference: int | IndirectObject) -> PdfObject | None:
        if isinstance(indirect_reference, IndirectObject):
            number, generation = indirect_reference.idnum, indirect_reference.generation
            places = (self.xref.get(generation, {}), {} if generation else self.xref_objStm)
            if not any(number in table for table in places) and (generation, number) not in self.resolved_objects:
                return None
        return super().get_object(indirect_reference)


def _append_end(data: bytes) -> PdfReader:
    """Add an end to a truncated file."""
    whole = data.rfind(b"endobj") + len(b"endobj")
    if b"stream" not in data[whole:]:
        data = data[:whole]  # half a dictionary would include the appended end; half a stream is useful
    reader = _SearchedReader(io.BytesIO(data + _END))
    if "/Encrypt" not in reader.trailer and _LOCK.search(data):
        raise Unreadable("is encrypted, and its key is missing")  # its pages would be noise
    return reader


def _dictionaries(reader: PdfReader) -> list[DictionaryObject]:
    """Return all readable dictionaries in the order of the file, which is the order of the pages; their numbers are
    not."""
    places = {(number, gen): (at, 0) for gen, table in reader.xref.items() for number, at in table.items()}
    for number, (container, index) in reader.xref_objStm.items():
        places[number, 0] = (places.get((container, 0), (0, 0))[0], index)
    found: list[DictionaryObject] = []
    for number, generation in sorted(places, key=places.__getitem__):
        with suppress(Exception):  # as above
            each = reader.get_object(IndirectObject(number, generation, reader))
            if isinstance(each, DictionaryObject):
                found.append(each)
    if found and isinstance(found[-1], EncodedStreamObject) and "/DecodeParms" not in found[-1]:
        with suppress(Exception):  # as above; compressed again, because a truncated stream is invalid
            found[-1].set_data(found[-1].get_data())
    return found


def _add_dictionary(reader: PdfReader, kind: str, number: int) -> DictionaryObject:
    made = DictionaryObject({NameObject("/Type"): NameObject(kind)})
    reader.cache_indirect_object(0, number, made)
    return made


def _bind(pages: list[DictionaryObject], tree: DictionaryObject) -> None:
    """Move the pages to `tree`, each with the values that it inherits from its parents."""
    for page in pages:
        for key in ("/Resources", "/MediaBox", "/CropBox", "/Rotate"):
            with suppress(Exception):  # as above; the tree may have a cycle
                value = page.get_inherited(key)
                if not is_null_or_none(value):
                    page[NameObject(key)] = value
        page.setdefault(NameObject("/MediaBox"), RectangleObject(_LETTER))
        page[NameObject("/Parent")] = tree.indirect_reference
    tree[NameObject("/Kids")] = ArrayObject(page.indirect_reference for page in pages)
    tree[NameObject("/Count")] = NumberObject(len(pages))


def _write(writer: PdfWriter) -> bytes:
    if not writer.pages:
        raise Unreadable("has no page that can be read")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


if __name__ == "__main__":
    serve(run)
