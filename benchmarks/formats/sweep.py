"""Send every readable file of a machine through intake: none may crash, hang or fail without a typed error.

    python -m benchmarks.formats.sweep [folder ...]

Each file is inspected and rendered in the form that a model gets first. Printed are the categories and error codes of
the files, the slowest ones, and every violation; the exit code is 1 if there is one.
"""

from __future__ import annotations

import os
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from loom.content.recipes import Low, Recipe, Text, Thumb
from loom.errors import LoomError
from loom.formats import inspect, render
from loom.formats.facts import Inspection, IntakeLimits
from loom.formats.sniff.kinds import SVG

FOLDERS: Final = ("/usr/share", "/usr/lib/python3", "/usr/lib/libreoffice")
LARGEST_BYTES: Final = 20_000_000
LIMITS: Final = IntakeLimits()
ALLOWED_SECONDS: Final = 4 * LIMITS.deadline_seconds
"""The worker's deadline times the calls per file; conversions by LibreOffice have a longer deadline."""
SLOWEST: Final = 8
INTERNALS: Final = ("/tmp/", " at 0x", "Traceback")


def files(folders: tuple[str, ...]) -> Iterator[Path]:
    """Yield readable regular files, each once even if it has several links."""
    seen: set[tuple[int, int]] = set()
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in sorted(names):
                path = Path(place) / name
                try:
                    facts = path.lstat()
                except OSError:
                    continue
                key = facts.st_dev, facts.st_ino
                is_wanted = path.is_file() and not path.is_symlink() and facts.st_size <= LARGEST_BYTES
                if is_wanted and key not in seen and os.access(path, os.R_OK):
                    seen.add(key)
                    yield path


def first_forms(inspection: Inspection) -> tuple[Recipe, ...]:
    match inspection.category:
        case "image":
            return Low(), Thumb()
        case "pdf":
            return Text("1-20"), Thumb()
        case "office" | "text":
            return (Text(), Thumb()) if inspection.media.media_type == SVG else (Text(),)
        case "audio" | "unsupported":
            return ()


def intake_outcome(data: bytes, name: str) -> str:
    """Inspect and render a file; return its category, or the code of the error."""
    try:
        inspection = inspect(data, name, LIMITS)
        for recipe in first_forms(inspection):
            render(data, inspection.media, recipe, LIMITS)
    except LoomError as error:
        message = str(error)
        if any(hint in message for hint in INTERNALS):
            raise AssertionError(f"an error that reveals internals: {message}") from error
        return error.code
    return inspection.category


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def finish(broken: list[str]) -> NoReturn:
    """Print all violations, and exit with 1 if there are any."""
    print(f"{len(broken)} crashes, overruns or untyped failures")
    print("\n".join(broken))
    raise SystemExit(bool(broken))


def main() -> None:
    folders = tuple(sys.argv[1:]) or FOLDERS
    outcomes: Counter[str] = Counter()
    broken: list[str] = []
    times: list[tuple[float, str]] = []
    began = time.monotonic()
    for path in files(folders):
        data = path.read_bytes()
        started = time.monotonic()
        try:
            outcomes[intake_outcome(data, path.name)] += 1
        except Exception:  # noqa: BLE001 - the sweep searches for crashes of any kind
            broken.append(f"{path}\n{traceback.format_exc(limit=-6)}")
        taken = time.monotonic() - started
        if taken > ALLOWED_SECONDS:
            broken.append(f"{path} took {taken:.1f} s")
        times.append((taken, str(path)))
    print(f"{len(times)} files in {time.monotonic() - began:.0f} s")
    for outcome, count in outcomes.most_common():
        print(f"  {outcome:24} {count:7}")
    print(f"peak memory {peak_mb():.0f} MB; the slowest:")
    for taken, name in sorted(times, reverse=True)[:SLOWEST]:
        print(f"  {taken:7.2f} s  {name}")
    finish(broken)


if __name__ == "__main__":
    main()
