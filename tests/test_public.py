"""The public surface, the rooms' promises about imports, and the error tree."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import loom
from loom import errors, events
from public_signatures import signature_lines

SIGNATURES = Path(__file__).with_name("public_signatures.txt")


def test_every_public_name_is_sorted_and_there() -> None:
    assert sorted(loom.__all__) == loom.__all__ == dir(loom)
    assert all(getattr(loom, name) is not None for name in loom.__all__)


def test_every_public_name_describes_itself() -> None:
    """Without a docstring of its own, a class has that of its base, and the reference would print it."""
    public = {name: getattr(loom, name) for name in loom.__all__}
    described = {name: value.__doc__ for name, value in public.items() if inspect.isclass(value) or callable(value)}
    assert [name for name, text in described.items() if not text] == []


def test_the_signatures_of_the_library_are_these() -> None:
    """Changed on purpose? LOOM_WRITE_GOLDEN=1 writes them anew, and the change belongs into the change log."""
    text = "\n".join(signature_lines()) + "\n"
    if os.environ.get("LOOM_WRITE_GOLDEN"):
        SIGNATURES.write_text(text)
    assert text == SIGNATURES.read_text()


def test_importing_loom_pulls_in_nothing_beyond_the_standard_library() -> None:
    """msgspec comes with the first value, everything else with the first use."""
    code = (
        "import sys, json; before = set(sys.modules); import loom; loom.Message; loom.TextBlock;"
        "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before})))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    foreign = {name for name in loaded if name not in sys.stdlib_module_names and not name.startswith("_")}
    assert foreign - {"typing_extensions"} == {"loom", "msgspec"}  # msgspec takes typing_extensions where it is


def test_every_error_has_a_code_of_its_own_and_is_drawn_in_the_tree() -> None:
    tree = errors.__doc__ or ""
    classes = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, errors.LoomError)]
    codes = [found.code for found in classes]
    assert len(set(codes)) == len(codes)
    assert [found.__name__ for found in classes if found.__name__ not in tree] == []


def test_an_error_says_what_happened_and_what_to_do() -> None:
    error = errors.ConfigError("expected a number", file="loom.toml", key="server.port", hint="Write 5666.")
    assert str(error) == "loom.toml: server.port: expected a number. Write 5666."


def test_every_event_has_a_literal_type_that_is_its_tag() -> None:
    for event in get_args(events.Event):
        assert event.type == event.__struct_config__.tag
