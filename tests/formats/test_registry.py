"""Formats as plug-ins: one module makes a new kind of file readable everywhere, and a bad one harms nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom.content.blocks import DocumentBlock
from loom.content.recipes import Describe, EmbeddedImage, Fit, Page, Slice, Text
from loom.errors import Unsupported
from loom.formats import format_of, inspect, registry, render
from loom.formats.format import Format
from loom.formats.intake import accept
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import KINDS, category_of, label_of

WEAVE = """
import msgspec
from loom.content.recipes import Text
from loom.content.media import Media, digest_of
from loom.errors import Unreadable, Unsupported
from loom.formats.facts import Inspection, Rendered
from loom.formats.sniff.kinds import FileKind

class Weave:
    kinds = {"application/x-weave": FileKind("office", "a weaving pattern", "weave")}
    recipes = (Text,)

    def detect(self, data, name):
        return "application/x-weave" if data.startswith(b"WEAVE\\x00") else None

    def inspect(self, data, media_type, name, limits):
        if len(data) < 8:
            raise Unreadable(f"{name} is cut off.", name=name)
        media = Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data), name=name)
        return Inspection(media=media, category="office")

    def render(self, data, media, recipe, limits):
        if not isinstance(recipe, Text):
            raise Unsupported("A pattern has only text.")
        return Rendered(data=b"over, under: " + data[6:], media_type="text/plain")

FORMAT = Weave()
NOT_A_FORMAT = object()

class _Greedy(Weave):
    kinds = {"application/pdf": FileKind("pdf", "mine", "pdf")}

GREEDY = _Greedy()
"""
ENTRIES = """[loom.formats]
a_broken = weave_format:MISSING
b_wrong = weave_format:NOT_A_FORMAT
c_greedy = weave_format:GREEDY
weave = weave_format:FORMAT
"""


def install_package(folder: Path) -> None:
    """One module and the facts that `pip` writes beside it."""
    (folder / "weave_format.py").write_text(WEAVE)
    facts = folder / "weave_format-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: weave-format\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRIES)


@pytest.fixture
def _a_package_with_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    registry.reload()
    yield
    sys.modules.pop("weave_format", None)
    registry.reload()


@pytest.mark.usefixtures("_a_package_with_formats")
def test_a_format_of_an_installed_package_is_recognized_taken_in_and_read():
    data = b"WEAVE\0two by two"
    assert sniff(data, "scarf.dat").media_type == "application/x-weave"
    assert (category_of("application/x-weave"), label_of("application/x-weave")) == ("office", "a weaving pattern")
    admitted = accept(data, "scarf.weave")
    assert isinstance(admitted.block, DocumentBlock) and admitted.data == data
    assert render(data, admitted.block.media, Text()).data == b"over, under: two by two"
    with pytest.raises(Unsupported, match="only text"):
        render(data, admitted.block.media, Page(1))


@pytest.mark.usefixtures("_a_package_with_formats")
def test_a_format_that_cannot_be_used_is_listed_with_its_reason_and_the_others_work():
    listed = {found.name: found for found in registry.installed_formats()}
    assert listed["weave"].problem == "" and listed["weave"].package == "weave-format"
    assert "MISSING" in listed["a_broken"].problem
    assert "is not a Format" in listed["b_wrong"].problem
    assert "application/pdf is read by another format" in listed["c_greedy"].problem
    assert inspect(b"just words", "a.txt").category == "text"


def test_without_the_package_its_files_are_unknown():
    with pytest.raises(Unsupported):
        inspect(b"WEAVE\0two by two\xff\xfe\x00\x01", "scarf.weave")


def test_every_kind_that_has_a_category_has_a_format_that_says_what_it_carries_out():
    for media_type, kind in KINDS.items():
        found = format_of(media_type)
        if kind.category == "unsupported":
            assert found is None, media_type
            continue
        assert isinstance(found, Format), media_type
        assert media_type in found.kinds or kind.category == "text", media_type


def test_a_recipe_that_makes_no_sense_for_a_file_is_refused_in_words():
    media = inspect(b"just words", "a.txt").media
    for recipe in (Fit(), Page(1), Slice("1"), EmbeddedImage(1), Describe("m")):
        with pytest.raises(Unsupported, match=r"a\.txt is plain text and cannot be"):
            render(b"just words", media, recipe)


def test_one_module_makes_a_file_readable_in_every_stage(tmp_path: Path) -> None:
    """`loom read`, a question, the receipt and the body that a model would get."""
    install_package(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    (work / "scarf.weave").write_bytes(b"WEAVE\0two by two")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = os.environ | {"PYTHONPATH": path, "HOME": str(tmp_path), "LOOM_HOME": str(tmp_path / "home")}

    def loom(*words: str) -> str:
        command = [str(Path(sys.executable).with_name("loom")), *words]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    read = loom("read", "scarf.weave")
    assert "[document: scarf.weave, 16 bytes]" in read and "over, under: two by two" in read
    assert "over, under: two by two" in loom("-m", "loom/spark", "What does it say?", "scarf.weave")
    sent = loom("wire", "-m", "ollama/llama3.2")
    body = json.loads(sent.splitlines()[0])
    assert "over, under: two by two" in str(body["request"])
    assert "scarf.weave" in str(body["receipt"])
