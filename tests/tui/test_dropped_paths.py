"""Files that are dropped on a terminal arrive as pasted text, which each terminal writes in its own way."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.tui.dropped_paths import parse_dropped_paths

NAMES = ("plain.png", "with space.png", "quote's.png", "ümlaut é.pdf", "br[ack]et.txt", "100%.png", "a#b.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dropped")
    for name in NAMES:
        (made / name).write_bytes(b"x")
    return made


WRITINGS = {
    "as it is": str,
    "double quotes": lambda path: f'"{path}"',
    "shell quotes": lambda path: shlex.quote(str(path)),
    "escaped": lambda path: "".join(f"\\{c}" if c in " '\"[]()&;#%" else c for c in str(path)),
    "url": lambda path: f"file://{quote(str(path))}",
    "url with host": lambda path: f"file://localhost{quote(str(path))}",
}


@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("name", NAMES)
def test_one_file_is_found_however_its_path_is_written(folder: Path, name: str, writing: str) -> None:
    assert parse_dropped_paths(f" {WRITINGS[writing](folder / name)}\n") == (folder / name,)


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5), st.sampled_from([" ", "\n"]), st.data())
def test_several_files_are_found_in_order(folder: Path, names: list[str], between: str, data: st.DataObject) -> None:
    ways = [way for way in WRITINGS if way not in ("as it is", "double quotes")]
    written = [WRITINGS[data.draw(st.sampled_from(ways))](folder / name) for name in names]
    assert parse_dropped_paths(between.join(written)) == tuple(folder / name for name in names)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "it's a sentence about /etc/hosts",
        "/no/such/file.png",
        "plain.png",
        "file://elsewhere/etc/hosts",
        "/etc",
        "x\0y",
        "/" * 5_000,
        "~nobody-of-that-name/x",
    ],
)
def test_other_text_stays_text(text: str) -> None:
    assert parse_dropped_paths(text) == ()


@given(st.text(max_size=200))
def test_no_text_makes_it_fail(text: str) -> None:
    assert all(path.is_file() for path in parse_dropped_paths(text))


def test_one_file_that_is_missing_makes_it_text(folder: Path) -> None:
    assert parse_dropped_paths(f"{folder / 'plain.png'} /no/such/file") == ()
