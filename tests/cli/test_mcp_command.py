"""`loom mcp`: servers are added, listed, checked and removed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cli.loom_command import COMMAND, Loom


def test_a_server_is_added_started_and_removed(tmp_path: Path):
    loom = Loom(tmp_path)
    (loom.home / "loom.toml").write_text("# mine\n[images]\nmax_per_message = 3\n")

    added = loom("mcp", "add", "loom", "-e", "LANG=C", "--", *COMMAND, "mcp-serve")
    broken = loom("mcp", "add", "broken", str(tmp_path / "no-such-program"))
    loom("mcp", "add", "dying", "--", "sh", "-c", "echo starting >&2; echo no module named x >&2; exit 3")
    checked = loom("mcp", "list", "--check", "--json")
    rows = {row["name"]: row for row in checked.rows}

    assert added.code == broken.code == loom("mcp", "list").code == 0 and checked.code == 1
    assert rows["loom"]["tools"] == 2 and rows["loom"]["error"] is None and rows["loom"]["target"] == sys.executable
    assert rows["broken"]["tools"] == 0 and rows["broken"]["error"]
    assert "exit code 3: no module named x" in loom("mcp", "list", "--check").out
    assert "· loom" in loom("mcp", "list").out
    assert "Remove it first" in loom("mcp", "add", "loom", "x").err
    assert loom("mcp", "remove", "loom").code == loom("mcp", "remove", "broken").code == 0
    assert loom("mcp", "remove", "dying").code == 0
    assert (loom.home / "loom.toml").read_text().strip() == "# mine\n[images]\nmax_per_message = 3"
    assert "No servers. Add one" in loom("mcp", "list").err


def test_an_address_is_added_with_headers_that_are_not_shown(tmp_path: Path):
    loom = Loom(tmp_path)

    loom("mcp", "add", "web", "https://example.org/mcp?key=hidden", "-H", "Authorization: Bearer {env:WEB_KEY}")

    assert 'Authorization = "Bearer {env:WEB_KEY}"' in (loom.home / "loom.toml").read_text()
    assert "hidden" not in loom("mcp", "list").out


def test_a_server_that_lacks_a_variable_is_left_out_and_keeps_nobody_from_asking(tmp_path: Path):
    loom = Loom(tmp_path)
    loom("mcp", "add", "web", "https://example.org/mcp", "-H", "Authorization: Bearer {env:NO_SUCH_KEY}")

    asked = loom("!echo hello")
    checked = loom("mcp", "list", "--check")

    told = "MCP server 'web' is left out"
    assert asked.code == checked.code == 0
    assert "hello" in asked.out and told in asked.err and "NO_SUCH_KEY is not set" in asked.err
    assert "· web" in checked.out and told in checked.err


def test_a_projects_servers_go_into_its_own_file_and_count_only_where_it_is_trusted(tmp_path: Path):
    loom = Loom(tmp_path)
    file = loom.file(".mcp.json", '{"other": 1, "mcpServers": {"theirs": {"command": "x"}}}')

    added = loom("mcp", "add", "--project", "ours", "--", "npx", "-y", "server")

    assert added.code == 0 and "this folder is not trusted" in added.err
    assert json.loads(file.read_text()) == {
        "other": 1,
        "mcpServers": {"theirs": {"command": "x"}, "ours": {"command": "npx", "args": ["-y", "server"]}},
    }
    (loom.home / "loom.toml").write_text(f'trusted_folders = ["{loom.folder}"]\n')
    assert {row["name"] for row in loom("mcp", "list", "--json").rows} == {"theirs", "ours"}
    assert loom("mcp", "remove", "--project", "ours").code == 0
    assert "ours" not in file.read_text() and "theirs" in file.read_text()


def test_what_cannot_be_a_server_is_refused(tmp_path: Path):
    loom = Loom(tmp_path)

    for words in (
        ["bad/name", "x"],
        ["a", "https://example.org", "-e", "A=b"],
        ["a", "https://example.org", "more"],
        ["a", "ftp://example.org"],
        ["a", "file:///etc/passwd", "more"],
        ["a", "-H", "X: y", "program"],
        ["a", "-e", "NOVALUE", "program"],
        ["a"],
    ):
        assert loom("mcp", "add", *words).code == 2, words
    assert loom("mcp", "remove", "nobody").code == loom("mcp", "remove", "--project", "nobody").code == 2
    loom.file(".mcp.json", "{not json")
    assert "is not a JSON object" in loom("mcp", "add", "--project", "a", "x").err
    assert not (loom.home / "loom.toml").exists()
