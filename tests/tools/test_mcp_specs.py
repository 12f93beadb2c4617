"""`.mcp.json`: which servers a project asks for, and when they may be started."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom.config.mcp_files import foreign_servers, project_servers
from loom.config.trust import TrustRecords, file_kinds
from loom.errors import ConfigError
from loom.tools.mcp.specs import ServerSpec
from loom.tools.workspace import starts_programs


def below(trusted: Path) -> Callable[[Path], bool]:
    return lambda folder: folder.is_relative_to(trusted.resolve())


def written(folder: Path, content: Any) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / ".mcp.json").write_text(text)
    return folder


def test_programs_and_addresses_are_read_in_a_trusted_folder(tmp_path: Path) -> None:
    servers = {
        "files": {"command": "npx", "args": ["-y", "server", "${ROOT:-/tmp}"], "env": {"TOKEN": "${MY_TOKEN}"}},
        "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${MY_TOKEN}"}},
        "off": {"command": "never", "disabled": True},
    }
    found = project_servers(written(tmp_path, {"mcpServers": servers}), below(tmp_path), {"MY_TOKEN": "t0ken"})
    assert found.warnings == ()
    assert found.specs == (
        ServerSpec(
            name="files",
            command="npx",
            args=("-y", "server", "/tmp"),
            env={"TOKEN": "t0ken"},
            folder=tmp_path.resolve(),
        ),
        ServerSpec(
            name="web",
            url="https://example.com/mcp",
            headers={"Authorization": "Bearer t0ken"},
            folder=tmp_path.resolve(),
        ),
    )
    assert "t0ken" not in repr(found.specs)


def test_numbers_switches_and_variables_of_other_editors_are_read_as_they_mean_it(tmp_path: Path) -> None:
    server = {"command": "serve", "args": ["--port", 8080, True], "env": {"LEVEL": 2, "KEY": "${env:MY_TOKEN}"}}
    found = project_servers(written(tmp_path, {"mcpServers": {"own": server}}), below(tmp_path), {"MY_TOKEN": "t0ken"})
    assert found.warnings == ()
    (spec,) = found.specs
    assert spec.args == ("--port", "8080", "true")
    assert spec.env == {"LEVEL": "2", "KEY": "t0ken"}


@pytest.mark.parametrize("server", [{}, {"command": "serve", "url": "https://example.com/mcp"}])
def test_a_server_has_a_command_or_a_url_and_not_both(tmp_path: Path, server: dict[str, str]) -> None:
    found = project_servers(written(tmp_path, {"mcpServers": {"odd": server}}), below(tmp_path))
    assert found.specs == ()
    assert "odd: it needs either a command or a url" in found.warnings[0]


def test_in_a_folder_that_is_not_trusted_nothing_is_started_and_the_user_is_told_how_to_allow_it(
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    found = project_servers(written(project, {"mcpServers": {"evil": {"command": "rm"}}}), below(tmp_path / "other"))
    assert found.specs == ()
    (warning,) = found.warnings
    assert warning.startswith(".mcp.json: not started: evil: this folder is not trusted.")
    assert str(project) in warning


def test_a_link_into_a_trusted_folder_does_not_make_its_own_folder_trusted(tmp_path: Path) -> None:
    trusted, project = tmp_path / "trusted", tmp_path / "project"
    trusted.mkdir()
    project.mkdir()
    (trusted / "link").symlink_to(project)
    written(project, {"mcpServers": {"evil": {"command": "rm"}}})
    assert project_servers(trusted / "link", below(trusted)).specs == ()


def test_the_key_of_another_editor_is_read_with_a_warning(tmp_path: Path) -> None:
    found = project_servers(written(tmp_path, {"servers": {"a": {"command": "x"}}}), below(tmp_path))
    assert [spec.name for spec in found.specs] == ["a"]
    assert found.warnings == (
        '.mcp.json: the key "servers" belongs to another editor\'s file; here it is "mcpServers"',
    )


def test_the_file_is_looked_for_up_to_the_root_of_the_repository_and_no_further(tmp_path: Path) -> None:
    written(tmp_path, {"mcpServers": {"outer": {"command": "x"}}})
    inner = tmp_path / "repository" / "src"
    inner.mkdir(parents=True)
    assert project_servers(inner, below(tmp_path)).specs == ()
    (tmp_path / "repository" / ".git").mkdir()
    assert project_servers(inner, below(tmp_path)).specs == ()
    written(tmp_path / "repository", {"mcpServers": {"own": {"command": "x"}}})
    assert [spec.name for spec in project_servers(inner, below(tmp_path)).specs] == ["own"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{not json", "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ("[" * 100_000, "is not a JSON object"),
        (" " * 200_000, "is over 100000 bytes"),
        ({"mcpServers": []}, "mcpServers is not an object"),
        ({"mcpServers": {"a": {}}}, "it needs either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "url": "http://y"}}}, "either a command or a url"),
        ({"mcpServers": {"a": {"command": 3}}}, "Expected `str`, got `int`"),
        ({"mcpServers": {"a": {"command": "${NO_SUCH}"}}}, "the environment variable NO_SUCH is not set"),
        ({"mcpServers": {"a": {"type": "sse", "url": "http://y"}}}, "servers of type 'sse' are not supported"),
    ],
)
def test_what_is_wrong_in_it_is_a_warning_and_the_rest_counts(tmp_path: Path, content: Any, said: str) -> None:
    if isinstance(content, dict) and isinstance(content["mcpServers"], dict):
        content["mcpServers"]["good"] = {"command": "x"}
    found = project_servers(written(tmp_path, content), below(tmp_path), {})
    (warning,) = found.warnings
    assert said in warning
    assert [spec.name for spec in found.specs] == (["good"] if "good" in str(content) else [])


def test_no_file_no_servers(tmp_path: Path) -> None:
    assert project_servers(tmp_path, below(tmp_path)).specs == ()


def test_a_server_needs_either_a_program_or_an_address() -> None:
    with pytest.raises(ConfigError, match="either a command or a url"):
        ServerSpec(name="x")


VSCODE = """{
  // as the editor writes it
  "inputs": [{"type": "promptString", "id": "key", "password": true}],
  "servers": {
    "files": {"type": "stdio", "command": "${workspaceFolder}/serve", "env": {"TOKEN": "${env:MY_TOKEN}"},},
    "both": {"command": "editor"},
    "asks": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${input:key}"}},
    "reads": {"command": "x", "envFile": "${workspaceFolder}/.env"},
  },
}"""


def test_the_file_of_vs_code_is_read_beside_the_other_under_the_same_rules(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "mcp.json").write_text(VSCODE)
    written(tmp_path, {"mcpServers": {"both": {"command": "own"}}})
    inner = tmp_path / "src"
    inner.mkdir()
    (tmp_path / ".git").mkdir()

    refused = project_servers(inner, below(tmp_path / "other"))
    assert refused.specs == ()
    assert [warning.partition(":")[0] for warning in refused.warnings] == [".mcp.json", ".vscode/mcp.json"]
    assert all("not trusted" in warning for warning in refused.warnings)

    found = project_servers(inner, below(tmp_path), {"MY_TOKEN": "t0ken"})
    specs = {spec.name: spec for spec in found.specs}
    assert specs.keys() == {"files", "both"}
    assert specs["files"].command == f"{tmp_path.resolve()}/serve"
    assert specs["files"].env == {"TOKEN": "t0ken"}
    assert specs["both"].command == "own"
    assert found.files == {"files": ".vscode/mcp.json", "both": ".mcp.json"}
    assert len(found.warnings) == 2
    assert "asks: ${input:key} is not supported" in found.warnings[0]
    assert "envFile is not supported" in found.warnings[1]

    imported, problems = foreign_servers(tmp_path / ".vscode" / "mcp.json")
    assert imported["files"] == {"command": f"{tmp_path.resolve()}/serve", "env": {"TOKEN": "{env:MY_TOKEN}"}}
    assert len(problems) == 2


def test_the_file_of_vs_code_counts_for_the_trust_in_a_folder_and_is_protected(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    file = tmp_path / ".vscode" / "mcp.json"
    file.write_text(VSCODE)
    files = TrustRecords(tmp_path / "own").files(tmp_path)
    assert files == (file,)
    assert file_kinds(files) == ("MCP servers",)
    assert starts_programs(file)
