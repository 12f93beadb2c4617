"""A file is replaced as a whole: its readers see the old content or the new one, and it keeps what it had."""

from __future__ import annotations

import multiprocessing
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from loom.atomic_file import JsonTable, write_file_whole
from loom.errors import ConfigError
from loom.tools.mcp.records import Pins


def test_a_file_is_written_with_its_folders(tmp_path: Path):
    file = tmp_path / "a" / "b" / "c.txt"

    write_file_whole(file, "é")
    write_file_whole(file, b"second")

    assert file.read_bytes() == b"second" and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["c.txt"]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "kept.txt"
    file.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_file_whole(file, "new")

    assert file.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_the_file_and_its_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append("folder" if is_folder else f"file, renamed: {(tmp_path / 'x').exists()}")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_file_whole(tmp_path / "x", "1")

    assert synced == ["file, renamed: False", "folder"]


def test_a_link_and_a_mode_are_kept_unless_the_file_is_private(tmp_path: Path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)

    write_file_whole(link, "new")
    assert link.is_symlink() and real.read_text() == "new" and stat.S_IMODE(real.stat().st_mode) == 0o640

    write_file_whole(link, "secret", private=True)
    assert not link.is_symlink() and link.read_text() == "secret" and real.read_text() == "new"
    assert stat.S_IMODE(link.stat().st_mode) == 0o600


def test_a_new_file_obeys_the_umask(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_file_whole(tmp_path / "x", "1", mode=0o666)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path):
    write_file_whole(Path(os.devnull), "gone")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_table_keeps_values_by_name_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "state" / "table.json"
    table = JsonTable(file, dict[str, int])
    table.put("a", 1)
    JsonTable(file, dict[str, int]).put("b", 2)
    table.put("a", 3)
    table.put("gone", 4)
    table.put("gone", None)
    assert table.read() == {"b": 2, "a": 3}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_table_keeps_what_threads_put_at_the_same_time(tmp_path: Path) -> None:
    table = JsonTable(tmp_path / "table.json", dict[str, int])
    names = [f"name {number}" for number in range(32)]
    with ThreadPoolExecutor(len(names)) as threads:
        for written in [threads.submit(table.put, name, 1) for name in names]:
            written.result()
    assert table.read() == dict.fromkeys(names, 1)


def _put_pins(file: Path, number: int, begin: Barrier) -> None:
    pins = Pins(file)
    begin.wait()
    for tool in range(8):
        pins.put(f"server {tool % 2}", f"tool {number} {tool}", "version")


def test_processes_that_approve_tools_at_the_same_time_lose_no_approval(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    spawning = multiprocessing.get_context("spawn")
    begin = spawning.Barrier(3)
    workers = [spawning.Process(target=_put_pins, args=(file, number, begin)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    stored = Pins(file)
    assert all(stored.get(f"server {tool % 2}", f"tool {number} {tool}") for number in range(3) for tool in range(8))


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"a": "text"}', b"\xff"])
def test_a_damaged_table_counts_as_empty_and_is_replaced(tmp_path: Path, damaged: bytes) -> None:
    file = tmp_path / "table.json"
    file.write_bytes(damaged)
    table = JsonTable(file, dict[str, int])
    assert table.read() == {}
    table.put("a", 1)
    assert table.read() == {"a": 1}


def test_a_table_that_cannot_be_written_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    file = tmp_path / "file" / "table.json"
    with pytest.raises(ConfigError, match=r"table\.json: cannot be written: Not a directory"):
        JsonTable(file, dict[str, int]).put("a", 1)
