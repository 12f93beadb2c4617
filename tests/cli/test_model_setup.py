"""`loom models add` and `show`, and `--base-url`: the way to any server, without writing a configuration by hand."""

from __future__ import annotations

import json
from pathlib import Path

from cli.loom_command import Loom
from cli.model_server import model_server


def url_of(server: object) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]


def test_a_server_is_added_by_its_address_and_can_be_asked(tmp_path: Path) -> None:
    loom = Loom(tmp_path, FAR_KEY="sk-far-0123456789")
    with model_server("Hello from far.") as server:
        added = loom("models", "add", url_of(server), "--key-env", "FAR_KEY")
        assert added.code == 0, added.err
        assert "scripted: compatible/scripted" in added.out
        assert f"{url_of(server)}/v1" in added.out
        asked = loom("-m", "scripted", "hello")
        assert asked.out.strip() == "Hello from far.", asked.err
        assert server.headers[-1]["authorization"] == "Bearer sk-far-0123456789"
        again = loom("models", "add", url_of(server))
        assert "scripted-2:" in again.out
        missing = loom("models", "add", url_of(server), "other")
        assert missing.code != 0
        assert "has no model 'other'" in missing.err
        assert "scripted" in missing.err
    text = (loom.home / "loom.toml").read_text() if (loom.home / "loom.toml").exists() else ""
    assert "sk-far" not in text


def test_a_place_without_a_server_is_said(tmp_path: Path) -> None:
    result = Loom(tmp_path)("models", "add", "http://127.0.0.1:9")
    assert result.code != 0
    assert "No model server found" in result.err


def test_one_run_can_ask_a_server_by_its_address(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    with model_server("Hello from far.") as server:
        asked = loom("-m", "scripted", "--base-url", f"{url_of(server)}/v1", "hello")
        assert asked.out.strip() == "Hello from far.", asked.err
        assert server.requests[-1]["model"] == "scripted"
    refused = loom("--base-url", "http://127.0.0.1:9/v1", "hello")
    assert refused.code != 0
    assert "needs a model" in refused.err


def test_what_is_known_of_a_model_is_shown_with_its_origin(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    shown = loom("models", "show", "anthropic/claude-opus-5").out
    assert "thinking      yes           catalog" in shown
    assert "https://api.anthropic.com" in shown
    (facts,) = loom("models", "show", "anthropic/claude-opus-5", "--json").rows
    assert facts["capabilities"]["vision"] == {"value": True, "origin": "declared"}
    assert json.dumps(facts["thinking"]) == '["off", "low", "medium", "high", "xhigh", "max"]'


def test_a_mistyped_name_is_answered_with_near_ones(tmp_path: Path) -> None:
    result = Loom(tmp_path)("-m", "claude-sonnet", "hello")
    assert result.code != 0
    assert "Did you mean anthropic/claude-sonnet-5?" in result.err
