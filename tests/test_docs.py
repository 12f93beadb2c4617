"""The documents are complete, their pointers lead somewhere, and the source keeps promises that a reader can check."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from loom import errors, events
from source_trees import FILES, ONE_PROCESS, nodes_of, tree_of

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "tests").glob("*.md")])


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# What is promised, and the test that shows it ------------------------------------------------------------------------

SECTIONS = {
    "A": range(1, 14),
    "B": range(14, 23),
    "C": range(23, 36),
    "D": range(36, 48),
    "E": range(48, 61),
    "F": range(61, 66),
    "G": range(66, 70),
    "H": range(70, 78),
    "I": range(78, 87),
    "J": range(87, 94),
    "K": range(94, 108),
    "L": range(108, 117),
    "M": range(117, 125),
    "N": range(125, 130),
    "O": range(130, 136),
    "P": (136, 137, 138, 139, 140, 141),
    "Q": range(142, 154),
    "R": range(159, 160),
    "S": range(160, 164),
}
EXPECTED = {
    **{section: [str(number) for number in numbers] for section, numbers in SECTIONS.items()},
    "Pains": [str(number) for number in range(1, 41)],
    "Hardening": [str(number) for number in range(1, 48)],
    "Faults": [f"F{number}" for number in range(1, 18)],
}
STATUS = re.compile(r"yes|partly: \S.{3,}|not yet")


@cache
def promises() -> dict[str, list[list[str]]]:
    """Section → the cells of its rows: number, promise, status, tests."""
    found: dict[str, list[list[str]]] = {}
    section = ""
    for line in (ROOT / "docs" / "features.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = re.split(r"[. ]", line.removeprefix("## "))[0]
        elif re.match(r"\| F?\d", line):
            found.setdefault(section, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def pointers(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def functions_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


@pytest.mark.parametrize("section", EXPECTED)
def test_every_promise_pain_attack_and_fault_has_its_row_once_and_in_order(section: str) -> None:
    rows = promises()[section]
    assert [row[0] for row in rows] == EXPECTED[section]
    assert [row for row in rows if len(row) != 4] == []
    assert [row[0] for row in rows if not row[1] or not STATUS.fullmatch(row[2])] == []


def test_what_is_there_has_a_test_and_what_is_not_there_claims_none() -> None:
    rows = [row for found in promises().values() for row in found]
    assert [row[0] for row in rows if (row[2] == "not yet") == bool(pointers(row[3]))] == []
    assert [row[0] for row in rows if len(pointers(row[3])) > 3] == []


def test_every_pointer_names_a_test_that_exists() -> None:
    lost: list[str] = []
    for found in promises().values():
        for number, _, _, cell in found:
            for pointer in pointers(cell):
                file, _, name = pointer.partition("::")
                if not (ROOT / file).is_file() or name.partition("[")[0] not in functions_in(file):
                    lost.append(f"{number}: {pointer}")
    assert lost == []


# Pages ---------------------------------------------------------------------------------------------------------------


def prose(page: Path) -> str:
    """Without code, which may hold anything."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names under which headings can be linked to, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings)


def test_every_row_of_the_edit_matrix_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "edits.md").read_text(encoding="utf-8")
    found = re.findall(r"`(tests/[\w/.]+)::(\w+)`", page)
    assert len(found) >= 10
    for file, name in found:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"


def test_every_link_inside_the_repository_leads_somewhere() -> None:
    broken: list[str] = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            there = (page.parent / file).resolve() if file else page
            if not there.exists() or (anchor and anchor not in anchors(there)):
                broken.append(f"{relative(page)}: {target}")
    assert broken == []


def test_every_page_can_be_reached_from_the_first_one() -> None:
    found, left = set[Path](), [ROOT / "README.md"]
    while left:
        page = left.pop()
        found.add(page)
        targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", prose(page))]
        places = [(page.parent / target).resolve() for target in targets if target and ":" not in target]
        pages = [below for place in places for below in (place.glob("*.md") if place.is_dir() else [place])]
        left += [below for below in pages if below.suffix == ".md" and below.exists() and below not in found]
    assert sorted(relative(page) for page in (ROOT / "docs").rglob("*.md") if page not in found) == []


def test_every_file_that_a_page_names_is_there() -> None:
    """Those whose path begins with a folder of the repository or with a room; in code they may be examples."""
    rooms = [folder.name for folder in (ROOT / "src" / "loom").iterdir() if folder.is_dir()]
    known = re.compile(rf"`((?:src|tests|docs|examples|benchmarks|{'|'.join(rooms)})/[\w./-]*(?:/|\.\w+))(?:::\w+)?`")
    homes = (ROOT, ROOT / "src" / "loom", ROOT / "tests")
    named = [(page, name) for page in PAGES for name in known.findall(page.read_text("utf-8"))]
    assert len(named) > 200
    lost = {f"{relative(page)}: {name}" for page, name in named if not any((home / name).exists() for home in homes)}
    assert sorted(lost) == []


def test_every_error_and_every_event_has_its_heading() -> None:
    found = [value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, errors.LoomError)]
    assert {error.__name__.lower() for error in found} <= anchors(ROOT / "docs" / "errors.md")
    assert {event.__name__.lower() for event in get_args(events.Event)} <= anchors(ROOT / "docs" / "events.md")


@ONE_PROCESS
def test_every_code_with_which_a_turn_may_end_is_explained() -> None:
    constants = [node.value for file in FILES for node in nodes_of(file) if isinstance(node, ast.Constant)]
    codes = {value for value in constants if isinstance(value, str) and re.fullmatch(r"turn\.[a-z_]+", value)}
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert "turn.limit" in codes
    assert [code for code in sorted(codes) if f"| `{code}` |" not in page] == []


def generate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "docs.generate", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", ["errors.md", "events.md", "formats.md"])
def test_a_generated_page_says_what_the_code_says(page: str) -> None:
    checked = generate(ROOT, "--check", page)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_an_outdated_page_is_told_by_a_check_and_mended_without_one(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    page = tmp_path / "docs" / "errors.md"
    page.write_text(page.read_text("utf-8").replace("### Encrypted", "### Locked"), "utf-8")

    checked = generate(tmp_path, "--check", "errors.md", "events.md")
    assert (checked.returncode, checked.stdout) == (1, "docs/errors.md is out of date: run make docs\n")
    written = generate(tmp_path, "errors.md", "events.md")
    assert (written.returncode, written.stdout) == (0, "docs/errors.md updated\n")

    assert page.read_bytes() == (ROOT / "docs" / "errors.md").read_bytes()
    assert generate(tmp_path, "flow.md").returncode == 2


# The source ----------------------------------------------------------------------------------------------------------


@ONE_PROCESS
def test_no_class_has_a_name_that_says_nothing() -> None:
    """The glossary is normative: a name says what a thing is."""
    empty = ("Manager", "Handler", "Helper", "Helpers", "Processor", "Info", "Util", "Utils")
    classes = [(file, node.name) for file in FILES for node in nodes_of(file) if isinstance(node, ast.ClassDef)]
    assert [f"{relative(file)}: {name}" for file, name in classes if name.endswith(empty)] == []
    assert [relative(file) for file in FILES if file.stem.strip("_") in {"utils", "util", "helpers", "misc"}] == []


def dangers(tree: ast.Module) -> Iterator[str]:
    """Everything that could turn stored data into running code."""
    modules = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "jsonpickle"}
    loaders = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name.partition(".")[0] in modules)
            case ast.ImportFrom(module=str(module), names=names):
                yield from ([module] if module.partition(".")[0] in modules else [])
                yield from (f"yaml.{name.name}" for name in names if module == "yaml" and name.name in loaders)
            case ast.Call(func=ast.Name(id=("eval" | "exec" | "compile" | "__import__") as name)):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id="yaml"), attr=attribute)) if attribute in loaders:
                yield f"yaml.{attribute}"
            case _:
                pass


@ONE_PROCESS
def test_nothing_that_is_stored_can_become_code() -> None:
    assert [f"{relative(file)}: {found}" for file in FILES for found in dangers(tree_of(file))] == []
    hostile = "import pickle\nfrom yaml import unsafe_load\nimport yaml\nyaml.load(x)\neval(x)\n"
    assert sorted(dangers(ast.parse(hostile))) == ["eval", "pickle", "yaml.load", "yaml.unsafe_load"]


WATCHED_TURN = """
import asyncio, os, sys

def watch(event, given):
    if event == "pickle.find_class":
        os.write(2, f"unpickled {given}".encode())
        os._exit(9)

sys.addaudithook(watch)
from loom.testing import memory_runtime, sample_pdf, sample_png, sample_wav

async def main():
    async with memory_runtime() as runtime:
        session = await runtime.session(model="loom/spark")
        await session.send(sys.argv[1], sample_png(), sample_pdf("one", "two"), sample_wav())
        path = await (await runtime.session(session.id)).path()
        print(path[0].text)

asyncio.run(main())
"""


def test_no_turn_ever_unpickles_anything() -> None:
    """Watched from inside, in a process of its own; what looks like an order to load something stays words."""
    words = '{"lc":1,"type":"secret","__reduce__":["os.system",["id"]]}'
    done = subprocess.run(
        [sys.executable, "-c", WATCHED_TURN, words], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert words in done.stdout


MACHINE = re.compile(r"(?<![\w~.}\-/])/(?:(?:work|root)/|home/(?!a/)\w+/)[\w.]|(?<![\w.])[A-Z]:\\Users\\(?!me\b)")
"""What lies in folders of somebody's machine. `/home/a/` is the home of nobody, for examples."""


def test_no_committed_file_names_a_folder_of_somebodys_machine() -> None:
    kinds = ("*.md", "*.py", "*.toml", "*.sql", "*.sh", "*.json")
    folders = ("src", "docs", "tests", "examples", "benchmarks")
    files = [file for folder in folders for kind in kinds for file in (ROOT / folder).rglob(kind)]
    files += [
        file for file in ROOT.iterdir() if file.suffix in {".md", ".toml"} or file.name in {"Makefile", "LICENSE"}
    ]
    named = {
        f"{relative(file)}: {found[0]}"
        for file in files
        if "node_modules" not in file.parts and file != Path(__file__).resolve()
        for found in MACHINE.finditer(file.read_text("utf-8"))
    }
    assert sorted(named) == []
