"""Servers from the configuration of other programs."""

from __future__ import annotations

import json
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
    assert "already exists" in again.err
    config = load_config(cwd=loom.folder, environ={"LOOM_HOME": str(loom.home)})
    assert config.mcp.servers["files"].args == ("-y", "server", ".")
    assert foreign_files(tmp_path)[2] == tmp_path / ".claude.json"


CODEX = """model = "x"
[mcp_servers.docs]
command = "npx"
args = ["-y", "docs"]
startup_timeout_sec = 20
[mcp_servers.remote]
url = "https://example.org/mcp"
bearer_token_env_var = "TOKEN"
"""
OPENCODE = """{"$schema": "x", "mcp": {"local": {"type": "local", "command": ["npx", "-y", "it"],
 "environment": {"A": "b"}, "enabled": false}, "remote": {"type": "remote", "url": "https://example.org/mcp"}}}"""


def test_the_files_of_codex_and_opencode_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CODEX)
    (tmp_path / "opencode.json").write_text(OPENCODE)
    assert foreign_servers(tmp_path / "config.toml") == (
        {
            "docs": {"command": "npx", "args": ["-y", "docs"]},
            "remote": {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer {env:TOKEN}"}},
        },
        [],
    )
    assert foreign_servers(tmp_path / "opencode.json") == (
        {
            "local": {"command": "npx", "args": ["-y", "it"], "env": {"A": "b"}, "enabled": False},
            "remote": {"url": "https://example.org/mcp"},
        },
        [],
    )
    (tmp_path / "config.toml").write_text("not toml")
    with pytest.raises(ConfigError, match="is not a TOML file"):
        foreign_servers(tmp_path / "config.toml")


REFERENCES = (
    "${input:token}",
    "${A:-b}",
    "{",
    "}",
    "{file:/etc/passwd}",
    "{env:}",
    "{x:y}",
    "${workspaceFolder}",
    "$A",
)


def test_whatever_an_imported_file_refers_to_the_configuration_stays_valid(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    servers = {
        f"{key}{number}": {"command": "x", key: [text] if key == "args" else {"A": text}}
        for key in ("args", "env")
        for number, text in enumerate(REFERENCES)
    }
    servers |= {f"url{number}": {"url": f"https://h/{text}"} for number, text in enumerate(REFERENCES)}
    servers |= {f"h{number}": {"url": "https://h", "headers": {"A": text}} for number, text in enumerate(REFERENCES)}
    file = tmp_path / "other.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    ran = loom("mcp", "import", str(file))
    listed = loom("mcp", "list")
    assert (ran.code, listed.code) == (0, 0), listed.err
    assert "env0: " in ran.err and "{input:" in ran.err
    assert len(listed.out.splitlines()) + len(ran.err.splitlines()) == len(servers)
