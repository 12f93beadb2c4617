"""A file that a person wrote is changed in one place and keeps every comment."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.loom_command import Loom
from loom.config.toml_files import add_table, remove_table, set_key, write_toml
from loom.errors import ConfigError

WRITTEN = """\
# My Loom.

home = "~/loom" # not the usual place

# pictures
[images]
max_per_message = 3   # few

[mcp.servers.files] # mine
command = "npx"
[mcp.servers.files.env]
A = "b"

# about the next one
[mcp.servers.web]
url = "https://example.org"
"""

VALUES = st.recursive(
    st.text() | st.integers(-(2**60), 2**60) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=80)
@given(VALUES)
def test_whatever_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, value: object):
    file = tmp_path_factory.mktemp("toml") / "x.toml"
    write_toml(file, {"x": value})
    assert tomllib.loads(file.read_text("utf-8")) == {"x": value}


def test_a_key_is_changed_where_it_stands_or_put_on_top(tmp_path: Path):
    file = tmp_path / "loom.toml"
    file.write_text(WRITTEN)

    set_key(file, "model", "spark")
    first = file.read_text()
    set_key(file, "model", 'gpt-5.5 "quoted"')

    assert first == WRITTEN.replace("# My Loom.\n\n", '# My Loom.\n\nmodel = "spark"\n\n')
    assert file.read_text() == first.replace('"spark"', '"gpt-5.5 \\"quoted\\""')


@pytest.mark.parametrize(
    "text", ["", "\n", "# only a comment\n", "[images]\nmax_per_message = 1\n", 'model = """\nlong\n"""\n[x]\n', "a=1"]
)
def test_a_key_finds_its_place_in_every_file(tmp_path: Path, text: str):
    file = tmp_path / "loom.toml"
    file.write_text(text)

    set_key(file, "model", "x")

    assert tomllib.loads(file.read_text()) == {**tomllib.loads(text), "model": "x"}
    assert all(line in file.read_text() for line in text.splitlines() if line.startswith("#"))


def test_a_table_comes_and_goes_and_nothing_else_changes(tmp_path: Path):
    file = tmp_path / "loom.toml"
    file.write_text(WRITTEN)

    add_table(file, ("mcp", "servers", "new one"), {"command": "x", "args": ["-y", "é"], "env": {"K": "v"}})
    added = tomllib.loads(file.read_text())
    remove_table(file, ("mcp", "servers", "new one"))

    assert added["mcp"]["servers"]["new one"] == {"command": "x", "args": ["-y", "é"], "env": {"K": "v"}}
    assert file.read_text().strip() == WRITTEN.strip()
    remove_table(file, ("mcp", "servers", "files"))
    assert file.read_text() == WRITTEN.replace(
        '[mcp.servers.files] # mine\ncommand = "npx"\n[mcp.servers.files.env]\nA = "b"\n\n', ""
    )


@pytest.mark.parametrize(
    "text",
    [
        'mcp = { servers = { files = { command = "x" } } }\n',
        'a = 1 # one\nmcp = { servers = { files = { command = "x" }, other = { command = "y" } } }\n',
        '[mcp.servers]\nfiles.command = "x"\nother.command = "y"\n',
    ],
)
def test_a_table_is_removed_however_it_is_written(tmp_path: Path, text: str):
    file = tmp_path / "loom.toml"
    file.write_text(text)

    remove_table(file, ("mcp", "servers", "files"))

    assert "files" not in file.read_text() and ("other" in text) == ("other" in file.read_text())
    assert ("# one" in text) == ("# one" in file.read_text())


def test_what_cannot_be_changed_safely_is_left_and_said(tmp_path: Path):
    file = tmp_path / "loom.toml"
    file.write_text(WRITTEN)

    with pytest.raises(ConfigError, match="Edit the file"):
        remove_table(file, ("mcp", "servers", "nothing"))
    assert file.read_text() == WRITTEN


def test_a_new_file_is_its_owners_alone_and_a_link_stays_a_link(tmp_path: Path):
    new, real, link = tmp_path / "new" / "loom.toml", tmp_path / "real.toml", tmp_path / "loom.toml"
    real.write_text("# kept\n")
    real.chmod(0o640)
    link.symlink_to(real)

    set_key(new, "model", "x")
    set_key(link, "model", "x")

    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o640 and "# kept" in real.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".loom-")] == []


def test_the_default_model_is_set_and_told(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")
    (loom.home / "loom.toml").write_text(WRITTEN.replace('home = "~/loom" # not the usual place\n', ""))

    ran = loom("models", "default", "gpt-5.5")

    assert ran.code == 0 and "openai-responses/gpt-5.5 is now the default model" in ran.out
    assert loom("models", "default").out == "gpt-5.5\n"
    assert "but not here: loom/spark" in loom("models", "default", "gpt-5.5", LOOM_MODEL="loom/spark").err
    assert loom("models", "default", "no-such-model").code == 2
    several = loom("models", "default", "gpt-5.5", "spark")
    assert several.code == 2 and "Expected one model" in several.err
    (loom.home / "loom.toml").rename(loom.home / "loom.yaml")
    (loom.home / "loom.yaml").write_text("images:\n  max_per_message: 3\n")
    assert "YAML" in loom("models", "default", "spark").err
