"""The folder in which transcripts are played: files whose bytes are the same everywhere, and a few conversations."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import struct
import time
import zipfile
import zlib
from contextlib import closing
from pathlib import Path

from cli.loom_command import Loom
from cli.test_import import claude_code, damaged, said
from loom.testing import sample_pdf

_HOUR_SECONDS = 3_600
ABSENT = ("rapidocr", "onnxruntime", "pillow_heif", "resvg_py", "obstore", "psycopg", "botocore", "playwright")
"""For sys.modules: a machine without any of the extras, whatever is installed on this one."""

_LLM = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT,
    conversation_id TEXT, datetime_utc TEXT);
CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE prompt_attachments (response_id TEXT, attachment_id TEXT, "order" INTEGER);
CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, arguments TEXT, tool_call_id TEXT);
CREATE TABLE tool_results (id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, output TEXT, tool_call_id TEXT);
INSERT INTO conversations VALUES ('c1', 'About a dot', 'gpt-4o');
INSERT INTO responses VALUES ('r1', 'gpt-4o', 'what is it?', 'Be brief.', 'A dot.', 'c1', '2026-01-01');
"""
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_LETTER = f"""<w:document xmlns:w="{_WORD}"><w:body>
<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>A letter</w:t></w:r></w:p>
<w:p><w:r><w:t>The gateway times out after 30 seconds.</w:t></w:r></w:p>
</w:body></w:document>"""


_LINES = """\
/help
/model
/nonsense
/context
/tree
!echo Hello.
@login.png, and this? @nowhere.png
/tree
/context loom/spark
/attach nowhere.png
/attach
/model nonsense
/model loom/spark
/fork
/compact
/quit now
"""


class You(Loom):
    """Somebody whose home is this folder: no key, no server of models, no program, the same language and clock."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        bare = {"PATH": str(folder / "bin"), "LANG": "C.UTF-8", "TZ": "UTC", "COLUMNS": "100", "HOME": str(folder)}
        super().__init__(folder, **bare, LOOM_HOME=str(folder / ".loom"), PYTHONPATH=os.environ.get("PYTHONPATH", ""))
        self.home.rmdir()
        self.home = folder / ".loom"


def lay_out(you: You) -> None:
    """Files to read, then three conversations: with media (two days old), with a branch (five hours), at work (one)."""
    _write_files(you)
    you("what is wrong here?", "login.png")
    you("-c", "when does it time out?", "manual.pdf")
    you("!echo Green tea, then.")
    first = you("log", "--json").rows[0]["node"]
    you("-c", "!echo With lemon.")
    you("-c", "--from", first, "!echo Black tea, then.")
    (you.folder / "elsewhere").mkdir()
    you("!echo Done.", cwd=you.folder / "elsewhere")
    now = time.time()
    with closing(sqlite3.connect(you.home / "loom.db")) as database, database:
        for key, hours in ((1, 54.5), (2, 5.5), (3, 1.5)):
            moment = now - hours * _HOUR_SECONDS
            changes = {"key": key, "moment": moment}
            database.execute("UPDATE session SET created_at = :moment, updated_at = :moment WHERE key = :key", changes)


def _write_files(you: You) -> None:
    picture_bytes = png(64, 48, (32, 64, 160))
    for name, data in {
        "login.png": picture_bytes,
        "cut.png": picture_bytes[:60],
        "manual.pdf": sample_pdf("The timeout is 30 seconds.", "Nothing here."),
        "letter.docx": _docx(),
        "numbers.csv": "month,errors\nMay,3\nJune,502\n",
        "notes.txt": "remember the milk\nand the tea\n",
        "lines.txt": _LINES,
        "no.txt": "n\n",
        "key.txt": "sk-0123456789abcdef\n",
        "talk.json": json.dumps(
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}, {"role": "assistant"}]
        ),
        "session.jsonl": damaged(picture_bytes, png(8, 8, (255, 0, 0))),
        "whole.jsonl": claude_code(said("user", "hello"), said("assistant", "hi", model="claude-x", id="msg_1")),
    }.items():
        you.file(name, data)
    with closing(sqlite3.connect(you.folder / "logs.db")) as database, database:
        database.executescript(_LLM)


def png(width: int, height: int, color: tuple[int, int, int]) -> bytes:
    """Not compressed: compressors differ, and so would digests."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = (b"\0" + bytes(color) * width) * height
    stored = b"\x78\x01\x01" + struct.pack("<HH", len(pixels), len(pixels) ^ 0xFFFF) + pixels
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", stored + struct.pack(">I", zlib.adler32(pixels)))
        + chunk(b"IEND", b"")
    )


def _docx() -> bytes:
    types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override '
        'PartName="/word/document.xml" ContentType='
        '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
    )
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
        'Target="word/document.xml"/></Relationships>'
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, text in (
            ("[Content_Types].xml", types),
            ("_rels/.rels", relations),
            ("word/document.xml", _LETTER),
        ):
            archive.writestr(zipfile.ZipInfo(name), text)
    return buffer.getvalue()
