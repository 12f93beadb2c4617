"""Run the fuzz tests for longer: `python -m benchmarks.formats.fuzz [seconds] [seed]` (default: a minute).

Samples made by real programs are damaged at random and go through the sniffer, the readers of image headers, intake
with its recipes, and the readers of office files and PDFs, in turn. Printed are the outcomes and the slowest file.
Violations (an untyped error, or a file that takes longer than its deadline) are printed with the seed that reproduces
them; the exit code is then 1.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "tests")]

from benchmarks.formats.sweep import finish, peak_mb  # noqa: E402 - as above
from formats import made_pdfs, test_fuzz_images, test_fuzz_office  # noqa: E402 - the tests, found by the path above
from formats.made_images import IMAGE_TYPES, sample  # noqa: E402 - as above
from formats.test_sniff import FILES  # noqa: E402 - as above
from loom.content.recipes import Text  # noqa: E402 - as above
from loom.errors import MediaError, Unreadable  # noqa: E402 - as above
from loom.formats import inspect, render  # noqa: E402 - as above
from loom.formats.facts import IntakeLimits  # noqa: E402 - as above
from loom.formats.image.header import read_header  # noqa: E402 - as above
from loom.formats.sniff import sniff  # noqa: E402 - as above
from loom.formats.sniff.kinds import KINDS  # noqa: E402 - as above

SECONDS = 60.0
NAMES = ("", "a.docx", "b.png", "c.txt", "d.pdf")
ALLOWED_SECONDS = 3 * IntakeLimits().deadline_seconds
"""The deadline of a call, times the largest number of calls per file."""


def sniff_damaged(chance: random.Random) -> str:
    _, build = FILES[chance.choice(sorted(FILES))]
    found = sniff(test_fuzz_images.damaged(build(), chance), chance.choice(NAMES))
    assert KINDS[found.media_type].category == found.category
    return found.category


def read_damaged_header(chance: random.Random) -> str:
    data = test_fuzz_images.damaged(sample(chance.choice(sorted(IMAGE_TYPES))), chance)
    try:
        header = read_header(data)
    except Unreadable:
        return "refused"
    assert header.width > 0
    assert header.height > 0
    return "read"


def render_damaged_image(chance: random.Random) -> str:
    name = chance.choice(sorted(IMAGE_TYPES))
    return test_fuzz_images.outcome(
        test_fuzz_images.damaged(sample(name), chance), name, chance.choice(test_fuzz_images.RECIPES)
    )


def read_damaged_office(chance: random.Random) -> str:
    build, media_type = test_fuzz_office.SAMPLES[chance.choice(sorted(test_fuzz_office.SAMPLES))]
    damage = chance.choice((test_fuzz_office.scarred, test_fuzz_office.with_scarred_parts))
    outcome = test_fuzz_office.outcome(damage(build(), chance), media_type)
    return outcome if outcome.startswith("media.") else "read"


def read_damaged_pdf(chance: random.Random) -> str:
    data = test_fuzz_office.scarred(chance.choice(PDFS), chance)
    try:
        render(data, inspect(data, "a.pdf").media, Text())
    except MediaError as error:
        return error.code
    return "read"


PDFS = [made_pdfs.chromium_report().read_bytes(), made_pdfs.ghostscript_book(12).read_bytes()]
READERS: dict[str, Callable[[random.Random], str]] = {
    "sniffer": sniff_damaged,
    "headers": read_damaged_header,
    "images": render_damaged_image,
    "office": read_damaged_office,
    "PDFs": read_damaged_pdf,
}


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in READERS}
    slowest = (0.0, "")
    broken: list[str] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, read in READERS.items():
            began = time.monotonic()
            try:
                outcomes[name][read(random.Random(f"{name} {seed}"))] += 1
            except Exception:  # noqa: BLE001 - the fuzzer searches for failures of any kind
                broken.append(f"{name} {seed}\n{traceback.format_exc(limit=-6)}")
            taken = time.monotonic() - began
            slowest = max(slowest, (taken, f"{name} {seed}"))
            if taken > ALLOWED_SECONDS:
                broken.append(f"{name} {seed} took {taken:.1f} s")
        seed += 1
    for name, found in outcomes.items():
        counts = ", ".join(f"{outcome} {count}" for outcome, count in found.most_common())
        print(f"{name:10} {found.total():7} files: {counts}")
    print(f"the slowest took {slowest[0]:.2f} s ({slowest[1]}); peak memory {peak_mb():.0f} MB")
    finish(broken)


if __name__ == "__main__":
    main()
