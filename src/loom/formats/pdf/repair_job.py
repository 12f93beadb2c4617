"""What runs inside the worker that rebuilds damaged PDFs (`python -m loom.formats.pdf.repair_job`): pypdf, which finds
pages in files that pdfium refuses. It is slow and loops on some files, so it only ever runs here."""

from __future__ import annotations

import io

import msgspec
from pypdf import PdfReader, PdfWriter

from loom.errors import Unreadable
from loom.formats.worker.loop import Task, serve


def run(_task: Task, data: bytes | None) -> tuple[bytes, bytes] | None:
    if data is None:
        return None
    try:
        return msgspec.msgpack.encode(None), _rebuilt(data)
    except MemoryError:
        raise  # what is left of this process may be of no use
    except Exception as error:  # what pypdf raises on a broken file is not known beforehand
        raise Unreadable("cannot be rebuilt") from error


def _rebuilt(data: bytes) -> bytes:
    reader = PdfReader(io.BytesIO(data))
    try:
        return _written(PdfWriter(clone_from=reader))
    except Exception:  # noqa: BLE001 - as above; something in it is broken, but not all need be
        return _written(_page_by_page(reader))


def _page_by_page(reader: PdfReader) -> PdfWriter:
    """Outlines and forms are lost, and so are the pages that are broken themselves."""
    writer = PdfWriter()
    for number in range(len(reader.pages)):
        try:
            writer.add_page(reader.pages[number])
        except Exception:  # noqa: BLE001, S112 - as above; whoever gets the rest is told that pages may be missing
            continue
    return writer


def _written(writer: PdfWriter) -> bytes:
    if not writer.pages:
        raise Unreadable("has no page that can be read")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


if __name__ == "__main__":
    serve(run)
