"""F1: detect the encoding of non-Unicode texts and of source files.

    python -m benchmarks.formats.encodings [source folder …]

The texts were written by translators: message catalogs of installed programs (gettext's `.mo` files), cut to about
2 KB and encoded in a legacy encoding of the language. Each language gives up to ten texts from different programs. A
text counts as read if every character is right, regardless of the name of the encoding. Loom is compared with the two
detectors that Python programs use, and with markitdown, which other runtimes use.

Source files are a random sample of this system with a fixed seed. The expected text is known for files in valid UTF-8,
and for others that declare their encoding, or whose name does (as the files of vim).
"""

from __future__ import annotations

import gettext
import io
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import chardet
import charset_normalizer
import msgspec
from markitdown import MarkItDown, StreamInfo

from loom.errors import MediaError
from loom.formats.text import decode_text

MIN_BYTES = 2_000
TEXTS = 10
FILES = 2_000
KINDS: tuple[tuple[str, str], ...] = (
    ("zh_CN", "gbk"),
    ("zh_TW", "big5"),
    ("ja", "cp932"),
    ("ja", "euc_jp"),
    ("ko", "cp949"),
    ("ru", "cp1251"),
    ("ru", "koi8-r"),
    ("ru", "iso8859-5"),
    ("uk", "koi8-u"),
    ("uk", "cp1251"),
    ("pl", "cp1250"),
    ("cs", "iso8859-2"),
    ("hu", "cp1250"),
    ("el", "cp1253"),
    ("el", "iso8859-7"),
    ("he", "cp1255"),
    ("ar", "cp1256"),
    ("tr", "cp1254"),
    ("tr", "iso8859-9"),
    ("lt", "cp1257"),
    ("de", "cp1252"),
    ("fr", "iso8859-15"),
)
SOURCES = ("/usr/include", "/usr/share", "/usr/lib/python3", sys.prefix)
SUFFIXES = (
    *(".py", ".c", ".h", ".hpp", ".js", ".ts", ".css", ".pl", ".pm", ".sh", ".vim", ".txt", ".md", ".rst", ".toml"),
    *(".json", ".xml", ".html", ".yml", ".cfg", ".tcl", ".lua", ".el"),
)
ENDINGS = {"latin1": "cp1252", "iso_8859-1": "cp1252", "1252": "cp1252", "cp1250": "cp1250", "1250": "cp1250"} | {
    "iso_8859-2": "iso8859-2",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "cp1251": "cp1251",
    "euc": "euc_jp",
    "euc-jp": "euc_jp",
    "sjis": "cp932",
    "cp932": "cp932",
    "936": "gbk",
    "gb2312": "gbk",
    "950": "cp950",
    "big5": "cp950",
    "iso9": "iso8859-9",
}
"""The names of encodings in the file names of vim's menus and tutors."""


class Reader(msgspec.Struct):
    """A detector and its results; `silent` counts the texts that it refused."""

    name: str
    read: Callable[[bytes], str | None]
    right: int = 0
    wrong: int = 0
    silent: int = 0
    seconds: float = 0.0

    def score(self, data: bytes, expected: str) -> bool:
        began = time.perf_counter()
        text = self.read(data)
        self.seconds += time.perf_counter() - began
        is_right = text is not None and _without_spaces(text) == _without_spaces(expected)
        self.right += is_right
        self.wrong += text is not None and not is_right
        self.silent += text is None
        return is_right


def _without_spaces(text: str) -> str:
    """Return the text without white space, which does not count: markitdown trims lines."""
    return "".join(text.split())


def by_loom(data: bytes) -> str | None:
    try:
        return decode_text(data)[0]
    except MediaError:
        return None


def by_chardet(data: bytes) -> str | None:
    return _decode(data, chardet.detect(data)["encoding"])


def by_charset_normalizer(data: bytes) -> str | None:
    best = charset_normalizer.from_bytes(data).best()
    return None if best is None else str(best)


_markitdown = MarkItDown(enable_plugins=False)


def by_markitdown(data: bytes) -> str | None:
    try:
        return _markitdown.convert_stream(io.BytesIO(data), stream_info=StreamInfo(extension=".txt")).text_content
    except Exception:  # noqa: BLE001 - any exception means that it has read nothing
        return None


def _decode(data: bytes, codec: str | None) -> str | None:
    try:
        return data.decode(codec) if codec else None
    except (UnicodeDecodeError, LookupError):
        return None


def readers() -> list[Reader]:
    return [
        Reader("loom", by_loom),
        Reader("chardet", by_chardet),
        Reader("charset-normalizer", by_charset_normalizer),
        Reader("markitdown", by_markitdown),
    ]


def texts(language: str, codec: str) -> Iterator[bytes]:
    """Yield the messages of one program after the other, encoded; without those that the encoding cannot express."""
    folders = (Path("/usr/share/locale"), Path("/usr/share/vim/vim90/lang"))
    catalogs = sorted(file for folder in folders for file in folder.glob(f"{language}/LC_MESSAGES/*.mo"))
    random.Random(language + codec).shuffle(catalogs)
    found = 0
    for file in catalogs:
        with file.open("rb") as opened:
            try:
                messages = gettext.GNUTranslations(opened)._catalog  # type: ignore[attr-defined]  # noqa: SLF001 - it has no public list
            except (OSError, UnicodeDecodeError):
                continue
        parts: list[bytes] = []
        for source, text in messages.items():
            if not source or not isinstance(text, str) or len(text) < 20 or text.isascii() or _is_english(text, codec):
                continue
            try:
                parts.append(text.encode(codec))
            except UnicodeEncodeError:
                continue
        data = b"\n".join(parts)
        if len(data) >= MIN_BYTES:
            end = data.find(b"\n", MIN_BYTES)
            yield data[: end if end > 0 else None]
            found += 1
            if found == TEXTS:
                return


def _is_english(text: str, codec: str) -> bool:
    """Return whether a message is untranslated, except for quotation marks, in a language with another script."""
    is_latin = codec in ("cp1250", "cp1252", "cp1254", "cp1257", "iso8859-2", "iso8859-9", "iso8859-15")
    return not is_latin and sum(not letter.isascii() for letter in text) < len(text) / 5


def source_files(folders: tuple[str, ...]) -> list[Path]:
    found = [
        file
        for folder in folders
        for file in Path(folder).rglob("*")
        if (file.suffix in SUFFIXES or file.name.startswith("tutor.")) and file.is_file() and not file.is_symlink()
    ]
    random.Random(22).shuffle(found)
    chosen = [file for file in found if 0 < file.stat().st_size < 1_000_000]
    foreign = [
        file
        for file in chosen
        if "/vim" in str(file) and file.name.rsplit(".", 2)[-2 if file.suffix == ".vim" else -1] in ENDINGS
    ]
    return [*foreign, *(file for file in chosen if file not in set(foreign))][:FILES]


def expected_text(file: Path, data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    parts = file.name.split(".")
    named = ENDINGS.get(parts[-2] if parts[-1] == "vim" else parts[-1])
    if file.name == "tutor.ko.euc":
        named = "cp949"
    declared = re.search(rb"coding[:=]\s*([-\w.]+)|encoding=[\"']([-\w.]+)", data[:1000])
    codec = named or (next(filter(None, declared.groups())).decode() if declared else None)
    codec = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252"}.get((codec or "").lower(), codec)
    return _decode(data, codec)


def main() -> None:
    print(f"texts of at least {MIN_BYTES} bytes, right in every character")
    total = readers()
    whole = dict.fromkeys((reader.name for reader in total), 0)
    kinds = 0
    for language, codec in KINDS:
        each = readers()
        samples = list(texts(language, codec))
        if not samples:
            print(f"  {language:6} {codec:11} no text of this language is installed")
            continue
        kinds += 1
        for data in samples:
            for reader in each:
                reader.score(data, data.decode(codec))
        for reader, sum_of in zip(each, total, strict=True):
            whole[reader.name] += reader.right == len(samples)
            sum_of.right += reader.right
            sum_of.wrong += reader.wrong
            sum_of.silent += reader.silent
            sum_of.seconds += reader.seconds
        print(
            f"  {language:6} {codec:11} " + "   ".join(f"{r.name} {r.right}/{len(samples)}" for r in each), flush=True
        )
    for reader in total:
        count = reader.right + reader.wrong + reader.silent
        print(
            f"  {reader.name:20} {whole[reader.name]:2} of {kinds} kinds without errors; "
            f"{reader.right} of {count} texts, {reader.wrong} wrong, "
            f"{reader.silent} refused, {reader.seconds / count * 1000:.1f} ms a text"
        )
    files = source_files(tuple(sys.argv[1:]) or SOURCES)
    every = readers()
    unknown, foreign = 0, 0
    wrong_files: list[Path] = []
    for file in files:
        data = file.read_bytes()
        expected = expected_text(file, data)
        if expected is None or not expected.strip():
            unknown += 1
            continue
        foreign += not _is_utf8(data)
        own, *others = every
        if not own.score(data, expected):
            wrong_files.append(file)
        for reader in others:
            reader.score(data, expected)
    print(f"{len(files) - unknown} source files, {foreign} of them not UTF-8 (encoding of {unknown} more unknown)")
    for reader in every:
        count = reader.right + reader.wrong + reader.silent
        print(
            f"  {reader.name:20} {reader.right:5} right {reader.wrong:4} wrong {reader.silent:4} refused, "
            f"{reader.seconds / count * 1000:.2f} ms a file"
        )
    for file in wrong_files:
        print(f"  wrong text by loom: {file}")


def _is_utf8(data: bytes) -> bool:
    return _decode(data, "utf-8") is not None


if __name__ == "__main__":
    main()
