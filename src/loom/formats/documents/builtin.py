"""The built-in formats that are read by the readers of this package."""

from __future__ import annotations

from typing import Final

from loom.formats.documents import DocumentFormat
from loom.formats.documents.tables import require_pyarrow

_HERE: Final = "loom.formats.documents"

HTML: Final = DocumentFormat("text/html", reader=f"{_HERE}.html:read_html")
RTF: Final = DocumentFormat("text/rtf", reader=f"{_HERE}.rtf:read_rtf")
EML: Final = DocumentFormat("message/rfc822", reader=f"{_HERE}.mail:read_eml")
MSG: Final = DocumentFormat("application/vnd.ms-outlook", reader=f"{_HERE}.mail:read_msg")
NOTEBOOK: Final = DocumentFormat("application/x-ipynb+json", reader=f"{_HERE}.notebook:read_notebook")
EPUB: Final = DocumentFormat("application/epub+zip", reader=f"{_HERE}.epub:read_epub")
ZIP: Final = DocumentFormat(
    "application/zip",
    "application/java-archive",
    "application/vnd.android.package-archive",
    reader=f"{_HERE}.archives:read_zip",
)
TAR: Final = DocumentFormat("application/x-tar", reader=f"{_HERE}.archives:read_tar")
COMPRESSED: Final = DocumentFormat(
    "application/gzip", "application/x-bzip2", "application/x-xz", reader=f"{_HERE}.archives:read_compressed"
)
SQLITE: Final = DocumentFormat("application/vnd.sqlite3", reader=f"{_HERE}.tables:read_sqlite")
PARQUET: Final = DocumentFormat(
    "application/vnd.apache.parquet", reader=f"{_HERE}.tables:read_parquet", require=require_pyarrow
)
JSON: Final = DocumentFormat("application/json", reader=f"{_HERE}.tables:read_json")
JSON_LINES: Final = DocumentFormat("application/x-ndjson", reader=f"{_HERE}.tables:read_json_lines")
VISIO: Final = DocumentFormat("application/vnd.ms-visio.drawing", reader=f"{_HERE}.drawings:read_vsdx")
DRAWIO: Final = DocumentFormat("application/vnd.jgraph.mxfile", reader=f"{_HERE}.drawings:read_drawio")
IWORK: Final = DocumentFormat("application/vnd.apple.iwork", reader=f"{_HERE}.iwork:read_iwork")
LONG_TEXT: Final = DocumentFormat("text/plain", reader=f"{_HERE}.long_text:read_long_text")
