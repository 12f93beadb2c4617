"""Servers from the configuration of other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.loom_command import Loom
from loom.config import load_config
from loom.config.mcp_files import foreign_files, foreign_servers
from loom.errors import ConfigError

DESKTOP = """{"mcpServers": {"files": {"command": "npx", "args": ["-y", "server", "."], "env": {"A": "${TOKEN}"}},
 "old": {"type": "sse", "url": "https://example.org/sse"}, "odd": 3}, "other": true}"""
EDITOR = """{
  // comments and trailing commas are usual here
  "servers": {
    "search": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${env:KEY}"},},
    "off": {"command": "x", "disabled": true},
  },
}"""


def test_the_files_of_other_programs_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(DESKTOP)
    entries, problems = foreign_servers(file)
    assert entries == {"files": {"command": "npx", "args": ["-y", "server", "."], "env": {"A": "{env:TOKEN}"}}}
    assert len(problems) == 2
    file.write_text(EDITOR)
    entries, problems = foreign_servers(file)
    assert entries["search"]["headers"] == {"Authorization": "Bearer {env:KEY}"}
    assert entries["search"]["url"] == "https://example.org/mcp"
    assert entries["off"]["enabled"] is False
    assert problems == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"mcpServers": 3}', "{}"])
def test_what_is_not_such_a_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(ConfigError):
        foreign_servers(file)


def test_the_command_adds_what_is_new(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    file = tmp_path / "desktop.json"
    file.write_text(DESKTOP)
    first = loom("mcp", "import", str(file))
    assert "files imported" in first.out
    again = loom("mcp", "import", str(file))
    assert "you have it already" in again.err
    config = load_config(cwd=loom.folder, environ={"LOOM_HOME": str(loom.home)})
    assert config.mcp.servers["files"].args == ("-y", "server", ".")
    assert foreign_files(tmp_path)[2] == tmp_path / ".claude.json"
