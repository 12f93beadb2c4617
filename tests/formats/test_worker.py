"""Worker processes: kept, replaced when they fail, and gone when their parent is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from formats import made_pdfs
from loom.content.media import digest_of
from loom.content.recipes import Page, Text
from loom.errors import MediaError, TooLarge, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerGroup, WorkerKind, WorkerPool

SLOW = made_pdfs.operator_bomb(1_000_000)
WORDS = made_pdfs.text_page("words")


@pytest.fixture
def group() -> Iterator[WorkerGroup]:
    group = WorkerGroup(WorkerKind("loom.formats.pdf.job", size=2))
    yield group
    group.close()


def ask(group: WorkerGroup, document: bytes, recipe: Text | Page, *, digest: str = "", seconds: float = 15.0) -> bytes:
    _, blob = group.call(
        msgspec.msgpack.encode(recipe),
        document,
        digest=digest or digest_of(document),
        name="a.pdf",
        limits=IntakeLimits(),
        seconds=seconds,
    )
    return blob


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def is_in_the_middle_of_the_slow_page(group: WorkerGroup | WorkerPool) -> bool:
    return any(resident_bytes(pid) > 150_000_000 for pid in group.pids())


def test_a_child_is_started_once_and_keeps_the_documents_it_was_given(group):
    assert group.pids() == ()

    first = ask(group, WORDS, Text())
    pids = group.pids()
    without_bytes = ask(group, b"", Text(), digest=digest_of(WORDS))

    assert first == without_bytes == b"[page 1]\nwords\n"
    assert group.pids() == pids
    assert len(pids) == 1


def test_a_document_that_the_child_has_put_away_is_given_to_it_again(group):
    documents = [made_pdfs.text_page(f"document {number}") for number in range(8)]

    for _ in range(2):
        assert [ask(group, document, Text()) for document in documents] == [
            f"[page 1]\ndocument {number}\n".encode() for number in range(8)
        ]
    assert len(group.pids()) == 1


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSEGV])
def test_a_child_that_dies_in_the_middle_fails_that_job_only(group, ending):
    with ThreadPoolExecutor() as threads:
        job = threads.submit(ask, group, SLOW, Page(1))
        until(lambda: is_in_the_middle_of_the_slow_page(group))
        (pid,) = group.pids()
        os.kill(pid, ending)

        with pytest.raises(Unreadable, match=rf"a\.pdf could not be read: the reader ended \({ending.name}\)\."):
            job.result()

    assert is_gone(pid)
    assert group.pids() == ()
    assert ask(group, WORDS, Text()) == b"[page 1]\nwords\n"


def test_a_child_that_is_stopped_fails_its_job_at_the_deadline(group):
    with ThreadPoolExecutor() as threads:
        job = threads.submit(ask, group, SLOW, Page(1), seconds=2.0)
        until(lambda: is_in_the_middle_of_the_slow_page(group))
        (pid,) = group.pids()
        os.kill(pid, signal.SIGSTOP)

        with pytest.raises(TooLarge, match=r"takes longer than 2 s"):
            job.result(timeout=10)

    assert is_gone(pid)
    assert ask(group, WORDS, Text()) == b"[page 1]\nwords\n"


def test_a_job_in_a_child_that_had_done_others_is_tried_once_more_in_a_new_one(group):
    ask(group, WORDS, Text())
    (first,) = group.pids()
    os.kill(first, signal.SIGKILL)

    assert ask(group, WORDS, Text()) == b"[page 1]\nwords\n"
    assert is_gone(first)
    assert len(group.pids()) == 1


def test_calls_from_many_threads_are_all_served_by_no_more_children_than_allowed(group):
    documents = [made_pdfs.text_page(f"document {number}") for number in range(6)]

    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda number: ask(group, documents[number % 6], Text()), range(120)))

    assert answers == [f"[page 1]\ndocument {number % 6}\n".encode() for number in range(120)]
    assert len(group.pids()) <= 2


def test_a_child_outlives_the_thread_that_started_it(group):
    thread = threading.Thread(target=ask, args=(group, WORDS, Text()))
    thread.start()
    thread.join()
    pids = group.pids()

    assert ask(group, b"", Text(), digest=digest_of(WORDS)) == b"[page 1]\nwords\n"
    assert group.pids() == pids


def test_closing_ends_idle_and_busy_children(group):
    ask(group, WORDS, Text())
    with ThreadPoolExecutor() as threads:
        job = threads.submit(ask, group, SLOW, Page(1))
        until(lambda: is_in_the_middle_of_the_slow_page(group))
        pids = group.pids()
        group.close()
        with pytest.raises(MediaError):
            job.result(timeout=10)

    assert all(is_gone(pid) for pid in pids)


def test_a_child_knows_no_keys_and_is_bounded_in_memory(group, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-sentinel")
    ask(group, WORDS, Text())
    (pid,) = group.pids()

    assert b"sentinel" not in Path(f"/proc/{pid}/environ").read_bytes()
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert limits.split("Max address space")[1].split()[0] == str(IntakeLimits().worker_memory_bytes)
    assert limits.split("Max core file size")[1].split()[0] == "0"


def test_a_job_that_overflows_the_memory_is_too_large_and_its_child_stays_within_the_limit():
    seen = in_another_process(
        "bomb = made_pdfs.nested_deflate_bomb(4)\n"
        "try: render_pdf(bomb, media(bomb), Text(), IntakeLimits(worker_memory_bytes=300_000_000))\n"
        "except TooLarge as error: print(error)\n"
        "current_pool().close()\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )

    assert "memory" in seen[0]
    assert int(seen[1]) < 300_000_000


def test_a_child_ends_when_its_parent_ends(tmp_path):
    (pid,) = in_another_process(
        "render_pdf(WORDS, media(WORDS), Text(), IntakeLimits())\nprint(current_pool().pids()[0])"
    )

    until(lambda: is_gone(int(pid)))


def test_a_child_ends_when_its_parent_is_killed_even_in_the_middle_of_a_job():
    idle, busy = in_another_process(
        "render_pdf(WORDS, media(WORDS), Text(), IntakeLimits())\n"
        "idle = current_pool().pids()[0]\n"
        "other = WorkerPool()\n"
        "def job():\n"
        "    with other.use(): render_pdf(SLOW, media(SLOW), Page(1), IntakeLimits(deadline_seconds=2))\n"
        "threading.Thread(target=job, daemon=True).start()\n"
        "until(lambda: is_in_the_middle_of_the_slow_page(other))\n"
        "print(idle, other.pids()[0], sep='\\n', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)",
        returncode=-signal.SIGKILL,
    )

    until(lambda: is_gone(int(idle)) and is_gone(int(busy)))


def test_a_fork_gets_children_of_its_own():
    mine, forked, still_mine = in_another_process(
        "read = lambda: (render_pdf(WORDS, media(WORDS), Text(), IntakeLimits()), current_pool().pids()[0])[1]\n"
        "print(read(), flush=True)\n"
        "if not os.fork():\n"
        "    print(read(), flush=True)\n"
        "    current_pool().close()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(read())"
    )

    assert mine == still_mine
    assert mine != forked


def in_another_process(body: str, returncode: int = 0) -> list[str]:
    """Run it with the names of this module at hand; the lines that it printed."""
    head = (
        "import os, resource, signal, threading\n"
        "from test_worker import *\n"
        "from loom.content.media import Media\n"
        "from loom.formats.pdf import render_pdf\n"
        "from loom.formats.worker import WorkerPool, current_pool\n"
        "media = lambda data: Media(digest=digest_of(data), media_type='application/pdf', size_bytes=len(data))\n"
    )
    path = os.pathsep.join(str(Path(__file__).parents[level]) for level in (0, 1))
    done = subprocess.run(
        [sys.executable, "-c", head + body],
        env=os.environ | {"PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == returncode, done.stderr
    return done.stdout.splitlines()
