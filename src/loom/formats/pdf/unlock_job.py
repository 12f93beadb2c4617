"""The program of the worker that unlocks PDFs (`python -m loom.formats.pdf.unlock_job`)."""

from __future__ import annotations

import io

import msgspec

from loom.errors import Encrypted, Unreadable
from loom.formats.pdf.pdfium import library, open_document, raw_functions
from loom.formats.worker.loop import Task, serve
from loom.struct_types import decode_msgpack


def run(task: Task, data: bytes | None) -> tuple[bytes, bytes] | None:
    if data is None:
        return None
    password = decode_msgpack(task.job, str)
    try:
        document = open_document(data, password=password)
    except library().PdfiumError as error:
        if error.err_code == raw_functions().FPDF_ERR_PASSWORD:
            raise Encrypted("needs a different password", hint="Check the password in the file.") from None
        raise Unreadable("is not a PDF that can be read, or has no pages") from None
    out = io.BytesIO()
    try:
        document.save(out, flags=raw_functions().FPDF_REMOVE_SECURITY)
    except library().PdfiumError:
        raise Unreadable("is damaged") from None
    finally:
        document.close()
    return msgspec.msgpack.encode(None), out.getvalue()


if __name__ == "__main__":
    library()
    serve(run)
