"""Our reading of `.gitignore` against git's own."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from loom.tools.file_walk import Walk
from loom.tools.ignore import glob_pattern, is_ignored, parse_ignore
from loom.tools.workspace import open_folder

QUIET = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run(["git", *arguments], cwd=folder, input=given, check=False, capture_output=True, env=QUIET)
    return done.stdout


def ignored_by_git(folder: Path) -> set[str]:
    paths = [
        os.path.relpath(Path(above) / name, folder)
        for above, folders, files in os.walk(folder)
        for name in (*folders, *files)
        if ".git" not in Path(above).parts and name != ".git"
    ]
    given = b"".join(os.fsencode(path) + b"\0" for path in paths)
    return {
        os.fsdecode(path) for path in git(folder, "check-ignore", "-z", "--stdin", given=given).split(b"\0") if path
    }


def ignored_by_us(folder: Path) -> set[str]:
    """Everything below that the walk leaves out."""
    with open_folder(folder, ".") as opened:
        shown = {entry.path for entry in Walk(opened)}
    return {
        os.path.relpath(Path(above) / name, folder)
        for above, folders, files in os.walk(folder)
        for name in (*folders, *files)
        if ".git" not in Path(above).parts and name != ".git"
    } - shown


def plant(folder: Path, *paths: str) -> None:
    git(folder, "init", "-q")
    for path in paths:
        target = folder / path
        if path.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("x")


def test_nested_files_negations_and_the_exclude_file_mean_what_git_means(tmp_path: Path) -> None:
    plant(
        tmp_path,
        *("a.log", "keep.log", "src/a.log", "src/deep/keep.log", "build/out.o", "src/build/x", "docs/build.md"),
        *("node_modules/p/index.js", "lib/node_modules/x.js", "tmp/a", "tmp/keep", "deep/tmp/keep", "secret.txt"),
        *("a b.txt", "trailing ", "#hash", "!bang", "x/y/z/w.txt", "x/w.txt", "x/q/w.md", "empty/", "Ärger.log"),
    )
    (tmp_path / ".gitignore").write_text(
        "*.log\n!keep.log\n/build/\nnode_modules/\n/tmp/*\n!/tmp/keep\n\\#hash\n\\!bang\ntrailing\\ \n"
        "x/**/w.txt\n**/empty/\r\n# a comment\n\n   \n[Ää]rger.md\n"
    )
    (tmp_path / "src" / ".gitignore").write_text("!a.log\nbuild\n")
    (tmp_path / "deep" / ".gitignore").write_text("/tmp\n!keep\n")
    (tmp_path / ".git" / "info").mkdir(exist_ok=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("secret.txt\n")
    found = ignored_by_us(tmp_path)
    assert found == ignored_by_git(tmp_path)
    assert {"a.log", "secret.txt", "trailing ", "x/w.txt", "tmp/a"} <= found
    assert not {"keep.log", "src/a.log", "docs/build.md", "tmp/keep"} & found


ATOMS = ["a", "b", "ab", "*", "?", "[ab]", "[!a]", "[^b]", "[]a]", "[a-c]", "[[:alpha:]]", "[[:digit:]]", "\\*", "\\"]
ATOMS += ["/", "/", "/", "**/", "/**", "/**/", " ", "\\ ", "!", "#", ".", "c", "-", "[a-]", "[\\]a]", "é", "[--a]", "["]
NAMES = ["a", "b", "ab", "abc", "c", "*", "a b", "a ", "[", "]", "-", "#a", "!a", ".a", "é", "\\", "a*", "ba", "1"]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_stands_in_the_file_it_means_what_git_means(tmp_path: Path, seed: int) -> None:
    rnd = random.Random(seed)

    def line() -> str:
        while True:
            text = "".join(rnd.choice(ATOMS) for _ in range(rnd.randint(1, 5)))
            # left out: `//`, a slash in brackets and `**` glued to other characters, which git itself reads oddly
            if not re.search(r"//|\[[^]]*/|[^/]\*\*|\*\*[^/]|\*{3}", text):
                return text

    git(tmp_path, "init", "-q")
    for _ in range(40):
        path = tmp_path.joinpath(*(rnd.choice(NAMES) for _ in range(rnd.randint(1, 4))))
        if any(above.is_file() for above in (path, *path.parents)):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if rnd.random() < 0.3:
            path.mkdir(exist_ok=True)
        elif not path.exists():
            path.write_text("")
    (tmp_path / ".gitignore").write_text("\n".join(line() for _ in range(rnd.randint(1, 4))) + "\n")
    assert ignored_by_us(tmp_path) == ignored_by_git(tmp_path), (tmp_path / ".gitignore").read_text()


def test_a_pattern_full_of_stars_is_matched_at_once() -> None:
    rules = ((0, parse_ignore(b"*a*a*a*a*a*a*a*a*a*a*a*a*a*b\n" + b"**/a/" * 30 + b"b\n")),)
    assert not is_ignored(rules, ["a" * 255], is_folder=False)
    assert not is_ignored(rules, ["a"] * 60, is_folder=False)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "src/a/b.py", True),
        ("src/**/*.py", "src/a/b.py", True),
        ("src/**/*.py", "src/b.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("./src/*.py", "src/b.py", True),
        ("*.PY", "a.py", False),
        ("test_?.py", "x/test_1.py", True),
    ],
)
def test_globs_of_models_are_read_the_same_way(pattern: str, path: str, matches: bool) -> None:
    assert glob_pattern(pattern).matches(path.split("/"), is_folder=False) is matches
