"""Regenerate the pages that are made from the code: `make docs`, or `python -m docs.generate [--check] [PAGE …]`.

`--check` writes nothing and lists the pages that are out of date. Names of pages limit both.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from docs import error_page, event_page, library_reference, option_page
from loom.cli import reference as cli_reference
from loom.config import reference as config_reference
from loom.tools import reference as tools_reference

_DOCS: Final = Path(__file__).resolve().parent


def _config(page: str) -> str:
    """Return the updated page. `update_page` needs a file."""
    with TemporaryDirectory() as folder:
        copy = Path(folder, "config.md")
        copy.write_text(page, "utf-8")
        config_reference.update_page(copy)
        return copy.read_text("utf-8")


def _fallback_matrix(_: str) -> str:
    """Return the page of the matrix. It is test data, run from its file because `tests` is not a package."""
    return str(runpy.run_path(str(_DOCS.parent / "tests" / "compile" / "matrix.py"))["page"]())


def _formats(_: str) -> str:
    """Return the page of the formats, imported late because it reads sample files of the benchmarks."""
    from docs import format_page

    return format_page.page()


PAGES: Final[dict[str, Callable[[str], str]]] = {
    "cli.md": cli_reference.update_page,
    "config.md": _config,
    "errors.md": lambda _: error_page.page(),
    "events.md": lambda _: event_page.page(),
    "fallback-matrix.md": _fallback_matrix,
    "formats.md": _formats,
    "options.md": lambda _: option_page.page(),
    "reference.md": lambda _: library_reference.page(),
    "tools.md": lambda _: tools_reference.reference(),
}
"""Each function takes the current page and returns the new one."""


def main(arguments: list[str]) -> int:
    only_check = "--check" in arguments
    names = [name for name in arguments if name != "--check"] or list(PAGES)
    unknown = [name for name in names if name not in PAGES]
    if unknown:
        sys.stderr.write(f"Not a generated page: {', '.join(unknown)}. Generated pages: {', '.join(PAGES)}\n")
        return 2
    stale = [name for name in names if _renew(name, only_check=only_check)]
    for name in stale:
        sys.stdout.write(f"docs/{name} {'is out of date: run make docs' if only_check else 'updated'}\n")
    return 1 if stale and only_check else 0


def _renew(name: str, *, only_check: bool) -> bool:
    """Write the page, unless `only_check`; return whether it was out of date."""
    file = _DOCS / name
    before = file.read_text("utf-8") if file.exists() else ""
    after = PAGES[name](before)
    if after == before:
        return False
    if not only_check:
        file.write_text(after, "utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
