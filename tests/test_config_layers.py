"""Layers, origins, where files are looked for, and the environment."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from config_world import load, shown
from loom.compile.policy import Policy
from loom.config import Config, ValueOrigin, load_config
from loom.config.approval import ApprovalPolicy
from loom.errors import ConfigError
from loom.formats.facts import IntakeLimits
from source_trees import FILES, ONE_PROCESS, nodes_of


def test_each_layer_wins_over_the_one_below_and_every_value_knows_where_it_came_from(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        user='model = "u"\n[images]\nmax_side = 1000\nmax_pixels = 11\nlow_res_size = 100\n[context]\nfull_turns = 3\n',
        project='model = "p"\n\n[images]\nmax_side = 1001\nmax_pixels = 10\n',
        environ={"LOOM_IMAGES__MAX_SIDE": "1002", "LOOM_MODEL": "e"},
        flags={"model": "f"},
    )
    rows = shown(config)
    home = str(tmp_path / "home" / "loom.toml")
    assert rows["model"] == ('"f"', "flags")
    assert rows["images.max_side"] == ("1002", "environment LOOM_IMAGES__MAX_SIDE")
    assert rows["images.max_pixels"] == ("10", "project loom.toml:5")
    assert rows["images.low_res_size"] == ("100", f"user {home}:5")
    assert rows["context.full_turns"] == ("3", f"user {home}:7")
    assert rows["context.low_turns"] == ("2", "default")
    assert config.origin("images", "max_pixels") == ValueOrigin(layer="project", file="loom.toml", line=5)
    assert config.origin("images", "max_side").variable == "LOOM_IMAGES__MAX_SIDE"


def test_without_any_file_the_promised_defaults_hold(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "nowhere")})
    assert config.media_limits() == IntakeLimits()
    assert config.cleanup_after_days == 7
    assert (config.images.max_per_message, config.images.max_per_session, config.images.low_res_size) == (10, 100, 512)
    assert (config.documents.pages_per_read, config.documents.dpi) == (20, 150)
    assert (config.context.aging, config.context.full_turns, config.context.low_turns) == ("stepped", 1, 2)
    assert (config.context.keep_turns, config.context.tool_output_bytes) == (2, 30_000)
    assert (config.server.host, config.server.port) == ("127.0.0.1", 5666)
    assert ApprovalPolicy(config.approval, config.project_approval)("run_command", "ls") is None, "the tool decides"
    assert config.approval.default == "ask"
    assert config.warnings == ()
    assert {row.origin.layer for row in config.show() if row.origin} == {"default", "environment"}


def test_every_limit_of_the_door_can_be_configured(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        user="""
            [images]
            max_size_bytes = 1
            max_pixels = 2
            max_frames = 3
            [documents]
            max_pdf_bytes = 4
            max_office_bytes = 5
            max_text_bytes = 6
            max_expanded_bytes = 7
            [audio]
            max_size_bytes = 8
            [video]
            max_size_bytes = 13
            [worker]
            deadline_seconds = 9
            memory_bytes = 10
            conversion_seconds = 11
            ocr_seconds = 12
        """,
    )
    limits = config.media_limits()
    assert [
        name for name in IntakeLimits.__struct_fields__ if getattr(limits, name) == getattr(IntakeLimits(), name)
    ] == []
    assert limits == IntakeLimits(
        max_image_bytes=1,
        max_pixels=2,
        max_frames=3,
        max_pdf_bytes=4,
        max_office_bytes=5,
        max_text_bytes=6,
        max_expanded_bytes=7,
        max_audio_bytes=8,
        max_video_bytes=13,
        deadline_seconds=9.0,
        worker_memory_bytes=10,
        conversion_seconds=11.0,
        ocr_seconds=12.0,
    )


def test_every_wish_about_the_context_can_be_configured(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        user="""
            [context]
            aging = "off"
            full_turns = 3
            low_turns = 4
            keep_turns = 5
            max_tokens = 6
            max_bytes = 7
            max_images = 8
            max_pages = 9
            [images]
            low_res_size = 100
            max_side = 101
            max_per_message = 11
            max_per_session = 12
            [documents]
            pages_per_read = 13
            [video]
            frames = 14
            frame_side = 150
        """,
    )
    policy = config.context_policy()
    assert [name for name in Policy.__struct_fields__ if getattr(policy, name) == getattr(Policy(), name)] == []
    assert (policy.aging, policy.max_side_px, policy.page_images, policy.max_pages) == ("off", 101, 13, 9)
    assert Config().context_policy() == Policy()


def test_a_model_is_put_together_from_several_layers(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        user='[models.fast]\nprovider = "ollama"\nmodel = "llava"\nbase_url = "http://127.0.0.1:11434"\n',
        project="[models.fast.capabilities]\nvision = true\n",
        environ={"LOOM_MODELS__FAST__MAX_TOKENS": "99", "LOOM_MODELS__FAST__CAPABILITIES__TOOLS": "no"},
    )
    fast = config.models["fast"]
    assert (fast.provider, fast.model, fast.max_tokens) == ("ollama", "llava", 99)
    assert (fast.capabilities.vision, fast.capabilities.tools, fast.capabilities.native_pdf) == (True, False, None)
    assert config.secret("models", "fast", "base_url") == "http://127.0.0.1:11434"
    assert [row.key for row in config.show() if row.key.startswith("models.")] == [
        "models.fast.provider",
        "models.fast.model",
        "models.fast.base_url",
        "models.fast.max_tokens",
        "models.fast.capabilities.vision",
        "models.fast.capabilities.tools",
    ]


def test_agents_may_be_a_list_or_a_table_and_layers_meet_by_id(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        user='[[agents]]\nid = "a"\nvision = true\n[agents.brain]\nmodel = "m"\n\n[[agents]]\nid = "b"\ntools = []\n',
        project='[agents.b]\nvision = false\n[agents.c]\nsystem = "hello"\n',
    )
    assert list(config.agents) == ["a", "b", "c"]
    assert config.agents["a"].brain.model == "m"
    assert (config.agents["a"].vision, config.agents["b"].vision, config.agents["c"].vision) == (True, False, "auto")
    assert (config.agents["b"].id, config.agents["b"].tools, config.agents["c"].tools) == ("b", (), None)
    assert config.system_prompt("c") == "hello"
    assert config.origin("agents", "a", "brain", "model").line == 5
    assert config.origin("agents", "b", "tools").line == 9


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("LOOM_MODEL", "openai/gpt-5.5", "model", '"openai/gpt-5.5"'),
        ("LOOM_SERVER__PORT", "9000", "server.port", "9000"),
        ("LOOM_IMAGES__MAX_PIXELS", "64_000_000", "images.max_pixels", "64000000"),
        ("LOOM_WORKER__DEADLINE_SECONDS", "2.5", "worker.deadline_seconds", "2.5"),
        ("LOOM_CONTEXT__AGING", "every-turn", "context.aging", '"every-turn"'),
        ("LOOM_CONTEXT__MAX_IMAGES", "0", "context.max_images", "0"),
        ("LOOM_SERVER__ALLOWED_HOSTS", "a.example, b.example,", "server.allowed_hosts", '["a.example", "b.example"]'),
        ("LOOM_SERVER__ALLOWED_HOSTS", '["a,b", "c"]', "server.allowed_hosts", '["a,b", "c"]'),
        ("LOOM_MODELS__FAST__MODEL", "gpt-5.5", "models.fast.model", '"gpt-5.5"'),
        ("LOOM_MODELS__FAST__TEMPERATURE", "1", "models.fast.temperature", "1.0"),
        ("LOOM_MODELS__FAST__CAPABILITIES__VISION", "ON", "models.fast.capabilities.vision", "true"),
        ("LOOM_MODELS", '{"x.y": {"max_tokens": 5}}', 'models."x.y".max_tokens', "5"),
        ("LOOM_AGENTS__REVIEWER__VISION", "auto", "agents.reviewer.vision", '"auto"'),
        ("LOOM_AGENTS__REVIEWER__VISION", "0", "agents.reviewer.vision", "false"),
        ("LOOM_AGENTS__REVIEWER__BRAIN__MODEL", "m", "agents.reviewer.brain.model", '"m"'),
        ("LOOM_MCP__SERVERS__X__COMMAND", "npx", "mcp.servers.x.command", '"npx"'),
        ("LOOM_KEYS__ANTHROPIC", "{env:X}", "keys.anthropic", '"{env:X}"'),
        (
            "LOOM_APPROVAL__RULES",
            '[{"tool": "look", "action": "allow"}]',
            "approval.rules",
            '[{tool = "look", pattern = "*", action = "allow"}]',
        ),
    ],
)
def test_a_variable_is_read_by_the_type_of_its_key(
    tmp_path: Path, variable: str, text: str, key: str, value: str
) -> None:
    config = load(tmp_path, environ={variable: text}, strict=True)
    assert shown(config)[key] == (value, f"environment {variable}")


def test_a_variable_finds_the_name_that_a_file_has_given(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        user='[models."GPT-5.5"]\nprovider = "openai"\n',
        environ={"LOOM_MODELS__GPT_5_5__PROVIDER": "best", "LOOM_MODELS__New__PROVIDER": "fast"},
    )
    assert {name: model.provider for name, model in config.models.items()} == {"GPT-5.5": "best", "new": "fast"}


def test_an_agent_that_only_variables_speak_of_has_its_id(tmp_path: Path) -> None:
    config = load(tmp_path, environ={"LOOM_AGENTS__A__VISION": "no", "LOOM_AGENTS__A__TOOLS": "look,read_file"})
    assert (config.agents["a"].id, config.agents["a"].vision) == ("a", False)
    assert config.agents["a"].tools == ("look", "read_file")
    assert load(tmp_path, environ={"LOOM_AGENTS": '[{"id": "b", "tools": []}]'}).agents["b"].tools == ()


def test_names_of_headers_and_of_variables_of_servers_keep_their_case(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        environ={
            "LOOM_MCP__SERVERS__X__URL": "https://example.org/mcp",
            "LOOM_MCP__SERVERS__X__ENV__My__Var": "1",
            "LOOM_MCP__SERVERS__X__HEADERS": '{"X-Api-Key": "k"}',
        },
    )
    assert config.secrets("mcp", "servers", "x", "env") == {"My__Var": "1"}
    assert config.secrets("mcp", "servers", "x", "headers") == {"X-Api-Key": "k"}


def test_empty_variables_and_those_of_the_faces_are_not_settings(tmp_path: Path) -> None:
    config = load(
        tmp_path, user='model = "u"\n', environ={"LOOM_MODEL": "", "LOOM_IMAGES": "off", "LOOM_PLAIN": "1"}, strict=True
    )
    assert config.model == "u"


@ONE_PROCESS
def test_every_variable_that_a_program_of_loom_reads_or_sets_is_no_unknown_setting(tmp_path: Path) -> None:
    texts = [node.value for file in FILES for node in nodes_of(file) if isinstance(node, ast.Constant)]
    names = {text for text in texts if isinstance(text, str) and re.fullmatch(r"LOOM_[A-Z]+", text)}
    assert {"LOOM_HOME", "LOOM_PLAIN", "LOOM_THEME", "LOOM_STARTED"} <= names
    unknown = load(tmp_path, environ=dict.fromkeys(names - {"LOOM_HOME"}, "1")).warnings
    assert unknown == ()


def test_flags_take_nested_tables_dotted_keys_and_text_and_skip_what_was_not_given(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        user='model = "u"\n',
        flags={
            "model": None,
            "server.port": "81",
            "server": {"host": "::1", "password": None},
            "server.allowed_hosts": ("a", "b"),
            "models": {"gpt-5.5": {"provider": "best"}},
        },
    )
    assert config.model == "u"
    assert (config.server.port, config.server.host, config.server.allowed_hosts) == (81, "::1", ("a", "b"))
    assert config.models["gpt-5.5"].provider == "best"
    with pytest.raises(ConfigError, match=r"^flags: server: is set both as a table and as a value$"):
        load(tmp_path, flags={"server": "x", "server.port": 1})


def test_the_nearest_project_file_counts_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    deep = tmp_path / "outside" / "repository" / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "outside" / "loom.toml").write_text('model = "outside"\n')
    (deep.parents[1] / ".git").mkdir()
    environ = {"LOOM_HOME": str(tmp_path / "home")}
    assert load_config(cwd=deep, environ=environ).model == ""
    (deep.parents[1] / ".loom").mkdir()
    (deep.parents[1] / ".loom" / "loom.toml").write_text('model = "root"\n')
    assert load_config(cwd=deep, environ=environ).model == "root"
    (deep.parent / "loom.yaml").write_text("model: nearer\n")
    assert load_config(cwd=deep, environ=environ).model == "nearer"


def test_outside_of_a_repository_the_search_ends_at_home_and_elsewhere_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "me"
    (home / "notes" / "today").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "loom.toml").write_text('model = "above home"\n')
    (tmp_path / "elsewhere" / "loom.toml").write_text('model = "elsewhere"\n')
    monkeypatch.setenv("HOME", str(home))
    environ = {"LOOM_HOME": str(tmp_path / "settings")}
    assert load_config(cwd=home / "notes" / "today", environ=environ).model == ""
    assert load_config(cwd=tmp_path / "elsewhere" / "deep", environ=environ).model == ""
    assert load_config(cwd=tmp_path / "elsewhere", environ=environ).model == "elsewhere"
    (home / "loom.toml").write_text('model = "home"\n')
    config = load_config(cwd=home / "notes" / "today", environ=environ)
    assert (config.model, str(config.origin("model"))) == ("home", "project ~/loom.toml:1")


def test_a_file_that_is_both_the_users_and_the_projects_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "loom.toml").write_text("[server]\nport = 7\n")
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})
    assert (config.server.port, config.origin("server", "port").layer, config.warnings) == (7, "user", ())


def test_the_users_file_and_the_data_are_where_the_system_keeps_such_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "d"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    (tmp_path / "c" / "loom").mkdir(parents=True)
    (tmp_path / "c" / "loom" / "loom.yaml").write_text("model: mine\n")
    config = load_config(cwd=tmp_path, environ={})
    assert config.model == "mine"
    assert (config.data_folder(), config.state_folder()) == (tmp_path / "d" / "loom", tmp_path / "s" / "loom")


def test_home_moves_data_and_state(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert (config.data_folder(), config.state_folder()) == (tmp_path / "home", tmp_path / "home" / "state")
    (tmp_path / "work" / "loom.toml").unlink()
    relative = load_config(cwd=tmp_path / "work", environ={"LOOM_HOME": "../home"}, flags={"home": "here"})
    assert relative.data_folder() == tmp_path / "work" / "here"
    assert Config(home="~").data_folder() == Path.home()


def test_keys_may_stand_in_a_file_of_their_own_that_others_cannot_read(tmp_path: Path) -> None:
    files = {"loom.toml": 'model = "m"\n', "keys.toml": '[keys]\nanthropic = "sk-ant-0123456789"\n'}
    config = load(tmp_path, user=files)
    keys = tmp_path / "home" / "keys.toml"
    assert config.warnings == (f"{keys}: other users of this machine can read your keys. Run: chmod 600 {keys}",)
    keys.chmod(0o600)
    config = load_config(cwd=tmp_path / "work", environ={"LOOM_HOME": str(tmp_path / "home")})
    assert config.warnings == ()
    assert config.secret("keys", "anthropic") == "sk-ant-0123456789"
    assert config.origin("keys", "anthropic").line == 2


@pytest.mark.parametrize(
    "files",
    [
        {"loom.toml": ""},
        {"loom.toml": "\ufeff# nothing but a comment\r\n"},
        {"loom.yaml": ""},
        {"loom.yaml": "# nothing\n"},
        {"loom.yaml": "---\n"},
        {"loom.yaml": "null\n"},
        {"loom.yaml": "server:\nmodels:\nmodel: ~\n"},
        {"loom.toml": "[server]\n[models]\n[agents]\n[mcp.servers]\n"},
    ],
)
def test_files_that_say_nothing_change_nothing(tmp_path: Path, files: dict[str, str]) -> None:
    assert load(tmp_path, user=files, project=files, strict=True) == load_config(
        cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")}
    )


def test_importing_and_loading_toml_brings_in_neither_yaml_nor_platformdirs_nor_pillow(tmp_path: Path) -> None:
    (tmp_path / "loom.toml").write_text('model = "m"\n')
    code = (
        "import sys, pathlib; before = set(sys.modules); import loom.config\n"
        f"assert loom.config.load_config(cwd=pathlib.Path({str(tmp_path)!r})).model == 'm'\n"
        "print(sorted({'yaml', 'platformdirs', 'PIL', 'asyncio', 'sqlite3'} & (set(sys.modules) - before)))"
    )
    environ = {**os.environ, "LOOM_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert done.stdout.strip() == "[]"
